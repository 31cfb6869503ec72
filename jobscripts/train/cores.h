/* SPDX-License-Identifier: BSD-3-Clause */
/* cores.h - on which CPUs the ranks run, each CPU counted once */
#ifndef TRAIN_CORES_H
#define TRAIN_CORES_H

#include "runtime/base/cpuset.h"
#include "runtime/muster.h"

struct cores {
    struct mu_cpuset mine; /* CPUs this rank may run on */
    /* kernels that the ranks run on: two Slurm nodes may share one */
    int machines;
    int allowed; /* distinct CPUs that any rank may run on, over all machines */
    int used;    /* the same, but per machine at most the threads of its ranks */
    int shared;  /* some CPU is allowed to several ranks */
};

/* [collective] threads: compute threads of this rank. */
int cores_collect(struct muster *m, int threads, struct cores *cores);

/* CPU seconds, user and system, that this process has used. */
double cores_cpu_seconds(void);

/* "CPU ranks, fake GPUs" and the like; cuda_device as of muster_device. */
const char *cores_devices(int cuda_device);

#endif
