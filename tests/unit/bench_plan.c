/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_plan.c - the time of a plan: 512 cores, 16 GPUs, 16 tasks, one thread
 *
 * Prints the median of many plans in milliseconds for the whole step and for harder
 * ones; exit status 1 when one takes longer than 5 ms.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/unit/synth.h"

#define REPEATS 201
#define LIMIT_MS 5.0

static void machine(struct mu_node *node)
{
    synth_cpus(node, 2, 8, 32, 2);
    synth_distances(node, 12, 32);
    synth_caches(node, 8);
    for (int i = 0; i < 16; i++) {
        char busid[MU_BUSID_LEN], name[16];

        snprintf(busid, sizeof busid, "0000:%02x:00.0", 16 + i);
        synth_gpu(node, busid, (7 * i + 3) % 16);
        snprintf(name, sizeof name, "mlx5_%d", i);
        synth_nic(node, name, busid, (7 * i + 3) % 16);
    }
    synth_links(node);
}

static int up(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) -
           (*(const double *)a < *(const double *)b);
}

static double median_ms(const struct mu_node *node, const struct mu_alloc *alloc,
                        const struct mu_opts *opts)
{
    static double ms[REPEATS];

    for (int i = 0; i < REPEATS; i++) {
        struct timespec a, b;
        struct mu_plan plan;
        struct mu_err err = { 0 };

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        if (mu_plan_make(node, alloc, opts, &plan, &err) < 0) {
            fprintf(stderr, "bench-plan: %s\n", err.text);
            exit(1);
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        mu_plan_clear(&plan);
        ms[i] = 1e3 * (double)(b.tv_sec - a.tv_sec) +
                1e-6 * (double)(b.tv_nsec - a.tv_nsec);
    }
    qsort(ms, REPEATS, sizeof ms[0], up);
    return ms[REPEATS / 2];
}

/* What makes it hard: GPUs without local cores, and quotas that no locality can fill.
 */
static const struct bench {
    const char *name, *options;
    int owned_of_8; /* of every eight cores, this many are owned */
    int ntasks, per_task;
} benches[] = {
    { "whole node", "", 8, 16, 0 },
    { "cpus=all, uneven", "cpus=all", 7, 16, 0 },
    { "-c 50 of a part", "", 7, 16, 50 },
    { "64 tasks share 16 GPUs", "share=yes,cpus=all", 7, 64, 0 },
};

int main(void)
{
    struct mu_node node = { 0 };
    struct mu_err err = { 0 };
    int rc = 0;

    machine(&node);
    if (mu_node_finish(&node, &err) < 0) {
        fprintf(stderr, "bench-plan: %s\n", err.text);
        return 1;
    }
    printf("%d cores, %d CPUs, %d GPUs; median of %d plans, CPU time of one thread\n",
           node.ncores, 2 * node.ncores, node.ngpus, REPEATS);
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++) {
        const struct bench *b = &benches[i];
        struct mu_opts opts = { 0 }, defaults;
        struct mu_alloc alloc;
        double ms;

        mu_opts_defaults(&defaults);
        if (b->options[0] && mu_opts_parse(b->options, &opts, &err) < 0)
            return 1;
        mu_opts_merge(&opts, &defaults);
        synth_alloc(&node, b->ntasks, &alloc);
        alloc.cpus_per_task = b->per_task;
        for (int c = 0; c < node.ncores; c++)
            for (int h = 0; h < 2 && c % 8 >= b->owned_of_8; h++)
                mu_cpuset_remove(&alloc.cpus, node.cores[c].cpu[h]);
        ms = median_ms(&node, &alloc, &opts);
        printf("%-24s %8.3f ms\n", b->name, ms);
        rc |= ms > LIMIT_MS;
    }
    mu_node_clear(&node);
    return rc;
}
