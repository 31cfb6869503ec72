#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Ways into a world under a real Slurm, on two nodes with networks of their own. With PMIx and
# without it the weights are the same, bit for bit.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    [ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
    ip netns list >/dev/null 2>&1 || skip "no network namespaces here"
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mways.XXXXXX")
    make -s -C "$build" tests/slurm/weights tests/slurm/faulty runtime/api/example_elastic >/dev/null
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix mway --nodes 2 --cpus 4 --netns \
        --plugin "$build/.libs/muster.so" >"$MUSTER_DIR/env"
    eval "$(cat "$MUSTER_DIR/env")"
    timeout 90 srun -Q --mpi=pmix -N2 --ntasks-per-node=2 "$build/tests/slurm/weights" >"$MUSTER_DIR/pmix"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export MUSTER_INIT_TIMEOUT=20 MUSTER_TIMEOUT=20
    with_pmix=$(cut -d: -f2 "$MUSTER_DIR/pmix")
}

four() { # srun option..., program
    timeout 90 srun -Q --mpi=none --muster -N2 --ntasks-per-node=2 "$@"
}

@test "srun --mpi=none on two nodes gives the weights of --mpi=pmix, over TCP with srun's token" {
    cat "$MUSTER_DIR/pmix"
    grep -q '^4 ranks on 2 nodes: [0-9a-f]*$' "$MUSTER_DIR/pmix"
    run four "$build/tests/slurm/weights"
    echo "$output"
    [ "$output" = "4 ranks on 2 nodes:$with_pmix" ]
}

@test "srun --mpi=none --export=NONE has the token too" {
    run four --export=NONE "$build/tests/slurm/weights"
    echo "$output"
    [ "$output" = "4 ranks on 2 nodes:$with_pmix" ]
}

@test "each step has a token of its own, equal in all its tasks" {
    four bash -c 'echo $MUSTER_TOKEN' >"$MUSTER_DIR/one"
    four bash -c 'echo $MUSTER_TOKEN' >"$MUSTER_DIR/two"
    [ "$(grep -cE '^[0-9a-f]{64}$' "$MUSTER_DIR/one")" -eq 4 ]
    [ "$(sort -u "$MUSTER_DIR/one" | wc -l)" -eq 1 ]
    [ "$(sort -u "$MUSTER_DIR/one" "$MUSTER_DIR/two" | wc -l)" -eq 2 ]
}

@test "two nodes without a token are refused, with the remedy" {
    run four env -u MUSTER_TOKEN "$build/tests/slurm/weights"
    echo "$output"
    [ "$status" -eq 11 ]
    [[ "$output" == *"the ranks are on several hosts, which need a token: set MUSTER_TOKEN_FILE"* ]]
}

@test "a token file of the user's wins over srun's token" {
    head -c32 /dev/urandom >"$MUSTER_DIR/token"
    chmod 600 "$MUSTER_DIR/token"
    MUSTER_TOKEN_FILE=$MUSTER_DIR/token run four bash -c \
        '[ $RANK -gt 0 ] || MUSTER_TOKEN=$(printf "%064d" 0); exec "$0"' "$build/tests/slurm/weights"
    echo "$output"
    [ "$output" = "4 ranks on 2 nodes:$with_pmix" ]
}

@test "another token on one rank: it is named, and no rank waits longer than the deadline" {
    export MUSTER_INIT_TIMEOUT=4
    start=$SECONDS
    run four bash -c '[ $RANK -ne 3 ] || export MUSTER_TOKEN=$(printf "%064d" 0); exec "$0"' "$build/tests/slurm/weights"
    echo "$output"
    [ "$status" -eq 11 ]
    [ $((SECONDS - start)) -lt 20 ]
    [[ "$output" == *"rank 3 of WORLD_SIZE=4 did not arrive within 4 s (MUSTER_INIT_TIMEOUT)"* ]]
    [[ "$output" == *"rank 3 (node "*") cannot reach rank 0 at "*": a process there lacks this rank's token"* ]]
}

@test "without PMIx a rank that dies is named" {
    run four "$build/tests/slurm/faulty" --rank 2 --at step --do kill
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"rank 2 (node mway2"* ]]
}

@test "muster run gives the weights of --mpi=pmix" {
    run timeout 60 "$build/muster" run -n 4 "$build/tests/slurm/weights"
    echo "$output"
    [[ "$output" == *"4 ranks on 1 nodes:$with_pmix"* ]]
}

free_port() { # below those of outgoing connections; the one above, which is libmuster's, is free as well
    local port
    for ((port = 20000 + RANDOM % 6000 * 2; ; port += 2)); do
        grep -qi ":$(printf '%04x\|:%04x' "$port" $((port + 1))) " /proc/net/tcp /proc/net/tcp6 2>/dev/null || break
    done
    echo "$port"
}

@test "ranks of a loop in a shell, as torchrun starts them: one node, AF_UNIX" {
    local port
    port=$(free_port)
    for r in 0 1 2 3; do
        RANK=$r WORLD_SIZE=4 LOCAL_RANK=$r LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout 60 "$build/tests/slurm/weights" &
    done >"$MUSTER_DIR/loop"
    wait
    cat "$MUSTER_DIR/loop"
    [ "$(cat "$MUSTER_DIR/loop")" = "4 ranks on 1 nodes:$with_pmix" ]
}

@test "a program's own exchange under srun gives the weights of --mpi=pmix" {
    run four "$build/tests/slurm/weights" "$BATS_TEST_TMPDIR"
    echo "$output"
    [ "$output" = "4 ranks on 2 nodes:$with_pmix" ]
    [ -e "$BATS_TEST_TMPDIR/0.3" ] # of rank 3 in the first call
}

@test "a world of one rank has the same weights on each of the four ways" {
    local weights=$build/tests/slurm/weights
    {
        timeout 60 srun -Q --mpi=pmix -n1 "$weights"
        RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) timeout 60 "$weights"
        SLURM_PROCID=0 SLURM_NTASKS=1 timeout 60 "$weights" "$BATS_TEST_TMPDIR"
        timeout 60 "$weights"
    } >"$MUSTER_DIR/alone"
    cat "$MUSTER_DIR/alone"
    [ "$(grep -c '^1 ranks on 1 nodes: [0-9a-f]*$' "$MUSTER_DIR/alone")" -eq 4 ]
    [ "$(sort -u "$MUSTER_DIR/alone" | wc -l)" -eq 1 ]
}

# ---- A world that has begun: muster(3), "Taking more ranks" ----

# The batch script of the manual, with a spare rank when the file `spare` is there. The goal 1.9 takes
# five ranks, so the training ends after the spare rank has joined.
train_and_grow() { # KIND of srun's --mpi
    example="$build/runtime/api/example_elastic"
    cd "$BATS_TEST_TMPDIR" || return 1
    cat >restart <<'END'
"$@"
status=$?
[ $status -gt 128 ] || exit $status
MUSTER_JOIN=$MUSTER_GROW exec "$@"
END
    cat >job <<END
#!/bin/sh
export MUSTER_ELASTIC=2 MUSTER_GROW=$PWD/world
srun --mpi=$1 --muster --kill-on-bad-exit=0 --wait=0 sh restart $example 1.9 &
until [ -e spare ]; do sleep 0.1; done
MUSTER_JOIN=\$MUSTER_GROW srun --mpi=none --muster --overlap -N1 -n1 $example 1.9
wait
END
    job=$(sbatch --parsable -N2 --ntasks-per-node=2 -o out job)
    ranks 4 1
}

ranks() { # SIZE TIMES: so often the world got this size
    wait_for 40 counted "$1" "$2" || { cat out; return 1; }
}

counted() { [ "$(grep -cs "^step [0-9]*: $1 ranks$" out)" -ge "$2" ]; }

kill_rank() { # VARIABLE of the rank, RANK
    kill -9 "$(process_of_rank "^[^ ]*/example_elastic 1.9$" "$2" "$1")"
}

# All five ranks ended well, with weights that are equal bit for bit.
ended_equal() {
    wait_for 40 job_is "$job" COMPLETED || { cat out; return 1; }
    cat out
    [ "$(grep -c '^rank [0-4] of 5: step [0-9]*, weights ' out)" -eq 5 ]
    [ "$(grep '^rank . of 5' out | cut -d: -f2 | sort -u | wc -l)" -eq 1 ]
    [ ! -e world ]
}

@test "a task starts its killed process again, which joins; so does rank 0's, and a spare one of another step" {
    train_and_grow pmix
    kill_rank PMIX_RANK 2
    ranks 4 2
    kill_rank PMIX_RANK 0
    ranks 4 3
    grep -q '^muster: rank 2 (node mway2, .*3 of 4 ranks go on' out
    touch spare
    ended_equal
}

@test "without PMIx too" {
    train_and_grow none
    kill_rank RANK 3
    ranks 4 2
    touch spare
    ended_equal
}
