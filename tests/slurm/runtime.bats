#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# libmuster under a real Slurm and PMIx: start-up, ranks that differ, ranks that are slow. Two
# nodes of one kernel with two ranks each; between the nodes TCP, inside them shared memory.
# MUSTER_TIMEOUT is 3 s here, MUSTER_INIT_TIMEOUT 5 s. Deaths are in faults.bats.

bats_require_minimum_version 1.5.0
source "$BATS_TEST_DIRNAME/common.bash"
load faults

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mrt.XXXXXX")
    make -s -C "$build" tests/slurm/faulty runtime/api/example muster-bench >/dev/null
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --nodes 2 --cpus 4 >"$MUSTER_DIR/env"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export MUSTER_TIMEOUT=3 MUSTER_INIT_TIMEOUT=5
}

@test "the example trains on 4 ranks of 2 nodes, over shared memory and over TCP" {
    run four "$build/runtime/api/example"
    echo "$output"
    [ "$output" = "4 ranks agree on 1.500000" ]
    MUSTER_TRANSPORT=tcp run four "$build/runtime/api/example"
    echo "$output"
    [ "$output" = "4 ranks agree on 1.500000" ]
}

@test "the Python example averages over 4 ranks of 2 nodes" {
    LD_LIBRARY_PATH=$build/.libs run four python3 "$top/runtime/python/example.py"
    echo "$output"
    [ "$output" = "the mean of 4 ranks is [1.5, 1.5, 1.5]" ]
}

@test "muster bench --host measures every collective among 4 ranks of 2 nodes" {
    run --separate-stderr four "$build/muster-bench" --host --max 64 --batches 3 --tsv
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == "# 4 ranks on 2 nodes, host memory, shared memory + TCP, "* ]]
    calls=(allreduce allgather reduce-scatter broadcast reduce gather scatter alltoall send sendrecv)
    [ "$(tail -n +3 <<<"$output" | cut -f 1,3,10)" = \
        "$(printf '%s\t16\tok\n' "${calls[@]}" | sed 'p;s/16/64/'; printf 'barrier\t0\t-\n')" ]
    # a lane has a rank on each node
    run --separate-stderr four "$build/muster-bench" lanes --host --max 64K --batches 3 --tsv
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^# lane .: rank . (node n1.*) to rank . (node n2.*)$' <<<"$output")" -eq 2 ]
    [ "$(grep -v '^#' <<<"$output" | cut -f 1)" = $'lanes\n1\n2' ]
}

@test "a second world of the same ranks has collectives of its own" {
    sed -e 's/^check(lib.muster_init.*/&\nother = ctypes.c_void_p()\ncheck(lib.muster_init(ctypes.byref(other), None))/' \
        -e 's/^check(lib.muster_allreduce.*/&\ncheck(lib.muster_allreduce(other, values, len(values), F64, SUM, None))/' \
        -e 's/^sys.exit(lib.muster_finalize(m))/check(lib.muster_finalize(m))\nsys.exit(lib.muster_finalize(other))/' \
        "$top/runtime/python/example.py" > "$BATS_TEST_TMPDIR/two.py"
    LD_LIBRARY_PATH=$build/.libs run four python3 "$BATS_TEST_TMPDIR/two.py"
    echo "$output"
    [ "$status" -eq 0 ]
    # the sum 6 on each rank, summed again over four ranks, divided by four
    [ "$output" = "the mean of 4 ranks is [6.0, 6.0, 6.0]" ]
}

# srun itself takes the user's TMPDIR and descriptors, so the task changes its own.
@test "case 092: TMPDIR is long or absent, descriptors are few or closed" {
    local long change
    long=$MUSTER_DIR/$(printf 'x%.0s' {1..150})
    mkdir "$long"
    for change in "TMPDIR=$long" "TMPDIR=/nowhere/at/all" "unset TMPDIR;" "ulimit -n 40;" "exec <&-;" "exec <&- 2>&-;"; do
        run --separate-stderr four bash -c "$change exec '$build/runtime/api/example'"
        echo "$change $output"
        [ "$status" -eq 0 ]
        [ "$output" = "4 ranks agree on 1.500000" ]
    done
    run four bash -c "exec <&- >&- 2>&-; exec '$build/runtime/api/example'"
    [ "$status" -eq 0 ] && [ -z "$output" ]
}

@test "case 045, row 19: uneven nodes, 3 ranks and 1" {
    run timeout 60 srun --mpi=pmix -n4 --distribution=arbitrary -w n1,n1,n1,n2 "$build/runtime/api/example"
    echo "$output"
    [ "$status" -eq 0 ]
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

@test "case 050: a PMIx server of another user: one sentence with both folders and their owners, status 11" {
    [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null || skip "no second user"
    local other=$MUSTER_DIR/other start
    # what the other user runs may lie in a folder of root's
    chmod 755 "$MUSTER_DIR"
    mkdir "$other" "$other/private"
    chmod 755 "$other"
    chmod 700 "$other/private"
    cp "$build/runtime/api/.libs/example" "$build"/.libs/libmuster.so.* "$other/"
    start="LD_LIBRARY_PATH=$other exec setpriv --reuid 65534 --regid 65534 --clear-groups $other/example"
    setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$other/example" || skip "the other user cannot enter $other"
    run timeout 60 srun --mpi=pmix -n1 bash -c "TMPDIR=/ $start"
    echo "$output"
    [ "$status" -eq 11 ]
    [ "$(grep -c '^muster:' <<< "$output")" -eq 1 ]
    grep -qE '^muster: PMIX_NAMESPACE=slurm\.pmix\.[0-9.]+ is set, but the PMIx server at tcp4://[0-9.:]+, PMIX_SERVER_TMPDIR=/[^ ]+ \(owner: user id 0\), TMPDIR=/ \(owner: user id 0\) cannot be reached by user id 65534 \([^)]+\): the shell may be .* start the program with `srun --mpi=pmix`, or unset the PMIX_ variables' <<< "$output"
    run timeout 60 srun --mpi=pmix -n1 bash -c "TMPDIR=$other/private/below $start"
    echo "$output"
    [ "$status" -eq 11 ]
    [[ "$output" == *"TMPDIR=$other/private/below (Permission denied) cannot be reached by user id 65534"* ]]
}

@test "case 050: MUSTER_SINGLE=1 makes 2 separate runs of it" {
    MUSTER_SINGLE=1 run timeout 60 srun --mpi=none -n2 "$build/runtime/api/example"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^1 rank agrees on 0.000000' <<<"$output")" -eq 2 ]
}

@test "one task without PMIx is a world of one" {
    run timeout 60 srun --mpi=none -n1 "$build/runtime/api/example"
    [ "$output" = "1 rank agrees on 0.000000" ]
}

@test "inside an allocation of 4 tasks without srun: refused, with the command to use" {
    run timeout 60 salloc -n4 "$build/runtime/api/example"
    [[ "$output" == *'not a task of it: start it with `srun --mpi=pmix`'* ]]
    [ "$status" -eq 11 ]
}

@test "case 044: RANK and WORLD_SIZE of another launcher are refused with both pairs" {
    RANK=3 WORLD_SIZE=8 run four "$build/runtime/api/example"
    [ "$status" -eq 11 ]
    [[ "$output" == *"RANK=3 WORLD_SIZE=8 but PMIx reports rank"* ]]
}

@test "a slow rank below the deadline survives" {
    fault 0 4 'all is well' - --rank 1 --at step --do sleep:2
}

@test "row 15: a rank that extends the deadline for everybody survives" {
    fault 0 7 'all is well' - --rank 0 --at step --do extend
}

@test "row 7: another shape, dtype or order is refused with the parameter and the ranks" {
    fault 12 5 "parameter 2 'layer2' f32 x 1000 on ranks 0-2, but parameter 2 'layer2' f32 x 1001 on rank 3" - \
        --rank 3 --at create --do shape
    fault 12 5 "'layer2' bf16 x 1000 on rank 1" - --rank 1 --at create --do dtype
    fault 12 5 "parameter 1 'layer2' f32 x 1000 on rank 2" - --rank 2 --at create --do order
}

@test "muster_abort ends the step with its status and reason" {
    fault 42 1 'rank 2 (node n2) ended the job: the loss is not a number' - \
        --rank 2 --at step --do abort
}

@test "under sbatch every rank's log is whole when a rank gives up, fails or dies" {
    local fault dead lines job
    for fault in '--at step --do abort' '--at create --do memory' '--at step --do segv'; do
        dead=0
        [[ "$fault" == *segv ]] && dead=60 # what a killed rank has buffered is lost
        job=$(sbatch --parsable -N2 --ntasks-per-node=2 -o "$MUSTER_DIR/log" --wrap \
            "ulimit -c 0; srun --mpi=pmix '$build/tests/slurm/faulty' --log 60 --rank 2 $fault")
        job_becomes 60 "$job" FAILED
        lines=$(grep -c '^rank [0-3], line [0-9]* of its log$' "$MUSTER_DIR/log") || true
        echo "$fault: $lines lines"
        grep -v 'of its log$' "$MUSTER_DIR/log"
        [ "$lines" -eq $((240 - dead)) ]
    done
}

@test "a call that fails on one rank, and exit(muster_report(m)) behind it: all end with its status and reason" {
    fault '17|137' 5 'rank 2 (node n2) ended the job: cannot map [0-9]* bytes: Cannot allocate memory' - \
        --rank 2 --at create --do memory
    fault '17|137' 5 'rank 0 (node n1) ended the job: cannot map [0-9]* bytes: Cannot allocate memory' - \
        --rank 0 --at create --do memory
}

@test "a backend that cannot be loaded ends the step with the status of a device" {
    export MUSTER_BACKEND=nccl MUSTER_BACKEND_DIR=/nowhere
    fault '15|137' 5 'cannot load the NCCL backend: /nowhere/backend_nccl.so' - --rank 0 --at start
}
