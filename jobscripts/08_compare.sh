#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# How well does a training scale? The same work on one, two, four GPUs, and so on up to the tasks of
# the job, one after the other, and the table of their speedup.
#
#   sbatch 08_compare.sh
#   sbatch --ntasks-per-node=8 --gres=gpu:8 08_compare.sh
#
#SBATCH --job-name=compare
#SBATCH --output=%x-%j.out
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=18
#SBATCH --gres=gpu:4
#SBATCH --gpu-bind=single:1
#SBATCH --time=00:30:00
set -eu

for ((ranks = 1; ranks <= ${SLURM_NTASKS:-4}; ranks *= 2)); do
    srun --ntasks="$ranks" --cpus-per-task="$SLURM_CPUS_PER_TASK" --mpi=pmix --muster=on \
        muster-train --batch 32 --epochs "${EPOCHS:-10}" --result "$SLURM_JOB_NAME-$SLURM_JOB_ID-$ranks.json"
done
muster report speedup "$SLURM_JOB_NAME-$SLURM_JOB_ID"-*.json
