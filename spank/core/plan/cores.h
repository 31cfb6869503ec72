/* SPDX-License-Identifier: BSD-3-Clause */
/* cores.h - the cores that a step owns, for the planner; private to this folder */
#ifndef MU_CORES_H
#define MU_CORES_H

#include "spank/core/plan/plan.h"

/* A core of which the step owns at least one CPU. */
struct mu_own_core {
    int core;               /* index into node->cores */
    int width;              /* CPUs of it that the step owns */
    int numa, cache, first; /* of node->cores; the lowest CPU that the step owns */
};

/* cores[] ascending by `first`; free with mu_cores_clear. */
struct mu_cores {
    int n;
    int width; /* the most CPUs that the step owns of one core */
    struct mu_own_core *cores;
};

/* Fails with a sentence when the step owns none of the node's CPUs. */
int mu_cores_own(const struct mu_node *node, const struct mu_alloc *alloc,
                 struct mu_cores *own, struct mu_err *err);
void mu_cores_clear(struct mu_cores *own);

/* Assign pool[0..npool-1] (indices into own->cores, ascending) to tasks: task[i] gets
 * want[i] cores, in order (their sum is at most npool). As few tasks as possible span
 * two NUMA nodes, then two cache domains; otherwise the lowest numbers come first.
 * task_of[c] is set for every assigned core and unchanged for others. -1: out of
 * memory.
 */
int mu_cores_pack(const struct mu_cores *own, const int *pool, int npool,
                  const int *task, const int *want, int ntasks, int *task_of);

#endif
