#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A training longer than the time limit: two minutes before the end Slurm signals the tasks, which
# write a checkpoint and stop with status 22; the job puts itself back into the queue and goes on
# from there.
#
#   sbatch 05_requeue.sh
#
# A rank that dies ends the step (status 13). With muster-train --elastic the others go on with
# fewer instead; add --kill-on-bad-exit=0 --wait=0 to srun, and --no-kill to sbatch and srun for the
# loss of a node. srun's status is then that of the dead task: see muster-train(1).
#
#SBATCH --job-name=requeue
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append        # one log for all parts
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=18
#SBATCH --gres=gpu:4
#SBATCH --gpu-bind=single:1
#SBATCH --time=00:30:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --muster=on
set -u

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --mpi=pmix \
    muster-train --batch 32 --epochs "${EPOCHS:-50}" --checkpoint "checkpoints-$SLURM_JOB_ID" --resume auto \
    --result "$SLURM_JOB_NAME-$SLURM_JOB_ID.json" --curve "$SLURM_JOB_NAME-$SLURM_JOB_ID.tsv"
status=$?

if [ $status -eq 22 ]; then
    echo "stopped with a checkpoint; part $((${SLURM_RESTART_COUNT:-0} + 1)) of this job is done"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
exit $status
