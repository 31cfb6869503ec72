#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# What muster.so writes into a task's environment for those that are not ranks: shells,
# launchers, trainers and daemons that start processes themselves, jobs submitted from inside a
# step. Real here: Slurm, processes, terminals, one NUMA node's memory policy. Not real: the
# GPUs, whose place is that of a recorded machine (GPU 0, 1 near CPU 1, GPU 2, 3 near CPU 0).

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    four_gpus_on_two_cpus menv
    site > "$MUSTER_DIR/site.conf"
    plugin_cluster --prefix env --nodes 2 --gpus 4
}

site() { # further lines of [defaults]
    printf '%s\n' '[defaults]' "topology = $MUSTER_DIR/machine.xml" 'topo = none' "$@"
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export PATH=$build:$PATH
    site > "$MUSTER_DIR/c/etc/muster.conf"
}

teardown() {
    [ -n "${BATS_TEST_COMPLETED:-}" ] || { echo "${output:-}"; cat "$MUSTER_DIR/err"; }
}

step() { # srun option... command
    timeout 60 srun -Q -w env1 "$@" 2> "$MUSTER_DIR/err"
}

# On both nodes.
steps() { # srun option... command
    timeout 60 srun -Q -N2 "$@" 2> "$MUSTER_DIR/err"
}

# The names of the rank variables that are set, and of the rendezvous, in one line.
# shellcheck disable=SC2016
ranks='echo ${!RANK*} ${!LOCAL_*} ${!WORLD_*} ${!NODE_RANK*} ${!GROUP_RANK*} ${!MASTER_*}'

@test "case 061: one task with several GPUs is no rank; verbose reports it with the cure" {
    run step -n1 --gres=gpu:2 bash -c "$ranks"
    [ "$output" = "MASTER_ADDR MASTER_PORT" ]
    run step -n1 --gres=gpu:2 --muster=verbose true
    grep -q 'ranks: each node has one task with several GPUs, .*--muster=rdzv=ranks' "$MUSTER_DIR/err"
    run step -n1 --gres=gpu:2 --muster=rdzv=ranks bash -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK'
    [ "$output" = "0 1 0" ]
    run step -n1 --gres=gpu:2 --muster=rdzv=none bash -c "$ranks"
    [ -z "$output" ]
}

@test "independent runs in one step: verbose reports that the tasks are ranks of one training, with the cure" {
    local decided='ranks: each task is a rank of one training; for independent runs --muster=rdzv=none leaves RANK and the like out'
    run steps -n4 --gres=gpu:2 --muster=verbose bash -c 'echo ${RANK-no} ${WORLD_SIZE-no}'
    [ "$(sort <<< "$output" | tr '\n' ' ')" = "0 4 1 4 2 4 3 4 " ]
    [ "$(grep -cx "muster: env[12]: $decided" "$MUSTER_DIR/err")" -eq 2 ]
    run steps -n4 --gres=gpu:2 --muster=verbose,rdzv=none bash -c "$ranks"
    [ "$status" -eq 0 ]
    [ -z "${output//$'\n'/}" ]
    [ "$(grep -cx 'muster: env[12]: ranks: rdzv=none: the tasks get no rank and rendezvous variables' "$MUSTER_DIR/err")" -eq 2 ]
}

@test "case 061: PyTorch Lightning starts its second process in one task with two GPUs" {
    python3 -c "import pytorch_lightning" 2> /dev/null || skip "python3 has no pytorch_lightning"
    # Lightning takes Slurm's tasks for its ranks except in a job of this name.
    output=$(step -J bash -n1 --gres=gpu:2 python3 "$BATS_TEST_DIRNAME/lightning.py")
    [ "$(grep -oE '[A-Z].* elsewhere: .*|rank . of 2 is done' <<< "$output" | sort)" = "LightningEnvironment ranks start elsewhere: False
rank 0 of 2 is done
rank 1 of 2 is done" ]
}

@test "case 061: without a plan the rule is the same" {
    site 'topology = /nonexistent.xml' > "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 --gres=gpu:2 bash -c "$ranks"
    [ "$output" = "MASTER_ADDR MASTER_PORT" ]
    run step -n1 --gres=gpu:1 bash -c 'echo $RANK $WORLD_SIZE'
    [ "$output" = "0 1" ]
}

@test "one daemon with several GPUs on each node: the node's number and the rendezvous only" {
    output=$(steps -n2 --gres=gpu:2 bash -c "$ranks; echo \$NODE_RANK")
    [ "$(sort <<< "$output")" = "0
1
NODE_RANK MASTER_ADDR MASTER_PORT
NODE_RANK MASTER_ADDR MASTER_PORT" ]
}

@test "a heterogeneous step with one launcher on each node; one with several tasks on a node" {
    output=$(timeout 60 srun -Q -N1 -n1 --gres=gpu:2 bash -c "$ranks" : \
        -N1 -n1 --gres=gpu:4 bash -c "$ranks" 2> "$MUSTER_DIR/err")
    [ "$(sort -u <<< "$output")" = "NODE_RANK MASTER_ADDR MASTER_PORT" ]
    output=$(timeout 60 srun -Q -N1 -n1 --gres=gpu:2 bash -c 'echo $RANK' : \
        -N1 -n2 --gres=gpu:4 bash -c 'echo $RANK' 2> "$MUSTER_DIR/err")
    [ "$(sort <<< "$output")" = "0
1
2" ]
}

@test "tasks with one GPU each are ranks: also one alone, and one on each node" {
    run step -n1 --gres=gpu:1 bash -c 'echo $RANK $WORLD_SIZE'
    [ "$output" = "0 1" ]
    output=$(steps -n2 --gres=gpu:1 bash -c 'echo $RANK $WORLD_SIZE')
    [ "$(sort <<< "$output")" = "0 2
1 2" ]
    # bound to one of the step's two GPUs
    run step -n1 --gres=gpu:2 --muster=gpu-bind=map_gpu:1 bash -c 'echo $RANK $WORLD_SIZE'
    [ "$output" = "0 1" ]
}

@test "one task with one GPU: PyTorch's env:// is a world of one, and a program for one process is as before" {
    local python=${MUSTER_PYTHON:-python3}
    "$python" -c "import torch" 2> /dev/null || skip "no PyTorch"
    cat > "$MUSTER_DIR/one.py" << 'P'
import os, sys
os.environ["USE_LIBUV"] = "0" # Debian's PyTorch lacks libuv
import torch, torch.distributed as dist
if "ranks" in sys.argv:
    dist.init_process_group("gloo")
print("world", dist.get_world_size() if dist.is_initialized() else "none", flush=True)
P
    run step -n1 --gres=gpu:1 "$python" "$MUSTER_DIR/one.py" ranks
    [ "$output" = "world 1" ]
    run step -n1 --gres=gpu:1 "$python" "$MUSTER_DIR/one.py"
    [ "$output" = "world none" ]
    run step -n1 --gres=gpu:1 --muster=rdzv=none "$python" "$MUSTER_DIR/one.py" ranks
    [ "$status" -ne 0 ]
    grep -q 'RANK expected, but not set' "$MUSTER_DIR/err"
}

# srun with a terminal, as somebody types it. Prints what the terminal shows.
terminal() { # srun option... command (no quotes)
    timeout 60 script -qec "srun -Q -w env1 $*" /dev/null < /dev/null | tr -d '\r\0'
}

@test "case 061: a shell with a terminal gets no rank and no rendezvous, but its GPUs" {
    command -v script > /dev/null || skip "no script(1)"
    printf '#!/bin/bash\necho "names: $(%s) gpus: $CUDA_VISIBLE_DEVICES."\n' "$ranks" > "$MUSTER_DIR/shell"
    chmod +x "$MUSTER_DIR/shell"
    run terminal -n1 --gres=gpu:1 --pty "$MUSTER_DIR/shell"
    [[ "$output" == *"names:  gpus: 0."* ]]
    run terminal -n2 --gres=gpu:2 --pty "$MUSTER_DIR/shell"
    [[ "$output" == *"names:  gpus: 0,1."* ]]
    run terminal -n1 --gres=gpu:1 --muster=verbose --pty true
    [[ "$output" == *"ranks: the step has a terminal (--pty)"*"--muster=rdzv=ranks"* ]]
    run terminal -n1 --gres=gpu:1 --muster=rdzv=ranks --pty "$MUSTER_DIR/shell"
    [[ "$output" == *"names: RANK "* ]]
}

@test "a step started in such a shell has ranks again" {
    command -v script > /dev/null || skip "no script(1)"
    printf '#!/bin/bash\nsrun -Q --overlap -n2 %q/inner < /dev/null\n' "$MUSTER_DIR" > "$MUSTER_DIR/shell"
    printf '#!/bin/bash\necho "rank $RANK of $WORLD_SIZE"\n' > "$MUSTER_DIR/inner"
    chmod +x "$MUSTER_DIR/shell" "$MUSTER_DIR/inner"
    run terminal -n2 --gres=gpu:2 --pty "$MUSTER_DIR/shell"
    [ "$(grep -o 'rank . of .' <<< "$output" | sort)" = "rank 0 of 2
rank 1 of 2" ]
}

# What a step of Muster leaves in an environment: the names that no other job may see. Slurm writes
# CUDA_VISIBLE_DEVICES and SLURM_STEP_GPUS too, where a job or step has GPUs.
outer='^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|MASTER_ADDR|MASTER_PORT|OMP_NUM_THREADS'
outer=$outer'|CUDA_DEVICE_ORDER|NCCL_[A-Z_]*|MUSTER_PLAN|MUSTER_SET|SLURM_MUSTER_[A-Z]*|SLURM_GPU_BIND)='

# Rank 1 of a step runs a command in the environment that Muster gave it.
from_rank_1() { # command
    step -n2 -c1 --gres=gpu:2 bash -c "[ \$SLURM_PROCID = 1 ] || exit 0
        unset \${!SLURM_CPU_BIND*}
        env | grep -cE '$outer' > $MUSTER_DIR/had
        $1"
    [ "$(cat "$MUSTER_DIR/had")" -ge 10 ]
}

# What the script of a new job sees of it. The job runs on the other node.
script_sees() { # sbatch option...
    rm -f "$MUSTER_DIR"/seen "$MUSTER_DIR"/done
    printf '#!/bin/bash\nenv > %s/seen\ntouch %s/done\n' "$MUSTER_DIR" "$MUSTER_DIR" > "$MUSTER_DIR/eval"
    from_rank_1 "sbatch -Q -w env2 -n1 -o /dev/null $* $MUSTER_DIR/eval" || return 1
    wait_for 31 test -e "$MUSTER_DIR/done" || return 1
    grep -E "$outer" "$MUSTER_DIR/seen" || echo nothing
}

@test "case 063: a job submitted from inside a step sees nothing of the step, in any mode" {
    for options in --gres=gpu:1 '' '--gres=gpu:1 --muster=off' '--gres=gpu:1 --muster=bind=none' \
        '--gres=gpu:1 --export=ALL,OTHER=1' '--muster=rdzv=none'; do
        # shellcheck disable=SC2086
        run script_sees $options
        [ "$output" = nothing ] || { echo "sbatch $options"; false; }
    done
    site 'enable = off' > "$MUSTER_DIR/c/etc/muster.conf"
    timeout 60 srun -Q -w env1 -n2 --gres=gpu:2 --muster bash -c "[ \$SLURM_PROCID = 0 ] ||
        sbatch -Q -W -w env2 -n1 -o $MUSTER_DIR/out --wrap env" 2> "$MUSTER_DIR/err"
    [ "$(grep -cE "$outer" "$MUSTER_DIR/out")" -eq 0 ]
}

@test "case 063: a new job without GPUs gets no CUDA_VISIBLE_DEVICES of the step" {
    run script_sees
    [ "$output" = nothing ]
    [ "$(grep -cE '^(CUDA_VISIBLE_DEVICES|SLURM_STEP_GPUS)=' "$MUSTER_DIR/seen")" -eq 0 ]
}

@test "case 063: what the task set itself goes with its job" {
    run from_rank_1 "export OMP_NUM_THREADS=77 MASTER_PORT=4711 MINE=yes
        sbatch -Q -W -w env2 -n1 -o $MUSTER_DIR/out --wrap env"
    [ "$(grep -cE '^(OMP_NUM_THREADS=77|MASTER_PORT=4711|MINE=yes)$' "$MUSTER_DIR/out")" -eq 3 ]
    [ "$(grep -cE '^(RANK|WORLD_SIZE|MASTER_ADDR|MUSTER_SET)=' "$MUSTER_DIR/out")" -eq 0 ]
}

@test "case 063: salloc and srun start a job from inside a step" {
    run from_rank_1 "salloc -Q -w env2 -n1 --gres=gpu:1 env"
    [ "$(grep -c '^SLURM_JOB_ID=' <<< "$output")" -eq 1 ]
    [ "$(grep -cE "$outer" <<< "$output")" -eq 0 ]
    run from_rank_1 "for v in \${!SLURM_*}; do [ \$v = SLURM_CONF ] || [[ \$v = SLURM_MUSTER_* ]] || unset \$v; done
        srun -Q -w env2 -n2 --gres=gpu:2 bash -c 'echo rank \$RANK of \$WORLD_SIZE'"
    [ "$(sort <<< "$output")" = "rank 0 of 2
rank 1 of 2" ]
}

@test "case 063: a binding that was taken over stays in its own job" {
    printf '#!/bin/bash\nsbatch -Q -W -w env2 -n1 --gres=gpu:1 -o %s/out --wrap env\n' "$MUSTER_DIR" > "$MUSTER_DIR/outer"
    batch_job 60 -w env1 -n2 --gres=gpu:2 --gpu-bind=single:1 -o /dev/null "$MUSTER_DIR/outer"
    [ "$(grep -c '^SLURM_JOB_ID=' "$MUSTER_DIR/out")" -eq 1 ]
    [ "$(grep -cE '^SLURM_(GPU_BIND|MUSTER_REQUEST)=' "$MUSTER_DIR/out")" -eq 0 ]
}

@test "case 063: sbatch without the plugin: the new job's script is cleaned on its node" {
    mkdir -p "$MUSTER_DIR/bare"
    cp "$MUSTER_DIR"/c/etc/*.conf "$MUSTER_DIR/bare/"
    : > "$MUSTER_DIR/bare/plugstack.conf"
    sed -i "s,^PlugStackConfig=.*,PlugStackConfig=$MUSTER_DIR/bare/plugstack.conf," "$MUSTER_DIR/bare/slurm.conf"
    run from_rank_1 "SLURM_CONF=$MUSTER_DIR/bare/slurm.conf sbatch -Q -W -w env2 -n1 --gres=gpu:1 -o $MUSTER_DIR/out --wrap env"
    [ "$(grep -c '^SLURM_JOB_ID=' "$MUSTER_DIR/out")" -eq 1 ]
    [ "$(grep -cE "$outer" "$MUSTER_DIR/out")" -eq 0 ]
}

@test "case 063: a step inside a step, off or without GPUs, sees nothing of the outer step" {
    for options in --muster=off --gres=none '--gres=none --muster=off'; do
        run from_rank_1 "srun -Q --overlap -n1 $options env"
        [ "$(grep -c '^SLURM_STEP_ID=' <<< "$output")" -eq 1 ]
        [ "$(grep -vE '^SLURM_(MUSTER_|GPU_BIND)' <<< "$output" | grep -cE "$outer")" -eq 0 ] || { echo "srun $options"; false; }
    done
}

policy() { # srun option...
    step -n1 -c2 --gres=gpu:1 "$@" "$MUSTER_DIR/mempolicy"
}

@test "case 065: an explicit --mem-bind stays, CPUs are placed all the same" {
    cc -o "$MUSTER_DIR/mempolicy" "$BATS_TEST_DIRNAME/mempolicy.c"
    [ "$(policy)" = "preferred 1" ]
    for bind in none local map_mem:0 mask_mem:0x1 prefer,local; do
        want=$(policy --mem-bind=$bind --muster=off)
        [ "$(policy --mem-bind=$bind)" = "$want" ] || { echo "--mem-bind=$bind: not $want"; false; }
        [ "$(SLURM_MEM_BIND=$bind policy)" = "$want" ] || { echo "SLURM_MEM_BIND=$bind: not $want"; false; }
    done
    # asks for no policy
    [ "$(policy --mem-bind=verbose)" = "preferred 1" ]
    # also against the site's key and an option
    site 'mem = strict' > "$MUSTER_DIR/c/etc/muster.conf"
    [ "$(policy --mem-bind=none)" = "default 0" ]
    [ "$(policy --muster=mem=strict --mem-bind=none)" = "default 0" ]
    run step -n1 -c1 --gres=gpu:1 --mem-bind=none bash -c 'echo "${MUSTER_PLAN#*cpus=}"'
    [[ "$output" == [01]";mems=-;"* ]]
}

@test "case 065: verbose reports that --mem-bind is kept, and muster verify agrees" {
    for bind in none map_mem:0; do
        run step -n1 --gres=gpu:1 --muster=verbose --mem-bind=$bind muster verify
        grep -q "the step keeps its --mem-bind=quiet,$bind" "$MUSTER_DIR/err"
        [[ "$output" == *"memory not bound"* ]]
    done
    run step -n1 --gres=gpu:1 --muster=verbose --mem-bind=local muster verify
    grep -q 'the step keeps its --mem-bind=quiet,local, for the NUMA nodes of the CPUs' "$MUSTER_DIR/err"
    [ "$status" -eq 0 ]
    run step -n1 --gres=gpu:1 --muster=verbose true
    [ "$(grep -c mem-bind "$MUSTER_DIR/err")" -eq 0 ]
}

@test "case 065: --mem-bind of sbatch" {
    cc -o "$MUSTER_DIR/mempolicy" "$BATS_TEST_DIRNAME/mempolicy.c"
    batch_job 60 -w env1 -n1 -c2 --gres=gpu:1 --mem-bind=none -o "$MUSTER_DIR/out" --wrap "srun -Q -c2 $MUSTER_DIR/mempolicy"
    [ "$(grep -v ^muster "$MUSTER_DIR/out")" = "default 0" ]
}

@test "profile: NCCL is given Muster's profiler, and a profiler of the user stays" {
    run step -n1 --gres=gpu:1 bash -c 'echo "${NCCL_PROFILER_PLUGIN-no} ${MUSTER_PROFILE-no}"'
    [ "$output" = "no no" ]
    run step -n1 --gres=gpu:1 --muster=profile bash -c 'echo "$NCCL_PROFILER_PLUGIN $MUSTER_PROFILE"'
    [ "$output" = "$(realpath "$build")/.libs/libnccl-profiler-muster.so ." ]
    NCCL_PROFILER_PLUGIN=mine run step -n1 --gres=gpu:1 --muster=profile=/tmp/ledgers bash -c \
        'echo "$NCCL_PROFILER_PLUGIN $MUSTER_PROFILE"'
    [ "$output" = "mine /tmp/ledgers" ]
}

@test "accelerate: the library under NCCL is preloaded, a preload of the user stays, a site can lock it" {
    run step -n1 --gres=gpu:1 bash -c 'echo "${LD_PRELOAD-no}"'
    [ "$output" = "no" ]
    run step -n1 --gres=gpu:1 --muster=accelerate bash -c 'echo "$LD_PRELOAD $(grep -c libmuster-nccl /proc/$$/maps)"'
    library=$(realpath "$build")/.libs/libmuster-nccl.so
    [[ "$output" == "$library "[1-9]* ]]
    # a step inside the task inherits nothing of it
    run step -n1 --gres=gpu:1 --muster=accelerate srun -Q --overlap -n1 bash -c 'echo "${LD_PRELOAD-no}"'
    [ "$output" = "no" ]
    LD_PRELOAD=libdl.so.2 run step -n1 --gres=gpu:1 --muster=accelerate bash -c 'echo "$LD_PRELOAD"'
    [ "$output" = "libdl.so.2" ]
    site 'lock = accelerate' > "$MUSTER_DIR/c/etc/muster.conf"
    run step -n1 --gres=gpu:1 --muster=accelerate bash -c 'echo "${LD_PRELOAD-no}"'
    [ "$output" = "no" ]
}

@test "case 064: OMP_NUM_THREADS is cores per GPU, however the launcher is wrapped" {
    # stands in for torchrun and the like: prints what each worker would inherit
    printf '#!/bin/bash\necho "${OMP_NUM_THREADS-no} ${RANK-no}"\n' > "$MUSTER_DIR/torchrun"
    printf '#!/bin/bash\n"$MUSTER_DIR/torchrun" "$@"\n' > "$MUSTER_DIR/launch.sh"
    printf '#!/bin/bash\nshift 7\nexec "$@"\n' > "$MUSTER_DIR/apptainer"
    chmod +x "$MUSTER_DIR"/torchrun "$MUSTER_DIR"/launch.sh "$MUSTER_DIR"/apptainer
    torchrun=$MUSTER_DIR/torchrun
    while read -r line; do
        # shellcheck disable=SC2086
        run step -n1 -c2 --gres=gpu:2 $line
        [ "$output" = "1 no" ] || { echo "$line"; false; }
    done <<LINES
$torchrun --nproc_per_node=2 train.py
$MUSTER_DIR/launch.sh train.py
env A=1 B=2 C=3 D=4 E=5 F=6 $torchrun train.py
$MUSTER_DIR/apptainer exec --nv --bind /a --bind /b img.sif $torchrun train.py
LINES
    run step -n1 -c2 --gres=gpu:2 bash -c "$torchrun train.py"
    [ "$output" = "1 no" ]
    run step -n1 -c2 --gres=gpu:2 --muster=verbose true
    grep -q 'OMP_NUM_THREADS=1 in task 0, .*: 2 cores for 2 GPUs' "$MUSTER_DIR/err"
    run step -n1 -c2 --gres=gpu:4 bash -c "$torchrun train.py" # at least 1
    [ "$output" = "1 no" ]
    run step -n1 -c2 --gres=gpu:1 bash -c 'echo $OMP_NUM_THREADS' # all cores of the one GPU's task
    [ "$output" = 2 ]
}

warned() { # number of warnings that name leftovers
    grep -c "srun's environment has" "$MUSTER_DIR/err"
}

@test "rank variables that a shell left behind are named once for all tasks of a step" {
    RANK=3 LOCAL_RANK=1 WORLD_SIZE=4 run steps -n4 --gres=gpu:4 bash -c 'echo $RANK'
    [ "$(sort -u <<< "$output")" = 3 ] # the user's value stays
    [ "$(warned)" -eq 1 ]
    grep -q "srun's environment has RANK=3, LOCAL_RANK=1: all 4 tasks get the same value" "$MUSTER_DIR/err"
    # also where the tasks are independent, and without a plan
    RANK=3 run steps -n4 --gres=gpu:4 --muster=rdzv=none true
    [ "$(warned)" -eq 1 ]
    NODE_RANK=1 run steps -n2 --gres=gpu:2 true
    [ "$(warned)" -eq 1 ]
    # of another node, of another step's width; LOCAL_RANK 0 is right for one task on each node
    GROUP_RANK=1 LOCAL_WORLD_SIZE=8 run step -n2 --gres=gpu:2 true
    grep -q "srun's environment has GROUP_RANK=1, LOCAL_WORLD_SIZE=8: all 2 tasks" "$MUSTER_DIR/err"
    NODE_RANK=0 LOCAL_WORLD_SIZE=2 run step -n2 --gres=gpu:2 true
    [ "$(warned)" -eq 0 ]
    LOCAL_RANK=1 run steps -n2 --gres=gpu:1 true
    [ "$(warned)" -eq 1 ]
    LOCAL_RANK=0 run steps -n2 --gres=gpu:1 true
    [ "$(warned)" -eq 0 ]
    site 'topology = /nonexistent.xml' > "$MUSTER_DIR/c/etc/muster.conf"
    WORLD_SIZE=8 run steps -n4 --gres=gpu:4 true
    [ "$(warned)" -eq 1 ]
}

@test "no leftovers: sruns of one task each, a right WORLD_SIZE, values of an outer step" {
    RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 run step -n1 --gres=gpu:1 bash -c 'echo $RANK'
    [ "$output" = 1 ]
    [ "$(warned)" -eq 0 ]
    WORLD_SIZE=2 run step -n2 --gres=gpu:2 true
    [ "$(warned)" -eq 0 ]
    run step -n1 -c2 --gres=gpu:2 --muster=rdzv=ranks bash -c 'export RANK=7
        unset ${!SLURM_CPU_BIND*} SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK
        srun -Q --overlap -n2 -c1 --gres=gpu:2 bash -c "echo \$RANK"'
    [ "$(sort <<< "$output")" = "0
1" ]
    [ "$(warned)" -eq 0 ]
}

@test "a tool attached with --overlap gets the RAS port of the job's step; the doctor prints it" {
    cat > "$MUSTER_DIR/job" <<JOB
#!/bin/bash
srun -Q -n1 -c1 --gres=gpu:2 bash -c 'echo \$NCCL_RAS_ADDR > $MUSTER_DIR/ras; exec sleep 60' &
for _ in \$(seq 100); do [ ! -s $MUSTER_DIR/ras ] || break; sleep 0.1; done
srun -Q --overlap -n1 --gres=gpu:2 bash -c 'echo tool \$NCCL_RAS_ADDR'
srun -Q --overlap -n1 --gres=gpu:2 --muster=verbose true 2>&1
srun -Q --overlap -n1 --gres=none muster doctor
muster doctor
scancel --signal=KILL \$SLURM_JOB_ID.0
wait
# Slurm refuses a step while it counts these GPUs as taken
for _ in \$(seq 100); do squeue -hs -j \$SLURM_JOB_ID -o %i | grep -q '[.]0\$' || break; sleep 0.1; done
srun -Q -n1 --gres=gpu:2 bash -c 'echo later \$NCCL_RAS_ADDR'
JOB
    rm -f "$MUSTER_DIR/ras"
    batch_job 90 -w env1 -n1 -c2 --gres=gpu:2 -o "$MUSTER_DIR/out" -e "$MUSTER_DIR/err" "$MUSTER_DIR/job" || true
    addr=$(cat "$MUSTER_DIR/ras")
    [[ "$addr" == localhost:* ]]
    grep -q "^tool $addr\$" "$MUSTER_DIR/out"
    grep -q "NCCL_RAS_ADDR=$addr: that of the job's step that runs on the same GPUs" "$MUSTER_DIR/out"
    [ "$(grep -c "RAS of step 0 answers at $addr .*ncclras -h localhost -p ${addr#*:}" "$MUSTER_DIR/out")" -eq 2 ]
    # nothing runs beside it
    later=$(sed -n 's/^later //p' "$MUSTER_DIR/out")
    [[ "$later" == localhost:* ]]
    [ "$later" != "$addr" ]
}

@test "case 079: SLURM_TRES_PER_TASK that repeats -c goes, where --ntasks-per-gpu would refuse it" {
    # what sbatch of Slurm 24.05 writes; this srun may be older and accept it
    set -- -w env1 -n1 -c2 --gres=gpu:1 --ntasks-per-gpu=1
    printf '#!/bin/bash\nexport SLURM_CPUS_PER_TASK=2 SLURM_TRES_PER_TASK=%s\nsrun -Q env\n' cpu=2 > "$MUSTER_DIR/job"
    batch_job 60 -o "$MUSTER_DIR/out" "$@" "$MUSTER_DIR/job"
    # it ran: nothing refused it
    grep -q '^SLURM_NTASKS_PER_GPU=1$' "$MUSTER_DIR/out"
    # from 24.05 on Slurm gives each task the variable of its own step
    [ "$(srun --version | grep -oE '[0-9]+' | head -n 1)" -lt 24 ] || return 0
    [ "$(grep -c '^SLURM_TRES_PER_TASK=' "$MUSTER_DIR/out")" -eq 0 ]
    # in the script's own environment, for an srun without the plugin
    SLURM_TRES_PER_TASK=cpu=2 batch_job 60 -o "$MUSTER_DIR/out" "$@" --wrap env
    [ "$(grep -c '^SLURM_TRES_PER_TASK=' "$MUSTER_DIR/out")" -eq 0 ]
    # not without a plugin that is on
    sed -i 's/srun -Q/srun -Q --muster=off/' "$MUSTER_DIR/job"
    batch_job 60 -o "$MUSTER_DIR/out" -w env1 -n1 -c2 --gres=gpu:1 "$MUSTER_DIR/job"
    grep -q '^SLURM_TRES_PER_TASK=cpu=2$' "$MUSTER_DIR/out"
}

@test "plugin on the submit host only: libmuster and the doctor report the binding that is not applied" {
    # the submit host's configuration has the plugin, the nodes' has none
    mkdir -p "$MUSTER_DIR/submit"
    cp "$MUSTER_DIR"/c/etc/*.conf "$MUSTER_DIR/submit/"
    sed -i "s,^PlugStackConfig=.*,PlugStackConfig=$MUSTER_DIR/submit/plugstack.conf," "$MUSTER_DIR/submit/slurm.conf"
    : > "$MUSTER_DIR/c/etc/plugstack.conf"
    export SLURM_CONF=$MUSTER_DIR/submit/slurm.conf
    run step -n2 --gpus-per-task=1 bash -c 'muster doctor; echo "served ${SLURM_MUSTER_SERVED-no}"'
    echo "$output" > "$MUSTER_DIR/doctor"
    run step -n1 --gres=gpu:1 --gpu-bind=single:1 muster doctor # srun starts anew
    echo "$output" > "$MUSTER_DIR/anew"
    run step -n1 --gpus-per-task=1 --mpi=pmix "$build/tests/slurm/faulty"
    echo "$output" > "$MUSTER_DIR/library"
    cp "$MUSTER_DIR/err" "$MUSTER_DIR/err1"
    sed -i '1i [partition debug]\ninstalled = no' "$MUSTER_DIR/c/etc/muster.conf"
    asked=$(step -n1 -p debug --gpus-per-task=1 --muster=verbose bash -c 'echo ${SLURM_MUSTER_REQUEST-left to Slurm} $CUDA_VISIBLE_DEVICES')
    cp "$MUSTER_DIR/err" "$MUSTER_DIR/err2"
    cp "$MUSTER_DIR/submit/plugstack.conf" "$MUSTER_DIR/c/etc/plugstack.conf"
    [ "$(grep -c 'this node lacks the plugin that carries it out' "$MUSTER_DIR/doctor")" -eq 2 ]
    grep -q 'srun took --gpu-bind=single:1 over, but this node lacks the plugin' "$MUSTER_DIR/anew"
    grep -q 'lacks the Muster plugin, which would apply the --gpu-bind=per_task:1 that srun took over' "$MUSTER_DIR/library" "$MUSTER_DIR/err1"
    [ "$(grep -c 'served no' "$MUSTER_DIR/doctor")" -eq 2 ]
    [[ "$asked" == *"by=slurm"*" 0" ]]
    grep -q -- '--muster has no effect in partition debug: its nodes have no plugin' "$MUSTER_DIR/err2"
    # with the plugin on the node
    eval "$(cat "$MUSTER_DIR/env")"
    site > "$MUSTER_DIR/c/etc/muster.conf"
    for options in '' --muster=off; do
        # shellcheck disable=SC2086
        run job_step $options
        [[ "$output" == *"served yes"* ]]
        [[ "$output" != *"lacks the plugin"* ]]
    done
}

# A step whose binding was taken over in the batch script.
job_step() { # srun option...
    batch_job 60 -w env1 -n1 --gpus-per-task=1 -o "$MUSTER_DIR/out" \
        --wrap "srun -Q $* bash -c 'muster doctor; [ \$SLURM_MUSTER_SERVED = \$SLURM_JOB_ID.\$SLURM_STEP_ID ] && echo served yes'"
    cat "$MUSTER_DIR/out"
}
