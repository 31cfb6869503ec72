#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Steps that ask for parts of a GPU: gres/shard, then gres/mps. The machine is a recorded one, so
# nothing is bound; the plan is looked at.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mshard.XXXXXX")
    cp "$top/tests/data/plugin/four-gpus-against-the-cpus.txt" "$MUSTER_DIR/machine.txt"
    printf '[defaults]\ntopology = %s\n' "$MUSTER_DIR/machine.txt" > "$MUSTER_DIR/site.conf"
}

setup() { :; } # each test has a cluster of its own

teardown() { "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/c"; }

teardown_file() { rm -rf "$MUSTER_DIR"; }

start() { # gres
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix shard --nodes 1 --gpus 4 --cpus 128 \
        --threads 2 --parts "$1" --plugin "$build/.libs/muster.so" --site-file "$MUSTER_DIR/site.conf" \
        --conf TaskPlugin=task/none > "$MUSTER_DIR/env"
    eval "$(cat "$MUSTER_DIR/env")"
}

# GPU and CPUs of each task's plan, in task order, and what srun said in $MUSTER_DIR/err.
plans() { # srun option...
    timeout 30 srun -Q "$@" bash -c 'echo "$MUSTER_PLAN"' 2> "$MUSTER_DIR/err" |
        sed 's/.*task=\([0-9]*\);gpus=\([^;]*\);cpus=\([^;]*\);.*/\1 \2 \3/' | sort -n
}

@test "case 076: tasks on shards of one GPU are placed beside it, without advice" {
    start shard:8
    run plans -n2 -c16 --gres=shard:2
    cat "$MUSTER_DIR/err"
    [ "$output" = "0 GPU0 48-55,112-119
1 GPU0 56-63,120-127" ]
    run ! grep -q 'Muster leaves\|share=yes' "$MUSTER_DIR/err"
    # refused where the site or the user says so
    run plans -n2 -c16 --gres=shard:2 --muster=share=no
    grep -q 'share=no' "$MUSTER_DIR/err"
    # whole GPUs are not shared without a word
    run plans -n2 -c16 --gres=gpu:1
    grep -q 'Muster leaves' "$MUSTER_DIR/err"
}

@test "case 076: tasks on one GPU by gres/mps, too" {
    start mps:400
    run plans -n2 -c16 --gres=mps:100
    cat "$MUSTER_DIR/err"
    [ "$output" = "0 GPU0 48-55,112-119
1 GPU0 56-63,120-127" ]
    run ! grep -q 'Muster leaves\|share=yes' "$MUSTER_DIR/err"
}
