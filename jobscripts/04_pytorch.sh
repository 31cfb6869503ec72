#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A PyTorch program, unchanged: srun starts one process a GPU, and Muster sets the variables that
# init_process_group("nccl") reads (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT).
# There is no torchrun here: srun starts the processes.
#
#   TRAIN="train.py --epochs 10" sbatch 04_pytorch.sh
#
#SBATCH --job-name=pytorch
#SBATCH --output=%x-%j.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=18
#SBATCH --gres=gpu:4
#SBATCH --gpu-bind=single:1       # so the program's device is cuda:0, in every process
#SBATCH --time=00:30:00
#SBATCH --muster=verbose
set -eu

# shellcheck disable=SC2086 # TRAIN is the program and its arguments
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" "${PYTHON:-python3}" ${TRAIN:-train.py}
