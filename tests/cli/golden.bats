#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The tables that people read, to the letter. A file of tests/data/golden holds a command and what it prints on
# standard output and standard error; GOLDEN=write writes those of this build there, to be read before they are kept.
# data and muster are set by common.bash.
# shellcheck disable=SC2154

load common

# Prints what the command in the first line of a file prints now.
repeat() {
    local words
    read -r -a words < <(sed -n '1s/^\$ muster //p' "$1")
    [ ${#words[@]} -gt 0 ]
    head -n 1 "$1"
    (cd "$data" && "$muster" "${words[@]}" 2>&1) || echo "exit status $?"
}

@test "the tables of plan and topo are those of the golden files" {
    local file now=$BATS_TEST_TMPDIR/now differ=0 n=0
    for file in "$data"/golden/*.txt; do
        repeat "$file" > "$now"
        n=$((n + 1))
        if [ "${GOLDEN:-}" = write ]; then
            cp "$now" "$file"
        else
            diff -u "$file" "$now" || differ=$((differ + 1))
        fi
    done
    [ $n -ge 10 ]
    [ $differ -eq 0 ]
}
