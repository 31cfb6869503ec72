#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Device control of cgroup v2, as sites run it: an eBPF program of slurmstepd decides who may open
# which GPU. Real here: Slurm, cgroup v2, character devices. Not real: the GPUs, as in
# plugin_takeover.bats. cpuset stays with version 1 on a machine that has both: see make check-numa.

# Options are words, the task's shell expands some of them, and each test is a subshell.
# shellcheck disable=SC2086,SC2016,SC2030,SC2031

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    [ "$(id -u)" -eq 0 ] || skip "device cgroups need root"
    grep -qw cgroup2 /proc/mounts || skip "no cgroup v2 here"
    four_gpus_on_two_cpus mcg2
    cat > "$MUSTER_DIR/site.conf" <<CONF
[defaults]
topology = $MUSTER_DIR/machine.xml
topo = none
mem = none
devices = $MUSTER_DIR/c/dev/cgv1/gpu
CONF
    cat > "$MUSTER_DIR/show" <<'SHOW'
#!/bin/bash
# The task, CUDA_VISIBLE_DEVICES, and the GPUs it may open.
opens=''
for f in "$MUSTER_DIR/c/dev/cgv1"/gpu*; do
    { : < "$f"; } 2>&1 | grep -q 'not permitted' || opens=$opens${f##*gpu}
done
echo "$SLURM_PROCID visible=${CUDA_VISIBLE_DEVICES-unset} opens=$opens"
SHOW
    chmod +x "$MUSTER_DIR/show"
    plugin_cluster --prefix cgv --nodes 1 --gpus 4 --constrain --cgroup v2
}

direct() { # srun option...
    timeout 60 srun -Q "$@" < /dev/null 2> "$MUSTER_DIR/err" | sort
}

batch() { # option...: as #SBATCH lines, with a plain srun inside
    local status=0
    {
        echo '#!/bin/bash'
        printf '#SBATCH %s\n' "$@"
        echo "srun -Q \$MUSTER_DIR/show"
    } > "$MUSTER_DIR/job"
    batch_job 60 -o "$MUSTER_DIR/out" -e "$MUSTER_DIR/err" "$MUSTER_DIR/job" || status=$?
    sort "$MUSTER_DIR/out"
    return $status
}

tasks_are() { # visible in task 0, opens, visible in task 1, opens
    [ "$output" = "0 visible=$1 opens=$2
1 visible=$3 opens=$4" ] || { echo "$output"; cat "$MUSTER_DIR/err"; return 1; }
}

# options | GPU of task 0 | of task 1 | those of the step
each_form() { # function, called with: GPU 0, GPU 1, GPUs of the step, option...
    local options a b all bad=0
    while IFS='|' read -r options a b all; do
        "$1" "$a" "$b" "$all" $options || { echo "form: $options"; bad=1; }
    done <<'FORMS'
--gres=gpu:2 --gpu-bind=single:1|0|1|01
--gres=gpu:2 --gpu-bind=per_task:1|0|1|01
--gres=gpu:4 --gpu-bind=map_gpu:3,2|3|2|0123
--gres=gpu:4 --gpu-bind=mask_gpu:0x8,0x4|3|2|0123
--gpus-per-task=1|0|1|01
--gres=gpu:2 --ntasks-per-gpu=1|0|1|01
FORMS
    return $bad
}

@test "the step's cgroup is one of version 2" {
    [ "$(direct -n1 grep -c '^0::/system.slice/cgv1_slurmstepd.scope/[^/]*/step_0/' /proc/self/cgroup)" -eq 1 ]
    grep -q 'CgroupPlugin=cgroup/v2' "$MUSTER_DIR/c/etc/cgroup.conf"
}

native() {
    run direct -n2 --muster=off "${@:4}" "$MUSTER_DIR/show"
    tasks_are 0 "$1" 0 "$2"
}

@test "natively every form leaves each task one device" {
    each_form native
}

taken_direct() {
    run direct -n2 "${@:4}" "$MUSTER_DIR/show"
    tasks_are "$1" "$3" "$2" "$3" && ! grep -q 'hides the step' "$MUSTER_DIR/err"
}

@test "from a direct srun every form gives each task its GPU, all stay openable" {
    each_form taken_direct
}

taken_batch() {
    run batch -n2 "${@:4}"
    tasks_are "$1" "$3" "$2" "$3"
}

@test "from #SBATCH every form gives each task its GPU, all stay openable" {
    each_form taken_batch
}

@test "a step smaller than its job opens its own GPUs only" {
    run timeout 60 salloc -Q -n2 --gres=gpu:4 srun -Q --exact --gres=gpu:2 --gpu-bind=single:1 "$MUSTER_DIR/show"
    output=$(sort <<< "$output")
    [[ "$output" == *"0 visible=0 opens=01"* ]]
    [[ "$output" == *"1 visible=1 opens=01"* ]]
}

@test "steps side by side open no GPU of the other" {
    cat > "$MUSTER_DIR/side" <<'SIDE'
srun -Q -n1 --exact --gres=gpu:2 --gpu-bind=single:1 bash -c 'touch $MUSTER_DIR/first; sleep 20' &
for _ in $(seq 100); do [ -e $MUSTER_DIR/first ] && break; sleep 0.1; done
srun -Q -n1 --exact --gres=gpu:2 --gpu-bind=single:1 $MUSTER_DIR/show
kill %1
wait
SIDE
    output=$(timeout 60 salloc -Q -n2 --gres=gpu:4 bash "$MUSTER_DIR/side" 2> "$MUSTER_DIR/err" < /dev/null)
    [ "$output" = "0 visible=0 opens=23" ] || { echo "$output"; cat "$MUSTER_DIR/err"; return 1; }
}

# A MIG device is the file of its GPU and two capability files; two of them share the GPU's.
@test "MIG: the capability devices of a step's own parts, and no others, can be opened" {
    local dir=$MUSTER_DIR/m f
    mkdir "$MUSTER_DIR/caps"
    mknod -m 666 "$MUSTER_DIR/caps/gpu0" c 195 0
    for f in 21 22 30 31; do mknod -m 666 "$MUSTER_DIR/caps/cap$f" c 236 $f; done
    printf 'NodeName=mgv1 Name=gpu MultipleFiles=%s/gpu0,%s/cap%d,%s/cap%d\n' \
        "$MUSTER_DIR/caps" "$MUSTER_DIR/caps" 21 "$MUSTER_DIR/caps" 22 \
        "$MUSTER_DIR/caps" "$MUSTER_DIR/caps" 30 "$MUSTER_DIR/caps" 31 > "$MUSTER_DIR/gres"
    cat > "$MUSTER_DIR/caps/show" <<'SHOW'
#!/bin/bash
opens=''
for f in "$MUSTER_DIR"/caps/*[0-9]; do
    { : < "$f"; } 2>&1 | grep -q 'not permitted' || opens="$opens ${f##*/}"
done
echo "$SLURM_PROCID$opens"
SHOW
    chmod +x "$MUSTER_DIR/caps/show"
    "$top/tests/slurm/cluster" up --dir "$dir" --prefix mgv --nodes 1 --gpus 2 --constrain --cgroup v2 \
        --gres-conf "$MUSTER_DIR/gres" --plugin "$build/.libs/muster.so" > "$MUSTER_DIR/mig.env"
    eval "$(cat "$MUSTER_DIR/mig.env")"
    one=$(direct -n1 --gres=gpu:1 "$MUSTER_DIR/caps/show")
    native=$(direct -n2 --gres=gpu:2 --muster=off --gpu-bind=single:1 "$MUSTER_DIR/caps/show")
    taken=$(direct -n2 --gres=gpu:2 --gpu-bind=single:1 "$MUSTER_DIR/caps/show")
    cat "$MUSTER_DIR/err"
    "$top/tests/slurm/cluster" down --dir "$dir"
    printf '%s\n' "$one" "$native" "$taken"
    [ "$one" = "0 cap21 cap22 gpu0" ]
    [ "$native" = "0 cap21 cap22 gpu0
1 cap30 cap31 gpu0" ]
    [ "$taken" = "0 cap21 cap22 cap30 cap31 gpu0
1 cap21 cap22 cap30 cap31 gpu0" ]
}

@test "the cluster leaves no cgroup behind" {
    local root
    root=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/l" --prefix lft --nodes 1 --gpus 1 --constrain --cgroup v2 > "$MUSTER_DIR/left.env"
    [ -n "$(find "$root" -name 'lft1_slurmstepd.scope')" ]
    "$top/tests/slurm/cluster" down --dir "$MUSTER_DIR/l"
    [ -z "$(find "$root" -name '*lft1*')" ]
}
