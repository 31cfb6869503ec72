#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-3-Clause
# jobscripts/05_requeue.sh as it is meant to be used: signalled before its time is over, preempted
# by a job of a better partition, and on a node that dies. Its curve is that of a run that nobody disturbed, bit for bit.

source "$BATS_TEST_DIRNAME/common.bash"

setup_file() {
    export MUSTER_DIR EPOCHS=2 MUSTER_TIMEOUT=60 MUSTER_INIT_TIMEOUT=60
    MUSTER_DIR=$(mktemp -d "${TMPDIR:-/tmp}/mreq.XXXXXX")
    "$top/tests/slurm/cluster" up --dir "$MUSTER_DIR/c" --prefix q --nodes 2 --gpus 4 --cpus 4 \
        --plugin "$build/.libs/muster.so" --conf PreemptType=preempt/partition_prio \
        --conf PreemptMode=REQUEUE --conf 'PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=40' \
        --conf 'PartitionName=high Nodes=ALL PriorityTier=9' >"$MUSTER_DIR/env"
    eval "$(cat "$MUSTER_DIR/env")"
    cd "$MUSTER_DIR" || return 1
    timeout 200 srun --mpi=pmix -N1 -n4 --gres=gpu:4 "$build/muster-train" --batch 32 --epochs $EPOCHS \
        --curve "$MUSTER_DIR/undisturbed" >/dev/null
}

setup() {
    eval "$(cat "$MUSTER_DIR/env")"
    export PATH=$build:$PATH
    cd "$BATS_TEST_TMPDIR" || return 1
}

# Slurm lets a job that was put back rest for two minutes: hurry it. True at its end. Preempted, it is
# put back by its script and, since 24.11, by Slurm too: then it starts once more behind its end, finds
# all done and ends; but within two seconds slurmd takes that for the job that was killed.
over() { # job
    local state
    state=$(field "$1" JobState)
    case $state in
    COMPLETED | FAILED | CANCELLED | TIMEOUT)
        sleep 1
        job_is "$1" "$state" && return 0
        ;;
    PENDING)
        sleep 3
        scontrol update "JobId=$1" StartTime=now 2>/dev/null
        ;;
    esac
    return 1
}

start_training() { # option of sbatch...; leaves $job
    job=$(sbatch --parsable --cpus-per-task=1 "$@" "$top/jobscripts/05_requeue.sh")
    wait_for 60 test -e "requeue-$job.tsv" && wait_for 60 has_lines "requeue-$job.tsv" 21
}

ends_undisturbed() { # job
    wait_for 180 over "$1"
    cat "requeue-$1.out"
    echo "# restarts $(field "$1" Restarts), resumed from: $(grep -o 'resumed from .*' "requeue-$1.out" | cut -c1-90)" >&3
    echo "state $(field "$1" JobState), exit $(field "$1" ExitCode), reason $(field "$1" Reason)"
    job_is "$1" COMPLETED
    [ "$(field "$1" Restarts)" -ge 1 ]
    grep -q "resumed from checkpoints-$1/" "requeue-$1.out"
    cmp "requeue-$1.tsv" "$MUSTER_DIR/undisturbed"
    [ -z "$(find "checkpoints-$1" -name '*.tmp')" ]
}

@test "signalled: a checkpoint, the script puts the job back, then it goes on to the same curve" {
    local job
    start_training -p low
    scancel --signal=USR1 "$job"
    ends_undisturbed "$job"
    grep -q 'part 1 of this job is done' "requeue-$job.out"
}

@test "preempted: a checkpoint in the grace time, the better job runs, then it goes on to the same curve" {
    local job better
    start_training -p low -w q1
    better=$(sbatch --parsable -p high -w q1 --exclusive -o better.out --wrap 'sleep 2; echo had the node')
    wait_for 90 test -s better.out
    wait_for 60 over "$better"
    ends_undisturbed "$job"
    grep -q 'stopped by a signal after step' "requeue-$job.out"
}

@test "its node dies: put back by Slurm, it goes on from the last checkpoint to the same curve" {
    local job node pid
    start_training -p low
    node=$(field "$job" BatchHost)
    wait_for 60 test -e "checkpoints-$job/muster-train-latest.muster"
    kill -9 "$(cat "$MUSTER_DIR/c/run/slurmd.$node.pid")"
    # What ran there, daemons of the step first. Other clusters have a job of that number too.
    for pid in $(pgrep -f "slurmstepd: \[$job\."); do ! is_ours "$pid" || kill -9 "$pid" || true; done
    for pid in $(pgrep -f -- "--checkpoint checkpoints-$job "); do
        [ ! "/proc/$pid/cwd" -ef "$PWD" ] || kill -9 "$pid" || true # some end with their slurmstepd
    done
    scontrol update NodeName="$node" State=DOWN Reason=died
    ends_undisturbed "$job"
    [ "$(field "$job" BatchHost)" != "$node" ]
}
