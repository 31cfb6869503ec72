#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Train on the four GPUs of one node: four tasks, each with a GPU of its own and the CPUs beside it.
# 32 samples a GPU make an effective batch of 128; the learning rate follows by itself.
#
#   sbatch 02_multi_gpu_single_node.sh
#
#SBATCH --job-name=multi_gpu
#SBATCH --output=%x-%j.out
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4       # one task a GPU
#SBATCH --cpus-per-task=18        # a quarter of a node with 72 cores
#SBATCH --gres=gpu:4
#SBATCH --gpu-bind=single:1       # device 0 of each task is its own GPU; Muster keeps the others reachable
#SBATCH --time=00:30:00
#SBATCH --muster=verbose
set -eu

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --mpi=pmix \
    muster-train --batch 32 --epochs "${EPOCHS:-5}" --result "$SLURM_JOB_NAME-$SLURM_JOB_ID.json"
