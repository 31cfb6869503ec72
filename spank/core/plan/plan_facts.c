/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_facts.c - facts about the machine that `verbose` prints beside the plan */
#include <string.h>

#include "spank/core/plan/place.h"

static void inform_nodes(struct mu_plan *plan, const struct mu_cpuset *set,
                         const char *fact)
{
    char list[512];

    if (mu_cpuset_empty(set))
        return;
    mu_cpuset_format(set, list, sizeof list);
    mu_plan_inform(plan, "NUMA node%s %s: %s", mu_plural(mu_cpuset_count(set)), list,
                   fact);
}

static void inform_numas(const struct mu_node *node, const struct mu_alloc *alloc,
                         struct mu_plan *plan)
{
    struct mu_cpuset no_gpu = { 0 }, gpu_memory = { 0 }, no_cpus = { 0 },
                     no_memory = { 0 }, not_allowed = { 0 };

    for (int i = 0; i < node->nnumas; i++) {
        const struct mu_numa *numa = &node->numas[i];
        bool has_gpu = false, has_cpus = !mu_cpuset_empty(&numa->cpus);

        for (int pos = 0; pos < alloc->ngpus; pos++)
            has_gpu |= !node->gpus[alloc->gpu_node[pos]].local_known ||
                       node->gpus[alloc->gpu_node[pos]].numa == i ||
                       mu_cpuset_intersects(&node->gpus[alloc->gpu_node[pos]].local,
                                            &numa->cpus);
        if (has_cpus && !has_gpu && alloc->ngpus > 0)
            mu_cpuset_add(&no_gpu, numa->os_index);
        if (numa->gpu_memory)
            mu_cpuset_add(&gpu_memory, numa->os_index);
        else if (!has_cpus)
            mu_cpuset_add(&no_cpus, numa->os_index);
        else if (numa->memory == 0)
            mu_cpuset_add(&no_memory, numa->os_index);
        else if (!mu_place_mem_allowed(alloc, numa))
            mu_cpuset_add(&not_allowed, numa->os_index);
    }
    inform_nodes(plan, &no_gpu, "no GPU of this step is near");
    inform_nodes(plan, &gpu_memory, "memory of a GPU, not used for host pages");
    inform_nodes(plan, &no_cpus, "no CPUs");
    inform_nodes(plan, &no_memory,
                 "no memory; tasks there use the nearest node that has memory");
    inform_nodes(
        plan, &not_allowed,
        "not in the step's cpuset.mems; tasks there use the nearest node that is");
}

static void inform_models(const struct mu_node *node, const struct mu_alloc *alloc,
                          struct mu_plan *plan)
{
    const char *first = alloc->ngpus > 0 ? node->gpus[alloc->gpu_node[0]].model : "";

    for (int pos = 1; pos < alloc->ngpus; pos++) {
        const char *model = node->gpus[alloc->gpu_node[pos]].model;

        if (!first[0] || !model[0] || strcmp(first, model) == 0)
            continue;
        mu_plan_inform(plan,
                       "GPU models differ (%s, %s): CUDA uses this order only with "
                       "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                       first, model);
        return;
    }
}

void mu_plan_facts(const struct mu_node *node, const struct mu_alloc *alloc,
                   struct mu_plan *plan)
{
    inform_numas(node, alloc, plan);
    inform_models(node, alloc, plan);
}
