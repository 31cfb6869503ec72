#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# Taking over --gpu-bind, with device cgroups on: who may open which GPU, and which one is
# the task's device 0. Real here: Slurm, cgroups, character devices, CPU affinity of 2 tasks
# on 2 cores. Not real: the GPUs, whose place is that of a recorded machine where GPU 0 and 1
# are near CPU 1, GPU 2 and 3 near CPU 0.
# The table (case 020) runs every form natively and with Muster, as an srun option and as an
# #SBATCH line with a plain srun. On the second Slurm release it runs there.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    need_cgroups devices
    four_gpus_on_two_cpus mtake
    cat > "$MUSTER_DIR/site.conf" <<CONF
[defaults]
topology = $MUSTER_DIR/machine.xml
mem = none
[node take1]
devices = $MUSTER_DIR/c/dev/take1/gpu
[node take2]
devices = $MUSTER_DIR/c/dev/take2/gpu
CONF
    cat > "$MUSTER_DIR/show" <<'SHOW'
#!/bin/bash
# One line: the task, CUDA_VISIBLE_DEVICES, the GPUs it may open, the GPU and CPUs of its plan,
# its CPUs. An allowed device has no driver behind it, a hidden one says EPERM.
opens=''
for f in "$MUSTER_DIR/c/dev/$SLURMD_NODENAME"/gpu*; do
    { : < "$f"; } 2>&1 | grep -q 'not permitted' || opens=$opens${f##*gpu}
done
plan=$(sed -n 's/.*;gpus=\([^;]*\);.*/\1/p' <<< "$MUSTER_PLAN" | sed 's/0000:\(.\)0:00.0/\1/g')
cpus=$(awk '$1 == "Cpus_allowed_list:" { print $2 }' /proc/self/status)
echo "$SLURM_PROCID visible=${CUDA_VISIBLE_DEVICES-unset} opens=$opens plan=${plan:--} cpus=$cpus"
SHOW
    chmod +x "$MUSTER_DIR/show"
    plugin_cluster --prefix take --nodes 2 --gpus 4,2 --constrain
    # the words for a Slurm that has --tres-bind (23.11), and for one that shares devices
    eval "$(cat "$MUSTER_DIR/env")"
    srun --help | grep -q tres-bind && touch "$MUSTER_DIR/tres-bind"
    true
}

newer() { [ -e "$MUSTER_DIR/tres-bind" ]; }

# A direct srun; its standard error goes to a file. Its input is not the caller's: srun reads all
# there is.
direct() { # srun option...
    timeout 60 srun -Q -w take1 -n2 "$@" "$MUSTER_DIR/show" < /dev/null 2> "$MUSTER_DIR/err" | sort
}

# The same options as #SBATCH lines, a plain srun (or $inner) inside.
inner='srun'
batch() { # option...
    {
        echo '#!/bin/bash'
        printf '#SBATCH %s\n' -w take1 -n2 "$@"
        echo "$inner -Q \$MUSTER_DIR/show"
    } > "$MUSTER_DIR/job"
    submit
}

# Submit the file job, wait for its end, print its output.
submit() {
    local status=0
    batch_job 60 -o "$MUSTER_DIR/out" -e "$MUSTER_DIR/err" "$MUSTER_DIR/job" || status=$?
    sort "$MUSTER_DIR/out"
    return $status
}

# Compare the two tasks' lines without plan and cpus.
expect() { # task 0, task 1: "visible=X opens=Y"
    local got
    got=$(sed 's/ plan=.*//; s/^[01] //' <<< "$output")
    [ "$got" = "$1
$2" ] || {
        echo "got:  $output"
        echo "want: $1 | $2"
        cat "$MUSTER_DIR/err"
        return 1
    }
}

# name, options, GPU of task 0, of task 1
forms() {
    cat <<'FORMS'
single:1|--gres=gpu:2 --gpu-bind=single:1|0|1
per_task:1|--gres=gpu:2 --gpu-bind=per_task:1|0|1
map_gpu|--gres=gpu:4 --gpu-bind=map_gpu:3,2|3|2
mask_gpu|--gres=gpu:4 --gpu-bind=mask_gpu:0x8,0x4|3|2
verbose|--gres=gpu:2 --gpu-bind=verbose,single:1|0|1
ntasks-per-gpu|--gres=gpu:2 --ntasks-per-gpu=1|0|1
gpus-per-task|--gpus-per-task=1|0|1
FORMS
    newer || return 0
    cat <<'FORMS'
map|--gres=gpu:4 --gpu-bind=map:3,2|3|2
mask|--gres=gpu:4 --gpu-bind=mask:0x8,0x4|3|2
tres-bind|--gres=gpu:2 --tres-bind=gres/gpu:single:1|0|1
tres-per-task|--tres-per-task=gres/gpu:1|0|1
FORMS
}

all_of() { # options: the GPUs of the step
    case $1 in *gpu:4*) echo 0123 ;; *) echo 01 ;; esac
}

each_form() { # function called with: name, options, GPU 0, GPU 1
    local name options a b bad=0 n=0
    while IFS='|' read -r name options a b; do
        # shellcheck disable=SC2086
        "$1" "$name" "$options" $a $b || { echo "form: $name"; bad=1; }
        n=$((n + 1))
    done < <(forms)
    [ $n -eq "$(forms | wc -l)" ] && return $bad
}

native_direct() {
    # shellcheck disable=SC2086
    run direct --muster=off $2
    expect "visible=0 opens=$3" "visible=0 opens=$4"
}

@test "case 020: natively every form leaves each task one device (direct srun, Muster off)" {
    each_form native_direct
}

native_batch() {
    # shellcheck disable=SC2086
    run batch --muster=off $2
    expect "visible=0 opens=$3" "visible=0 opens=$4"
}

@test "case 020: natively every form leaves each task one device (#SBATCH, Muster off)" {
    each_form native_batch
}

taken_batch() {
    # shellcheck disable=SC2086
    run batch $2
    expect "visible=$3 opens=$(all_of "$2")" "visible=$4 opens=$(all_of "$2")"
}

@test "case 020: from #SBATCH every form gives each task its GPU, all stay openable" {
    each_form taken_batch
}

taken_direct() {
    # shellcheck disable=SC2086
    run direct $2
    expect "visible=$3 opens=$(all_of "$2")" "visible=$4 opens=$(all_of "$2")"
    [ "$(grep -c 'write instead' "$MUSTER_DIR/err")" -eq 0 ]
}

@test "case 020: from a direct srun every form is taken over, without a warning" {
    each_form taken_direct
}

@test "the line that the warning gives works: srun --gpu-bind=none --muster=gpu-bind=X" {
    run direct --gres=gpu:4 --gpu-bind=none --muster=gpu-bind=map_gpu:3+2
    expect "visible=3 opens=0123" "visible=2 opens=0123"
    [ ! -s "$MUSTER_DIR/err" ] || ! grep -q 'write instead' "$MUSTER_DIR/err"
}

@test "case 075: closest means the GPUs near the task's CPUs, all openable" {
    run batch --gres=gpu:4 --gpu-bind=closest
    expect "visible=0,1 opens=0123" "visible=2,3 opens=0123"
    # as many tasks as GPUs: each has one of the near ones alone
    run batch -n4 -O --gres=gpu:4 --gpu-bind=closest
    [ "$(awk '{ print $2, $3 }' <<< "$output" | sort | tr '\n' ' ')" = \
        "visible=0 opens=0123 visible=1 opens=0123 visible=2 opens=0123 visible=3 opens=0123 " ]
}

@test "--gpu-bind=none and no request leave all GPUs visible and openable" {
    run batch --gres=gpu:4 --gpu-bind=none
    expect "visible=0,1,2,3 opens=0123" "visible=0,1,2,3 opens=0123"
    run direct --gres=gpu:4
    expect "visible=0,1,2,3 opens=0123" "visible=0,1,2,3 opens=0123"
}

@test "the task's CPUs are beside the GPU that it got: 2 tasks on 2 cores" {
    run batch --gres=gpu:4 --gpu-bind=map_gpu:3,0
    [ "${lines[0]}" = "0 visible=3 opens=0123 plan=9 cpus=0" ]
    [ "${lines[1]}" = "1 visible=0 opens=0123 plan=1 cpus=1" ]
    run batch --gres=gpu:4 --gpu-bind=map_gpu:0,3
    [ "${lines[0]}" = "0 visible=0 opens=0123 plan=1 cpus=1" ]
    [ "${lines[1]}" = "1 visible=3 opens=0123 plan=9 cpus=0" ]
}

@test "cases 021, 026: where Slurm binds by cgroup and every task sees 0, the GPU is found by opening, not by number" {
    newer && skip "this Slurm shares the devices"
    printf '[defaults]\nrestart = no\n' | cat "$MUSTER_DIR/site.conf" - > "$MUSTER_DIR/c/etc/muster.conf"
    run direct --gres=gpu:4 --gpu-bind=map_gpu:3,0
    cp "$MUSTER_DIR/site.conf" "$MUSTER_DIR/c/etc/muster.conf"
    [ "$(grep -c 'write instead: srun --gpu-bind=none --muster=gpu-bind=map_gpu:3+0' "$MUSTER_DIR/err")" -eq 1 ]
    [ "${lines[0]}" = "0 visible=0 opens=3 plan=9 cpus=0" ]
    [ "${lines[1]}" = "1 visible=0 opens=0 plan=1 cpus=1" ]
}

@test "after the take-over --muster=off only narrows, to what Slurm's own binding would show" {
    inner='srun --muster=off'
    run batch --gres=gpu:4 --gpu-bind=map_gpu:3,2
    expect "visible=3 opens=0123" "visible=2 opens=0123"
    [[ "$output" != *plan=[0-9]* ]]
}

@test "after the take-over --muster=bind=none only narrows" {
    inner='srun --muster=bind=none'
    run batch --gpus-per-task=1
    expect "visible=0 opens=01" "visible=1 opens=01"
    [[ "$output" != *plan=[0-9]* ]]
}

@test "after the take-over --muster=dry-run shows the table and changes nothing" {
    inner='srun --muster=dry-run'
    run batch --gpus-per-task=1
    expect "visible=0 opens=01" "visible=1 opens=01"
    [[ "$output" != *plan=[0-9]* ]]
    grep -q 'dry run: nothing is changed' "$MUSTER_DIR/err"
}

@test "an srun's own --gpu-bind=none beats the request of the #SBATCH line" {
    inner='srun --gpu-bind=none'
    run batch --gpus-per-task=1
    expect "visible=0,1 opens=01" "visible=0,1 opens=01"
}

@test "a binding that the script exports beats the #SBATCH line, as in Slurm" {
    newer && skip "SLURM_TRES_BIND beats SLURM_GPU_BIND there"
    inner='SLURM_GPU_BIND=map_gpu:1,0 srun'
    run batch --gres=gpu:2 --gpu-bind=single:1
    expect "visible=1 opens=01" "visible=0 opens=01"
}

@test "a step smaller than its job narrows among its own GPUs" {
    inner='srun --gres=gpu:2 --exact'
    run batch --gres=gpu:4 --gpu-bind=single:1
    expect "visible=0 opens=01" "visible=1 opens=01"
}

@test "a step on the job's upper GPUs counts within the step, and its plan names the node's" {
    cat > "$MUSTER_DIR/job" <<'JOB'
#!/bin/bash
#SBATCH -w take1 -n2 --gres=gpu:4 --gpu-bind=single:1
srun -Q -n1 --exact --gres=gpu:2 bash -c 'touch $MUSTER_DIR/first; sleep 20' &
for _ in $(seq 100); do [ -e $MUSTER_DIR/first ] && break; sleep 0.1; done
srun -Q -n1 --exact --gres=gpu:2 $MUSTER_DIR/show
kill %1
wait
JOB
    run submit
    [[ "$output" == "0 visible=0 opens=23 plan=8 "* ]]
}

@test "nodes with 4 and 2 GPUs: the neutral request fits both" {
    cat > "$MUSTER_DIR/job" <<'JOB'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --gpus=6 --gpu-bind=single:1
srun -Q $MUSTER_DIR/show
JOB
    run submit
    [[ "${lines[0]}" == "0 visible=0 opens=0123 "* ]]
    [[ "${lines[1]}" == "1 visible=1 opens=0123 "* ]]
    [[ "${lines[2]}" == "2 visible=0 opens=01 "* ]]
    [[ "${lines[3]}" == "3 visible=1 opens=01 "* ]]
    [ "$(grep -ci 'invalid' "$MUSTER_DIR/err")" -eq 0 ]
}

@test "salloc: the srun in its shell is taken over" {
    run timeout 60 salloc -Q -w take1 -n2 --gpus-per-task=1 bash -c 'srun -Q $MUSTER_DIR/show | sort'
    echo "$output"
    [[ "$output" == *"0 visible=0 opens=01 "* ]]
    [[ "$output" == *"1 visible=1 opens=01 "* ]]
}

@test "--export=NONE carries the request all the same (case 016)" {
    inner='export MUSTER_DIR; srun --export=MUSTER_DIR'
    run batch --gres=gpu:4 --gpu-bind=map_gpu:3,2
    expect "visible=3 opens=0123" "visible=2 opens=0123"
    run batch --gres=gpu:4 --gpu-bind=map_gpu:3,2 --export=MUSTER_DIR
    expect "visible=3 opens=0123" "visible=2 opens=0123"
}

@test "case 023: with ConstrainDevices nobody is warned that the node has other GPUs" {
    output=$(direct --gres=gpu:2)
    [ "$(grep -c 'opens=01 ' <<< "$output")" -eq 2 ]
    [ "$(grep -c ConstrainDevices "$MUSTER_DIR/err")" -eq 0 ]
}

# muster-admin(7), "The whole cluster". The job changes the files itself, between its steps.
@test "off=yes with lock=on: a running job keeps its GPU binding; without the line it has none" {
    local etc=$MUSTER_DIR/c/etc
    cp "$etc/muster.conf" "$MUSTER_DIR/muster.conf.kept"
    cp "$etc/plugstack.conf" "$MUSTER_DIR/plugstack.conf.kept"
    cat > "$MUSTER_DIR/job" <<JOB
#!/bin/bash
#SBATCH -w take1 -n2 --gres=gpu:4 --gpu-bind=map_gpu:3,2
sed 's/^.defaults.*/&\noff = yes\nlock = on/' $MUSTER_DIR/muster.conf.kept > $etc/muster.conf
srun -Q --muster=verbose $MUSTER_DIR/show | sed 's/^/off: /'
sed -i 's/^/#/' $etc/plugstack.conf
srun -Q $MUSTER_DIR/show | sed 's/^/out: /'
srun -Q --muster=off true || echo "refused: \$?"
JOB
    run submit
    cp "$MUSTER_DIR/muster.conf.kept" "$etc/muster.conf"
    cp "$MUSTER_DIR/plugstack.conf.kept" "$etc/plugstack.conf"
    echo "$output"
    [[ "${lines[0]}" == "off: 0 visible=3 "*" plan=- "* ]]
    [[ "${lines[1]}" == "off: 1 visible=2 "*" plan=- "* ]]
    # a variable for all GPUs, or none, by release; the device cgroup holds all of them
    [[ "${lines[2]}" =~ ^out:\ 0\ visible=(unset|0,1,2,3)\ opens=0123 ]]
    [[ "${lines[3]}" =~ ^out:\ 1\ visible=(unset|0,1,2,3)\ opens=0123 ]]
    [[ "${lines[4]}" == "refused: "* ]]
    grep -q 'does not allow users to set on' "$MUSTER_DIR/err"
    grep -q "unrecognized option '--muster=off'" "$MUSTER_DIR/err"
}
