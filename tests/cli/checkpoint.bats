#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster checkpoint: what is in a checkpoint, whether it is whole, and its way to other programs.

setup_file() {
    local build=${MUSTER_BUILDDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)/build-test}
    cd "$BATS_FILE_TMPDIR" || return 1
    "$build/muster-train" --single --steps 2 --samples 200 --test-samples 50 --checkpoint one
    "$build/muster-train" --single --steps 2 --samples 200 --test-samples 50 --checkpoint parts --zero --sharded
    "$build/muster-train" --single --steps 2 --samples 200 --test-samples 50 --checkpoint other --zero --sharded --seed 2
}

setup() {
    top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
    command=${MUSTER_BUILDDIR:-$top/build-test}/muster-checkpoint
    cp -r "$BATS_FILE_TMPDIR"/{one,parts,other} "$BATS_TEST_TMPDIR/"
    cd "$BATS_TEST_TMPDIR" || return 1
}

# FILE KIND PARTS [STEP]: a file by muster-checkpoint(5) alone; KIND and the (name, data) of PARTS in Python.
write_checkpoint() {
    python3 - "$1" <<PY
import struct, sys
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
parts = [$3]
data = b"".join(p[1] for p in parts)
table = b"".join(struct.pack("<128sQQQ", name, len(d), 0, len(d)) for name, d in parts)
sums = struct.pack("<I", crc32c(data)) if data else b""
size = 192 + len(table) + len(data) + len(sums) + 16
head = struct.pack("<8sIIQIIIIQQ128sI", b"MUSTERCK", 1, 1 << 20, ${4:-7}, 0, 1, 3, len(parts), len(data), size, $2,
                   crc32c(table))
open(sys.argv[1], "wb").write(head + struct.pack("<I", crc32c(head)) + table + data + sums +
                              struct.pack("<II8s", crc32c(sums), 0, b"CKMUSTER"))
PY
}

@test "every option of muster checkpoint has a line in its manual" {
    run "$command" --help
    [ "$status" -eq 0 ]
    diff <(grep -o -- '--[a-z]*' <<< "$output" | sort -u) \
        <(grep -E '^\.It Fl ' "$top/runtime/tools/muster-checkpoint.1" | grep -oE 'Fl \\-[a-z]*' | sed 's/Fl \\-/--/' | sort -u)
}

@test "ls prints the same items of one file and of shards, as text and JSON" {
    local folder
    for folder in one parts; do
        run "$command" ls $folder/muster-train-latest.muster
        [ "$status" -eq 0 ]
        [[ $output = *"/$folder/muster-train-000000000002.muster: step 2, kind 'muster-train mlp "*" fp32', 1 rank, 1 file, 14 items, 2154624 bytes"* ]]
        [ "$(grep -c '^fc1.weight  *802816$' <<< "$output")" -eq 1 ]
        "$command" ls --format json $folder/muster-train-000000000002.muster > $folder.json
        [ "$(jq '.step, (.items | length), (.items[] | select(.name == "fc3.bias") | .bytes)' $folder.json | xargs)" = "2 14 40" ]
    done
    diff <(jq .items one.json) <(jq .items parts.json)
}

@test "verify: whole, a damaged byte, a missing shard, a shard of another save" {
    local shard=parts/muster-train-000000000002.0000-of-0001.shard
    run "$command" verify parts/muster-train-latest.muster
    [ "$status" -eq 0 ]
    [[ $output = *"step 2, whole, "* ]]
    # the middle of the data
    printf 'X' | dd of=$shard bs=1 seek=1500000 conv=notrunc status=none
    run "$command" verify parts/muster-train-latest.muster
    [ "$status" -eq 3 ]
    [[ $output = "muster checkpoint: "*".shard is damaged: "* ]]
    rm $shard
    run "$command" verify parts/muster-train-latest.muster
    [ "$status" -eq 3 ]
    [[ $output = *".shard cannot be opened: No such file or directory" ]]
    cp "${shard/parts/other}" parts/
    run "$command" verify parts/muster-train-latest.muster
    [ "$status" -eq 3 ]
    [[ $output = *"belongs to another save of step 2" ]]
}

@test "export writes safetensors: header, types, and the bytes of each item" {
    # A link where the file is written first, by another user of the folder.
    echo precious > precious
    ln -s precious a.tmp
    "$command" export --dtype F32 --dtype 'sampler=U64' --dtype 'count*=U8' --output a one/muster-train-latest.muster
    [ "$(cat precious)" = precious ]
    "$command" export --dtype F32 --dtype 'sampler=U64' --dtype 'count*=U8' --output b parts/muster-train-latest.muster
    python3 - a b <<'PY'
import json, struct, sys
def read(name):
    raw = open(name, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    assert n % 8 == 0
    return json.loads(raw[8:8 + n]), raw[8 + n:]
(head, data), (other, same) = read(sys.argv[1]), read(sys.argv[2])
meta = head.pop("__metadata__")
assert meta["step"] == "2" and meta["kind"].startswith("muster-train mlp")
assert other.pop("__metadata__") == meta and head == other and data == same
end = 0
for name, t in head.items():
    size = {"F32": 4, "U64": 8, "U8": 1}[t["dtype"]]
    first, last = t["data_offsets"]
    assert first == end and t["shape"] == [(last - first) // size], name
    end = last
assert end == len(data) and head["sampler"]["dtype"] == "U64" and head["counters"]["dtype"] == "U8"
at = head["sampler"]["data_offsets"][0]
assert struct.unpack("<4Q", data[at:at + 32]) == (200, 1, 0, 64)
PY
}

@test "a file written from muster-checkpoint(5) alone is read; export names the item whose size does not fit" {
    write_checkpoint hand-000000000007.muster 'b"by hand"' '(b"odd", bytes(range(17))), (b"even", bytes(8))'
    run "$command" verify hand-000000000007.muster
    [ "$status" -eq 0 ]
    [[ $output = *": step 7, whole, kind 'by hand', 3 ranks, 1 file, 2 items, 25 bytes" ]]
    run "$command" export --dtype F32 --output out hand-000000000007.muster
    [ "$status" -eq 3 ]
    [ "$output" = "muster checkpoint: 'odd' has 17 bytes, which is no whole number of F32: \
give --dtype 'odd=TYPE' with another type" ]
    [ ! -e out ]
}

@test "export refuses a --dtype that no item takes" {
    local name
    write_checkpoint own-000000000007.muster 'b"by hand"' '(b"fc1.bias", bytes(8)), (b"muster.own", bytes(8))'
    for name in fc9.bias fc1 'fc9.*' FC1.bias muster.own ''; do
        run "$command" export --dtype F32 --dtype "$name=F64" --output out own-000000000007.muster
        [ "$status" -eq 3 ]
        [ "$output" = "muster checkpoint: --dtype '$name=F64' matches no item: muster checkpoint ls prints their names" ]
        [ ! -e out ]
    done
    # A name is checked although a later option decides; a type for all items needs none.
    "$command" export --dtype 'fc1.*=F64' --dtype F32 --output out own-000000000007.muster
    write_checkpoint empty-000000000007.muster 'b"by hand"' '(b"muster.own", bytes(8))'
    "$command" export --dtype F32 --output empty empty-000000000007.muster
}

@test "names and sizes that are rare: brackets, blanks, no bytes, one element, each type" {
    write_checkpoint rare-000000000007.muster 'b"by hand"' \
        '(b"layer[0].weight", bytes(8)), (b"none", b""), (b"scalar", bytes(2)), (b"a=b c", bytes(16)), (b"mask", bytes(3))'
    "$command" export --dtype 'layer[0].*=F32' --dtype none=BF16 --dtype scalar=BF16 --dtype a=b?c=U32 --dtype mask=BOOL \
        --output out rare-000000000007.muster
    [ "$(tail -c +9 out | head -n 1 | grep -ao '{.*}' | jq -r 'to_entries[1:][] | "\(.key) \(.value.dtype) \(.value.shape)"')" = \
        "layer[0].weight F32 [2]
none BF16 [0]
scalar BF16 [1]
a=b c U32 [4]
mask BOOL [3]" ]
    write_checkpoint empty-000000000007.muster 'b"by hand"' '(b"none", b"")'
    run "$command" verify empty-000000000007.muster
    [[ $output = *": step 7, whole, "*" 1 item, 0 bytes" ]]
}

@test "a name or kind of other bytes: printable in ls and JSON, refused by export where a name needs it" {
    write_checkpoint odd-000000000007.muster 'b"caf\xe9\x1b[m"' '(b"caf\xe9", bytes(4)), (b"a\nb", bytes(4))'
    [ "$("$command" ls odd-000000000007.muster | grep -c "kind 'caf??\[m'\|^caf? \|^a?b ")" -eq 3 ]
    [ "$("$command" ls --format json odd-000000000007.muster | jq -r '.kind, .items[].name' | xargs)" = "caf??[m caf? a?b" ]
    run "$command" export --output out odd-000000000007.muster
    [ "$status" -eq 3 ]
    [ "$output" = "muster checkpoint: 'caf?' is no UTF-8 text, which JSON needs" ]
    write_checkpoint kind-000000000007.muster 'b"caf\xe9"' '(b"a", bytes(4))'
    "$command" export --output out kind-000000000007.muster
    grep -aq '"kind":"caf?"' out
    write_checkpoint meta-000000000007.muster 'b"by hand"' '(b"__metadata__", bytes(4))'
    run "$command" export --output meta meta-000000000007.muster
    [ "$status" -eq 3 ]
    [[ $output = *"an item has the name '__metadata__', which safetensors reserves"* ]]
    [ ! -e meta ]
}

@test "the largest step is the same number as text and in JSON" {
    local file=far-18446744073709551615.muster
    write_checkpoint "$file" 'b"by hand"' '(b"a", bytes(4))' 18446744073709551615
    [[ $("$command" ls "$file") = *": step 18446744073709551615, "* ]]
    [ "$("$command" ls --format json "$file" | jq '.step > 18e18')" = true ]
}

@test "a file in a folder whose name is no UTF-8 is listed as JSON" {
    local folder=$'caf\xe9'
    mv one "$folder"
    run "$command" ls --format json "$folder/muster-train-latest.muster"
    [ "$status" -eq 0 ]
    [[ $(jq -r .file <<< "$output") = *"/caf?/muster-train-000000000002.muster" ]]
}

@test "export writes over no checkpoint, folder or device" {
    local name
    for name in one/muster-train-latest.muster one/muster-train-000000000002.muster a.shard; do
        run "$command" export --output $name one/muster-train-latest.muster
        [ "$status" -eq 2 ]
        [[ $output = "muster checkpoint: --output takes no name of a checkpoint's file: $name; see "* ]]
    done
    mkfifo pipe
    for name in parts pipe; do
        run "$command" export --output $name one/muster-train-latest.muster
        [ "$status" -eq 1 ]
        [ "$output" = "muster checkpoint: $name cannot be written: it is no plain file" ]
    done
    "$command" verify one/muster-train-latest.muster
}

@test "export leaves nothing behind a failure" {
    printf 'X' | dd of=parts/muster-train-000000000002.0000-of-0001.shard bs=1 seek=1500000 conv=notrunc status=none
    run "$command" export --output out parts/muster-train-latest.muster
    [ "$status" -eq 3 ]
    [ "$(echo out*)" = "out*" ]
    run "$command" export --output /no/such/folder/out one/muster-train-latest.muster
    [ "$status" -eq 1 ]
    [[ $output = "muster checkpoint: /no/such/folder/out cannot be written: No such file or directory" ]]
}

@test "what is no checkpoint, and wrong usage, are one sentence" {
    local words
    run "$command" ls "$top/LICENSE"
    [ "$status" -eq 3 ]
    [ "$output" = "muster checkpoint: $top/LICENSE is no checkpoint: give a file NAME-STEP.muster or NAME-latest.muster" ]
    run "$command" ls parts
    [ "$status" -eq 3 ]
    for words in "" "dump x" "ls" "ls a b" "export one" "ls --output x y" "export --dtype F9 --output x y" \
        "ls --format tsv x" "--nothing"; do
        # shellcheck disable=SC2086 # words
        run "$command" $words
        [ "$status" -eq 2 ]
        [ "$(wc -l <<< "$output")" -eq 1 ]
    done
}
