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
    "$command" export --dtype F32 --dtype 'sampler=U64' --dtype 'count*=U8' --output a one/muster-train-latest.muster
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
    python3 - <<'PY'
import struct
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
parts = [(b"odd", bytes(range(17))), (b"even", bytes(8))]
data = b"".join(p[1] for p in parts)
table = b"".join(struct.pack("<128sQQQ", name, len(d), 0, len(d)) for name, d in parts)
sums = struct.pack("<I", crc32c(data))
size = 192 + len(table) + len(data) + len(sums) + 16
head = struct.pack("<8sIIQIIIIQQ128sI", b"MUSTERCK", 1, 1 << 20, 7, 0, 1, 3, len(parts), len(data), size, b"by hand",
                   crc32c(table))
open("hand-000000000007.muster", "wb").write(head + struct.pack("<I", crc32c(head)) + table + data + sums +
                                            struct.pack("<II8s", crc32c(sums), 0, b"CKMUSTER"))
PY
    run "$command" verify hand-000000000007.muster
    [ "$status" -eq 0 ]
    [[ $output = *": step 7, whole, kind 'by hand', 3 ranks, 1 file, 2 items, 25 bytes" ]]
    run "$command" export --dtype F32 --output out hand-000000000007.muster
    [ "$status" -eq 3 ]
    [ "$output" = "muster checkpoint: 'odd' has 17 bytes, which is no whole number of F32: \
give --dtype 'odd=TYPE' with another type" ]
    [ ! -e out ]
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
