/* SPDX-License-Identifier: BSD-3-Clause */
/* place_mem.c - chooses the NUMA nodes for the memory of a task
 *
 * These are the NUMA nodes of its CPUs. A node that has no memory, or whose memory the
 * step may not use, is replaced by the nearest node with usable memory, on a tie the
 * lowest. The memory of a GPU is never used. A task of unknown locality gets no memory
 * nodes.
 */
#include "spank/core/plan/place.h"

bool mu_place_mem_allowed(const struct mu_alloc *alloc, const struct mu_numa *numa)
{
    return mu_cpuset_empty(&alloc->mems) || mu_cpuset_has(&alloc->mems, numa->os_index);
}

static bool has_memory(const struct mu_numa *numa)
{
    return numa->memory > 0 && !numa->gpu_memory;
}

static bool gives_memory(const struct mu_alloc *alloc, const struct mu_numa *numa)
{
    return has_memory(numa) && mu_place_mem_allowed(alloc, numa);
}

/* Index of the nearest node with memory that the step may use, or -1. */
static int nearest_memory(const struct mu_node *node, const struct mu_alloc *alloc,
                          int from)
{
    int best = -1;

    if (gives_memory(alloc, &node->numas[from]))
        return from;
    for (int i = 0; i < node->nnumas; i++)
        if (gives_memory(alloc, &node->numas[i]) &&
            (best < 0 ||
             mu_node_distance(node, from, i) < mu_node_distance(node, from, best)))
            best = i;
    return best;
}

static bool locality_known(const struct mu_node *node, const struct mu_slot *slot)
{
    for (int i = 0; i < slot->ngpus; i++)
        if (!node->gpus[slot->gpu_node[i]].local_known)
            return false;
    return true;
}

/* Add the memory node for CPUs of NUMA node `numa` to the slot. If that node has memory
 * that the step may not use, add it to *away.
 */
static void take_memory(const struct mu_node *node, const struct mu_alloc *alloc,
                        int numa, struct mu_slot *slot, struct mu_cpuset *away)
{
    int mem = nearest_memory(node, alloc, numa);

    if (mem >= 0)
        mu_cpuset_add(&slot->mems, node->numas[mem].os_index);
    if (mem == numa)
        return;
    if (has_memory(&node->numas[numa])) {
        mu_slot_note(slot, "mem-away");
        mu_cpuset_add(away, node->numas[numa].os_index);
    } else {
        mu_slot_note(slot, "memless");
    }
}

static void warn_away(const struct mu_alloc *alloc, const struct mu_cpuset *away,
                      struct mu_plan *plan)
{
    char nodes[256], mems[256];

    mu_cpuset_format(away, nodes, sizeof nodes);
    mu_cpuset_format(&alloc->mems, mems, sizeof mems);
    mu_plan_warn(plan,
                 "mem=strict: tasks run on NUMA node %s, but the step may use memory "
                 "of NUMA node %s only (cpuset.mems): they are bound to that memory",
                 nodes, mems);
}

void mu_place_mem(const struct mu_node *node, const struct mu_alloc *alloc,
                  const struct mu_opts *opts, struct mu_plan *plan)
{
    struct mu_cpuset away = { { 0 } };

    for (int t = 0; t < plan->nslots; t++) {
        struct mu_slot *slot = &plan->slots[t];

        if (!slot->bound || !locality_known(node, slot))
            continue;
        for (int c = 0; c < node->ncores; c++) {
            int numa = node->cores[c].numa;

            if (numa >= 0 && numa < node->nnumas &&
                mu_core_in(&node->cores[c], &slot->cpus))
                take_memory(node, alloc, numa, slot, &away);
        }
    }
    if (opts->mem == MU_MEM_STRICT && !mu_cpuset_empty(&away))
        warn_away(alloc, &away, plan);
}
