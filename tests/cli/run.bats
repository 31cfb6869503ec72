#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# tests/run counts what it ran: a skip is no pass, a test that never came is a failure.

setup() {
    top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
    copy=$BATS_TEST_TMPDIR/copy
    mkdir -p "$copy/tests/lint" "$copy/tests/slurm" "$copy/build"
    cp "$top/tests/run" "$copy/tests/"
    cp "$top/tests/slurm/cluster" "$copy/tests/slurm/"
}

lint() { # lines of a check that prints TAP, other parts
    printf '#!/bin/sh\n%s\n' "$1" > "$copy/tests/lint/x"
    chmod +x "$copy/tests/lint/x"
    run "$copy/tests/run" --build "$copy/build" --no-install "${@:2}" lint
}

last() { [ "${lines[-1]}" = "$1" ]; }

@test "passed, failed and skipped are counted apart" {
    lint 'printf "ok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no GPU\nok 4 # skip\n1..4\n"; exit 1'
    [ "$status" -eq 1 ]
    last "1 passed, 1 failed, 2 skipped"
}

@test "a plan that is not met is a failure for each missing test" {
    lint 'printf "1..4\nok 1 - a\n"'
    [ "$status" -eq 1 ]
    last "1 passed, 3 failed, 0 skipped"
}

@test "a check that prints nothing, or ends badly, has failed" {
    lint 'exit 0'
    last "0 passed, 1 failed, 0 skipped"
    lint 'printf "ok 1 - a\n1..1\n"; exit 3'
    last "1 passed, 1 failed, 0 skipped"
}

@test "a whole file may be skipped" {
    lint 'echo "1..0 # SKIP no shellcheck"'
    [ "$status" -eq 0 ]
    last "0 passed, 0 failed, 1 skipped"
}

@test "all passed: status 0" {
    lint 'printf "ok 1 - a\nok 2 - b\n1..2\n"'
    [ "$status" -eq 0 ]
    last "2 passed, 0 failed, 0 skipped"
}

# A file of the part that waits until the one of the other part runs too.
meets() { # part, other part
    printf 'touch "%s/$1.runs"; for _ in {1..200}; do [ ! -e "%s/$2.runs" ] || exit 0; sleep 0.1; done; exit 1\n' \
        "$copy" "$copy" > "$copy/meets"
    echo "bash $copy/meets $1 $2"
}

@test "files of two parts run side by side, and each counts for its own" {
    mkdir -p "$copy/tests/cli"
    printf '#!/bin/sh\n%s && echo "ok 1" && echo 1..1\n' "$(meets lint cli)" > "$copy/tests/lint/x"
    chmod +x "$copy/tests/lint/x"
    printf '@test "a" { %s; }\n@test "b" { true; }\n' "$(meets cli lint)" > "$copy/tests/cli/y.bats"
    run "$copy/tests/run" --build "$copy/build" --no-install --places 2 cli lint
    echo "$output"
    [ "$status" -eq 0 ]
    grep -qE '^cli +[0-9]+ s +2 +0 +0$' <<< "$output"
    grep -qE '^lint +[0-9]+ s +1 +0 +0$' <<< "$output"
    last "3 passed, 0 failed, 0 skipped"
}

@test "what changes the system begins when all others have ended" {
    mkdir -p "$copy/tests/site"
    printf '@test "alone" { [ -e "%s/ended" ]; }\n' "$copy" > "$copy/tests/site/package.bats"
    lint 'sleep 3; touch "${0%/*}/../../ended"; echo ok 1; echo 1..1' site
    echo "$output"
    last "2 passed, 0 failed, 0 skipped"
}

@test "--only may be repeated; --second leaves out the checks of mere text" {
    local name
    for name in x y names; do
        printf '#!/bin/sh\necho ok 1; echo 1..1\n' > "$copy/tests/lint/$name"
        chmod +x "$copy/tests/lint/$name"
    done
    run "$copy/tests/run" --build "$copy/build" --no-install --only x --only y lint
    last "2 passed, 0 failed, 0 skipped"
    run "$copy/tests/run" --build "$copy/build" --no-install lint
    last "3 passed, 0 failed, 0 skipped"
    run "$copy/tests/run" --build "$copy/build" --no-install --second lint
    last "2 passed, 0 failed, 0 skipped"
    [[ "$output" != *lint/names* ]]
}
