/* SPDX-License-Identifier: BSD-3-Clause */
/* place_mem.c - which NUMA nodes a task's memory comes from
 *
 * The nodes of its CPUs; for one without memory of its own the nearest that has some,
 * the lowest of equally near ones. Never a GPU's memory, nothing when it is not known
 * where a task belongs.
 */
#include "spank/core/place.h"

static bool has_memory(const struct mu_numa *numa)
{
    return numa->memory > 0 && !numa->gpu_memory;
}

/* Index of the nearest node with memory, or -1. */
static int nearest_memory(const struct mu_node *node, int from)
{
    int best = -1;

    if (has_memory(&node->numas[from]))
        return from;
    for (int i = 0; i < node->nnumas; i++)
        if (has_memory(&node->numas[i]) &&
            (best < 0 ||
             mu_node_distance(node, from, i) < mu_node_distance(node, from, best)))
            best = i;
    return best;
}

static bool place_known(const struct mu_node *node, const struct mu_slot *slot)
{
    for (int i = 0; i < slot->ngpus; i++)
        if (!node->gpus[slot->gpu[i]].local_known)
            return false;
    return true;
}

void mu_place_mem(const struct mu_node *node, struct mu_plan *plan)
{
    for (int t = 0; t < plan->nslots; t++) {
        struct mu_slot *slot = &plan->slots[t];

        if (!slot->bound || !place_known(node, slot))
            continue;
        for (int c = 0; c < node->ncores; c++) {
            int numa = node->cores[c].numa, mem;

            if (numa < 0 || numa >= node->nnumas)
                continue;
            for (int i = 0; i < node->cores[c].ncpus; i++)
                if (mu_cpuset_has(&slot->cpus, node->cores[c].cpu[i])) {
                    mem = nearest_memory(node, numa);
                    if (mem >= 0)
                        mu_cpuset_add(&slot->mems, node->numas[mem].os_index);
                    if (mem != numa)
                        mu_slot_note(slot, "memless");
                    break;
                }
        }
    }
}
