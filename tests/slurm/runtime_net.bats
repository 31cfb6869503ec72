#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# libmuster between two network namespaces: a link that dies, a daemon that dies.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    [ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
    ip netns list >/dev/null 2>&1 || skip "no network namespaces here"
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mrtn.XXXXXX")
    make -s -C "$build" tests/slurm/faulty runtime/api/example >/dev/null
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix mrt --nodes 2 --cpus 4 --netns \
        >"$MUSTER_DIR/env"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export MUSTER_TIMEOUT=60
}

four() {
    timeout 100 srun --mpi=pmix -N2 --ntasks-per-node=2 "$@"
}

# Starts four ranks in the background, of which rank 1 sleeps in step 3; returns when it does.
start_sleeper() { # seconds
    sleeper="faulty --note $MUSTER_DIR/note --rank 1 --at step --do sleep:$1"
    rm -f "$MUSTER_DIR/note"
    # shellcheck disable=SC2086 # words
    four "$build/tests/slurm/"$sleeper >"$MUSTER_DIR/out" 2>&1 &
    wait_for 30 test -s "$MUSTER_DIR/note"
}

@test "four ranks train across two network namespaces" {
    run four "$build/runtime/api/example"
    [ "$output" = "4 ranks agree on 1.500000" ]
}

@test "a slurmd that is killed does not end a step whose ranks are well" {
    start_sleeper 4
    kill -9 "$(cat "$MUSTER_DIR/c/run/slurmd.mrt2.pid")"
    wait_for 15 grep -q 'all is well' "$MUSTER_DIR/out"
    pkill -KILL -f "srun .*$sleeper\$" || true # it may wait for that daemon
    wait || true
    if grep -q '^muster:' "$MUSTER_DIR/out"; then return 1; fi
    "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/c"
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix mrt --nodes 2 --cpus 4 --netns \
        >"$MUSTER_DIR/env"
}

@test "a link that dies is told within the TCP user timeout, on both sides, nothing is left" {
    start_sleeper 50
    start=$(date +%s.%N)
    on mrt2 -- ip link set eth0 down
    wait_for 25 grep -q '^muster:' "$MUSTER_DIR/out"
    echo "# link down | $(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }') s | $(grep -m1 '^muster:' "$MUSTER_DIR/out")" >&3
    grep -q 'rank 2 (node mrt2' "$MUSTER_DIR/out"
    wait_for 35 no_process "tests/slurm/.libs/$sleeper" || true # asked below, with srun ended
    pkill -KILL -f "srun .*$sleeper\$" # Slurm cannot reach that node
    wait || true
    no_process "tests/slurm/.libs/$sleeper"
}
