#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A PyTorch program, unchanged: srun starts one process a GPU, and Muster sets the variables that
# init_process_group("nccl") reads (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT).
# There is no torchrun here: srun starts the processes.
#
# The name of a process's GPU follows from the request:
#   --gres=gpu:4 or --gpus-per-node=4            every process sees all GPUs of the node: "cuda:$LOCAL_RANK"
#   --gpus-per-task=1 or --gpu-bind=single:1     every process sees its own GPU alone: "cuda:0"
# A program that does both: torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
#
#   TRAIN="train.py --epochs 10" sbatch 04_pytorch.sh
#
# A second way, between 2 to 8 GPUs of one node: collectives of the program by Muster where it is faster, below
# PyTorch (muster-nccl(7)). On two GPUs it gave the losses of NCCL; compare the times of your steps before you rely on it.
#
#   ACCELERATE=yes TRAIN="train.py --epochs 10" sbatch --nodes=1 04_pytorch.sh
#
# A third way, where two lines of the program may change: "import muster.torch", and
# muster.torch.DataParallel(model) in place of DistributedDataParallel(model, ...) (muster-torch(7)).
#
#SBATCH --job-name=pytorch
#SBATCH --output=%x-%j.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=18
#SBATCH --gres=gpu:4
#SBATCH --time=00:30:00
#SBATCH --muster=verbose
set -eu

accelerate=()
if [ "${ACCELERATE:-no}" = yes ]; then
    accelerate=("--muster=verbose,accelerate")
    export MUSTER_NCCL=on
fi
# shellcheck disable=SC2086 # TRAIN is the program and its arguments
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" "${accelerate[@]}" "${PYTHON:-python3}" ${TRAIN:-train.py}
