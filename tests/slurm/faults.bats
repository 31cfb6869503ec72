#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# The fault table: each way to die at each phase of a job, under a real Slurm and PMIx. Two nodes
# of one kernel with two ranks each. MUSTER_TIMEOUT and MUSTER_INIT_TIMEOUT are 3 s here; a
# rank that dies is told at once, one that stops at the deadline.

source "$BATS_TEST_DIRNAME/common.bash"
load faults
# shellcheck disable=SC2034 # `four` reads it
prefix=f

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mft.XXXXXX")
    make -s -C "$build" tests/slurm/faulty >/dev/null
    cluster_up
    table_head
}

cluster_up() {
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix f --nodes 3 --cpus 4 >"$MUSTER_DIR/env"
}

teardown_file() {
    "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/c"
    umount "$MUSTER_DIR/small" 2>/dev/null
    rm -rf "$MUSTER_DIR"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export MUSTER_TIMEOUT=3 MUSTER_INIT_TIMEOUT=3
}

# deaths LIMIT MESSAGE CHECKPOINT PHASE RANK: by kill -9, exit(0), exit(3) and a segmentation
# fault. Statuses: ours; where Slurm's word about a task overtakes it, that task's own.
deaths() {
    fault '13|137' "$1" "$2" "$3" --at "$4" --do kill --rank "$5" &&
        fault 13 "$1" "$2" "$3" --at "$4" --do exit0 --rank "$5" &&
        fault 13 "$1" "$2" "$3" --at "$4" --do exit3 --rank "$5" &&
        fault '13|139' "$1" "$2" "$3" --at "$4" --do segv --rank "$5"
}

# MUSTER_INIT_TIMEOUT is 120 s by default; a task that ended is not waited for so long.
@test "before muster_init: a death is named within seconds, a stop at the init deadline" {
    export MUSTER_INIT_TIMEOUT=60
    deaths 4 'rank 2 (node f2) died or left before all ranks had met' none start 2
    fault 13 4 'rank 0 (node f1) died or left before all ranks had met' none --at start --do exit0 --rank 0
    MUSTER_INIT_TIMEOUT=3
    fault '11|137' 6 'rank 2 (node f2) did not arrive within 3 s' none --at start --do stop --rank 2
}

@test "in the first fence: a death is named before Slurm ends the step, a stop at the deadline" {
    deaths 1 'rank 3 (node f2) died or left before all ranks had met' none fence 3
    fault 13 1 'rank 0 (node f1) died or left before all ranks had met' none --at fence --do kill --rank 0
    fault '11|137' 6 'rank 3 (node f2) did not arrive within 3 s' none --at fence --do stop --rank 3
}

# A rank alone on its node is watched by those of the nodes beside it.
@test "in the first fence, each rank alone on its node: the same" {
    # shellcheck disable=SC2034 # `four` reads them
    local rank nodes=3 per_node=1
    for rank in 0 1 2; do
        fault 13 1 "rank $rank (node f$((rank + 1))) died or left before all ranks had met" none \
            --at fence --do kill --rank $rank
    done
    fault 13 1 'rank 1 (node f2) died or left before all ranks had met' none --at fence --do exit0 --rank 1
    fault '11|137' 8 'rank 1 (node f2) did not arrive within 3 s' none --at fence --do stop --rank 1
}

# Nothing connects it to anybody. Slurm's daemon tries for half a minute to reach the one on the
# node of the dead, and srun does not end before. Or it gives up at once, names that node, and
# cancels the step before a rank can print.
@test "before others came, a rank alone on its node: told at the init deadline" {
    # shellcheck disable=SC2034 # `four` reads them
    local nodes=2 per_node=1 gave_up='Cannot establish direct connection to f2'
    # PMIx 5 tells the others that a connected rank has gone
    fault '13|137' 60 'rank 0 (node f1) died or left before all ranks had met' none \
        --at fence --do kill --rank 0
    fault '11|137' 60 "rank 1 (node f2) did not arrive within 3 s\|$gave_up" none --at start --do exit0 --rank 1
    fault '11|137' 14 'rank 1 (node f2) did not arrive within 3 s' none --at fence --do stop --rank 1
    # shellcheck disable=SC2034
    nodes=3
    fault '11|137' 60 "a rank of another node did not arrive within 3 s\|$gave_up" none --at start --do kill --rank 1
    fault '11|137' 14 'a rank of another node did not arrive within 3 s' none --at start --do stop --rank 1
}

@test "in bucket k, at each place of the tree: named within a second" {
    local rank node=1
    for rank in 0 1 2 3; do
        [ $rank -lt 2 ] || node=2
        fault '13|137' 1.5 "rank $rank (node f$node" 'step 2, whole' --at bucket --do kill --rank $rank
    done
    deaths 1.5 'rank 1 (node f1' 'step 2, whole' bucket 1
    fault 14 8 'rank 3 (node f2) does not answer' 'step 2, whole' --at bucket --do stop --rank 3
    fault 14 11 'rank 0 (node f1.* does not answer' 'step 2, whole' --at bucket --do stop --rank 0
}

@test "between steps: dead, stopped, away, elsewhere" {
    deaths 1.5 'rank 2 (node f2' 'step 2, whole' step 2
    fault 14 8 'rank 2 (node f2) does not answer' 'step 2, whole' --at step --do stop --rank 2
    fault 14 6 'rank 3 (node f2) has not entered bucket 0 of step 3; 3 others wait' 'step 2, whole' \
        --at step --do sleep:30 --rank 3
    fault '12|13|14' 6 'rank 2' 'step 2, whole' --at step --do skip --rank 2
}

@test "while a checkpoint is half written, the one before is there to go on from" {
    deaths 1.5 'rank 0 (node f1' 'step 2, whole' save 0
    fault '13|137' 1.5 'rank 2 (node f2' 'step 2, whole' --at save --do kill --rank 2 --sharded
    fault '13|137' 1.5 'rank 0 (node f1' 'step 2, whole' --at save --do kill --rank 0 --sharded
    fault 14 11 'rank 0 (node f1.* does not answer' 'step 2, whole' --at save --do stop --rank 0
}

@test "in muster_finalize: named within a second, the checkpoints are whole" {
    deaths 1.5 'rank 3 (node f2' 'step 3, whole' finalize 3
    fault 14 8 'rank 1 (node f1.* does not answer' 'step 3, whole' --at finalize --do stop --rank 1
}

@test "the disk fills up in a checkpoint: all ranks end with 16 and its name, the one before stays" {
    mkdir -p "$MUSTER_DIR/small"
    mount -t tmpfs -o size=20m none "$MUSTER_DIR/small" 2>/dev/null || skip "no right to mount a file system"
    local rc=0 left
    rm -f "$MUSTER_DIR/note"
    date +%s.%N >"$MUSTER_DIR/note"
    four "$build/tests/slurm/faulty" --note "$MUSTER_DIR/note" --save "$MUSTER_DIR/small/k" \
        >"$MUSTER_DIR/out" 2>&1 || rc=$?
    left=$(checkpoint_left "$MUSTER_DIR/small/k")
    table_row 'disk full in a save' "$(since_note)" $rc "$left" "$(grep -m1 '^muster:' "$MUSTER_DIR/out")"
    cat "$MUSTER_DIR/out"
    umount "$MUSTER_DIR/small"
    [ $rc -eq 16 ]
    [ "$left" = "step 2, whole" ]
    grep -q 'checkpoint-000000000003.muster cannot be written: No space left on device' "$MUSTER_DIR/out"
    nothing_left
}

# In the background: a job of four ranks, of which rank 1 sleeps in step 3.
start_sleeper() { # option of srun
    rm -rf "$MUSTER_DIR/note" "$MUSTER_DIR/saved"
    MUSTER_TIMEOUT=300 four "$@" "$build/tests/slurm/faulty" --note "$MUSTER_DIR/note" \
        --save "$MUSTER_DIR/saved" --rank 1 --at step --do sleep:150 >"$MUSTER_DIR/out" 2>&1 &
    wait_for 15 test -s "$MUSTER_DIR/note"
}

# end_sleeper WHAT LIMIT: it ends, nothing is left, step 2 is there.
end_sleeper() {
    local rc=0 took left
    wait $! || rc=$?
    took=$(since_note)
    left=$(checkpoint_left "$MUSTER_DIR/saved")
    cat "$MUSTER_DIR/out"
    table_row "$1" "$took" $rc "$left" "$(grep -m1 -e '^muster:' -e 'CANCELLED' "$MUSTER_DIR/out")"
    [ $rc -ne 0 ]
    in_time "$took" "$2" || return 1
    [ "$left" = "step 2, whole" ]
    nothing_left
}

@test "scancel ends it at once" {
    start_sleeper
    date +%s.%N >"$MUSTER_DIR/note"
    scancel "$(squeue -h -o %i -t R)"
    end_sleeper 'scancel' 5
}

@test "the time limit ends it" {
    local job
    start_sleeper --time=1
    job=$(squeue -h -o %i -t R)
    scontrol update JobId="$job" EndTime=now+2 # a limit is whole minutes; Slurm looks every half a minute
    end_sleeper 'time limit' 50
    job_becomes 15 "$job" TIMEOUT
}

@test "slurmd killed: the job goes on to its end; a node set down ends it" {
    local rc=0 job
    rm -rf "$MUSTER_DIR/note" "$MUSTER_DIR/saved"
    four "$build/tests/slurm/faulty" --note "$MUSTER_DIR/note" --save "$MUSTER_DIR/saved" \
        --rank 1 --at step --do sleep:2 >"$MUSTER_DIR/out" 2>&1 &
    wait_for 15 test -s "$MUSTER_DIR/note"
    kill -9 "$(cat "$MUSTER_DIR/c/run/slurmd.f2.pid")"
    wait_for 15 grep -q 'all is well' "$MUSTER_DIR/out" || true # asked below, with all nodes back
    table_row 'slurmd killed in step 3' "$(since_note)" - "$(checkpoint_left "$MUSTER_DIR/saved")" \
        "$(grep -m1 'all is well' "$MUSTER_DIR/out")"
    kill %% 2>/dev/null || true # srun waits for that daemon
    wait || true
    "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/c"
    cluster_up
    eval "$(cat "$MUSTER_DIR/env")"
    grep -q 'all is well' "$MUSTER_DIR/out"
    if grep -q '^muster:' "$MUSTER_DIR/out"; then return 1; fi
    nothing_left

    start_sleeper
    job=$(squeue -h -o %i -t R)
    date +%s.%N >"$MUSTER_DIR/note"
    scontrol update NodeName=f2 State=DOWN Reason=test
    end_sleeper 'node set DOWN in step 3' 20
    scontrol update NodeName=f2 State=RESUME || true # it comes back by itself
    job_becomes 15 "$job" NODE_FAIL
}
