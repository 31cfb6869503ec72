/* SPDX-License-Identifier: BSD-3-Clause */
/* place.h - the steps of mu_plan_make and their shared functions; private to this
 * folder
 */
#ifndef MU_PLACE_H
#define MU_PLACE_H

#include <stdint.h>

#include "spank/core/plan/plan.h"

/* Add a sentence to the plan's warnings (or infos). It is dropped when the list is full
 * or memory is out. A warning sets as_asked to false.
 */
void mu_plan_warn(struct mu_plan *plan, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void mu_plan_inform(struct mu_plan *plan, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Append a word to the slot's note unless it is there already. */
void mu_slot_note(struct mu_slot *slot, const char *word);

/* Step 1: assign GPUs to tasks. plan->slots[] are zero except for task. Returns -1 when
 * no assignment is possible. *left_to_slurm is true when there are more tasks than GPUs
 * and the tasks stay as Slurm placed them: no GPU is assigned and nothing is bound.
 */
int mu_place_gpu(const struct mu_node *node, const struct mu_alloc *alloc,
                 const struct mu_opts *opts, struct mu_plan *plan, bool *left_to_slurm,
                 struct mu_err *err);

/* Divide gpus[0..ngpus-1] (indices into node->gpus, ascending) into nbig groups of
 * `size` + 1 and nsmall groups of `size`; GPUs may be left over. As few groups as
 * possible span two localities, then two packages. Then NVLink and PCI neighbours stay
 * together. group[i] is set to the group of gpus[i] or -1. Groups are numbered by their
 * first GPU, independent of their size. -1: out of memory.
 */
int mu_gpu_group(const struct mu_node *node, const int *gpus, int ngpus, int size,
                 int nbig, int nsmall, int *group);

/* True if both GPUs have the same local CPUs, or the locality of one is unknown. */
bool mu_gpu_same_locality(const struct mu_gpu *a, const struct mu_gpu *b);

/* Step 2: cores to tasks, and memory nodes. Slots hold their GPUs. */
int mu_place_cpu(const struct mu_node *node, const struct mu_alloc *alloc,
                 const struct mu_opts *opts, struct mu_plan *plan, struct mu_err *err);

/* May the step take memory of this NUMA node (cpuset.mems)? */
bool mu_place_mem_allowed(const struct mu_alloc *alloc, const struct mu_numa *numa);

/* The memory nodes of slots[].cpus into slots[].mems. */
void mu_place_mem(const struct mu_node *node, const struct mu_alloc *alloc,
                  const struct mu_opts *opts, struct mu_plan *plan);

/* Step 3: the nearest NICs of each task. Slots hold their GPUs and CPUs. */
void mu_place_nic(const struct mu_node *node, struct mu_plan *plan);

/* Last: add facts that need no action to plan->info. */
void mu_plan_facts(const struct mu_node *node, const struct mu_alloc *alloc,
                   struct mu_plan *plan);

/* The transportation problem: source i needs need[i] units, sink k has supply[k], a
 * unit from i to k costs cost[i * nsinks + k] >= 0. Fills flow[i * nsinks + k] with
 * units so that every need is met at the least total cost; the same input always gives
 * the same flow. -1 when the needs exceed the supplies or memory is out.
 */
int mu_transport(int nsources, int nsinks, const int *need, const int *supply,
                 const int64_t *cost, int *flow);

#endif
