/* SPDX-License-Identifier: BSD-3-Clause */
/* core_numbers.c - converts Slurm's core numbers to Linux CPUs */
#include "spank/core/slurm/core_numbers.h"

#include <stdlib.h>
#include <string.h>

/* Slurm numbers cores in the order of hwloc: by package, then NUMA node, then cache,
 * each in the order of its lowest CPU.
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

bool mu_slurm_cores(const struct mu_node *node, const struct mu_cpuset *numbers,
                    struct mu_cpuset *cpus)
{
    struct order *order = calloc((size_t)node->ncores + 1, sizeof *order);

    if (!order)
        return false;
    for (int i = 0; i < node->ncores; i++)
        fill_order(node, i, &order[i]);
    qsort(order, (size_t)node->ncores, sizeof *order, by_place);
    memset(cpus, 0, sizeof *cpus);
    for (int k = mu_cpuset_next(numbers, -1); k >= 0 && k < node->ncores;
         k = mu_cpuset_next(numbers, k))
        for (int t = 0; t < node->cores[order[k].core].ncpus; t++)
            mu_cpuset_add(cpus, node->cores[order[k].core].cpu[t]);
    free(order);
    return true;
}
