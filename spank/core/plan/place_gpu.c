/* SPDX-License-Identifier: BSD-3-Clause */
/* place_gpu.c - assigns GPUs to tasks
 *
 * `pos` is the position of a GPU in the step, see node.h.
 */
#include <errno.h>
#include <stdlib.h>

#include "spank/core/gpubind/gpu_bind.h"
#include "spank/core/plan/place.h"

static void give(struct mu_slot *slot, int gpu_node)
{
    if (slot->ngpus < MU_GPUS_MAX)
        slot->gpu_node[slot->ngpus++] = gpu_node;
}

/* Groups for all tasks, nbig of them one GPU larger than size. */
static int assign_groups(const struct mu_node *node, const struct mu_alloc *alloc,
                         int size, int nbig, struct mu_plan *plan, struct mu_err *err)
{
    int group[MU_GPUS_MAX];

    if (mu_gpu_group(node, alloc->gpu_node, alloc->ngpus, size, nbig,
                     plan->nslots - nbig, group) < 0)
        return mu_err_set(err, ENOMEM, "out of memory");
    for (int pos = 0; pos < alloc->ngpus; pos++)
        if (group[pos] >= 0)
            give(&plan->slots[group[pos]], alloc->gpu_node[pos]);
    return 0;
}

/* The assignment without a GPU binding. As many tasks as GPUs: task i has GPU i. Fewer
 * tasks: groups of GPUs. More tasks: in turn, so that a task uses device LOCAL_RANK
 * modulo the number of devices.
 */
static int assign_all(const struct mu_node *node, const struct mu_alloc *alloc,
                      struct mu_plan *plan, struct mu_err *err)
{
    int ntasks = plan->nslots, ngpus = alloc->ngpus;

    if (ntasks >= ngpus) {
        for (int t = 0; t < ntasks; t++)
            give(&plan->slots[t], alloc->gpu_node[t % ngpus]);
        return 0;
    }
    return assign_groups(node, alloc, ngpus / ntasks, ngpus % ntasks, plan, err);
}

/* closest: the CPUs follow the GPU in Muster, so each task's GPUs are close. If all
 * GPUs of the step are equally close, Slurm shows all of them to every task, and a
 * program selects by LOCAL_RANK, as without a binding. Otherwise the task sees only its
 * GPUs: in Slurm's near set several tasks would have the same device 0.
 */
static bool one_locality(const struct mu_node *node, const int *gpu_node, int ngpus)
{
    int first = 0;

    /* A GPU of unknown locality gives no distance to compare. */
    while (first < ngpus - 1 && !node->gpus[gpu_node[first]].local_known)
        first++;
    for (int i = first + 1; i < ngpus; i++)
        if (!mu_gpu_same_locality(&node->gpus[gpu_node[first]],
                                  &node->gpus[gpu_node[i]]))
            return false;
    return true;
}

/* per_task:N. If the step has N GPUs for each task, each task gets a group of near
 * ones. Otherwise tasks get GPUs in turn, as under Slurm, and share them.
 */
static int assign_per_task(const struct mu_node *node, const struct mu_alloc *alloc,
                           int n, struct mu_plan *plan, struct mu_err *err)
{
    int ngpus = alloc->ngpus, ntasks = plan->nslots;

    if (n > ngpus) {
        mu_plan_warn(plan,
                     "the GPU binding asks for %d GPUs per task, but the step owns "
                     "%d on this node: each task gets all of them; ask Slurm for more "
                     "with --gres=gpu:%d or --gpus-per-task",
                     n, ngpus, n);
        n = ngpus;
    }
    if (n > 1 && (long)n * ntasks <= ngpus)
        return assign_groups(node, alloc, n, 0, plan, err);
    for (int t = 0; t < ntasks; t++)
        for (int k = 0; k < n; k++)
            give(&plan->slots[t], alloc->gpu_node[(int)(((long)t * n + k) % ngpus)]);
    return 0;
}

static int assign_list(const struct mu_alloc *alloc, const struct mu_gpu_bind *bind,
                       const char *text, struct mu_plan *plan, struct mu_err *err)
{
    for (int t = 0; t < plan->nslots; t++) {
        for (int pos = 0; pos < MU_GPUS_MAX; pos++) {
            if (!mu_gpu_bind_has(bind, t % bind->nlist, pos))
                continue;
            if (pos >= alloc->ngpus)
                return mu_err_set(err, EINVAL,
                                  "gpu-bind '%s' names GPU %d for task %d, "
                                  "but the step owns %d on this node (0 to %d)",
                                  text, pos, t, alloc->ngpus, alloc->ngpus - 1);
            give(&plan->slots[t], alloc->gpu_node[pos]);
        }
        if (plan->slots[t].ngpus == 0)
            return mu_err_set(err, EINVAL, "gpu-bind '%s' names no GPU for task %d",
                              text, t);
    }
    return 0;
}

static int assign_bound(const struct mu_node *node, const struct mu_alloc *alloc,
                        const struct mu_gpu_bind *bind, const char *text,
                        struct mu_plan *plan, struct mu_err *err)
{
    switch (bind->kind) {
    case MU_GPU_BIND_NONE:
    case MU_GPU_BIND_CLOSEST:
        return assign_all(node, alloc, plan, err);
    case MU_GPU_BIND_SINGLE:
        for (int t = 0; t < plan->nslots; t++)
            give(&plan->slots[t], alloc->gpu_node[t / bind->n % alloc->ngpus]);
        return 0;
    case MU_GPU_BIND_PER_TASK:
        return assign_per_task(node, alloc, bind->n, plan, err);
    case MU_GPU_BIND_MAP:
    case MU_GPU_BIND_MASK:
        return assign_list(alloc, bind, text, plan, err);
    }
    return mu_err_set(err, EINVAL, "gpu-bind '%s' has an unknown kind", text);
}

/* More tasks than GPUs, and the user did not allow sharing. */
static int refuse_or_leave(const struct mu_alloc *alloc, const struct mu_opts *opts,
                           struct mu_plan *plan, bool *left_to_slurm,
                           struct mu_err *err)
{
    if (opts->share == MU_SHARE_NO || opts->strict == MU_FLAG_YES)
        return mu_err_set(err, opts->share == MU_SHARE_NO ? MU_PLAN_REFUSED : EINVAL,
                          "%d tasks on this node but %d GPU%s, and %s: start "
                          "%d task%s per node (--ntasks-per-node=%d), ask for more "
                          "GPUs, or set share=yes",
                          alloc->ntasks, alloc->ngpus, mu_plural(alloc->ngpus),
                          opts->share == MU_SHARE_NO ? "share=no" : "strict",
                          alloc->ngpus, mu_plural(alloc->ngpus), alloc->ngpus);
    *left_to_slurm = true;
    mu_plan_warn(plan,
                 "%d tasks on this node but %d GPU%s: Muster leaves the tasks as Slurm "
                 "placed them; start %d task%s per node, or let tasks share GPUs with "
                 "--muster=share=yes",
                 alloc->ntasks, alloc->ngpus, mu_plural(alloc->ngpus), alloc->ngpus,
                 mu_plural(alloc->ngpus));
    return 0;
}

static void note_gpus(const struct mu_node *node, struct mu_plan *plan)
{
    int users[MU_GPUS_MAX] = { 0 };

    for (int t = 0; t < plan->nslots; t++)
        if (plan->slots[t].ngpus > 0)
            users[plan->slots[t].gpu_node[0]]++;
    for (int t = 0; t < plan->nslots; t++) {
        struct mu_slot *slot = &plan->slots[t];

        if (!one_locality(node, slot->gpu_node, slot->ngpus))
            mu_slot_note(slot, "split");
        if (slot->ngpus > 0 && users[slot->gpu_node[0]] > 1)
            mu_slot_note(slot, "shared");
        for (int k = 0; k < slot->ngpus; k++) {
            if (!node->gpus[slot->gpu_node[k]].local_known)
                mu_slot_note(slot, "unknown");
            if (node->gpus[slot->gpu_node[k]].adopted)
                mu_slot_note(slot, "topofile");
        }
    }
}

/* Does CUDA_VISIBLE_DEVICES name only the task's GPUs, or all GPUs of the step? CUDA
 * shows a process only the first of several MIG devices.
 */
static bool sees_own_alone(const struct mu_node *node, const struct mu_alloc *alloc,
                           const struct mu_opts *opts, const struct mu_gpu_bind *bind)
{
    if (opts->visible == MU_VISIBLE_OWN || opts->visible == MU_VISIBLE_ALL)
        return opts->visible == MU_VISIBLE_OWN;
    if (alloc->mig)
        return true;
    if (bind->kind == MU_GPU_BIND_CLOSEST)
        return !one_locality(node, alloc->gpu_node, alloc->ngpus);
    return bind->kind != MU_GPU_BIND_NONE;
}

int mu_place_gpu(const struct mu_node *node, const struct mu_alloc *alloc,
                 const struct mu_opts *opts, struct mu_plan *plan, bool *left_to_slurm,
                 struct mu_err *err)
{
    struct mu_gpu_bind bind = { 0 };

    *left_to_slurm = false;
    if (alloc->ngpus == 0)
        return 0;
    if (opts->gpu_bind[0] && mu_gpu_bind_parse(opts->gpu_bind, &bind, err) < 0)
        return -1;
    plan->own_visible = sees_own_alone(node, alloc, opts, &bind);
    if (alloc->ntasks > alloc->ngpus &&
        (opts->share == MU_SHARE_NO ||
         (opts->share != MU_SHARE_YES && bind.kind == MU_GPU_BIND_NONE)))
        return refuse_or_leave(alloc, opts, plan, left_to_slurm, err);
    if (assign_bound(node, alloc, &bind, opts->gpu_bind, plan, err) < 0)
        return -1;
    note_gpus(node, plan);
    return 0;
}
