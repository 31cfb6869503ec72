/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.h - the decision: which task gets which GPUs, CPUs, memory and NICs.
 *
 *   mu_node (the machine)  mu_alloc (what the step owns)  mu_opts (what was asked)
 *                 \_______________   |   _______________/
 *                            mu_plan_make()            pure: no I/O, no globals
 *                                    |
 *        place_gpu: GPUs to tasks  ->  place_cpu: cores to tasks  ->  place_nic
 *
 * Words of a note:
 *   remote   some of the task's CPUs are not local to its GPUs
 *   split    its GPUs are not all of one locality
 *   shared   its cores, or its GPU, are another task's too
 *   unknown  the machine does not say where its GPU is
 *   topofile the system does not say where its GPU is, but the NCCL topology file does
 *   memless  its NUMA node has no memory: the nearest node with memory is named
 *   mem-away the step may not use its NUMA node's memory (cpuset.mems): the nearest
 *            that it may use is named
 *   nic-down the ports of all its nearest NICs are down
 *   smt?     the source does not say which CPUs are threads of one core
 *   unbound  its CPUs are left as Slurm set them
 */
#ifndef MU_PLAN_H
#define MU_PLAN_H

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
    bool own_visible; /* CUDA_VISIBLE_DEVICES names the task's own GPUs alone */
    bool as_asked;    /* false: a warning says what could not be had */
    int nwarnings;
    char *warning[MU_PLAN_WARNINGS]; /* one sentence each: what, which, what to do */
    int ninfos;
    char *info[MU_PLAN_WARNINGS]; /* facts for `verbose`, nothing to be done about */
};

/* Decide. Fails (-1) only when no plan at all is possible: no CPUs, a binding that
 * names GPUs the step does not have, share=no with more tasks than GPUs.
 */
int mu_plan_make(const struct mu_node *node, const struct mu_alloc *alloc,
                 const struct mu_opts *opts, struct mu_plan *plan, struct mu_err *err);
void mu_plan_clear(struct mu_plan *plan);

#endif
