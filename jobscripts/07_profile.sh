#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Why is a training slow? A PyTorch program, unchanged, runs with Muster's profiler: each process
# writes a ledger of its collectives. Then muster report prints the steps, what makes them slow with
# the remedy, and writes a page with plots.
#
#   TRAIN="train.py --epochs 1" sbatch 07_profile.sh
#
# While it runs: srun --overlap --jobid=JOB --pty muster monitor JOB
#
#SBATCH --job-name=profile
#SBATCH --output=%x-%j.out
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=18
#SBATCH --gres=gpu:4
#SBATCH --time=00:30:00
set -eu

ledgers=./ledgers-$SLURM_JOB_ID
# shellcheck disable=SC2086 # TRAIN is the program and its arguments
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --muster="profile=$ledgers" "${PYTHON:-python3}" ${TRAIN:-train.py}

if [ ! -d "$ledgers" ]; then
    echo "no process has written a ledger: the program has used neither NCCL nor libmuster"
    exit 1
fi
muster report "$ledgers"
muster report --format html "$ledgers" > "$SLURM_JOB_NAME-$SLURM_JOB_ID.html"
