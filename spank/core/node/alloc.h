/* SPDX-License-Identifier: BSD-3-Clause */
/* alloc.h - what one job step owns on one node */
#ifndef MU_ALLOC_H
#define MU_ALLOC_H

#include "spank/core/node/node.h"

struct mu_alloc {
    struct mu_cpuset cpus; /* Linux CPU numbers the step may run on */
    struct mu_cpuset mems; /* NUMA OS indices it may take memory from; empty: all */
    int ngpus;
    int gpu_node[MU_GPUS_MAX]; /* [pos] node index, ascending */
    bool mig;                  /* Slurm gave the step MIG devices */
    int ntasks;                /* tasks of the step on this node */
    int cpus_per_task;  /* SLURM_CPUS_PER_TASK, hardware threads; 0: no request */
    bool without_slurm; /* a command started the tasks: no option of srun helps */
};

#endif
