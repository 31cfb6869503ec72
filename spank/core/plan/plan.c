/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.c - the plan in three steps: GPUs to tasks, cores to tasks, nearest NICs */
#include "spank/core/plan/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/plan/place.h"

static int check(const struct mu_node *node, const struct mu_alloc *alloc,
                 struct mu_err *err)
{
    if (alloc->ntasks < 1)
        return mu_err_set(err, EINVAL, "cannot place %d tasks", alloc->ntasks);
    if (alloc->ngpus < 0 || alloc->ngpus > MU_GPUS_MAX)
        return mu_err_set(err, EINVAL, "cannot place %d GPUs; at most %d are possible",
                          alloc->ngpus, MU_GPUS_MAX);
    if (alloc->cpus_per_task < 0)
        return mu_err_set(err, EINVAL, "cannot give %d CPUs to a task",
                          alloc->cpus_per_task);
    for (int i = 0; i < alloc->ngpus; i++)
        if (alloc->gpu_node[i] < 0 || alloc->gpu_node[i] >= node->ngpus)
            return mu_err_set(err, EINVAL,
                              "the step owns GPU number %d, but the node has "
                              "%d GPU%s",
                              alloc->gpu_node[i], node->ngpus, mu_plural(node->ngpus));
    return 0;
}

static void note_binding(const struct mu_node *node, struct mu_plan *plan)
{
    for (int t = 0; t < plan->nslots; t++) {
        struct mu_slot *slot = &plan->slots[t];

        if (slot->bound && node->smt_guess)
            mu_slot_note(slot, "smt?");
        if (!slot->bound)
            mu_slot_note(slot, "unbound");
    }
}

/* The GPU comes first: CPUs, memory and NICs are those near it. */
static int place(const struct mu_node *node, const struct mu_alloc *alloc,
                 const struct mu_opts *opts, struct mu_plan *plan, struct mu_err *err)
{
    bool left_to_slurm;

    if (mu_place_gpu(node, alloc, opts, plan, &left_to_slurm, err) < 0)
        return -1;
    if (left_to_slurm)
        return 0;
    if (opts->bind != MU_BIND_NONE) {
        if (mu_place_cpu(node, alloc, opts, plan, err) < 0)
            return -1;
        if (opts->mem != MU_MEM_NONE)
            mu_place_mem(node, alloc, opts, plan);
    }
    mu_place_nic(node, plan);
    return 0;
}

int mu_plan_make(const struct mu_node *node, const struct mu_alloc *alloc,
                 const struct mu_opts *opts, struct mu_plan *plan, struct mu_err *err)
{
    struct mu_plan made = { .as_asked = true };

    if (check(node, alloc, err) < 0)
        return -1;
    made.slots = calloc((size_t)alloc->ntasks, sizeof *made.slots);
    if (!made.slots)
        return mu_err_set(err, ENOMEM, "out of memory");
    made.nslots = alloc->ntasks;
    for (int t = 0; t < made.nslots; t++) {
        made.slots[t].task = t;
        made.slots[t].nic_path = MU_NEAR_NONE;
    }
    if (place(node, alloc, opts, &made, err) < 0) {
        mu_plan_clear(&made);
        return -1;
    }
    note_binding(node, &made);
    mu_plan_facts(node, alloc, &made);
    *plan = made;
    return 0;
}

void mu_plan_clear(struct mu_plan *plan)
{
    free(plan->slots);
    for (int i = 0; i < plan->nwarnings; i++)
        free(plan->warning[i]);
    for (int i = 0; i < plan->ninfos; i++)
        free(plan->info[i]);
    memset(plan, 0, sizeof *plan);
}
