#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The newcomer's tour, run as a newcomer runs it.

source "$BATS_TEST_DIRNAME/common.bash"

setup() {
    state=${TMPDIR:-/tmp}/muster-quickstart-$(id -u)
}

teardown() {
    "$top/tests/slurm/cluster" down --dir "$state"
}

teardown_file() { :; } # no $MUSTER_DIR here

# Processes of this cluster: its daemons have its folder in their command line or open files.
nothing_left() {
    [ ! -e "$state" ] || return 1
    ! grep -lz "^MUSTER_CLUSTER=$state$" /proc/[0-9]*/environ 2>/dev/null | grep -q .
}

@test "quickstart --packages gives each package's purpose, a command, and what it prints" {
    run "$top/jobscripts/quickstart" --packages
    [ "$status" -eq 0 ]
    local package
    for package in $("$top/jobscripts/packages" names); do
        [[ $output =~ $package\ +[A-Za-z0-9] ]]
    done
    [ "$(grep -c '^ *try: ' <<< "$output")" -eq "$("$top/jobscripts/packages" names | wc -l)" ]
    [ "$(grep -c '^ *prints: ' <<< "$output")" -eq "$("$top/jobscripts/packages" names | wc -l)" ]
}

@test "quickstart in a source folder that was configured: one sentence, and nothing is installed or built" {
    local copy=$BATS_TEST_TMPDIR/muster
    mkdir -p "$copy/jobscripts"
    cp "$top/jobscripts/quickstart" "$copy/jobscripts/"
    touch "$copy/config.status"
    run "$copy/jobscripts/quickstart"
    [ "$status" -eq 1 ]
    [ "$output" = "quickstart: $copy holds a build of its own (./configure was run there): \
run \`make distclean\` there first, then this again" ]
    [ ! -e "$copy/build-quickstart" ]
}

@test "quickstart in a folder with a blank, or where the user may not write: one sentence" {
    local copy="$BATS_TEST_TMPDIR/mu ster"
    mkdir -p "$copy/jobscripts"
    cp "$top/jobscripts/quickstart" "$copy/jobscripts/"
    run "$copy/jobscripts/quickstart"
    [ "$status" -eq 1 ]
    [ "$output" = "quickstart: the path of $copy has a blank, which configure refuses: move the folder to a path without one" ]
    [ ! -e "$copy/build-quickstart" ]
    copy=$(mktemp -d /tmp/mquick.XXXXXX) # another user must reach it
    mkdir "$copy/jobscripts"
    cp "$top/jobscripts/quickstart" "$copy/jobscripts/"
    chmod -R a+rX "$copy"
    run setpriv --reuid 65534 --regid 65534 --clear-groups "$copy/jobscripts/quickstart"
    rm -r "$copy"
    [ "$status" -eq 1 ]
    [ "$output" = "quickstart: you may not write in $copy: run this in a copy of the folder that is yours" ]
}

@test "quickstart trains on one and on four ranks, shows placement and speedup, leaves nothing" {
    EPOCHS=3 run "$top/jobscripts/quickstart" --no-install
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^muster: [^ :]*: task  *gpu' <<< "$output")" -eq 2 ]
    [ "$(grep -c '^DDP Configuration' <<< "$output")" -eq 2 ]
    [[ $output = *"CPU ranks, fake GPUs"* ]]
    [[ $output = *"Effective batch size: 32 x 4 = 128"* ]]
    [[ $output = *"SPEEDUP ANALYSIS"* ]]
    [ "$(sed -n 's/^Test accuracy: *0\.//p' <<< "$output" | awk '{ exit !($1 >= 8600) }' && echo good)" = good ]
    [[ $output = *"What Muster plans for eight GPUs"* ]]
    [ "$(sed -n '/What Muster plans/,$p' <<< "$output" | grep -cE '^ *[0-7] +0000:')" -eq 8 ]
    nothing_left
}

@test "quickstart --keep leaves a cluster that can be used, --down stops it" {
    EPOCHS=1 run "$top/jobscripts/quickstart" --no-install --keep
    [ "$status" -eq 0 ]
    [[ $output = *"quickstart --down"* ]]
    eval "$("$top/tests/slurm/cluster" env --dir "$state")"
    run timeout 60 srun -n 2 --gres=gpu:2 hostname
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -ge 2 ]
    run "$top/jobscripts/quickstart" --down
    [ "$status" -eq 0 ]
    nothing_left
}

@test "Ctrl-C in the middle of a training stops everything" {
    local log=$BATS_TEST_TMPDIR/log pid code=0
    # Background jobs of a script ignore SIGINT, so it is set back; script(1) is not everywhere.
    EPOCHS=500 perl -e '$SIG{INT} = "DEFAULT"; setpgrp(0, 0); exec @ARGV' \
        "$top/jobscripts/quickstart" --no-install > "$log" 2>&1 3>&- &
    pid=$!
    wait_for 190 grep -q '^DDP Configuration' "$log"
    kill -INT -- "-$pid"
    wait "$pid" || code=$?
    [ "$code" -eq 130 ]
    grep -q 'no process of it is left' "$log"
    nothing_left
}
