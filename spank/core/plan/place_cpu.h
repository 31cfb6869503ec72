/* SPDX-License-Identifier: BSD-3-Clause */
/* place_cpu.h - cores and tasks while they are brought together; private to this folder
 */
#ifndef MU_PLACE_CPU_H
#define MU_PLACE_CPU_H

#include <stdint.h>

#include "spank/core/plan/cores.h"

/* Cores that every GPU of the step finds equally far. */
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
    int *task_of;  /* per owned core; -1 nobody's */
    int nclasses;
    struct mu_class *classes; /* by their lowest core */
    int *distance;            /* tasks x classes; 0 local */
    int *group;               /* per task: group number */
    int *class_group;         /* per class: group number; -1: nobody's group */
    int *quota;               /* per task: cores */
    bool placeless;           /* no task's place is known: cores are cut evenly */
    bool by_request;          /* quotas come from cpus_per_task */
};

/* Fill group, class_group and quota. */
int mu_spread_quotas(const struct mu_node *node, const struct mu_alloc *alloc,
                     const struct mu_opts *opts, struct mu_spread *s,
                     struct mu_err *err);

/* Give the tasks of one group as many cores as their quotas say, into task_of; where
 * there are fewer cores than tasks, straight into the slots, which share them. -1: out
 * of memory.
 */
int mu_spread_solve(const struct mu_node *node, const struct mu_alloc *alloc,
                    struct mu_spread *s, int group);

/* The slot is bound to a core (index into node->cores) too: to those of its CPUs that
 * the step owns.
 */
void mu_spread_give(const struct mu_node *node, const struct mu_alloc *alloc,
                    struct mu_slot *slot, int core);

/* When slots have their CPUs: notes, and warnings where what was asked was not had. */
void mu_spread_report(const struct mu_node *node, const struct mu_alloc *alloc,
                      const struct mu_opts *opts, struct mu_spread *s);

#endif
