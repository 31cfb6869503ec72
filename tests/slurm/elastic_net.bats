#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster-train --elastic where the network splits: three nodes in network namespaces of their own,
# a rank on each. The larger part goes on; the smaller one ends, and says so on its own node (srun
# hears nothing of it). A node that is lost is replaced by spare ranks.

source "$BATS_TEST_DIRNAME/common.bash"
train=$build/muster-train

setup_file() {
    [ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
    ip netns list >/dev/null 2>&1 || skip "no network namespaces here"
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/meln.XXXXXX")
    make -s -C "$build" muster-train runtime/api/example_elastic >/dev/null
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix men --nodes 3 --cpus 4 --netns \
        >"$MUSTER_DIR/env"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export MUSTER_TIMEOUT=30 MUSTER_INIT_TIMEOUT=30
    cd "$BATS_TEST_TMPDIR" || return 1
}

teardown() {
    local n
    stop
    for n in 1 2 3; do on men$n -- ip link set eth0 up || true; done # one may be lost
}

# Ranks that train until they are ended, each with its words in said.RANK.
start() { # NODES [OPTION]
    # shellcheck disable=SC2016 # the task's own rank
    timeout -k 10 100 srun -Q "${@:2}" --mpi=pmix -N"$1" --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 \
        bash -c 'exec "$@" >"said.$SLURM_PROCID" 2>&1' bash "$train" --hidden 64 --samples 20000 \
        --test-samples 500 --epochs "${epochs:-1000}" --curve "$PWD/curve" --elastic >out 2>&1 &
    await 60
}

await() { # lines of the curve
    wait_for 40 has_lines curve "$1" || { cat said.*; return 1; }
}

await_words() { # RANK SECONDS PATTERN
    wait_for "$2" grep -qs -e "$3" "said.$1" || { grep . said.*; return 1; }
}

# The process of that rank of this test's step, if it is there.
process() { # RANK
    process_of_rank "muster-train .*--curve $PWD/curve" "$1"
}

gone() { # RANK
    [ -z "$(process "$1")" ]
}

# Slurm cannot reach a node without its cable: its own processes are ended here.
stop() {
    pkill -KILL -f "muster-train .*--curve $PWD/curve" || true
    jobs -p | xargs -r kill 2>/dev/null || true # srun waits for a lost node
    wait || true
}

# One of N ranks, each on a node, loses its network: it ends, the others go on.
cut_off() { # NODES VICTIM, WITNESS among the others
    local node=men$(($2 + 1))
    start "$1"
    on "$node" -- ip link set eth0 down
    await_words "$3" 25 "rank $2 (node $node, pid [0-9]*) cannot be reached any more; $(($1 - 1)) of $1 ranks go on"
    await_words "$2" 40 '; the 1 rank on this side ends, because the others may go on$'
    wait_for 10 gone "$2"
    grep -h '^muster:' "said.$3" "said.$2" | sed 's/^/# /' >&3
}

@test "a node that is cut off ends and says why; the two others go on" {
    cut_off 3 2 0
    await $(($(lines_of curve) + 20))
}

@test "rank 0 that is cut off is the smaller part: ranks 1 and 2 go on without it" {
    cut_off 3 0 1
}

@test "of two halves the one with rank 0 goes on" {
    cut_off 2 1 0
}

# The last two: the nodes stay away.
lose() { # NODE, its process
    kill -9 "$(cat "$MUSTER_DIR/c/run/slurmd.$1.pid")" "$(ps -o ppid= -p "$2" | tr -d ' ')" "$2"
    scontrol update "NodeName=$1" State=DOWN Reason=test
}

@test "a node is lost for good: with srun --no-kill the others finish" {
    local epochs=8 rank
    start 3 --no-kill
    lose men3 "$(process 2)"
    await_words 0 20 'rank 2 (node men3, pid [0-9]*) died or left; 2 of 3 ranks go on'
    for rank in 0 1; do
        await_words $rank 60 "RANK: $rank .* steps, weights"
    done
    [ "$(grep -ho 'weights [0-9a-f]*' said.0 said.1 | sort -u | wc -l)" -eq 1 ]
    awk '$1 != NR - 1 { exit 1 }' curve
    squeue -h -o %i -t R | xargs scancel # srun itself waits for the lost node
}

# The goal 1.4 takes four ranks.
@test "a node is lost for good: spare ranks on another node join, and all weights are equal" {
    local job example=$build/runtime/api/example_elastic
    export MUSTER_ELASTIC=1 MUSTER_GROW=$PWD/world
    # shellcheck disable=SC2016 # the task's own rank
    timeout -k 10 100 srun -Q --no-kill --mpi=pmix -N2 --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 \
        bash -c 'exec "$0" 1.4 >"said.$SLURM_PROCID" 2>&1' "$example" &
    await_words 0 30 ': 2 ranks$'
    job=$(squeue -h -o %i -t R)
    lose men2 "$(process_of_rank "example_elastic 1.4$" 1)"
    await_words 0 20 'rank 1 (node men2, pid [0-9]*) died or left; 1 of 2 ranks go on'
    MUSTER_JOIN=$MUSTER_GROW timeout 60 srun -Q --jobid="$job" --overlap -O --mpi=none -N1 -n3 -w men1 \
        "$example" 1.4 >spares
    await_words 0 20 ' of 4: step'
    cat said.0 spares
    [ "$(grep -hc '^rank [0-3] of 4: step [0-9]*, weights ' spares)" -eq 3 ]
    [ "$(grep -h ' of 4: step' said.0 spares | cut -d: -f2 | sort -u | wc -l)" -eq 1 ]
    scancel "$job"
}
