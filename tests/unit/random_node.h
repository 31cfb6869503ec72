/* SPDX-License-Identifier: BSD-3-Clause */
/* random_node.h - machines and allocations out of a seed */
#ifndef RANDOM_NODE_H
#define RANDOM_NODE_H

#include <stdint.h>

#include "spank/core/plan/plan.h"

struct random_case {
    struct mu_node node; /* finished; free with mu_node_clear */
    struct mu_alloc alloc;
    bool cpus_all; /* to be planned with cpus=all */
};

/* MUSTER_TEST_SEED is the first seed (else the time decides), MUSTER_TEST_RUNS the
 * number of runs (else *runs stays); both are printed. Run i uses seed + i.
 */
void random_runs(uint64_t *first_seed, int *runs);

/* In a test with a variable `seed`: fail with the seed to repeat it with. */
#define CHECK(what, ...)                                                               \
    do {                                                                               \
        if (!(what)) {                                                                 \
            print_error(__VA_ARGS__);                                                  \
            fail_msg("; repeat with MUSTER_TEST_SEED=%llu MUSTER_TEST_RUNS=1",         \
                     (unsigned long long)seed);                                        \
        }                                                                              \
    } while (0)

/* 0..n-1 */
int random_below(uint64_t *state, int n);

/* The machine of this seed: 1-4 packages of 1-4 NUMA nodes, 1-4 threads, CPU numbers in
 * one of several ways, odd NUMA ids, nodes without memory, 0-16 GPUs near NUMA nodes,
 * cache domains or none, at times no NUMA nodes at all, a random part of it owned.
 * `order` other than 0 fills the arrays in another order: the same machine. `small`: at
 * most 8 cores, 4 GPUs.
 */
void random_case_make(uint64_t seed, uint64_t order, bool small,
                      struct random_case *out);

#endif
