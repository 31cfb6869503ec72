#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What `make coverage` prints of the lines that ran, and when it ends with an error.
# top is set by common.bash.
# shellcheck disable=SC2154

bats_require_minimum_version 1.5.0
load common

lines_of() { # file, last line
    seq -f "$1:%.0f" 1 "$2"
}

# The table where of 100 lines each so many ran.
table() { # of the planner, of a reader, of the plugin, of what needs a host
    cd "$BATS_TEST_TMPDIR" || return
    local file ran=("$@")
    : > all.txt
    : > ran.txt
    for file in spank/core/plan/plan.c spank/hw/smi/smi.c spank/plugin/stepd.c spank/hw/live/apply.c; do
        lines_of "$file" 100 >> all.txt
        lines_of "$file" "${ran[0]}" >> ran.txt
        ran=("${ran[@]:1}")
    done
    run "$top/tests/coverage" --table .
}

# grep -x of one line of $output, with any number of spaces
has() {
    tr -s ' ' <<< "$output" | grep -Fx -- "$1"
}

@test "pure code of 95 % and a plugin of 85 % suffice, whatever needs a host" {
    table 95 95 85 0
    [ "$status" -eq 0 ]
    has 'pure code 190 of 200 lines 95.0 % (95 asked)'
    has 'plugin 85 of 100 lines 85.0 % (85 asked)'
    has 'spank/hw 95 of 200 lines 47.5 %'
}

@test "one line too few of the pure code is an error, with the file" {
    table 95 94 100 100
    [ "$status" -eq 1 ]
    has 'pure code 189 of 200 lines 94.5 % (95 asked: short)'
    has ' spank/hw/smi/smi.c 94 of 100 lines 94.0 %'
    has 'plugin 100 of 100 lines 100.0 % (85 asked)'
    run ! grep -F spank/core/plan/plan.c <<< "$output"
}

@test "one line too few of the plugin is an error, and each line that did not run is listed" {
    table 100 100 84 99
    [ "$status" -eq 1 ]
    has 'plugin 84 of 100 lines 84.0 % (85 asked: short)'
    [ "$(tail -n 1 <<< "$output" | tr -s ' ')" = ' spank/plugin/stepd.c 84 of 100 lines 84.0 %' ]
    [ "$(sort lines.txt)" = "$(
        {
            echo spank/hw/live/apply.c:100
            lines_of spank/plugin/stepd.c 100 | tail -n 16
        } | sort
    )" ]
}

@test "a group without any line is an error" {
    cd "$BATS_TEST_TMPDIR"
    lines_of spank/core/plan/plan.c 9 | tee all.txt > ran.txt
    run "$top/tests/coverage" --table .
    [ "$status" -eq 1 ]
    has 'plugin: no line is known'
}
