#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster plan --nodes as a step over two real nodes, and Slurm's own use of the host file that it writes.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mpn.XXXXXX")
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix mpn --nodes 2 --gpus 2 \
        --plugin "$build/.libs/muster.so" > "$MUSTER_DIR/env"
}

@test "two nodes of a job: both are measured, whatever the layout of the job is" {
    run timeout 60 salloc -Q -N2 --ntasks-per-node=2 --gpus-per-task=1 "$build/muster" plan --nodes \
        --save "$MUSTER_DIR/m" --hostfile "$MUSTER_DIR/h" --tasks 2 < /dev/null
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "2 nodes, by round trip" ]
    grep -q '^order: mpn\[1-2\]$' <<< "$output"
    [ "$(grep -c '^muster-pair mpn[12] mpn[12] [0-9.]*$' "$MUSTER_DIR/m")" -eq 1 ]
    [ "$(paste -sd, "$MUSTER_DIR/h")" = mpn1,mpn1,mpn2,mpn2 ]
}

@test "srun -m arbitrary places the ranks in the order of the host file" {
    # The order of the measurement's nodes is Slurm's; two nodes have one ring.
    printf 'muster-node mpn2 gpus=2\nmuster-node mpn1 gpus=2\nmuster-pair mpn1 mpn2 20\n' > "$MUSTER_DIR/m"
    "$build/muster" plan --nodes="$MUSTER_DIR/m" --hostfile "$MUSTER_DIR/h"
    [ "$(paste -sd, "$MUSTER_DIR/h")" = mpn2,mpn2,mpn1,mpn1 ]
    run timeout 60 salloc -Q -N2 -n4 --gres=gpu:2 env SLURM_HOSTFILE="$MUSTER_DIR/h" srun -m arbitrary \
        sh -c 'echo "$SLURM_PROCID $SLURMD_NODENAME"' < /dev/null
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep '^[0-3] mpn' <<< "$output" | sort | paste -sd,)" = "0 mpn2,1 mpn2,2 mpn1,3 mpn1" ]
}
