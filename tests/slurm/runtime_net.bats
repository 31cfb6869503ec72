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

# Until $MUSTER_DIR/out has our sentence, at most so many seconds.
await_sentence() {
    local until=$((SECONDS + $1))
    while [ $SECONDS -lt $until ] && ! grep -q '^muster:' "$MUSTER_DIR/out"; do
        sleep 0.1
    done
    grep -q '^muster:' "$MUSTER_DIR/out"
}

@test "four ranks train across two network namespaces" {
    run four "$build/runtime/api/example"
    [ "$output" = "4 ranks agree on 1.500000" ]
}

@test "a slurmd that is killed does not end a step whose ranks are well" {
    four "$build/tests/slurm/faulty" --rank 1 --at step --do sleep:4 >"$MUSTER_DIR/out" 2>&1 &
    sleep 2
    kill -9 "$(cat "$MUSTER_DIR/c/run/slurmd.mrt2.pid")"
    for _ in $(seq 150); do
        grep -q 'all is well' "$MUSTER_DIR/out" && break
        sleep 0.1
    done
    grep -q 'all is well' "$MUSTER_DIR/out"
    pkill -KILL -f 'srun .*faulty --rank 1 --at step --do sleep:4$' || true # it may wait for that daemon
    wait || true
    if grep -q '^muster:' "$MUSTER_DIR/out"; then return 1; fi
    "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/c"
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix mrt --nodes 2 --cpus 4 --netns \
        >"$MUSTER_DIR/env"
}

@test "a link that dies is told within the TCP user timeout, on both sides, nothing is left" {
    four "$build/tests/slurm/faulty" --rank 1 --at step --do sleep:50 >"$MUSTER_DIR/out" 2>&1 &
    sleep 3
    start=$(date +%s.%N)
    on mrt2 -- ip link set eth0 down
    await_sentence 25
    echo "# link down | $(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }') s | $(grep -m1 '^muster:' "$MUSTER_DIR/out")" >&3
    grep -q 'rank 2 (node mrt2' "$MUSTER_DIR/out"
    for _ in $(seq 300); do
        pgrep -f "tests/slurm/.libs/faulty --rank 1 --at step --do sleep:50" >/dev/null || break
        sleep 0.1
    done
    pkill -KILL -f 'srun .*faulty --rank 1 --at step --do sleep:50' # Slurm cannot reach that node
    wait || true
    if pgrep -f "tests/slurm/.libs/faulty --rank 1 --at step --do sleep:50" >/dev/null; then return 1; fi
}
