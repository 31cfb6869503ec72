#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Train on eight GPUs of two nodes. Nothing but --nodes differs from one node.
#
#   sbatch 03_multi_node.sh
#
#SBATCH --job-name=multi_node
#SBATCH --output=%x-%j.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=18
#SBATCH --gres=gpu:4              # a node, not a job
#SBATCH --gpu-bind=single:1
#SBATCH --time=00:30:00
#SBATCH --muster=verbose
set -eu

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --mpi=pmix \
    muster-train --batch 32 --epochs "${EPOCHS:-5}" --result "$SLURM_JOB_NAME-$SLURM_JOB_ID.json"
