/* SPDX-License-Identifier: BSD-3-Clause */
/* owned.c - the CPUs of the step where no cgroup confines it: Slurm then tells core
 * numbers of its own count, package by package, which are turned into CPUs here
 */
#include <stdlib.h>
#include <string.h>

#include "spank/plugin/plugin.h"

/* Slurm counts cores as hwloc does: packages, inside them NUMA nodes, inside them
 * caches, each in the order of its lowest CPU.
 */
struct order {
    int key[4]; /* lowest CPU of the core's package, NUMA node, cache, of itself */
    int core;
};

static int by_place(const void *a, const void *b)
{
    const struct order *x = a, *y = b;

    for (int k = 0; k < 4; k++)
        if (x->key[k] != y->key[k])
            return x->key[k] < y->key[k] ? -1 : 1;
    return 0;
}

static void fill_order(const struct mu_node *node, int i, struct order *order)
{
    const struct mu_core *me = &node->cores[i];

    *order = (struct order){ { -1, -1, -1, me->cpu[0] }, i };
    for (int j = 0; j < node->ncores; j++) { /* cores[] is ascending by CPU */
        const struct mu_core *other = &node->cores[j];
        bool same = true;

        for (int k = 0; k < 3; k++) {
            same &= k == 0   ? other->package == me->package
                    : k == 1 ? other->numa == me->numa
                             : other->cache == me->cache;
            if (same && order->key[k] < 0)
                order->key[k] = other->cpu[0];
        }
    }
}

static bool cores_to_cpus(const struct mu_node *node, const struct mu_cpuset *cores,
                          struct mu_cpuset *cpus)
{
    struct order *order = calloc((size_t)node->ncores + 1, sizeof *order);

    if (!order)
        return false;
    for (int i = 0; i < node->ncores; i++)
        fill_order(node, i, &order[i]);
    qsort(order, (size_t)node->ncores, sizeof *order, by_place);
    memset(cpus, 0, sizeof *cpus);
    for (int k = mu_cpuset_next(cores, -1); k >= 0; k = mu_cpuset_next(cores, k))
        for (int t = 0; t < node->cores[order[k].core].ncpus; t++)
            mu_cpuset_add(cpus, node->cores[order[k].core].cpu[t]);
    free(order);
    return true;
}

void mu_owned_cpus(const struct mu_state *st, const struct mu_cpuset *machine,
                   struct mu_cpuset *cpus)
{
    const struct mu_cpuset *cores = &st->step.cores;

    *cpus = st->simulated ? *machine : st->step.cpus;
    mu_cpuset_and(cpus, machine);
    if (st->simulated || st->step.confined || mu_cpuset_empty(cores))
        return;
    /* More cores than there are: slurm.conf counts other things (threads, or cores that
     * the machine lacks), and its numbers mean nothing here. */
    if (mu_cpuset_next(cores, st->node.ncores - 1) >= 0 ||
        !cores_to_cpus(&st->node, cores, cpus))
        return;
    mu_cpuset_and(cpus, machine);
}

int mu_cpus_of_request(const struct mu_node *node, int cpus_per_task, int threads)
{
    long width = 1, cores;

    for (int i = 0; i < node->ncores; i++)
        if (node->cores[i].ncpus > width)
            width = node->cores[i].ncpus;
    if (threads <= 0 || threads >= width || cpus_per_task <= 0)
        return cpus_per_task;
    cores = ((long)cpus_per_task + threads - 1) / threads;
    return cores < MU_CPUSET_MAX ? (int)(cores * width) : cpus_per_task;
}

bool mu_owned_disputed(const struct mu_state *st)
{
    struct mu_cpuset now, online;

    if (st->simulated || st->step.confined || mu_cpuset_empty(&st->step.cores))
        return false;
    mu_current_affinity(&now);
    mu_online_cpus(&online);
    return !mu_cpuset_inside(&online, &now) && !mu_cpuset_inside(&now, &st->alloc.cpus);
}
