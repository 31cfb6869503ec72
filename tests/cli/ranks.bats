#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster run: ranks on this node without Slurm, their placement, output, signals and ends.
# shellcheck disable=SC2016,SC2154 # ranks expand the variables; common.bash sets muster and top
load common

build=${MUSTER_BUILDDIR:-$top/build}

sorted() { sort <<< "$output"; }

gone() { # a part of command lines: no process has it, within some seconds
    local i
    for ((i = 0; i < 100; i++)); do
        pgrep -f "$1" > /dev/null || return 0
        sleep 0.1
    done
    pgrep -af "$1"
    return 1
}

@test "each rank gets the variables of a launcher, and a token that all share" {
    RANK=9 PMIX_RANK=3 PMIX_NAMESPACE=x MUSTER_TOKEN_FILE=/none m run -n 3 bash -c \
        'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR ${!PMIX*} $MUSTER_TOKEN_FILE'
    [ "$(sorted)" = "0 3 0 3 0 127.0.0.1
1 3 1 3 0 127.0.0.1
2 3 2 3 0 127.0.0.1" ]
    m run -n 3 bash -c 'echo $MASTER_PORT $MUSTER_TOKEN'
    [ "$(sort -u <<< "$output" | grep -cE '^2[0-9]{4}|3[0-9]{4} [0-9a-f]{64}$')" -eq 1 ]
    [ "$(sort -u <<< "$output" | wc -l)" -eq 1 ]
}

@test "ranks are bound to the CPUs that muster plan gives them" {
    local own
    own=$(grep Cpus_allowed_list /proc/self/status | cut -f2)
    m plan --gpus none --tasks 2 --cpus "$own" --format tsv
    planned=$(plan_columns 3)
    m run -n 2 --label bash -c 'grep Cpus_allowed_list /proc/self/status | cut -f2'
    [ "$(sort <<< "$output" | cut -d' ' -f2)" = "$planned" ]
    m run -n 2 bash -c 'echo "$MUSTER_PLAN"'
    [ "$(sort <<< "$output" | grep -oE 'cpus=[0-9,-]+' | cut -d= -f2)" = "$planned" ]
}

@test "libmuster reports CPUs that a program changed since, and no others" {
    local own first
    own=$(grep Cpus_allowed_list /proc/self/status | cut -f2)
    first=$(grep -oE '^[0-9]+' <<< "$own")
    [ "$first" != "$own" ] || skip "needs two CPUs"
    m run -n 1 taskset -c "$first" "$build/muster-train" --steps 2 --samples 100 --test-samples 10
    [[ $messages == *"rank 0 "*" runs on cpus $first, but Muster bound it to $own: a program that started it (numactl, taskset, a wrapper) or a cgroup changed that"* ]]
    m run -n 1 "$build/muster-train" --steps 2 --samples 100 --test-samples 10
    [[ $messages != *"bound it"* ]]
}

@test "a warning of too few CPUs names the options of muster run, none of srun" {
    local first
    first=$(grep Cpus_allowed_list /proc/self/status | cut -f2 | grep -oE '^[0-9]+')
    m run -n 2 --cpus "$first" true
    [[ $messages == *"2 tasks on this node but the step owns 1 core: tasks share cores; start fewer ranks, or give them more CPUs (--cpus)"* ]]
    m run -n 1 --cpus "$first" --cpus-per-task 9 true
    [[ $messages == *"task 0 has 1 of the 9 CPUs"*"give them more CPUs (--cpus), or a smaller --cpus-per-task"* ]]
    [[ $messages != *Slurm* ]]
}

@test "a rank without --gpus sees none" {
    m run -n 1 bash -c 'echo "<$CUDA_VISIBLE_DEVICES>"'
    [ "$output" = "<>" ]
}

@test "with --gpus each rank has a GPU in its plan, and the list names those asked for" {
    [ "$(id -u)" -eq 0 ] || skip "a site's topology file belongs to root"
    mkdir -p "$BATS_TEST_TMPDIR/etc"
    printf '[defaults]\ntopology=%s\n' "$data/hwloc-xml/turin-nps4-4xh200-nvml.xml" > "$BATS_TEST_TMPDIR/etc/site"
    echo "optional /nowhere/muster.so conf=$BATS_TEST_TMPDIR/etc/site" > "$BATS_TEST_TMPDIR/etc/plugstack.conf"
    touch "$BATS_TEST_TMPDIR/etc/slurm.conf"
    export SLURM_CONF=$BATS_TEST_TMPDIR/etc/slurm.conf
    m run -n 4 --gpus bash -c 'echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $(grep -o "gpus=[^;]*" <<< "$MUSTER_PLAN")"'
    echo "$output $messages"
    [ "$(sort -u <<< "$output" | grep -c '^0,1,2,3 PCI_BUS_ID gpus=[0-9a-f:]*')" -eq 4 ]
    m run -n 2 --gpus=1,3 bash -c 'echo "$CUDA_VISIBLE_DEVICES"'
    [ "$(sort -u <<< "$output")" = 1,3 ]
}

@test "lines are whole, whichever rank writes them, and have a label" {
    m run -n 4 --label bash -c 'for i in {1..200}; do printf "%s " a b; printf "%s\n" "c$i"; done; printf end'
    [ "$(grep -cE '^[0-3]: a b c[0-9]+$' <<< "$output")" -eq 800 ]
    [ "$(grep -cE '^[0-3]: end$' <<< "$output")" -eq 4 ]
    [ "$(wc -l <<< "$output")" -eq 804 ]
}

@test "the first rank that fails is named, its status is that of all, and none is left" {
    m run -n 3 bash -c '[ $RANK != 1 ] || exit 7; exec -a rank-that-waits sleep 60'
    [ "$status" -eq 7 ]
    has "$messages" "muster run: rank 1 ended with status 7"
    [ "$(grep -c '^muster run: rank' <<< "$messages")" -eq 1 ]
    gone rank-that-waits
    m run -n 2 bash -c '[ $RANK != 1 ] || kill -9 $$; exec sleep 60'
    [ "$status" -eq 137 ]
    has "$messages" "muster run: rank 1 was killed by signal 9 (Killed)"
}

@test "what a rank has left running ends with it" {
    m run -n 2 bash -c '(exec -a left-by-a-rank sleep 60) & true'
    [ "$status" -eq 0 ]
    gone left-by-a-rank
}

@test "a signal reaches the ranks, and what they do counts" {
    "$muster" run -n 2 bash -c 'trap "echo got; exit 0" TERM; echo ready; while :; do sleep 0.1; done' \
        > "$BATS_TEST_TMPDIR/out" 2>&1 &
    pid=$!
    for _ in {1..100}; do [ "$(grep -c ready "$BATS_TEST_TMPDIR/out")" -lt 2 ] || break; sleep 0.1; done
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    [ "$status" -eq 0 ]
    [ "$(grep -c got "$BATS_TEST_TMPDIR/out")" -eq 2 ]
}

@test "when muster itself is killed its ranks end" {
    "$muster" run -n 2 bash -c 'exec -a rank-of-the-killed sleep 60' &
    pid=$!
    for _ in {1..100}; do [ "$(pgrep -fc rank-of-the-killed)" -lt 3 ] || break; sleep 0.1; done
    kill -KILL $pid
    wait $pid || true
    gone rank-of-the-killed
}

@test "ranks train as one world, and a death is named by the library and by muster" {
    [ -x "$build/tests/slurm/weights" ] || skip "tests/slurm/weights is not built"
    m run -n 4 "$build/tests/slurm/weights"
    [ "$status" -eq 0 ]
    has "$output" "4 ranks on 1 nodes: "
    [ -x "$build/tests/slurm/faulty" ] || skip "tests/slurm/faulty is not built"
    m run -n 4 "$build/tests/slurm/faulty" --rank 2 --at step --do kill
    [ "$status" -eq 137 ] || [ "$status" -eq 13 ]
    has "$messages" "rank 2 (node "
    has "$messages" "muster run: rank "
}

@test "what a Python program has printed is written when a rank is killed" {
    command -v python3 > /dev/null || skip "no python3"
    ! ldd "$build/.libs/libmuster.so" | grep -q libasan || skip "AddressSanitizer cannot be loaded into python3"
    cat > "$BATS_TEST_TMPDIR/killed.py" <<'PY'
import ctypes, os, sys
lib = ctypes.CDLL(sys.argv[1])
m = ctypes.c_void_p()
lib.muster_barrier.argtypes = lib.muster_rank.argtypes = [ctypes.c_void_p]
lib.muster_init(ctypes.byref(m), None)
for i in range(60):
    print("line", i)
lib.muster_barrier(m)
if lib.muster_rank(m) == 1:
    os.kill(os.getpid(), 9)
lib.muster_barrier(m)
PY
    run env -u PYTHONUNBUFFERED "$muster" run -n 3 python3 "$BATS_TEST_TMPDIR/killed.py" "$build/.libs/libmuster.so.0"
    [ "$(grep -c '^line' <<< "$output")" -eq 120 ]
}

@test "bad usage gives one sentence" {
    while IFS='|' read -r args said; do
        # shellcheck disable=SC2086 # words
        m run $args
        [ "$status" -eq 2 ]
        has "$messages" "$said"
    done <<'X'
true|needs the number of ranks, -n N
-n 2|needs a program
-n 0 true|-n
-n many true|-n
-n 2 --bogus true|no such option: --bogus
X
    m run -n 1 no-such-program-anywhere
    [ "$status" -eq 127 ]
    has "$messages" "cannot start no-such-program-anywhere: No such file or directory"
}

@test "ranks without GPUs record their collectives where MUSTER_PROFILE is set" {
    cd "$BATS_TEST_TMPDIR"
    MUSTER_PROFILE=ledgers m run -n 2 "$build/muster-train" --steps 40 --samples 1000 --test-samples 100
    [ "$status" -eq 0 ]
    [ "$(find ledgers -name "run-rank[01]-*.ledger" | wc -l)" -eq 2 ]
    "$build/muster-report" --format json ledgers > report.json
    # 40 steps of two buckets; the last step has no next one that ends it
    [ "$(jq '[.collectives[] | select(.function == "AllReduce" and .bytes > 100000).calls]' -c report.json)" = "[40,40]" ]
    [ "$(jq .steps.collectives report.json)" -eq 2 ]
    [ "$(jq '.steps.count >= 37' report.json)" = true ]
    [ "$(jq '[.collectives[].unfinished] | add' report.json)" -eq 0 ]
    [ "$(jq '.communicators | length' report.json)" -eq 1 ]
    [ "$(jq '.communicators[0].ranks_with_file' report.json)" -eq 2 ]
    [ "$(jq '[.collectives[] | select(.bytes > 100000) | .median_us > 0 and .busbw_gb_s > 0] | all' report.json)" = true ]
    # each bucket of 39 steps on both ranks, in the order ready, launched, started, ended, joined
    [ "$(jq -c '[.buckets[].records]' report.json)" = "[78,78,78]" ]
    [ "$(jq '[.buckets[] | .launch_us >= 0 and .queue_us >= 0 and .work_us > 0 and .exposed_us >= 0 and .joined_us > .ready_us] | all' report.json)" = true ]
    # sync is a part of the step, and waiting for the buckets is a part of sync
    [ "$(jq '.buckets[0] as $s | $s.exposed_us < $s.joined_us and $s.exposed_us > 0' report.json)" = true ]
    # the page has a picture of the buckets, and a row for each; without gnuplot the row alone
    "$build/muster-report" --format html ledgers > page.html 2> said
    grep -q '<figure id="buckets">' page.html
    [ "$(grep -c '<tr><td class="n">\(all\|0\|1\)</td>' page.html)" -ge 3 ]
    [ ! -s said ] || grep -q 'gnuplot does not run' said
    # a folder that cannot be made: one line, and the training goes on
    MUSTER_PROFILE=/dev/null/x m run -n 2 "$build/muster-train" --steps 2 --samples 100 --test-samples 10
    [ "$status" -eq 0 ]
    [[ $messages = *"profile: the folder /dev/null/x cannot be made: Not a directory; nothing is recorded"* ]]
}
