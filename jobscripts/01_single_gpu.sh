#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Train on one GPU. Its time is the baseline of the speedup table.
#
#   sbatch 01_single_gpu.sh
#
#SBATCH --job-name=single_gpu
#SBATCH --output=%x-%j.out
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=18        # a quarter of a node with 72 cores and 4 GPUs
#SBATCH --gres=gpu:1
#SBATCH --time=00:30:00
#SBATCH --muster=verbose          # print which CPUs, memory and GPU the task got, and why
set -eu

# srun does not take --cpus-per-task over from sbatch by itself (Slurm 22.05 and later).
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --mpi=pmix \
    muster-train --batch 32 --epochs "${EPOCHS:-5}" --result "$SLURM_JOB_NAME-$SLURM_JOB_ID.json"
