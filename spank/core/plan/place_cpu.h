/* SPDX-License-Identifier: BSD-3-Clause */
/* place_cpu.h - the state while cores are assigned to tasks; private to this folder */
#ifndef MU_PLACE_CPU_H
#define MU_PLACE_CPU_H

#include <stdint.h>

#include "spank/core/plan/cores.h"

/* Cores that are equally far from each GPU of the step. */
struct mu_class {
    int numa, package; /* as in struct mu_core */
    uint64_t near[2];  /* bit i: local to the step's i-th GPU */
    int example;       /* its first core, index into node->cores */
    int ncores;
};

struct mu_spread {
    struct mu_plan *plan;
    struct mu_cores own;
    int *class_of; /* per owned core */
    int *task_of;  /* per owned core; -1: no task */
    int nclasses;
    struct mu_class *classes; /* by their lowest core */
    int *distance;            /* tasks x classes; 0 local */
    int *group;               /* per task: group number */
    int *class_group;         /* per class: group number; -1: no group */
    int *quota;               /* per task: cores */
    bool no_locality;         /* no task has a known locality: divide cores evenly */
    bool by_request;          /* quotas come from cpus_per_task */
};

/* Fill group, class_group and quota. */
int mu_spread_quotas(const struct mu_node *node, const struct mu_alloc *alloc,
                     const struct mu_opts *opts, struct mu_spread *s,
                     struct mu_err *err);

/* Assign cores to the tasks of one group by their quotas, into task_of. With fewer
 * cores than tasks, the slots get them directly and share them. -1: out of memory.
 */
int mu_spread_solve(const struct mu_node *node, const struct mu_alloc *alloc,
                    struct mu_spread *s, int group);

/* Bind the slot to one more core (index into node->cores): to those of its CPUs that
 * the step owns.
 */
void mu_spread_give(const struct mu_node *node, const struct mu_alloc *alloc,
                    struct mu_slot *slot, int core);

/* After the assignment: add notes, and a warning for each request that was not met. */
void mu_spread_report(const struct mu_node *node, const struct mu_alloc *alloc,
                      const struct mu_opts *opts, struct mu_spread *s);

#endif
