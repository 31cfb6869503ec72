/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_tuned.c - a made-up GPU and NCCL behind gpu.h and plain.h */
#include "tests/unit/fake_tuned.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/backend/nccl/bench/plain.h"
#include "runtime/core/tune_table.h"
#include "runtime/nccl/tuner_abi.h"

#define KIB ((size_t)1 << 10)

struct mu_plain {
    const struct mu_nccl_tuner5 *tuner;
    void *context;
    int rank;
};

static struct {
    double now; /* us */
    double launch, in_graph;
    double *graph; /* us of the graph that is captured, NULL: none is */
    int hang_rank;
    size_t hang_bytes;
    bool old;
    int ll128_calls;
} fake;

void fake_tuned_hang(int rank, size_t bytes)
{
    fake.hang_rank = rank;
    fake.hang_bytes = bytes;
}

void fake_tuned_launch(double us)
{
    fake.launch = us;
}

void fake_tuned_graph(double us)
{
    fake.in_graph = us;
}

void fake_tuned_old(void)
{
    fake.old = true;
}

/* ---- The GPU --------------------------------------------------------------------- */

int mu_gpu_count(void)
{
    return 2;
}

void *mu_gpu_stream(void)
{
    return &fake;
}

void mu_gpu_sync(void *stream)
{
}

void *mu_gpu_alloc(size_t bytes)
{
    return malloc(1);
}

void mu_gpu_set(void *dst, size_t count, enum muster_dtype dtype, double value,
                void *stream)
{
}

void *mu_gpu_event(void)
{
    return calloc(1, sizeof(double));
}

void mu_gpu_mark(void *event, void *stream)
{
    *(double *)event = fake.now;
}

double mu_gpu_span(void *from, void *to)
{
    return *(double *)to - *(double *)from;
}

void *mu_gpu_capture(void (*fn)(void *arg), void *arg, int calls, void *stream)
{
    double *graph = calloc(1, sizeof *graph);

    fake.graph = graph;
    for (int i = 0; i < calls; i++)
        fn(arg);
    fake.graph = NULL;
    return graph;
}

void mu_gpu_replay(void *graph, void *stream)
{
    fake.now += *(double *)graph;
}

void mu_gpu_capture_free(void *graph)
{
    free(graph);
}

/* ---- NCCL ------------------------------------------------------------------------ */

int mu_plain_release(void)
{
    return 22803;
}

void mu_plain_id(void *id)
{
    memset(id, 7, MU_PLAIN_ID);
}

struct mu_plain *mu_plain_open(int device, int rank, int size, const void *id)
{
    struct mu_plain *p = calloc(1, sizeof *p);
    void *library = dlopen(getenv("NCCL_TUNER_PLUGIN"), RTLD_NOW);

    if (((const char *)id)[MU_PLAIN_ID - 1] != 7 || device != rank || !library)
        abort();
    p->rank = rank;
    p->tuner = dlsym(library, "ncclTunerPlugin_v5");
    if (!fake.old)
        p->tuner->init(&p->context, 1, (size_t)size, 1, NULL, NULL, NULL);
    return p;
}

void mu_plain_close(struct mu_plain *p)
{
    p->tuner->finalize(p->context);
    free(p);
}

static double time_of(const struct mu_plain *p, size_t bytes, int algo, int proto,
                      int channels)
{
    if (algo != MU_TUNE_RING)
        return 40;
    if (proto == MU_TUNE_LL && channels == 0) {
        if (bytes == fake.hang_bytes && p->rank == fake.hang_rank)
            pause();
        return bytes > 256 * KIB                 ? 60
               : fake.graph && fake.in_graph > 0 ? fake.in_graph
                                                 : 10;
    }
    if (proto == MU_TUNE_LL128 && channels == 0)
        return fake.ll128_calls++ < 100 ? 1 : 19.9;
    return proto == MU_TUNE_SIMPLE && channels == 16 && bytes >= 1024 * KIB ? 15 : 40;
}

void mu_plain_call(struct mu_plain *p, int func, const void *send, void *recv,
                   size_t bytes, void *stream)
{
    float cost[MU_TUNE_ALGOS][MU_TUNE_PROTOS];
    int channels = 0;
    double us = 20;

    for (int a = 0; a < MU_TUNE_ALGOS; a++)
        for (int k = 0; k < MU_TUNE_PROTOS; k++)
            cost[a][k] = a == MU_TUNE_RING || a == MU_TUNE_TREE ? 1 : MU_NCCL_IGNORE;
    p->tuner->info(p->context, func, bytes, 1, (float **)(void *)cost, MU_TUNE_ALGOS,
                   MU_TUNE_PROTOS, 0, &channels);
    for (int a = 0; a < MU_TUNE_ALGOS; a++)
        for (int k = 0; k < MU_TUNE_PROTOS; k++)
            if (cost[a][k] == 0)
                us = time_of(p, bytes, a, k, channels);
    if (fake.graph)
        *fake.graph += us;
    else
        fake.now += us > fake.launch ? us : fake.launch;
}
