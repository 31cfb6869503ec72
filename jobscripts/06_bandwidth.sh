#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Is every link fast? Before a long training the ranks exchange messages, one pair at a time. A pair
# that is slower than the others, or carries no data, is named, and the training does not start.
#
#   sbatch 06_bandwidth.sh
#
# PAIRS are options of muster bench pairs: --rating 50 compares each pair with what its link is rated
# in GB/s, and --host measures host memory, on nodes without GPUs.
#
#SBATCH --job-name=bandwidth
#SBATCH --output=%x-%j.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=18
#SBATCH --gres=gpu:4
#SBATCH --gpu-bind=single:1
#SBATCH --time=00:30:00
#SBATCH --muster=on
set -u

# shellcheck disable=SC2086 # PAIRS is a list of options
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --mpi=pmix muster bench pairs ${PAIRS:-}
status=$?

if [ $status -ne 0 ]; then
    echo "the training does not start: the check of the links ended with status $status; the lines above name the cause"
    exit $status
fi

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --mpi=pmix \
    muster-train --batch 32 --epochs "${EPOCHS:-5}" --result "$SLURM_JOB_NAME-$SLURM_JOB_ID.json"
