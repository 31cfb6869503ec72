#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# libmuster under a real Slurm and PMIx: start-up, and faults at each phase. Two nodes of
# one kernel with two ranks each; between the nodes TCP, inside them shared memory.
# Each fault prints a row: how long from the deed to the end of the step, srun's status,
# the message. MUSTER_TIMEOUT is 3 s here, MUSTER_INIT_TIMEOUT 5 s.

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
build=${MUSTER_BUILDDIR:-$top/build-test}

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mrt.XXXXXX")
    make -s -C "$build" tests/slurm/faulty runtime/api/example >/dev/null
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --nodes 2 --cpus 4 >"$MUSTER_DIR/env"
}

teardown_file() {
    "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/c"
    rm -rf "$MUSTER_DIR"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export MUSTER_TIMEOUT=3 MUSTER_INIT_TIMEOUT=5
}

four() { # srun with four ranks on two nodes
    timeout 90 srun -Q --mpi=pmix -N2 --ntasks-per-node=2 "$@"
}

# fault STATUS SECONDS MESSAGE OPTION...: srun ends with STATUS (a list a|b is fine) within
# SECONDS of the deed, MESSAGE is in the first line of ours, and no process is left.
fault() {
    local status=$1 limit=$2 message=$3 end rc took
    shift 3
    rm -f "$MUSTER_DIR/note"
    rc=0
    four "$build/tests/slurm/faulty" --note "$MUSTER_DIR/note" "$@" \
        >"$MUSTER_DIR/out" 2>&1 || rc=$?
    end=$(date +%s.%N)
    took=$(awk -v e="$end" -v n="$(cat "$MUSTER_DIR/note")" 'BEGIN { printf "%.2f", e - n }')
    echo "# $* | $took s | exit $rc | $(grep -m1 '^muster:' "$MUSTER_DIR/out")" >&3
    cat "$MUSTER_DIR/out"
    [[ "|$status|" == *"|$rc|"* ]]
    awk -v t="$took" -v l="$limit" 'BEGIN { exit !(t <= l) }'
    [ -z "$message" ] || grep -q -e "$message" "$MUSTER_DIR/out"
    ! pgrep -f "$build/tests/slurm/.*faulty --note $MUSTER_DIR/note" >/dev/null
    [ -z "$(find /dev/shm -name '*muster*')" ]
}

@test "the example trains on 4 ranks of 2 nodes, over shared memory and over TCP" {
    run four "$build/runtime/api/example"
    echo "$output"
    [ "$output" = "4 ranks agree on 1.500000" ]
    MUSTER_TRANSPORT=tcp run four "$build/runtime/api/example"
    echo "$output"
    [ "$output" = "4 ranks agree on 1.500000" ]
}

@test "case 045: uneven nodes, 3 ranks and 1" {
    run timeout 60 srun --mpi=pmix -N2 -n4 --distribution=arbitrary -w n1,n1,n1,n2 "$build/runtime/api/example"
    [ "$status" -eq 0 ] || skip "no arbitrary distribution here: $output"
    [ "$output" = "4 ranks agree on 1.500000" ]
}

@test "case 050: srun --mpi=none with 4 tasks is refused, with the command to use" {
    run timeout 60 srun --mpi=none -n4 "$build/runtime/api/example"
    [ "$status" -eq 11 ]
    [[ "$output" == *'Slurm started 4 tasks but no PMIx server answers: start it with `srun --mpi=pmix`'* ]]
    [ "$(grep -c '^muster:' <<<"$output")" -eq 1 ]
}

@test "case 050: srun --mpi=pmi2 is named" {
    run timeout 60 srun --mpi=pmi2 -n4 "$build/runtime/api/example"
    [ "$status" -eq 11 ]
    [[ "$output" == *"--mpi=pmi2"* ]]
}

@test "case 050: MUSTER_SINGLE=1 makes 2 separate runs of it" {
    MUSTER_SINGLE=1 run timeout 60 srun --mpi=none -n2 "$build/runtime/api/example"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^1 ranks agree on 0.000000' <<<"$output")" -eq 2 ]
}

@test "one task without PMIx is a world of one" {
    run timeout 60 srun --mpi=none -n1 "$build/runtime/api/example"
    [ "$output" = "1 ranks agree on 0.000000" ]
}

@test "inside an allocation of 4 tasks without srun: refused, with the command to use" {
    run timeout 60 salloc -n4 "$build/runtime/api/example"
    [[ "$output" == *'not a task of it: start it with `srun --mpi=pmix`'* ]]
    [ "$status" -eq 11 ]
}

@test "case 044: RANK and WORLD_SIZE of another launcher are refused with both pairs" {
    RANK=3 WORLD_SIZE=8 run four "$build/runtime/api/example"
    [ "$status" -eq 11 ]
    [[ "$output" == *"RANK=3 WORLD_SIZE=8 but PMIx says rank"* ]]
}

@test "kill -9 in bucket k, each place of the tree: named within a second" {
    fault 13 1 'rank 0 (node n1' --rank 0 --at bucket --do kill
    fault 13 1 'rank 1 (node n1' --rank 1 --at bucket --do kill
    fault 13 1.5 'rank 2 (node n2' --rank 2 --at bucket --do kill
    fault 13 1 'rank 3 (node n2' --rank 3 --at bucket --do kill
}

@test "exit(0), exit(3), segmentation fault: named within a second" {
    fault 13 1 'rank 1 (node n1' --rank 1 --at create --do exit0
    fault 13 1 'rank 3 (node n2' --rank 3 --at step --do exit3
    fault '13|139' 1.5 'rank 2 (node n2' --rank 2 --at bucket --do segv
}

@test "death in a checkpoint and in finalize: named within a second" {
    fault 13 1 'rank 0 (node n1' --rank 0 --at save --do kill
    fault 13 1 'rank 3 (node n2' --rank 3 --at finalize --do exit0
    fault 13 1 'rank 1 (node n1' --rank 1 --at finalize --do kill
}

@test "death before muster_init: named at the init deadline" {
    fault '11|137' 12 'rank 2 did not arrive within 5 s' --rank 2 --at start --do kill
    fault 11 12 'rank 1 did not arrive within 5 s' --rank 1 --at start --do exit0
}

@test "death in the first fence: the step ends at the init deadline, or Slurm ends it at once" {
    fault '11|137' 14 '' --rank 3 --at fence --do kill
    fault '11|137' 14 '' --rank 0 --at fence --do kill
}

@test "kill -STOP: named after the deadline, whoever it is" {
    fault 14 8 'rank 3 (node n2) does not answer' --rank 3 --at bucket --do stop
    fault 14 8 'rank 2 (node n2) does not answer' --rank 2 --at step --do stop
    fault 14 11 'rank 0 (node n1.* does not answer' --rank 0 --at step --do stop
}

@test "case 057: a rank that stays away is named with bucket and step" {
    fault 14 6 'rank 3 (node n2) has not entered bucket 0 of step 3; 3 others wait' \
        --rank 3 --at step --do sleep:30
}

@test "case 057: a rank that skipped a step is named" {
    fault '12|13|14' 6 'rank 2' --rank 2 --at step --do skip
}

@test "a slow rank below the deadline survives" {
    fault 0 4 'all is well' --rank 1 --at step --do sleep:2
}

@test "row 15: a rank that extends the deadline for everybody survives" {
    fault 0 7 'all is well' --rank 0 --at step --do extend
}

@test "row 7: another shape, dtype or order is refused with the parameter and the ranks" {
    fault 12 5 "parameter 2 'layer2' f32 x 1000 on ranks 0-2, but parameter 2 'layer2' f32 x 1001 on rank 3" \
        --rank 3 --at create --do shape
    fault 12 5 "'layer2' bf16 x 1000 on rank 1" --rank 1 --at create --do dtype
    fault 12 5 "parameter 1 'layer2' f32 x 1000 on rank 2" --rank 2 --at create --do order
}

@test "muster_abort ends the step with its status and reason" {
    fault 42 1 'rank 2 (node n2) ended the job: the loss is not a number' \
        --rank 2 --at step --do abort
}

@test "scancel ends it, and nothing is left" {
    four "$build/tests/slurm/faulty" --rank 1 --at step --do sleep:60 >"$MUSTER_DIR/out" 2>&1 &
    for _ in $(seq 50); do
        [ -n "$(squeue -h -o %i -t R)" ] && break
        sleep 0.1
    done
    sleep 1
    scancel "$(squeue -h -o %i -t R)"
    if wait $!; then return 1; fi
    sleep 1
    if pgrep -f "$build/tests/slurm/.*faulty --rank 1" >/dev/null; then return 1; fi
}

@test "the time limit ends it" {
    run timeout 100 srun --mpi=pmix -N2 --ntasks-per-node=2 --time=0:05 -K0 \
        env MUSTER_TIMEOUT=300 "$build/tests/slurm/faulty" --rank 1 --at step --do sleep:200
    [ "$status" -ne 0 ]
    if pgrep -f "$build/tests/slurm/.*faulty --rank 1" >/dev/null; then return 1; fi
}
