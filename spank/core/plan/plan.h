/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.h - the plan assigns GPUs, CPUs, memory and NICs to the tasks of a step.
 *
 *   mu_node (the machine)  mu_alloc (what the step owns)  mu_opts (the user's options)
 *                 \_______________   |   _______________/
 *                            mu_plan_make()            pure: no I/O, no globals
 *                                    |
 *        place_gpu: GPUs to tasks  ->  place_cpu: cores to tasks  ->  place_nic
 *
 * Words of a note:
 *   remote   some of the task's CPUs are not local to its GPUs
 *   split    its GPUs are not all of one locality
 *   shared   another task uses its cores or its GPU too
 *   unknown  the machine reports no locality for its GPU
 *   topofile the NCCL topology file gives its GPU's locality, the system does not
 *   memless  its NUMA node has no memory: the nearest node with memory is used
 *   mem-away the step may not use its NUMA node's memory (cpuset.mems): the nearest
 *            allowed node is used
 *   nic-down the ports of all its nearest NICs are down
 *   smt?     the source does not list which CPUs are threads of one core
 *   unbound  its CPUs stay as Slurm set them
 */
#ifndef MU_PLAN_H
#define MU_PLAN_H

#include <errno.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/err.h"
#include "spank/core/node/alloc.h"
#include "spank/core/node/node.h"
#include "spank/core/options/muster_option.h"

#define MU_PLAN_WARNINGS 32

/* One task of the node; `task` is the local rank. */
struct mu_slot {
    int task;
    int ngpus;
    int gpu_node[MU_GPUS_MAX]; /* node indices, the task's device 0 first */
    struct mu_cpuset cpus;     /* whole cores; empty only when bound is false */
    struct mu_cpuset mems;     /* NUMA OS indices for its memory; empty: not bound */
    bool bound;                /* false: affinity stays as Slurm set it */
    int nnics;
    int nic[MU_GPUS_MAX]; /* indices into mu_node.nics: the whole nearest set */
    enum mu_nearness nic_path;
    char note[64]; /* words joined by '+', "" for none */
};

/* Owned; clear with mu_plan_clear. */
struct mu_plan {
    int nslots;
    struct mu_slot *slots;
    bool own_visible; /* CUDA_VISIBLE_DEVICES names only the GPUs of the task */
    bool as_asked;    /* false: a warning names the request that was not met */
    int nwarnings;
    char *warning[MU_PLAN_WARNINGS]; /* one sentence each: the fact and the remedy */
    int ninfos;
    char *info[MU_PLAN_WARNINGS]; /* facts for `verbose` that need no action */
};

/* Make the plan. Fails (-1) only when no plan is possible: the step has no CPUs, a
 * binding names GPUs that the step does not have, or share=no has more tasks than GPUs:
 * err->code is then MU_PLAN_REFUSED, and the step must not run.
 */
#define MU_PLAN_REFUSED EBUSY
int mu_plan_make(const struct mu_node *node, const struct mu_alloc *alloc,
                 const struct mu_opts *opts, struct mu_plan *plan, struct mu_err *err);
void mu_plan_clear(struct mu_plan *plan);

#endif
