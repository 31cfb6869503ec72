#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# muster.so in a real Slurm: options, environment, affinity, steps of every kind. Real here:
# Slurm, processes, the affinity of 2 tasks on 2 cores, one NUMA node's memory policy. Not
# real: the GPUs, whose place is that of a recorded machine (GPU 0, 1 near CPU 1, GPU 2, 3
# near CPU 0). plugin_takeover.bats has the GPU bindings.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    four_gpus_on_two_cpus mplug
    site > "$MUSTER_DIR/site.conf"
    plugin_cluster --prefix plug --nodes 2 --gpus 4
    eval "$(cat "$MUSTER_DIR/env")"
    # for a step that others run beside: until somebody removes the file
    echo 'touch $MUSTER_DIR/there; while [ -e $MUSTER_DIR/there ]; do sleep 0.1; done' > "$MUSTER_DIR/stay"
    # as installed: `optional`
    sed -i 's/^required/optional/' "$MUSTER_DIR/c/etc/plugstack.conf"
}

site() { # further lines of [defaults]
    printf '%s\n' '[defaults]' "topology = $MUSTER_DIR/machine.xml" 'mem = none' 'topo = none' "$@"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export PATH=$build:$PATH
    site > "$MUSTER_DIR/c/etc/muster.conf"
}

teardown() {
    [ -n "${BATS_TEST_COMPLETED:-}" ] || { echo "${output:-}"; cat "$MUSTER_DIR/err"; }
    # whatever a test did, no node may have been drained
    [ "$(sinfo -h -N -o '%T %N' | grep -ciE 'drain|down')" -eq 0 ]
}

step() { # srun option... -- command
    timeout 60 srun -Q -w plug1 -n2 --gres=gpu:4 "$@" 2> "$MUSTER_DIR/err"
}

cpus='awk "\$1 == \"Cpus_allowed_list:\" { print \$2 }" /proc/self/status'

# Submit a script from standard input, wait, print its output.
job() { # sbatch option...
    local status=0
    { echo '#!/bin/bash'; cat; } > "$MUSTER_DIR/job"
    batch_job 60 -o "$MUSTER_DIR/out" -e "$MUSTER_DIR/err" "$@" "$MUSTER_DIR/job" || status=$?
    cat "$MUSTER_DIR/out"
    return $status
}

@test "each of 2 tasks on 2 cores is bound beside its GPUs, as muster verify sees it" {
    run step muster verify
    [ "$status" -eq 0 ]
    [[ "$output" == *"task 0 on plug1: cpus 1 ok; memory not bound; gpu 0000:10:00.0,0000:20:00.0 "* ]]
    [[ "$output" == *"task 1 on plug1: cpus 0 ok; memory not bound; gpu 0000:80:00.0,0000:90:00.0 "* ]]
    [ "$(grep -c 'environment ok' <<< "$output")" -eq 2 ]
}

@test "muster verify reports what was changed since, and fails" {
    run step -n1 --gres=gpu:1 bash -c 'export RANK=9; unset CUDA_DEVICE_ORDER; muster verify'
    [ "$status" -ne 0 ]
    [[ "$output" == *"RANK DIFFERS: it was changed to '9'"* ]]
    [[ "$output" == *"CUDA_DEVICE_ORDER DIFFERS: it was removed"* ]]
}

@test "muster verify reports other CPUs and another memory policy than planned" {
    run step -n1 taskset -c 0,1 muster verify
    [ "$status" -ne 0 ]
    [[ "$output" == *"cpus DIFFER: planned "[01]", has 0-1"* ]]
    command -v numactl > /dev/null || return 0
    run step -n1 --muster=mem=prefer numactl --interleave=0 muster verify
    [ "$status" -ne 0 ]
    [[ "$output" == *"memory DIFFERS: planned node 0, policy is interleave 0"* ]]
}

@test "the answer does not depend on --distribution (case 013)" {
    a=$(step --distribution=block bash -c "echo \$SLURM_PROCID \$($cpus)" | sort)
    b=$(step --distribution=cyclic:cyclic bash -c "echo \$SLURM_PROCID \$($cpus)" | sort)
    [ "$a" = "0 1
1 0" ]
    [ "$a" = "$b" ]
}

@test "the environment of the contract, on two nodes with two tasks each" {
    run timeout 60 srun -Q -N2 -n4 --gres=gpu:4 bash -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK \
        $LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK $OMP_NUM_THREADS $CUDA_DEVICE_ORDER'
    [ "$(sort <<< "$output")" = "0 4 0 2 0 0 1 PCI_BUS_ID
1 4 1 2 0 0 1 PCI_BUS_ID
2 4 0 2 1 1 1 PCI_BUS_ID
3 4 1 2 1 1 1 PCI_BUS_ID" ]
}

@test "MASTER_ADDR and MASTER_PORT are the same in all tasks, the port is not an ephemeral one (case 043)" {
    run timeout 60 srun -Q -N2 -n4 --gres=gpu:4 bash -c 'echo $MASTER_ADDR $MASTER_PORT'
    [ "$(sort -u <<< "$output" | wc -l)" -eq 1 ]
    port=${lines[0]##* }
    read -r low high < /proc/sys/net/ipv4/ip_local_port_range
    [ "$port" -lt "$low" ] || [ "$port" -gt "$high" ]
}

@test "MASTER_ADDR: where the node's name does not resolve it is the node's NodeAddr, and verbose reports it" {
    if getent hosts plug1 > /dev/null; then skip "plug1 resolves here"; fi
    output=$(timeout 60 srun -Q -N2 -n2 --gres=gpu:4 --muster=verbose bash -c 'echo $MASTER_ADDR' 2> "$MUSTER_DIR/err")
    [ "$(sort -u <<< "$output")" = 127.0.0.1 ]
    [ "$(grep -c 'the name plug1 resolves to no address .* NodeAddr 127.0.0.1 in slurm.conf is used, and likewise for 1 more node$' "$MUSTER_DIR/err")" -eq 2 ]
    # a slurm.conf whose node lines are in an included file
    cp "$MUSTER_DIR/c/etc/slurm.conf" "$MUSTER_DIR/slurm.conf"
    grep '^NodeName' "$MUSTER_DIR/slurm.conf" > "$MUSTER_DIR/c/etc/nodes.conf"
    { grep -v '^NodeName' "$MUSTER_DIR/slurm.conf"; echo "Include $MUSTER_DIR/c/etc/nodes.conf"; } > "$MUSTER_DIR/c/etc/slurm.conf"
    output=$(timeout 60 srun -Q -N2 -n2 --gres=gpu:4 bash -c 'echo $MASTER_ADDR' 2> "$MUSTER_DIR/err")
    cp "$MUSTER_DIR/slurm.conf" "$MUSTER_DIR/c/etc/slurm.conf"
    [ "$(sort -u <<< "$output")" = 127.0.0.1 ]
}

@test "two steps of a job, and two tasks of an array, have different ports (case 043)" {
    run job -w plug1 -n2 --gres=gpu:4 <<< 'srun -Q -n1 bash -c "echo \$MASTER_PORT"
srun -Q -n1 bash -c "echo \$MASTER_PORT"'
    [ "${lines[0]}" != "${lines[1]}" ]
    batch_job 60 --array=0-1 -n1 --gres=gpu:1 -o "$MUSTER_DIR/array.%a" \
        --wrap 'srun -Q bash -c "echo \$MASTER_PORT"'
    [ -s "$MUSTER_DIR/array.0" ]
    [ "$(cat "$MUSTER_DIR/array.0")" != "$(cat "$MUSTER_DIR/array.1")" ]
}

@test "what the user set stays: OMP_NUM_THREADS, MASTER_ADDR, an NCCL variable" {
    OMP_NUM_THREADS=7 MASTER_ADDR=here NCCL_RAS_ADDR=me:1 run step -n1 bash -c \
        'echo $OMP_NUM_THREADS $MASTER_ADDR $NCCL_RAS_ADDR; echo $MUSTER_SET'
    [ "${lines[0]}" = "7 here me:1" ]
    [[ "${lines[1]}" != *MASTER_ADDR* ]]
}

@test "srun inside srun: ranks are computed anew, a value that the task changed stays" {
    run step -n1 -c2 --muster=rdzv=ranks bash -c 'export OMP_NUM_THREADS=5
        unset SLURM_CPU_BIND SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_LIST SLURM_CPU_BIND_VERBOSE
        echo outer $RANK $WORLD_SIZE; unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK
        srun -Q --overlap -n2 -c1 bash -c "echo inner \$RANK \$WORLD_SIZE \$OMP_NUM_THREADS"'
    [ "$(sort <<< "$output")" = "inner 0 2 5
inner 1 2 5
outer 0 1" ]
}

@test "keys rdzv, omp and nccl switch their variables off" {
    run step -n1 --muster=rdzv=none,omp=none,nccl=none bash -c \
        'echo ${RANK-no} ${MASTER_PORT-no} ${OMP_NUM_THREADS-no} ${NCCL_RAS_ADDR-no} ${MUSTER_PLAN:+yes}'
    [ "$output" = "no no no no yes" ]
}

@test "batch script and interactive shell: not bound, no rank variables" {
    run job -w plug1 -n1 -c2 --gres=gpu:2 <<< "echo \${RANK-no} \${MUSTER_PLAN-no}; $cpus"
    [ "${lines[0]}" = "no no" ]
    [ "${lines[1]}" = "0-1" ]
}

@test "a step without GPUs is left alone; --muster and enable=all switch it on" {
    run timeout 60 srun -Q -n1 bash -c 'echo ${RANK-no}'
    [ "$output" = no ]
    run timeout 60 srun -Q -n1 --muster bash -c 'echo ${RANK-no}'
    [ "$output" = 0 ]
    site 'enable = all' > "$MUSTER_DIR/c/etc/muster.conf"
    run timeout 60 srun -Q -n1 bash -c 'echo ${RANK-no}'
    [ "$output" = 0 ]
}

@test "enable=off: on only for users that ask; off=yes with lock: off for all" {
    site 'enable = off' > "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 --gres=gpu:1 bash -c 'echo ${RANK-no}'
    [ "$output" = no ]
    run step -n1 --gres=gpu:1 --muster bash -c 'echo ${RANK-no}'
    [ "$output" = 0 ]
    site 'off = yes' 'lock = on' > "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 --gres=gpu:1 --muster=on bash -c 'echo ${RANK-no}'
    [ "$output" = no ]
    grep -q 'does not allow users to set on' "$MUSTER_DIR/err"
    # for one partition
    { site 'enable = gpu'; printf '[partition debug]\noff = yes\nlock = on\n'; } > "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 --gres=gpu:1 --muster=on bash -c 'echo ${RANK-no}'
    [ "$output" = no ]
    grep -q 'does not allow users to set on' "$MUSTER_DIR/err"
}

@test "a locked key keeps the site's value, with a message" {
    site 'omp = none' 'lock = omp' > "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 --muster=omp=auto bash -c 'echo ${OMP_NUM_THREADS-no}'
    [ "$output" = no ]
    grep -q 'does not allow users to set omp' "$MUSTER_DIR/err"
}

@test "sections for a node and a partition" {
    { site; printf '[partition debug]\nomp = none\n[node plug[2-9]]\nomp = auto\n'; } \
        > "$MUSTER_DIR/c/etc/muster.conf"
    output=$(timeout 60 srun -Q -N2 -n2 --gres=gpu:1 bash -c 'echo $SLURMD_NODENAME ${OMP_NUM_THREADS-no}' \
        2> "$MUSTER_DIR/err")
    [ "$(sort <<< "$output")" = "plug1 no
plug2 1" ]
    # the user's option beats both
    output=$(timeout 60 srun -Q -N2 -n2 --gres=gpu:1 --muster=omp=none bash -c 'echo ${OMP_NUM_THREADS-no}' 2> "$MUSTER_DIR/err")
    [ "$(sort -u <<< "$output")" = no ]
    output=$(timeout 60 srun -Q -N2 -n2 --gres=gpu:1 --muster=omp=auto bash -c 'echo ${OMP_NUM_THREADS-no}' 2> "$MUSTER_DIR/err")
    [ "$(sort -u <<< "$output")" = 1 ]
}

@test "case 032: NICs with other names on the next node: each node's plan has its own" {
    for n in A B; do cp "$top/tests/data/cases/032-node$n-topo-m.txt" "$MUSTER_DIR/node$n.txt"; done
    printf '%s\n' '[node plug1]' "topology = $MUSTER_DIR/nodeA.txt" '[node plug2]' "topology = $MUSTER_DIR/nodeB.txt" \
        > "$MUSTER_DIR/c/etc/muster.conf"
    output=$(timeout 60 srun -Q -N2 -n4 --gres=gpu:2 bash -c 'echo "$RANK ${MUSTER_PLAN#*nics=}"' 2> "$MUSTER_DIR/err")
    [ "$(sort <<< "$output")" = "0 rocep4s0f0,rocep4s0f1;path=PHB
1 rocep137s0f0,rocep137s0f1;path=PHB
2 mlx5_0,mlx5_1;path=PHB
3 mlx5_2,mlx5_3;path=PHB" ]
}

@test "a fault in the site file is named with its line, the job runs" {
    site 'mem = most' > "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 bash -c 'echo ran ${RANK-no}'
    [ "$status" -eq 0 ]
    [ "$output" = "ran no" ]
    grep -q 'muster.conf:5: mem takes prefer, strict or none' "$MUSTER_DIR/err"
}

@test "strict holds where the site file is broken: the task fails with the file's fault" {
    site 'mem = most' > "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 --muster=strict bash -c 'echo ran'
    [ "$status" -ne 0 ]
    [ -z "$output" ]
    grep -q 'error: task 0 (strict): .*muster.conf:5: mem takes prefer, strict or none' "$MUSTER_DIR/err"
    run step -n1 --muster=off,strict bash -c 'echo ran' # off asks for nothing
    [ "$status" -eq 0 ]
    [ "$output" = ran ]
}

@test "a fault of ours after the take-over: the task sees the step's GPUs, not the node's" {
    site 'topology = /nonexistent.xml' > "$MUSTER_DIR/c/etc/muster.conf"
    run job -w plug1 -n2 --gres=gpu:2 --gpu-bind=single:1 \
        <<< "srun -Q bash -c 'echo \$CUDA_VISIBLE_DEVICES \$SLURM_STEP_GPUS \${RANK-no}'"
    [ "$(sort <<< "$output")" = "0,1 0,1 0
0,1 0,1 1" ]
    grep -q 'tasks run as Slurm placed them, with the rank and rendezvous variables only: /nonexistent.xml' "$MUSTER_DIR/err"
}

@test "no plan: ranks and the rendezvous address are set, what depends on the plan is not" {
    site 'topology = /nonexistent.xml' > "$MUSTER_DIR/c/etc/muster.conf"
    output=$(timeout 60 srun -Q -N2 -n2 --gres=gpu:1 bash -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK \
        ${MASTER_ADDR:+addr} ${MASTER_PORT:+port} ${MUSTER_PLAN-no} ${OMP_NUM_THREADS-no} $(env | grep -c ^NCCL_)' 2> "$MUSTER_DIR/err")
    [ "$(sort <<< "$output")" = "0 2 0 1 0 addr port no no 0
1 2 0 1 1 addr port no no 0" ]
    run step -n1 --gres=gpu:1 --muster=rdzv=none bash -c 'echo ${RANK-no}'
    [ "$output" = no ]
    run step -n1 --gres=gpu:1 --muster=dry-run bash -c 'echo ${RANK-no}'
    [ "$output" = no ]
    run step -n1 --muster=strict true
    [ "$status" -ne 0 ]
    grep -q 'error: task 0 (strict): /nonexistent.xml' "$MUSTER_DIR/err"
}

@test "a site file or topology that anybody can write is not read" {
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    chmod 666 "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 bash -c 'echo ran'
    [ "$output" = ran ]
    grep -q 'writable by everybody' "$MUSTER_DIR/err"
    chmod 664 "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 bash -c 'echo ran'
    [ "$output" = ran ]
    grep -q "muster.conf is writable by its group; it is not read: run chmod go-w $MUSTER_DIR/c/etc/muster.conf" "$MUSTER_DIR/err"
    chmod 644 "$MUSTER_DIR/c/etc/muster.conf"
    chmod 666 "$MUSTER_DIR/machine.xml"
    run step -n1 bash -c 'echo ran'
    chmod 644 "$MUSTER_DIR/machine.xml"
    [ "$output" = ran ]
    grep -q 'machine.xml is writable by everybody' "$MUSTER_DIR/err"
}

@test "a fifo in the place of the site file blocks no step" {
    rm "$MUSTER_DIR/c/etc/muster.conf"
    mkfifo "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 bash -c 'echo ran'
    rm "$MUSTER_DIR/c/etc/muster.conf"
    [ "$output" = ran ]
    grep -q 'not a regular file' "$MUSTER_DIR/err"
}

@test "an unknown key is refused by srun, sbatch and salloc, and the keys are listed" {
    for command in 'srun --muster=numa=1 true' 'salloc --muster=numa=1 true' \
        'sbatch --muster=numa=1 --wrap=true'; do
        # shellcheck disable=SC2086
        run timeout 60 $command
        [ "$status" -ne 0 ]
        [[ "$output" == *"unknown key 'numa'; the keys are on, off, dry-run"* ]]
    done
}

@test "an option of 4095 characters is read to its end, a longer one is refused in srun" {
    local long
    long=$(printf 'omp=auto,%.0s' {1..454})rdzv=none # 454 * 9 + 9
    [ ${#long} -eq 4095 ]
    run step -n1 --gres=gpu:1 --muster="$long" bash -c 'echo ${OMP_NUM_THREADS+set} ${RANK-no}'
    [ "$output" = "set no" ]
    run step -n1 --gres=gpu:1 --muster="$long," true
    [ "$status" -ne 0 ]
    grep -q -- '--muster takes at most 4095 characters' "$MUSTER_DIR/err"
}

@test "#SBATCH --muster reaches the steps, srun's own replaces it" {
    run job -w plug1 -n1 --gres=gpu:1 --muster=omp=none <<'JOB'
srun -Q bash -c 'echo ${OMP_NUM_THREADS-no} ${RANK-no}'
srun -Q --muster=rdzv=none bash -c 'echo ${OMP_NUM_THREADS-no} ${RANK-no}'
srun -Q --muster=off bash -c 'echo ${OMP_NUM_THREADS-no} ${RANK-no}'
JOB
    [ "$output" = "no 0
1 no
no no" ]
}

@test "--export=NONE: the task has its variables all the same (case 016)" {
    run step -n1 --gres=gpu:1 --export=NONE /bin/bash -c 'echo $RANK $CUDA_VISIBLE_DEVICES'
    [ "$output" = "0 0" ]
}

@test "-c of the job reaches the plan where Slurm reports it (case 016)" {
    run step -n1 -c2 --gres=gpu:1 bash -c "echo \$OMP_NUM_THREADS \$($cpus)"
    [ "$output" = "2 0-1" ]
}

@test "verbose prints the table once for each node, dry-run prints it and changes nothing" {
    timeout 60 srun -Q -N2 -n4 --gres=gpu:4 --muster=verbose true 2> "$MUSTER_DIR/err"
    [ "$(grep -c '^muster: plug[12]: step .* 2 of 4 tasks' "$MUSTER_DIR/err")" -eq 2 ]
    [ "$(grep -c '^muster: plug[12]: .*0000:80:00.0' "$MUSTER_DIR/err")" -eq 2 ]
    [ "$(grep '^muster: ' "$MUSTER_DIR/err" | grep -vc '^muster: plug[12]: ')" -eq 0 ]
    run step --muster=dry-run bash -c 'echo ${RANK-no} ${MUSTER_PLAN-no} $CUDA_VISIBLE_DEVICES'
    [ "${lines[0]}" = "no no 0,1,2,3" ]
    grep -q 'dry run: nothing is changed' "$MUSTER_DIR/err"
}

@test "strict: a task that cannot get what was asked fails with the reason, else it runs with a warning" {
    run step --muster=strict,gpu-bind=map_gpu:7 true
    [ "$status" -ne 0 ]
    grep -q "task 0 (strict): gpu-bind 'map_gpu:7' names GPU 7" "$MUSTER_DIR/err"
    run step --muster=gpu-bind=map_gpu:7 echo ran
    [ "$status" -eq 0 ]
    grep -q "warning: tasks run as Slurm placed them, with .* variables only: gpu-bind 'map_gpu:7'" "$MUSTER_DIR/err"
}

@test "memory: preferred or bound to nodes that the step may use; without the task's own reported, and an error under strict" {
    # this machine has NUMA node 0 alone, the recorded one 0 and 1
    [ "$(awk '$1 == "Mems_allowed_list:" { print $2 }' /proc/self/status)" = 0 ] || skip "several NUMA nodes"
    run step --muster=mem=prefer muster verify
    [ "$(grep -c 'memory preferred 0 ok' <<< "$output")" -eq 2 ]
    ! grep 'muster:' "$MUSTER_DIR/err" || false
    run step --muster=mem=prefer,verbose true
    grep -q "NUMA node 1: not in the step's cpuset.mems" "$MUSTER_DIR/err"
    run step --muster=mem=strict muster verify
    [ "$(grep -c 'memory bind 0 ok' <<< "$output")" -eq 2 ]
    [ "$(grep -c 'mem=strict: tasks run on NUMA node 1, but the step may use memory of NUMA node 0' "$MUSTER_DIR/err")" -eq 1 ]
    run step --muster=mem=strict,strict true
    [ "$status" -ne 0 ]
}

@test "a task's message has its number in the step" {
    run timeout 60 srun -Q -N2 -n4 --gres=gpu:4 --muster=strict,gpu-bind=map_gpu:9 true
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" = *"muster: plug2: error: task 3 (1 on this node) (strict): "* ]]
}

@test "an explicit --cpu-bind stays, verbose names the masks that would be near" {
    run step --cpu-bind=map_cpu:0,1 --muster=verbose bash -c "echo \$SLURM_PROCID \$($cpus)"
    [ "$(sort <<< "$output")" = "0 0
1 1" ]
    grep -q -- 'the step keeps its --cpu-bind; the CPUs near the GPUs are --cpu-bind=mask_cpu:0x2,0x1' "$MUSTER_DIR/err"
    SLURM_CPU_BIND=map_cpu:0,1 run step bash -c "echo \$SLURM_PROCID \$($cpus)"
    [ "$(sort <<< "$output")" = "0 0
1 1" ]
}

@test "SLURM_CPU_BIND of an outer step is named, and does not count as the user's (case 015)" {
    run step -n1 -c2 bash -c "unset SLURM_CPUS_PER_TASK; srun -Q --overlap -n1 bash -c 'echo \$MUSTER_PLAN'"
    [[ "$output" == *"cpus="[0-9]* ]]
    grep -q 'warning: SLURM_CPU_BIND=.* is inherited from the outer step' "$MUSTER_DIR/err"
}

@test "two steps side by side with two GPUs each: each its own GPUs and CPUs (case 053)" {
    run job -w plug1 -n2 --gres=gpu:4 <<'JOB'
srun -Q -n1 --exact --gres=gpu:2 bash -c 'echo $MUSTER_PLAN; . $MUSTER_DIR/stay' &
until [ -e $MUSTER_DIR/there ]; do sleep 0.1; done
srun -Q -n1 --exact --gres=gpu:2 bash -c 'echo $MUSTER_PLAN; rm $MUSTER_DIR/there'
wait
JOB
    [ "$(sort <<< "$output" | cut -d';' -f3,4)" = "gpus=0000:10:00.0,0000:20:00.0;cpus=0
gpus=0000:80:00.0,0000:90:00.0;cpus=1" ]
}

@test "two jobs on one node: each has its own GPUs, CPUs, rendezvous address and RAS port" {
    for i in 1 2; do
        # each until the other runs too
        timeout 60 srun -Q -w plug1 -n1 --gres=gpu:2 bash -c 'touch "$MUSTER_DIR/two.$0.runs"
            until [ -e "$MUSTER_DIR/two.$((3 - $0)).runs" ]; do sleep 0.1; done
            echo "$MUSTER_PLAN;$MASTER_PORT;$NCCL_RAS_ADDR"' $i > "$MUSTER_DIR/two.$i" 2> "$MUSTER_DIR/err" &
    done
    wait
    for field in 3 4 8 9; do # gpus, cpus, port, RAS
        [ "$(cut -d';' -f$field "$MUSTER_DIR"/two.[12] | sort -u | grep -c .)" -eq 2 ] || { cat "$MUSTER_DIR"/two.[12]; return 1; }
    done
}

@test "a step that overlaps another one reports what they share; side by side nothing is shared (case 053)" {
    run job -w plug1 -n2 --gres=gpu:4 <<'JOB'
srun -Q --overlap -n1 --gres=gpu:2 bash $MUSTER_DIR/stay &
until [ -e $MUSTER_DIR/there ]; do sleep 0.1; done
srun -Q --overlap -n2 --gres=gpu:4 --muster=verbose true
srun -Q --overlap -n2 --gres=gpu:4 true
rm $MUSTER_DIR/there
wait
JOB
    [ "$(grep -c 'shares' "$MUSTER_DIR/err")" -eq 1 ]
    grep -qE 'plug1: this step shares CPUs 1 and GPUs 0000:10:00.0,0000:20:00.0 with step [0-9]+\.0, which also runs here' "$MUSTER_DIR/err"
    run job -w plug1 -n2 --gres=gpu:4 <<'JOB'
srun -Q --exact -n1 --gres=gpu:2 bash $MUSTER_DIR/stay &
until [ -e $MUSTER_DIR/there ]; do sleep 0.1; done
srun -Q --exact -n1 --gres=gpu:2 --muster=verbose true
rm $MUSTER_DIR/there
wait
JOB
    grep -q 'step [0-9]*\.1, 1 of 1 task' "$MUSTER_DIR/err"
    [ "$(grep -c 'shares' "$MUSTER_DIR/err")" -eq 0 ]
}

@test "a heterogeneous step: one world, node and rank numbers run on" {
    output=$(timeout 60 srun -Q -N1 -n1 --gres=gpu:2 bash -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $NODE_RANK $MASTER_PORT' \
        : -N1 -n2 --gres=gpu:4 bash -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $NODE_RANK $MASTER_PORT' \
        2> "$MUSTER_DIR/err")
    [ "$(sort <<< "$output" | cut -d' ' -f1-4)" = "0 3 0 0
1 3 0 1
2 3 1 1" ]
    [ "$(cut -d' ' -f5 <<< "$output" | sort -u | wc -l)" -eq 1 ]
}

@test "torchrun in a step: left to number its ranks, several on a node are warned of (case 044)" {
    printf '#!/bin/bash\necho ${RANK-no} ${OMP_NUM_THREADS-no} ${MASTER_PORT:+port}\n' > "$MUSTER_DIR/torchrun"
    chmod +x "$MUSTER_DIR/torchrun"
    run step -n1 "$MUSTER_DIR/torchrun" --nproc_per_node=4 train.py
    [ "$output" = "no 1 port" ]
    [ "$(grep -c launchers "$MUSTER_DIR/err")" -eq 0 ]
    run step "$MUSTER_DIR/torchrun" --nproc_per_node=4 train.py
    grep -q 'warning: 2 launchers x 4 .*4 GPUs' "$MUSTER_DIR/err"
}

@test "case 044: muster doctor beside a running step sees a launcher for each of its tasks" {
    printf '#!/bin/bash\ntouch %s.$SLURM_PROCID\nsleep 60\n' "$MUSTER_DIR/launched" > "$MUSTER_DIR/torchrun"
    chmod +x "$MUSTER_DIR/torchrun"
    run job -w plug1 -n2 --gres=gpu:4 <<JOB
srun -Q --overlap -n2 $MUSTER_DIR/torchrun --nproc_per_node=4 train.py &
for _ in \$(seq 100); do [ ! -e $MUSTER_DIR/launched.0 ] || [ ! -e $MUSTER_DIR/launched.1 ] || break; sleep 0.1; done
srun -Q --overlap --gres=none -n1 $build/muster doctor
$build/muster doctor
scancel --signal=KILL \$SLURM_JOB_ID.0
wait
JOB
    [ "$(grep -c '2 copies of torchrun run on each node' <<< "$output")" -eq 2 ]
}

@test "mpirun's daemon in a step: detected, reported, not bound to one task's place" {
    printf '#!/bin/bash\necho ${RANK-no}; %s\n' "$cpus" > "$MUSTER_DIR/orted"
    chmod +x "$MUSTER_DIR/orted"
    run step -n1 -c2 "$MUSTER_DIR/orted"
    [ "${lines[0]}" = no ]
    [ "${lines[1]}" = 0-1 ]
    grep -q "mpirun's daemon" "$MUSTER_DIR/err"
}

@test "CUDA_VISIBLE_DEVICES that the user set inside a job is noticed" {
    run job -w plug1 -n1 --gres=gpu:4 <<< "CUDA_VISIBLE_DEVICES=2,1 srun -Q bash -c 'echo \$CUDA_VISIBLE_DEVICES'"
    [ "$output" = 0,1,2,3 ]
    grep -q 'CUDA_VISIBLE_DEVICES=2,1 .* is replaced in the step' "$MUSTER_DIR/err"
}

@test "case 023: without ConstrainDevices a job that owns a part of the node's GPUs is warned, once" {
    site 'devices = '"$MUSTER_DIR/c/dev/plug1/gpu" > "$MUSTER_DIR/c/etc/muster.conf"
    [ -c "$MUSTER_DIR/c/dev/plug1/gpu0" ] || skip "needs device files (root)"
    warning="can open 2 GPUs of the node that are not the job's: ConstrainDevices is off"
    run step --gres=gpu:2 true
    [ "$(grep -c "$warning" "$MUSTER_DIR/err")" -eq 1 ]
    run step true # owns all four
    [ "$(grep -c ConstrainDevices "$MUSTER_DIR/err")" -eq 0 ]
    run job -w plug1 -n2 --gres=gpu:2 <<< "srun -Q true; srun -Q true" # by the first step only
    [ "$(grep -c "$warning" "$MUSTER_DIR/err")" -eq 1 ]
    run job -w plug1 -n2 --gres=gpu:4 <<< "srun -Q -n1 --gres=gpu:2 true" # the job owns all
    [ "$status" -eq 0 ]
    [ "$(grep -c ConstrainDevices "$MUSTER_DIR/err")" -eq 0 ]
}

@test "TaskProlog runs after Muster and its exports win" {
    printf '#!/bin/bash\necho "export OMP_NUM_THREADS=33"\n' > "$MUSTER_DIR/prolog"
    chmod +x "$MUSTER_DIR/prolog"
    run step -n1 --gres=gpu:1 --task-prolog="$MUSTER_DIR/prolog" bash -c 'echo $OMP_NUM_THREADS $RANK'
    [ "$output" = "33 0" ]
}

@test "more tasks than GPUs: left as Slurm placed them with one warning, share=no is an error" {
    run timeout 60 srun -Q -w plug1 -n2 --gres=gpu:1 bash -c 'echo ran' 2> "$MUSTER_DIR/err"
    [ "$(grep -c ran <<< "$output")" -eq 2 ]
    run timeout 60 srun -Q -w plug1 -n2 --gres=gpu:1 --muster=share=no,strict true
    [ "$status" -ne 0 ]
    run step --gres=gpu:1 --muster=share=no bash -c 'echo ran'
    [ "$status" -ne 0 ]
    [[ "$output" != *ran* ]]
    grep -q 'error: task 0: 2 tasks on this node but 1 GPU, and share=no: start 1 task per node' "$MUSTER_DIR/err"
    # as a default of the site, and where another binding is Slurm's
    site 'share = no' > "$MUSTER_DIR/c/etc/muster.conf"
    run step --gres=gpu:1 --muster=bind=none bash -c 'echo ran'
    [ "$status" -ne 0 ]
    # what only looks, or is off, runs
    for option in dry-run off share=yes; do
        run step --gres=gpu:1 --muster=$option bash -c 'echo ran'
        [ "$(grep -c ran <<< "$output")" -eq 2 ]
    done
}

@test "a plugin of another Slurm release: optional is skipped, jobs run (case 051)" {
    command -v python3 > /dev/null || skip "no python3"
    cp "$build/.libs/muster.so" "$MUSTER_DIR/stale.so"
    python3 - "$MUSTER_DIR/stale.so" <<'PY'
import subprocess, sys
path = sys.argv[1]
for line in subprocess.check_output(["nm", "-D", path], text=True).splitlines():
    if line.endswith(" plugin_version"):
        at = int(line.split()[0], 16)
with open(path, "r+b") as f: # .rodata is loaded where it lies in the file
    f.seek(at + 1)
    f.write(b"\x01\x01")
PY
    cp "$MUSTER_DIR/c/etc/plugstack.conf" "$MUSTER_DIR/plugstack"
    sed -i "s,[^ ]*/muster.so,$MUSTER_DIR/stale.so," "$MUSTER_DIR/c/etc/plugstack.conf"
    run step -n1 bash -c 'echo ran ${RANK-no}'
    cp "$MUSTER_DIR/plugstack" "$MUSTER_DIR/c/etc/plugstack.conf"
    [ "$status" -eq 0 ]
    [ "$output" = "ran no" ]
}
