/* SPDX-License-Identifier: BSD-3-Clause */
/* synth.c - machines made up for tests */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/base/parse.h"
#include "spank/core/options/muster_option.h"
#include "spank/core/plan/plan_text.h"
#include "tests/unit/synth.h"

static void *grow(void *array, int n, size_t size)
{
    void *bigger = realloc(array, (size_t)(n + 1) * size);

    assert_non_null(bigger);
    memset((char *)bigger + (size_t)n * size, 0, size);
    return bigger;
}

void synth_cpus(struct mu_node *node, int packages, int numas, int cores, int threads)
{
    int all = packages * numas * cores;

    mu_copy(node->source, sizeof node->source, "synthetic");
    node->core_data = true;
    node->cores = calloc((size_t)all, sizeof *node->cores);
    node->numas = calloc((size_t)(packages * numas), sizeof *node->numas);
    assert_non_null(node->cores);
    assert_non_null(node->numas);
    node->ncores = all;
    node->nnumas = packages * numas;
    for (int c = 0; c < all; c++) {
        struct mu_core *core = &node->cores[c];
        int numa = c / cores;

        *core = (struct mu_core){
            .ncpus = threads, .numa = numa, .package = numa / numas, .cache = -1
        };
        for (int h = 0; h < threads; h++) {
            core->cpu[h] = c + h * all;
            mu_cpuset_add(&node->numas[numa].cpus, core->cpu[h]);
        }
        node->numas[numa].os_index = numa;
        node->numas[numa].memory = UINT64_C(64) << 30;
        node->numas[numa].package = numa / numas;
    }
}

int synth_memory(struct mu_node *node, int os_index, uint64_t bytes, bool gpu_memory)
{
    assert_null(node->numa_distance);
    node->numas = grow(node->numas, node->nnumas, sizeof *node->numas);
    node->numas[node->nnumas] = (struct mu_numa){
        .os_index = os_index, .memory = bytes, .gpu_memory = gpu_memory, .package = -1
    };
    return node->nnumas++;
}

void synth_distances(struct mu_node *node, int near, int far)
{
    int n = node->nnumas;

    node->numa_distance = calloc((size_t)(n * n), sizeof *node->numa_distance);
    assert_non_null(node->numa_distance);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            node->numa_distance[a * n + b] =
                a == b                                             ? 10
                : node->numas[a].package == node->numas[b].package ? near
                                                                   : far;
}

void synth_caches(struct mu_node *node, int cores)
{
    for (int c = 0; c < node->ncores; c++)
        node->cores[c].cache = c / cores;
}

int synth_gpu(struct mu_node *node, const char *busid, int numa)
{
    struct mu_gpu *gpu;

    node->gpus = grow(node->gpus, node->ngpus, sizeof *node->gpus);
    gpu = &node->gpus[node->ngpus];
    assert_true(mu_copy(gpu->busid, sizeof gpu->busid, busid));
    gpu->sub = -1;
    gpu->minor = -1;
    gpu->vendor = MU_VENDOR_NVIDIA;
    gpu->numa = numa;
    gpu->package = numa >= 0 ? node->numas[numa].package : -1;
    gpu->local_known = numa >= 0;
    if (numa >= 0)
        gpu->local = node->numas[numa].cpus;
    return node->ngpus++;
}

int synth_gpu_near(struct mu_node *node, const char *busid, const char *cpus, int numa)
{
    struct mu_err err = { 0 };
    int gpu = synth_gpu(node, busid, numa);

    if (mu_cpuset_parse(cpus, &node->gpus[gpu].local, &err) < 0)
        fail_msg("%s", err.text);
    node->gpus[gpu].local_known = true;
    return gpu;
}

int synth_nic(struct mu_node *node, const char *name, const char *busid, int numa)
{
    struct mu_nic *nic;

    node->nics = grow(node->nics, node->nnics, sizeof *node->nics);
    nic = &node->nics[node->nnics];
    assert_true(mu_copy(nic->name, sizeof nic->name, name));
    assert_true(mu_copy(nic->busid, sizeof nic->busid, busid));
    nic->numa = numa;
    nic->package = numa >= 0 ? node->numas[numa].package : -1;
    nic->active = true;
    return node->nnics++;
}

static enum mu_nearness path_between(int numa_a, int package_a, int numa_b,
                                     int package_b)
{
    if (numa_a < 0 || numa_b < 0)
        return MU_NEAR_SYS;
    if (numa_a == numa_b)
        return MU_NEAR_NODE;
    return package_a == package_b ? MU_NEAR_PKG : MU_NEAR_SYS;
}

void synth_links(struct mu_node *node)
{
    size_t ng = (size_t)node->ngpus, nn = (size_t)node->nnics;

    node->gpu_nic = calloc(ng * nn + 1, sizeof *node->gpu_nic);
    node->gpu_gpu = calloc(ng * ng + 1, sizeof *node->gpu_gpu);
    node->nvlinks = calloc(ng * ng + 1, sizeof *node->nvlinks);
    assert_true(node->gpu_nic && node->gpu_gpu && node->nvlinks);
    for (size_t g = 0; g < ng; g++) {
        const struct mu_gpu *gpu = &node->gpus[g];

        for (size_t n = 0; n < nn; n++)
            node->gpu_nic[g * nn + n] = path_between(
                gpu->numa, gpu->package, node->nics[n].numa, node->nics[n].package);
        for (size_t o = 0; o < ng; o++)
            node->gpu_gpu[g * ng + o] = path_between(
                gpu->numa, gpu->package, node->gpus[o].numa, node->gpus[o].package);
    }
}

void synth_path(struct mu_node *node, int gpu, int nic, enum mu_nearness path)
{
    node->gpu_nic[gpu * node->nnics + nic] = path;
}

void synth_nvlink(struct mu_node *node, int a, int b, int links)
{
    node->nvlinks[a * node->ngpus + b] = links;
    node->nvlinks[b * node->ngpus + a] = links;
}

void synth_alloc(const struct mu_node *node, int ntasks, struct mu_alloc *alloc)
{
    memset(alloc, 0, sizeof *alloc);
    mu_node_cpus(node, &alloc->cpus);
    alloc->ngpus = node->ngpus;
    for (int i = 0; i < node->ngpus; i++)
        alloc->gpu_node[i] = i;
    alloc->ntasks = ntasks;
}

char *synth_plan(const struct mu_node *node, const struct mu_alloc *alloc,
                 const char *options, struct mu_plan *plan)
{
    struct mu_opts opts = { 0 }, defaults = { 0 };
    struct mu_err err = { 0 };
    char *text = NULL, *rows;
    size_t len;
    FILE *out;

    mu_opts_defaults(&defaults);
    if (options[0] && mu_opts_parse(options, &opts, &err) < 0)
        fail_msg("%s", err.text);
    mu_opts_merge(&opts, &defaults);
    if (mu_plan_make(node, alloc, &opts, plan, &err) < 0) {
        memset(plan, 0, sizeof *plan);
        assert_true(asprintf(&text, "error: %s", err.text) > 0);
        return text;
    }
    out = open_memstream(&text, &len);
    assert_non_null(out);
    mu_show_tsv(out, node, plan);
    fclose(out);
    rows = strdup(strchr(text, '\n') + 1);
    free(text);
    assert_non_null(rows);
    for (char *p = rows; *p; p++)
        if (*p == '\t')
            *p = ' ';
    return rows;
}

char *synth_said(const struct mu_plan *plan)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    for (int i = 0; i < plan->nwarnings; i++)
        fprintf(out, "%s\n", plan->warning[i]);
    for (int i = 0; i < plan->ninfos; i++)
        fprintf(out, "%s\n", plan->info[i]);
    fclose(out);
    return text;
}
