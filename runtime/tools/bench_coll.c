/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_coll.c - times and checks of collectives over sizes and paths */
#include "runtime/tools/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/api/impl.h" /* for the backend, which is measured directly */
#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/core/dtype.h"

#ifndef COPY_BYTES /* a test with made-up GPUs has its own */
#define COPY_BYTES ((size_t)128 << 20)
#define MAPPED_US 100000 /* a new allocation is mapped by the peers after so long */
#endif
#define BATCHES_MAX 1000

/* One size of one collective. */
struct shot {
    struct bench *b;
    struct mu_coll coll;
    struct mu_part *parts; /* all-to-all: of both buffers, by rank */
    char *send, *recv;     /* in the arena; equal: in place */
    size_t bytes;          /* as in the table: the larger of the two buffers */
    bool sendrecv, plain;
};

static void fire(void *arg)
{
    struct shot *s = arg;
    struct muster *m = s->b->m;
    struct mu_request *request;
    struct mu_err err = { 0 };
    int rc;

    if (s->sendrecv)
        rc = s->b->module.sendrecv(m->comm.backend, s->send, s->recv, s->coll.count,
                                   s->coll.dtype, muster_rank(m) ^ 1, s->b->stream,
                                   &err);
    else if (s->plain)
        rc = s->b->module.plain(m->comm.backend, s->send, s->recv, s->coll.count,
                                s->coll.dtype, s->b->stream, &err);
    else
        rc = m->comm.ops->start(m->comm.backend, &s->coll, &request, &err) < 0
                 ? -1
                 : m->comm.ops->join(m->comm.backend, request, s->b->stream, &err);
    if (rc < 0)
        bench_die(&err);
}

/* GB/s that the copy engines move to the next rank, all ranks at once. */
static double copy_limit(struct bench *b, char *arena)
{
    struct muster *m = b->m;
    int next = (muster_local_rank(m) + 1) % muster_local_size(m);
    char *there = b->module.peer ? b->module.peer(m->comm.backend, arena, next) : NULL;
    void *from = mu_gpu_event(), *to = mu_gpu_event();
    double best = 1e30;

    if (!there || muster_size(m) < 2 || muster_nodes(m) > 1)
        return 0;
    for (int i = 0; i < 6; i++) {
        if (muster_allreduce(m, arena, 4, MUSTER_I32, MUSTER_SUM, b->stream) !=
            MUSTER_OK)
            exit(muster_report(m));
        mu_gpu_mark(from, b->stream);
        mu_gpu_copy(there + COPY_BYTES, arena, COPY_BYTES, b->stream);
        mu_gpu_mark(to, b->stream);
        double us = mu_gpu_span(from, to);
        best = us < best ? us : best;
    }
    return COPY_BYTES / best * 1e-3;
}

static void shot_make(struct shot *s, const char *kind, size_t bytes, char *arena,
                      size_t half)
{
    const struct bench_options *o = s->b->options;
    size_t count = bytes / mu_dtype_size(o->dtype);
    int n = muster_size(s->b->m);

    s->bytes = bytes;
    s->send = s->recv = arena;
    s->coll = (struct mu_coll){ .dtype = o->dtype,
                                .op = MUSTER_SUM,
                                .count = count,
                                .scale = 1,
                                .stream = s->b->stream,
                                .direct = true,
                                .what = kind };
    if (strcmp(kind, "allgather") == 0 || strcmp(kind, "reduce-scatter") == 0) {
        bool gather = kind[0] == 'a';

        s->coll.kind = gather ? MU_COLL_ALLGATHER : MU_COLL_REDUCE_SCATTER;
        s->coll.count = count / n;
        s->recv = arena + half;
    } else if (strcmp(kind, "alltoall") == 0) {
        s->coll.kind = MU_COLL_EXCHANGE;
        s->coll.count = count / n;
        s->coll.sends = s->coll.recvs = s->parts;
        for (int r = 0; r < n; r++)
            s->parts[r] = (struct mu_part){ s->coll.count * r, s->coll.count };
        s->recv = arena + half;
    } else if (strcmp(kind, "broadcast") == 0) {
        s->coll.kind = MU_COLL_BROADCAST;
    } else if (strcmp(kind, "sendrecv") == 0) {
        s->sendrecv = true;
        s->recv = arena + half;
    } else {
        s->coll.kind = MU_COLL_ALLREDUCE;
    }
    s->coll.send = s->send;
    s->coll.recv = s->recv;
}

/* How many elements on this rank are wrong. */
static uint64_t wrong(struct shot *s, uint32_t seed)
{
    struct muster *m = s->b->m;
    void *stream = s->b->stream;
    enum muster_dtype t = s->coll.dtype;
    size_t count = s->coll.count;
    int rank = muster_rank(m), n = muster_size(m);
    bool scatter = s->coll.kind == MU_COLL_REDUCE_SCATTER && !s->sendrecv;
    bool parts = scatter || s->coll.kind == MU_COLL_EXCHANGE;
    uint64_t bad = 0;

    mu_gpu_fill(s->send, parts ? count * n : count, t, seed, rank, stream);
    fire(s);
    if (s->sendrecv)
        return mu_gpu_differs(s->recv, count, t, seed, rank ^ 1, 0, stream);
    switch (s->coll.kind) {
    case MU_COLL_ALLGATHER:
    case MU_COLL_EXCHANGE:
        for (int r = 0; r < n; r++)
            bad += mu_gpu_differs(s->recv + r * count * mu_dtype_size(t), count, t,
                                  seed, r, parts ? count * rank : 0, stream);
        return bad;
    case MU_COLL_BROADCAST:
        return mu_gpu_differs(s->recv, count, t, seed, 0, 0, stream);
    default:
        return mu_gpu_wrong(s->recv, count, t, seed, n, MUSTER_SUM, 1,
                            scatter ? count * rank : 0, NULL, stream);
    }
}

static uint64_t over_ranks(struct bench *b, char *arena, uint64_t value)
{
    int64_t mine = (int64_t)value, all;

    mu_gpu_put(arena, &mine, sizeof mine);
    if (muster_allreduce(b->m, arena, 1, MUSTER_I64, MUSTER_SUM, b->stream) !=
        MUSTER_OK)
        exit(muster_report(b->m));
    mu_gpu_sync(b->stream);
    mu_gpu_get(&all, arena, sizeof all);
    return (uint64_t)all;
}

static int row(struct shot *s, const char *path, char *arena)
{
    struct bench *b = s->b;
    const struct bench_options *o = b->options;
    double us[BATCHES_MAX];
    int batch = s->bytes > ((size_t)16 << 20)  ? 3
                : s->bytes > ((size_t)1 << 20) ? 10
                                               : 40;
    uint64_t bad = 0;

    if (o->check) {
        bad = wrong(s, (uint32_t)s->bytes + 1);
        mu_gpu_sync(b->stream);
        bad = over_ranks(b, arena, bad);
    }
    mu_gpu_fill(s->send, s->coll.count, s->coll.dtype, 5, muster_rank(b->m), b->stream);
    mu_gpu_time(fire, s, batch, o->batches, o->graph, us, b->stream);
    bench_row(b, o->kind, path, s->bytes, us, !o->check ? "-" : bad ? "WRONG" : "ok");
    return bad ? 1 : 0;
}

/* True when the path takes this size; another size would fall back to another path. */
static bool path_takes(struct bench *b, const char *path, size_t bytes)
{
    if (strcmp(path, "one-shot") == 0)
        return bytes <= ((size_t)1 << 20);
    if (strcmp(path, "relay") == 0)
        return bytes <= ((size_t)8 << 20);
    return true;
}

/* Memory that the program allocated itself, for the path that serves it. */
static char *own_memory(struct bench *b, struct shot *s, size_t bytes)
{
    char *p = mu_gpu_alloc(bytes);

    bench_force(b, "own");
    shot_make(s, "allreduce", bytes, p, 0);
    fire(s);
    mu_gpu_sync(b->stream);
    usleep(MAPPED_US);
    return p;
}

/* All paths of one size. */
static int rows(struct shot *s, size_t bytes, char *arena, size_t half, char *own)
{
    struct bench *b = s->b;
    const struct bench_options *o = b->options;
    bool reduce = strcmp(o->kind, "allreduce") == 0;
    int rc = 0;

    for (int p = -1; p < MU_ALGOS; p++) {
        const char *path = p < 0 ? "auto" : mu_algo_names[p];

        if (strcmp(o->path, "all") != 0 ? strcmp(o->path, path) != 0
                                        : !path_takes(b, path, bytes))
            continue;
        if (p >= 0 && !reduce)
            continue;
        bench_force(b, path);
        shot_make(s, o->kind, bytes, p == MU_ALGO_OWN ? own : arena, half);
        s->coll.same_place = p == MU_ALGO_COPY;
        s->plain = reduce && p == MU_ALGO_NCCL && b->module.plain;
        /* An all-to-all of small parts is carried out by a kernel of ours. */
        rc |= row(s, reduce || s->coll.kind == MU_COLL_EXCHANGE ? path : "nccl", arena);
    }
    return rc;
}

int bench_collectives(struct bench *b)
{
    const struct bench_options *o = b->options;
    size_t half = (o->max > 2 * COPY_BYTES ? o->max : 2 * COPY_BYTES) + 4096;
    struct shot s = { .b = b };
    char *arena, *own = NULL;
    int rc = 0;

    if (muster_size(b->m) % 2 && strcmp(o->kind, "sendrecv") == 0) {
        fprintf(stderr, "muster bench: sendrecv needs an even number of ranks\n");
        return 2;
    }
    s.parts = calloc((size_t)muster_size(b->m), sizeof *s.parts);
    if (!s.parts) {
        fputs("muster bench: no memory\n", stderr);
        return 1;
    }
    arena = muster_alloc(b->m, 2 * half);
    if (!arena) {
        free(s.parts);
        return muster_report(b->m);
    }
    b->copy_limit = copy_limit(b, arena);
    bench_print(b, "# peer copies by copy engines, all ranks at once: %.1f GB/s\n",
                b->copy_limit);
    bench_head(b);
    if (strcmp(o->kind, "allreduce") == 0)
        own = own_memory(b, &s, o->max);
    for (size_t bytes = o->min; bytes <= o->max; bytes *= 4)
        rc |= rows(&s, bytes, arena, half, own);
    bench_force(b, "auto");
    mu_gpu_free(own);
    muster_free(b->m, arena);
    free(s.parts);
    return rc;
}
