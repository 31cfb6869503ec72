#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The page of muster report: written, refused, without gnuplot, and shown by a browser.

bats_require_minimum_version 1.5.0
top=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
build=${MUSTER_BUILDDIR:-$top/build-test}

setup_file() {
    make -s -C "$build" tests/unit/write_ledgers
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    mkdir ledgers
    "$build/tests/unit/write_ledgers" ledgers 4 120 2
}

needs() { # command
    command -v "$1" > /dev/null || skip "no $1"
}

@test "a folder of ledgers is shown without the word profile" {
    "$build/muster-report" profile ledgers > with
    "$build/muster-report" ledgers > without
    cmp with without
    "$build/muster-report" ledgers/rank0.ledger | grep -q '3 without a file, the first is rank 1'
    grep -q '^straggler: rank 2 (n1) was last in 79 of steps 40 to 118' with
}

# Of which job, and since when, a ledger is: struct mu_ledger_head.
begin_at() { # file job nanoseconds (one digit)
    printf '%s\0' "$2" | dd of="$1" bs=1 seek=128 conv=notrunc status=none
    printf '%b\0\0\0\0\0\0\0' "\\$3" | dd of="$1" bs=1 seek=40 conv=notrunc status=none
}

@test "of the jobs whose ledgers are in a folder the last is shown, or the one that --job names" {
    mkdir other
    "$build/tests/unit/write_ledgers" other 2 60 0
    for f in ledgers/*; do begin_at "$f" 9.0 1; mv "$f" "ledgers/9.0-${f#*/}"; done
    for f in other/*; do begin_at "$f" 10.1 2; mv "$f" "ledgers/10.1-${f#*/}"; done
    run --separate-stderr "$build/muster-report" ledgers
    [ "$status" -eq 0 ]
    [[ ${lines[0]} = "2 processes, "* ]]
    [ "$stderr" = "muster report: ledgers of 2 jobs are here, and job 10.1 began last: only it is shown; --job 9.0 shows another" ]
    for job in 9 9.0; do
        run --separate-stderr "$build/muster-report" --job $job ledgers
        [ "$status" -eq 0 ]
        [[ ${lines[0]} = "4 processes, "* ]]
        [ -z "$stderr" ]
    done
    # Files that are named are all read.
    [[ $("$build/muster-report" profile ledgers/*) = "6 processes, "* ]]
    run "$build/muster-report" --job 1 ledgers
    [ "$status" -eq 3 ]
    [ "$output" = "muster report: ledgers: no ledger in this folder is of job 1" ]
    run "$build/muster-report" --job 1 result.json
    [ "$status" -eq 2 ]
}

@test "files of two NCCL releases: the text and the page report it" {
    printf '\4' | dd of=ledgers/rank1.ledger bs=1 seek=36 conv=notrunc status=none # interface
    note="the files are of different NCCL releases (profiler interfaces 4 to 5)"
    "$build/muster-report" ledgers | grep -qF "$note"
    "$build/muster-report" --format html ledgers | grep -qF "$note"
}

@test "the page has findings, tables and five plots, and loads nothing" {
    needs gnuplot
    "$build/muster-report" --format html ledgers > page.html
    [ "$(grep -c '<svg' page.html)" -eq 5 ]
    grep -q '<td>straggler</td><td>rank 2 (n1) was last' page.html
    grep -q 'Timeline of step ' page.html
    grep -q 'the first rank waits for the last' page.html
    run grep -E '(src|href)="?(http|//)|<script' page.html
    [ "$status" -eq 1 ]
    [ "$(wc -c < page.html)" -lt 300000 ]
}

@test "the timeline of a chosen step, and of one that is not there" {
    needs gnuplot
    "$build/muster-report" --format html --step 7 ledgers | grep -q 'Timeline of step 7<'
    run "$build/muster-report" --format html --step 119 ledgers
    [ "$status" -eq 3 ]
    [ "$output" = "muster report: --step 119: the ledgers have steps 0 to 118" ]
    run "$build/muster-report" --step 7 ledgers
    [ "$status" -eq 2 ]
    [[ $output = *"--step is for the page of ledgers"* ]]
    run "$build/muster-report" --format html --step x ledgers
    [ "$status" -eq 2 ]
}

@test "without gnuplot the page has the tables, and one line reports it" {
    PATH=$PWD/ledgers "$build/muster-report" --format html ledgers > page.html 2> said
    [ "$(cat said)" = "muster report: gnuplot does not run: No such file or directory; install gnuplot for the plots" ]
    grep -q '<td>straggler</td>' page.html
    [ "$(grep -c '<svg' page.html)" -eq 0 ]
}

@test "a truncated ledger, a foreign file and a missing rank are one sentence each, and the page is made" {
    needs gnuplot
    truncate -s 100000 ledgers/rank3.ledger
    cp "$top/LICENSE" ledgers/license.ledger
    mkfifo ledgers/pipe.ledger ledgers/pipe.samples
    run timeout 60 "$build/muster-report" --format html ledgers
    [ "$status" -eq 3 ]
    [[ $output = *"license.ledger: this is no ledger file of Muster"* ]]
    [[ $output = *"pipe.ledger: this is no regular file"* ]]
    [[ $output = *"pipe.samples: this is no regular file"* ]]
    [[ $output = *"rank3.ledger: the file is truncated: 100000 of "* ]]
    [[ $output = *"1 of 4 ranks have no file; the first is rank 3."* ]]
    [[ $output = *"<td>straggler</td>"* ]]
}

@test "a browser without network draws the page" {
    needs gnuplot
    needs chromium
    "$build/muster-report" --format html ledgers > page.html
    timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/browser" \
        --host-resolver-rules='MAP * ~NOTFOUND' --dump-dom "file://$PWD/page.html" > dom 2> said
    [ "$(grep -c '<svg' dom)" -eq 5 ]
    grep -q 'rank 2 (n1)</tspan>' dom || grep -q '>rank 2 (n1)<' dom
    timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/browser" \
        --window-size=900,2600 --screenshot=page.png "file://$PWD/page.html" 2> said
    [ "$(wc -c < page.png)" -gt 50000 ] # an empty page has 12 kB
}
