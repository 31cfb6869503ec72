#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Steps whose cpuset cgroup holds a part of the node's cores. Real here: Slurm, the cgroups,
# the tasks' affinity. Not real: the GPUs, whose place is that of a recorded machine where
# GPU 0 and 1 are near CPU 1, GPU 2 and 3 near CPU 0. Slurm uses two CPUs, whatever there are.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    need_cgroups cpuset
    four_gpus_on_two_cpus mcore
    printf '[defaults]\ntopology = %s\n' "$MUSTER_DIR/machine.xml" > "$MUSTER_DIR/site.conf"
    plugin_cluster --prefix core --nodes 1 --gpus 4 --cpus 2 --constrain-cores
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export PATH=$build:$PATH
}

@test "case 002: GPUs near no CPU of the step: told with NUMA node and remedy, tasks stay inside the step" {
    # one core, of the two: half of the GPUs are far
    output=$(timeout 60 srun -Q -n1 -c1 --gres=gpu:4 bash -c \
        'echo "$(awk "\$1 == \"Cpus_allowed_list:\" { print \$2 }" /proc/self/status) $MUSTER_PLAN"' 2> "$MUSTER_DIR/err")
    cat "$MUSTER_DIR/err"
    [[ "$output" =~ ^([01])\ .*\;cpus=([01])\;mems=0\; ]]
    [ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[2]}" ]
    grep -qE 'core1: warning: .*0000:[1-9]0:00.0.*NUMA node [01].*--exclusive' "$MUSTER_DIR/err"
    # two steps at once, each until the other runs, a core each: neither is bound to the other's
    output=$(timeout 60 salloc -Q -n2 --gres=gpu:4 bash -c '
        for _ in 1 2; do
            srun -Q --exact -n1 -c1 --gres=gpu:2 bash -c "touch $MUSTER_DIR/step.\$SLURM_STEP_ID
                until [ -e $MUSTER_DIR/step.0 ] && [ -e $MUSTER_DIR/step.1 ]; do sleep 0.1; done
                awk \"\\\$1 == \\\"Cpus_allowed_list:\\\" { print \\\$2 }\" /proc/self/status" &
        done
        wait' 2> "$MUSTER_DIR/err")
    [ "$(sort <<< "$output" | tr '\n' ' ')" = "0 1 " ]
}

@test "case 006: a core that Slurm reserves for itself is no task's" {
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/spec" --prefix spec --nodes 1 --gpus 4 --cpus 2 --constrain-cores \
        --node-conf CoreSpecCount=1 --plugin "$build/.libs/muster.so" --site-file "$MUSTER_DIR/site.conf" > "$MUSTER_DIR/spec.env"
    eval "$(cat "$MUSTER_DIR/spec.env")"
    # the whole of the node: without the reservation that would be 0-1
    output=$(timeout 60 salloc -Q --exclusive -n1 --gres=gpu:4 srun -Q --whole --gres=gpu:4 bash -c \
        'echo "$(awk "\$1 == \"Cpus_allowed_list:\" { print \$2 }" /proc/self/status) $MUSTER_PLAN"' 2> "$MUSTER_DIR/err")
    "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/spec"
    cat "$MUSTER_DIR/err"
    # one of the two CPUs is left; Slurm reserves the last core
    [[ "$output" =~ ^0\ .*\;cpus=0\; ]]
}

@test "a site's topology file that NCCL could not use is told once for a job, by its first step" {
    grep -q hypervisor /proc/cpuinfo || skip "a virtual machine only"
    timeout 60 salloc -Q -n1 --gres=gpu:4 bash -c 'srun -Q true; srun -Q true; srun -Q --muster=verbose true' 2> "$MUSTER_DIR/err"
    cat "$MUSTER_DIR/err"
    [ "$(grep -c 'NCCL_TOPO_FILE is not set' "$MUSTER_DIR/err")" -eq 2 ] # the first and the verbose one
}
