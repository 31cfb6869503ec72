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
    timeout 30 srun -Q --muster=verbose "$@" true 2> "$MUSTER_DIR/err"
    plan_rows "$MUSTER_DIR/err"
}

@test "case 076: tasks on shards of one GPU are placed beside it, without advice" {
    start shard:8
    run plans -n2 -c16 --gres=shard:2
    cat "$MUSTER_DIR/err"
    [ "$output" = "0 GPU0 48-55,112-119
1 GPU0 56-63,120-127" ]
    run ! grep -q 'Muster leaves\|share=yes' "$MUSTER_DIR/err"
    # with a binding too, which Slurm must not get as none: 22.05 ends such tasks by a segmentation fault
    for bind in --gpu-bind=single:1 --gpu-bind=closest --gpu-bind=map_gpu:0,0; do
        run plans -n2 -c16 --gres=shard:2 $bind
        [ "$output" = "0 GPU0 48-55,112-119
1 GPU0 56-63,120-127" ]
    done
    batch_job 60 -n2 -c16 --gres=shard:2 --gpu-bind=single:1 -o "$MUSTER_DIR/out" --wrap \
        'srun -Q bash -c "echo task \$SLURM_PROCID \$CUDA_VISIBLE_DEVICES"'
    [ "$(sort "$MUSTER_DIR/out")" = "task 0 0
task 1 0" ]
    # in salloc, whose environment has no trace of the shards
    for ask in "--gres=shard:2 --gpu-bind=single:1" "--gres shard:2 --gpu-bind closest"; do
        # shellcheck disable=SC2086 # words
        run timeout 60 salloc -Q -n2 -c16 $ask bash -c 'srun -Q bash -c "echo task \$SLURM_PROCID \$CUDA_VISIBLE_DEVICES" | sort' < /dev/null
        [ "$output" = "task 0 0
task 1 0" ]
    done
    SALLOC_GRES=shard:2 run timeout 60 salloc -Q -n1 -c16 srun -Q --gpu-bind=single:1 bash -c 'echo $CUDA_VISIBLE_DEVICES' < /dev/null
    [ "$output" = 0 ]
    # from a shell that is not the job's, which has no trace of them either
    timeout 60 salloc -Q --no-shell -n2 -c16 --gres=shard:2 -J held < /dev/null
    job=$(squeue -h -n held -o %A)
    for command in "srun --jobid=$job" "env SLURM_JOB_ID=$job srun"; do
        # shellcheck disable=SC2086 # words
        run timeout 60 $command -Q -n2 --gpu-bind=single:1 bash -c 'echo "task $SLURM_PROCID $CUDA_VISIBLE_DEVICES"' < /dev/null
        [ "$(sort <<< "$output")" = "task 0 0
task 1 0" ]
    done
    scancel "$job"
    # whole GPUs of a job that is submitted there are taken over as ever
    run timeout 60 salloc -Q -n1 -c16 --gres=shard:2 salloc -Q -n2 -c16 --gres=gpu:2 srun -Q --gpu-bind=single:1 \
        bash -c 'echo "$CUDA_VISIBLE_DEVICES $SLURM_MUSTER_REQUEST"' < /dev/null
    [ "$(cut -d' ' -f1 <<< "$output" | sort -u | wc -l)" -eq 2 ]
    [ "$(grep -c '^[0-9] v=1;.*;by=muster;.*gpu-bind=single:1$' <<< "$output")" -eq 2 ]
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
