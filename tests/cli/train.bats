#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster-train and muster report by themselves: usage, and a manual that leaves nothing out.

setup() {
    top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
    build=${MUSTER_BUILDDIR:-$top/build-test}
    cd "$BATS_TEST_TMPDIR" || return 1
}

# Each option that the help names is in the manual, and the other way round.
same_options() { # help text, manual
    diff <(grep -o -- '--[a-z][a-z-]*' <<< "$1" | grep -v -- --mpi | sort -u) \
        <(grep -E '^\.It Fl ' "$2" | grep -oE 'Fl \\-[a-z][a-z-]*' | sed 's/Fl \\-/--/' | sort -u)
}

@test "every option of muster-train has a line in its manual, and every exit status" {
    run "$build/muster-train" --help
    [ "$status" -eq 0 ]
    same_options "$output" "$top/jobscripts/train/muster-train.1"
    local code
    for code in $(seq 10 22); do
        grep -qx "\.It $code" "$top/jobscripts/train/muster-train.1"
    done
}

@test "every option of muster report has a line in its manual" {
    run "$build/muster-report" --help
    [ "$status" -eq 0 ]
    same_options "$output" "$top/runtime/tools/muster-report.1"
}

@test "wrong options of muster-train are named, status 10" {
    local words
    for words in "--nothing" "--lr fast" "--batch 0" "--dtype fp8" "--epochs" "--resume must" "extra" "--bucket-cap 1X" \
        "--compress int9" "--compress powersgd:0"; do
        # shellcheck disable=SC2086
        run "$build/muster-train" $words
        [ "$status" -eq 10 ]
        [[ $output = "muster-train: "*"${words%% *}"* ]]
    done
}

@test "a run gives a report as text, JSON and a page; a file of something else is refused" {
    "$build/muster-train" --single --steps 30 --samples 2000 --test-samples 500 --result run.json
    run "$build/muster-report" run.json
    [ "$status" -eq 0 ]
    [[ $output = *"30 steps, 960 samples"*"rank  host"* ]]
    run "$build/muster-report" --format json run.json
    [ "$status" -eq 0 ]
    [[ $output = *'"samples_seen": 960'* ]]
    run "$build/muster-report" --format html run.json
    [ "$status" -eq 0 ]
    [ "$(grep -c '<svg' <<< "$output")" -eq 3 ]
    run "$build/muster-report" "$top/LICENSE"
    [ "$status" -eq 3 ]
    [[ $output = "muster report: $top/LICENSE line 1: "* ]]
    run "$build/muster-report" --format png run.json
    [ "$status" -eq 2 ]
    run "$build/muster-report" speedup
    [ "$status" -eq 2 ]
    sed 's/"version": 1/"version": 2/' run.json > later.json
    run "$build/muster-report" speedup later.json run.json missing.json
    [ "$status" -eq 3 ]
    [ "${lines[0]}" = "muster report: later.json is not a result of muster-train (its format is 'muster-train' version 2, not 'muster-train' version 1)" ]
    [ "${lines[1]}" = "muster report: missing.json: No such file or directory" ]
    [[ $output = *"Baseline (1 rank, 1 node): "* ]]
    run "$build/muster-report" speedup missing.json
    [ "$status" -eq 3 ]
    [ "${#lines[@]}" -eq 1 ]
    run "$build/muster-report" --format trace run.json
    [ "$status" -eq 2 ]
    run "$build/muster-report" run.json run.json
    [ "$status" -eq 2 ]
    [[ $output = *"several files need muster report speedup or profile"* ]]
}

@test "muster report profile: what is no ledger, and formats of another form" {
    mkdir empty
    run "$build/muster-report" profile "$top/LICENSE" empty missing
    [ "$status" -eq 3 ]
    [ "${lines[0]}" = "muster report: $top/LICENSE: this is no ledger file of Muster" ]
    [ "${lines[1]}" = "muster report: empty: no file in this folder ends in .ledger" ]
    [ "${lines[2]}" = "muster report: missing: the file cannot be read: No such file or directory" ]
    [ "${#lines[@]}" -eq 3 ]
    run "$build/muster-report" profile
    [ "$status" -eq 2 ]
}

@test "ZeRO-1 alone has the losses of plain, to the bit, and asks for --sharded checkpoints" {
    "$build/muster-train" --single --steps 20 --samples 500 --test-samples 100 --curve plain
    "$build/muster-train" --single --steps 20 --samples 500 --test-samples 100 --curve zero --zero
    cmp plain zero
    run "$build/muster-train" --single --zero --checkpoint parts
    [ "$status" -eq 10 ]
    [[ $output = *"add --sharded"* ]]
    run "$build/muster-train" --single --steps 5 --samples 500 --test-samples 100 --zero --compress powersgd
    [ "$status" -eq 0 ]
    [[ $output = *"Gradients:            powersgd; optimizer state sharded (ZeRO-1)"* ]]
}

@test "a result that cannot be written ends with status 16 and the file's name" {
    run "$build/muster-train" --single --steps 3 --samples 500 --test-samples 100 --result /no/such/folder/run.json
    [ "$status" -eq 16 ]
    [[ $output = *"/no/such/folder/run.json"* ]]
}
