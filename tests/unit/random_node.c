/* SPDX-License-Identifier: BSD-3-Clause */
/* random_node.c - machines and allocations out of a seed */
#include "tests/unit/random_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "tests/unit/synth.h"

/* splitmix64 (public domain, Vigna): any seed will do. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void random_runs(uint64_t *first_seed, int *runs)
{
    const char *text = getenv("MUSTER_TEST_SEED");

    *first_seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL) * 100000;
    text = getenv("MUSTER_TEST_RUNS");
    if (text)
        *runs = atoi(text);
    printf("# MUSTER_TEST_SEED=%llu MUSTER_TEST_RUNS=%d\n",
           (unsigned long long)*first_seed, *runs);
    fflush(stdout);
}

int random_below(uint64_t *state, int n)
{
    return (int)(next(state) % (uint64_t)n);
}

static bool chance(uint64_t *state, int percent)
{
    return random_below(state, 100) < percent;
}

static int between(uint64_t *state, int low, int high)
{
    return low + random_below(state, high - low + 1);
}

static void shuffle(uint64_t *state, int *a, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = random_below(state, i + 1), swap = a[i];

        a[i] = a[k];
        a[k] = swap;
    }
}

static int *identity(int n)
{
    int *a = calloc((size_t)n + 1, sizeof *a);

    assert_non_null(a);
    for (int i = 0; i < n; i++)
        a[i] = i;
    return a;
}

/* Number the CPUs anew: as they are, siblings beside each other, sockets in turn, or
 * without any order.
 */
static void renumber(struct mu_node *node, uint64_t *state)
{
    int threads = node->cores[0].ncpus, n = node->ncores, way = random_below(state, 4);
    int *to = identity(n * threads);

    for (int c = 0; c < n; c++)
        for (int h = 0; h < threads; h++) {
            int old = c + h * n;

            if (way == 1)
                to[old] = c * threads + h;
            else if (way == 2)
                to[old] =
                    c % (n / node->nnumas) * node->nnumas + node->cores[c].numa + h * n;
        }
    if (way == 3)
        shuffle(state, to, n * threads);
    for (int i = 0; i < node->nnumas; i++)
        memset(&node->numas[i].cpus, 0, sizeof node->numas[i].cpus);
    for (int c = 0; c < n; c++)
        for (int h = 0; h < threads; h++) {
            node->cores[c].cpu[h] = to[node->cores[c].cpu[h]];
            mu_cpuset_add(&node->numas[node->cores[c].numa].cpus,
                          node->cores[c].cpu[h]);
        }
    free(to);
}

static void make_numas(struct mu_node *node, uint64_t *state)
{
    bool sparse = chance(state, 20);
    int before = node->nnumas;

    for (int i = 0; i < before; i++) {
        node->numas[i].os_index = sparse ? 8 * i : i;
        if (chance(state, 5))
            node->numas[i].memory = 0;
    }
    if (chance(state, 15))
        for (int i = between(state, 1, 3); i > 0; i--)
            synth_memory(node, 255 - i, UINT64_C(1) << 34, chance(state, 70));
    if (chance(state, 80))
        synth_distances(node, between(state, 11, 16), between(state, 17, 40));
}

static void make_gpus(struct mu_node *node, uint64_t *state, int most)
{
    int n = between(state, 0, most), cpu_numas = 0;
    bool unknown = chance(state, 8), by_cache = node->cores[0].cache >= 0;

    while (cpu_numas < node->nnumas && !mu_cpuset_empty(&node->numas[cpu_numas].cpus))
        cpu_numas++;
    for (int i = 0; i < n; i++) {
        char busid[MU_BUSID_LEN];
        const struct mu_core *core = &node->cores[random_below(state, node->ncores)];
        int gpu;

        snprintf(busid, sizeof busid, "%04x:%02x:00.0", random_below(state, 2), i + 1);
        gpu = synth_gpu(node, busid, unknown ? -1 : core->numa);
        node->gpus[gpu].minor = i;
        if (unknown || !by_cache)
            continue;
        memset(&node->gpus[gpu].local, 0, sizeof node->gpus[gpu].local);
        for (int c = 0; c < node->ncores; c++)
            for (int h = 0; h < node->cores[c].ncpus; h++)
                if (node->cores[c].cache == core->cache)
                    mu_cpuset_add(&node->gpus[gpu].local, node->cores[c].cpu[h]);
    }
}

/* A source that knows no NUMA nodes, only which CPUs are near a GPU. */
static void forget_numas(struct mu_node *node)
{
    free(node->numas);
    free(node->numa_distance);
    node->numas = NULL;
    node->numa_distance = NULL;
    node->nnumas = 0;
    for (int c = 0; c < node->ncores; c++)
        node->cores[c].numa = node->cores[c].package = -1;
    for (int g = 0; g < node->ngpus; g++)
        node->gpus[g].numa = node->gpus[g].package = -1;
}

/* The same machine with its arrays in another order. */
static void reorder(struct mu_node *node, uint64_t order)
{
    int *cores = identity(node->ncores), *numas = identity(node->nnumas);
    int *gpus = identity(node->ngpus), *back = identity(node->nnumas);
    struct mu_node old = *node;

    shuffle(&order, cores, node->ncores);
    shuffle(&order, numas, node->nnumas);
    shuffle(&order, gpus, node->ngpus);
    node->cores = calloc((size_t)node->ncores, sizeof *node->cores);
    node->numas = calloc((size_t)node->nnumas + 1, sizeof *node->numas);
    node->gpus = calloc((size_t)node->ngpus + 1, sizeof *node->gpus);
    assert_true(node->cores && node->numas && node->gpus);
    for (int i = 0; i < node->nnumas; i++) {
        node->numas[i] = old.numas[numas[i]];
        back[numas[i]] = i;
    }
    if (old.numa_distance) {
        node->numa_distance =
            calloc((size_t)(node->nnumas * node->nnumas), sizeof *node->numa_distance);
        assert_non_null(node->numa_distance);
        for (int a = 0; a < node->nnumas; a++)
            for (int b = 0; b < node->nnumas; b++)
                node->numa_distance[a * node->nnumas + b] =
                    old.numa_distance[numas[a] * node->nnumas + numas[b]];
    }
    for (int i = 0; i < node->ncores; i++) {
        node->cores[i] = old.cores[cores[i]];
        if (node->cores[i].numa >= 0)
            node->cores[i].numa = back[node->cores[i].numa];
    }
    for (int i = 0; i < node->ngpus; i++) {
        node->gpus[i] = old.gpus[gpus[i]];
        if (node->gpus[i].numa >= 0)
            node->gpus[i].numa = back[node->gpus[i].numa];
    }
    mu_node_clear(&old);
    free(cores);
    free(numas);
    free(gpus);
    free(back);
}

/* NVLink counts depend on the pair of GPUs, not on their places. */
static void make_links(struct mu_node *node, uint64_t seed)
{
    synth_links(node);
    for (int a = 0; a < node->ngpus; a++)
        for (int b = 0; b < a; b++) {
            int x = node->gpus[a].minor, y = node->gpus[b].minor;
            uint64_t state = seed + (uint64_t)(x < y ? x * 64 + y : y * 64 + x);

            if (chance(&state, 40))
                synth_nvlink(node, a, b, between(&state, 1, 4));
        }
}

static void make_alloc(struct random_case *out, uint64_t *state, bool small)
{
    const struct mu_node *node = &out->node;
    struct mu_alloc *alloc = &out->alloc;
    int keep = chance(state, 40) ? 100 : between(state, 10, 95);
    int whole = chance(state, 80);
    int most = small ? 4 : 20;

    memset(alloc, 0, sizeof *alloc);
    for (int c = 0; c < node->ncores; c++) {
        bool own = chance(state, keep);

        for (int h = 0; h < node->cores[c].ncpus; h++)
            if (whole ? own : chance(state, keep))
                mu_cpuset_add(&alloc->cpus, node->cores[c].cpu[h]);
    }
    if (mu_cpuset_empty(&alloc->cpus))
        mu_cpuset_add(&alloc->cpus, node->cores[0].cpu[0]);
    keep = chance(state, 60) ? 100 : 50;
    for (int g = 0; g < node->ngpus; g++)
        if (chance(state, keep))
            alloc->gpu_node[alloc->ngpus++] = g;
    alloc->ntasks =
        alloc->ngpus && chance(state, 60) ? alloc->ngpus : between(state, 1, most);
    if (chance(state, 40))
        alloc->cpus_per_task = between(state, 1, 3 * node->ncores / alloc->ntasks + 2);
    out->cpus_all = chance(state, 30);
}

void random_case_make(uint64_t seed, uint64_t order, bool small,
                      struct random_case *out)
{
    uint64_t state = seed;
    struct mu_err err = { 0 };
    int packages = between(&state, 1, small ? 2 : 4), numas = between(&state, 1, 4);
    int cores, threads = between(&state, 1, 4);

    if (small)
        numas = between(&state, 1, 2);
    cores = between(&state, 1, small ? 8 / (packages * numas) : 12);
    memset(out, 0, sizeof *out);
    synth_cpus(&out->node, packages, numas, cores, threads);
    if (cores % 2 == 0 && chance(&state, 40))
        synth_caches(&out->node, cores / 2);
    renumber(&out->node, &state);
    make_numas(&out->node, &state);
    make_gpus(&out->node, &state, small ? 4 : 16);
    if (chance(&state, 8))
        forget_numas(&out->node);
    if (order)
        reorder(&out->node, order);
    make_links(&out->node, seed);
    if (mu_node_finish(&out->node, &err) < 0)
        fail_msg("%s", err.text);
    make_alloc(out, &state, small);
}
