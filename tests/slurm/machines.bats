#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# A node that Slurm is told to be a recorded machine: 64 cores of two threads, four GPUs whose
# numbers run against those of the CPUs. Real here: Slurm, its counting of threads and cores,
# gres.conf. Not real: the CPUs and GPUs, so nothing is bound; the plan is looked at.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    export MUSTER_DIR
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mmach.XXXXXX")
    cp "$top/tests/data/plugin/four-gpus-against-the-cpus.txt" "$MUSTER_DIR/machine.txt"
    printf '[defaults]\ntopology = %s\n' "$MUSTER_DIR/machine.txt" > "$MUSTER_DIR/site.conf"
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix mach --nodes 1 --gpus 4 --cpus 128 --threads 2 \
        --plugin "$build/.libs/muster.so" --site-file "$MUSTER_DIR/site.conf" --conf TaskPlugin=task/none \
        > "$MUSTER_DIR/env"
}

# GPUs and CPUs of each task's plan, in task order, and what srun said in $MUSTER_DIR/err.
plans() { # srun option...
    timeout 60 srun -Q --muster=verbose "$@" true 2> "$MUSTER_DIR/err"
    plan_rows "$MUSTER_DIR/err"
}

@test "case 005: each task beside its GPU, against the order of the CPUs; -c counts threads" {
    run plans --exclusive -n4 --gres=gpu:4
    [ "$output" = "0 GPU0 48-63,112-127
1 GPU1 32-47,96-111
2 GPU2 16-31,80-95
3 GPU3 0-15,64-79" ]
    # 16 are 8 cores, each in its own quadrant
    run plans --exclusive -n4 -c16 --gres=gpu:4
    [ "$output" = "0 GPU0 48-55,112-119
1 GPU1 32-39,96-103
2 GPU2 16-23,80-87
3 GPU3 0-7,64-71" ]
    run plans --exclusive -n4 -c32 --gres=gpu:4
    [ "${lines[0]}" = "0 GPU0 48-63,112-127" ]
}

@test "-c counts cores where Slurm uses one thread of each, from srun and from #SBATCH" {
    local want="0 GPU0 48-55,112-119
1 GPU1 32-39,96-103
2 GPU2 16-23,80-87
3 GPU3 0-7,64-71" option
    for option in --threads-per-core=1 --hint=nomultithread; do
        run plans --exclusive -n4 -c8 $option --gres=gpu:4
        echo "srun $option: $output"
        [ "$output" = "$want" ]
        printf '#!/bin/bash\nsrun -Q -c8 --muster=verbose true\n' > "$MUSTER_DIR/job"
        batch_job 60 --exclusive -n4 -c8 $option --gres=gpu:4 -o "$MUSTER_DIR/out" "$MUSTER_DIR/job"
        run plan_rows "$MUSTER_DIR/out"
        echo "sbatch $option: $output"
        [ "$output" = "$want" ]
    done
    run plans --exclusive -n4 -c8 --threads-per-core=2 --gres=gpu:4
    [ "${lines[0]}" = "0 GPU0 48-51,112-115" ]
}

@test "what was planned for another machine and not applied is no binding that somebody changed" {
    run timeout 60 srun -Q -n2 --gres=gpu:2 "$build/muster-train" --steps 2 --samples 100 --test-samples 10
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" != *"bound it"* ]]
    run timeout 60 srun -Q -n2 --gres=gpu:2 "$build/muster" verify
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'cpus as Slurm set them; memory not bound' <<< "$output")" -eq 2 ]
}

@test "case 014: gres.conf names other cores than the hardware: the plan holds to the hardware, the doctor tells" {
    cp "$MUSTER_DIR/c/etc/gres.conf" "$MUSTER_DIR/gres.conf"
    local file=$MUSTER_DIR/c/dev/mach1/gpu
    [ -e "${file}0" ] || skip "needs device files (root)"
    # GPU 0 and 1 where GPU 3 and 2 are, as who counts GPUs and cores alike would write
    for i in 0 1 2 3; do
        echo "NodeName=mach1 Name=gpu File=$file$i Cores=$((16 * i))-$((16 * i + 15))"
    done > "$MUSTER_DIR/c/etc/gres.conf"
    scontrol reconfigure
    sleep 1
    if scontrol show node mach1 | grep -q "doesn't match socket boundaries"; then
        cp "$MUSTER_DIR/gres.conf" "$MUSTER_DIR/c/etc/gres.conf"
        scontrol reconfigure
        skip "this Slurm drains a node with such a gres.conf"
    fi
    run plans -n1 -c32 --gres=gpu:1 --gres-flags=enforce-binding
    echo "$output"
    cat "$MUSTER_DIR/err"
    [ "$output" = "0 GPU0 48-63,112-127" ]
    run timeout 60 srun -Q -n1 --gres=gpu:1 "$build/muster" doctor --topology "$MUSTER_DIR/machine.txt"
    cp "$MUSTER_DIR/gres.conf" "$MUSTER_DIR/c/etc/gres.conf"
    scontrol reconfigure
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"GPU0: Slurm has CPUs 0-15,64-79 ("*"gres.conf line 1"*"the PCI bus reports CPUs 48-63,112-127 (NUMA 3)"* ]]
    [[ "$output" == *"GPU3: Slurm has CPUs 48-63,112-127 ("*"the PCI bus reports CPUs 0-15,64-79 (NUMA 0)"* ]]
    [ "$(sinfo -h -N -o '%T' | grep -ciE 'drain|down')" -eq 0 ]
}
