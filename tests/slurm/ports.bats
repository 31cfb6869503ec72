#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# MASTER_PORT of many steps at once: reserved ports never meet; where hashed ones meet, the
# step that comes second says so.

source "$BATS_TEST_DIRNAME/common.bash"
steps=${MUSTER_PORT_STEPS:-16}

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mports.XXXXXX")
    # a range of 8 pairs, so that the steps must meet, where no step of another cluster has its port
    printf '[defaults]\nenable=all\nports=6000-6015\n' >"$MUSTER_DIR/site.conf"
    for kind in reserved hashed; do
        # shellcheck disable=SC2046
        "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/$kind" --nodes 1 --gpus 0 \
            $([ $kind = hashed ] || echo --conf MpiParams=ports=12000-12399) --plugin "$build/.libs/muster.so" \
            --site-file "$MUSTER_DIR/site.conf" --conf 'MaxStepCount=1000' >"$MUSTER_DIR/$kind.env"
    done
}

teardown_file() {
    [ -z "${MUSTER_DIR:-}" ] || {
        "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/reserved"
        "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/hashed"
        rm -rf "$MUSTER_DIR"
    }
}

setup() {
    rm -f "$MUSTER_DIR"/step.*
}

all_have_started() {
    [ "$(cat "$MUSTER_DIR"/step.* 2>/dev/null | grep -c ^port)" -ge "$steps" ]
}

# Start the steps side by side, each until all have started; one output file each.
side_by_side() { # cluster, srun option...
    eval "$(cat "$MUSTER_DIR/$1.env")"
    shift
    touch "$MUSTER_DIR/hold"
    export MUSTER_DIR steps
    timeout 200 salloc -Q -N1 -n1 --overcommit bash -c '
        for i in $(seq "$steps"); do
            srun --overlap -n1 '"$*"' bash -c "
                echo port \$MASTER_PORT
                while [ -e \$MUSTER_DIR/hold ]; do sleep 0.5; done" \
                >$MUSTER_DIR/step.$i 2>&1 &
        done
        wait' &
    wait_for 160 all_have_started || true # the tests count them
    rm "$MUSTER_DIR/hold"
    wait $!
}

@test "steps side by side with reserved ports: no two have the same, nobody warns" {
    side_by_side reserved --resv-ports=1
    [ "$(cat "$MUSTER_DIR"/step.* | grep -c '^port [0-9]')" -eq "$steps" ]
    [ -z "$(cat "$MUSTER_DIR"/step.* | grep '^port' | sort | uniq -d)" ]
    [ "$(cat "$MUSTER_DIR"/step.* | grep -c 'MASTER_PORT .* in use')" -eq 0 ]
    echo "# reserved: $steps steps, $(cat "$MUSTER_DIR"/step.* | grep '^port' | sort -u | wc -l) ports" >&3
}

@test "steps side by side with hashed ports: each that meets another's port names it and the remedy" {
    side_by_side hashed
    [ "$(cat "$MUSTER_DIR"/step.* | grep -c '^port [0-9]')" -eq "$steps" ]
    distinct=$(cat "$MUSTER_DIR"/step.* | grep '^port' | sort -u | wc -l)
    warned=$(cat "$MUSTER_DIR"/step.* | grep -c 'MASTER_PORT .* is in use on this node by another step: reserve ports with MpiParams=ports=')
    echo "# hashed: $steps steps, $distinct ports, $warned warnings" >&3
    [ "$distinct" -lt "$steps" ]
    [ "$warned" -eq $((steps - distinct)) ]
}

@test "a hashed port that another program listens on is named" {
    command -v python3 >/dev/null || skip "no python3"
    printf '[defaults]\nenable=all\nports=6100-6101\n' >"$MUSTER_DIR/hashed/etc/muster.conf"
    eval "$(cat "$MUSTER_DIR/hashed.env")"
    python3 -c 'import socket, time
s = socket.socket(); s.bind(("", 6100)); s.listen(1); time.sleep(30)' 3>&- &
    listener=$!
    wait_for 20 grep -q ':17D4 00000000:0000 0A' /proc/net/tcp # 6100, listens
    run timeout 60 srun -n1 bash -c 'echo $MASTER_PORT'
    kill $listener
    wait $listener || true # gone only then
    [[ "$output" == *"MASTER_PORT 6100 is in use on this node by another program"* ]]
    # steps one behind the other may have one port: the first lets it go with its last task
    output=$(timeout 100 salloc -Q -N1 -n1 bash -c 'for i in 1 2 3 4 5 6; do srun -n1 bash -c "echo \$MASTER_PORT"; done' \
        2> "$MUSTER_DIR/err")
    echo "$output"
    cat "$MUSTER_DIR/err" # srun says there that a step had to wait for the one before
    [ "$(sort -u <<< "$output")" = 6100 ]
    [ "$(grep -c 'MASTER_PORT' "$MUSTER_DIR/err")" -eq 0 ]
}

@test "no file is left behind by the steps" {
    [ -z "$(find /tmp /dev/shm -maxdepth 1 -newer "$MUSTER_DIR/reserved.env" -name 'muster*port*' 2>/dev/null)" ]
}
