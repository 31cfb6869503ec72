/* SPDX-License-Identifier: BSD-3-Clause */
/* tune.c - times of the kernels over blocks and chunk sizes, and of NCCL: a table for
 * choosing the constants in launch.c
 *
 *   tune [RANKS [LARGEST-MIB]]
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"
#include "tests/gpu/common.h"
#include "tests/gpu/limits.h"

#define MIB ((size_t)1 << 20)

struct shot {
    struct rank *r;
    char *arena;
    struct mu_places places;
    size_t bytes;
    int path, blocks, threads;
};

static void fire(void *arg)
{
    struct shot *s = arg;
    struct mu_nccl_backend *b = mu_nccl_of(s->r->b);
    struct mu_err err = { 0 };
    size_t count = s->bytes / 4;
    const struct mu_work sum = { .send = s->arena,
                                 .recv = s->arena,
                                 .count = count,
                                 .dtype = MUSTER_F32,
                                 .scale = 1.0 };
    cudaStream_t stream = s->r->stream;
    cudaError_t rc = cudaSuccess;

    switch (s->path) {
    case MU_ALGO_ONE_SHOT:
        rc = mu_one_shot(&b->reach, &sum, s->blocks, s->threads, stream);
        break;
    case MU_ALGO_PULL:
        rc = mu_pull(&b->reach, &s->places, count, MUSTER_F32, 1.0, s->blocks, stream);
        break;
    case MU_ALGO_RELAY:
        rc = mu_relay(&b->reach, s->arena, s->arena, count, MUSTER_F32, 1.0, s->blocks,
                      stream);
        break;
    default:
        if (ncclAllReduce(s->arena, s->arena, count, ncclFloat, ncclSum, b->comm,
                          stream) == ncclInProgress)
            mu_comm_wait(b, 30, "tune", &err);
    }
    mu_gpu_check(rc, "launch");
}

static double median_us(struct shot *s, bool graph)
{
    double us[15], t;
    int n = s->bytes > 64 * MIB ? 3 : s->bytes > 4 * MIB ? 7 : 15;
    int batch = s->bytes > 64 * MIB ? 2 : s->bytes > 4 * MIB ? 4 : 20;

    mu_gpu_time(fire, s, batch, n, graph, us, s->r->stream);
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && us[k] < us[k - 1]; k--) {
            t = us[k];
            us[k] = us[k - 1];
            us[k - 1] = t;
        }
    return us[n / 2];
}

static void row(struct shot *s, const char *name)
{
    int n = s->r->world->size;
    double us = median_us(s, true);

    print0(s->r, "%-8s %9zu KiB blocks %2d threads %4d: %9.2f us %6.1f GB/s\n", name,
           s->bytes >> 10, s->blocks, s->threads, us,
           s->bytes / us * 1e-3 * 2 * (n - 1) / n);
}

static void small(struct shot *s)
{
    static const size_t sizes[] = { 1, 16, 64, 256, 1024, 0 };
    static const int grids[][2] = {
        { 1, 512 },  { 4, 512 },   { 8, 512 },  { 16, 256 },
        { 16, 512 }, { 16, 1024 }, { 32, 512 }, { 32, 1024 }
    };

    for (int i = 0; sizes[i]; i++) {
        s->bytes = sizes[i] << 10;
        s->path = MU_ALGO_NCCL;
        s->blocks = s->threads = 0;
        row(s, "nccl");
        if (s->bytes > mu_one_shot_limit(&mu_nccl_of(s->r->b)->reach, 4))
            continue;
        s->path = MU_ALGO_ONE_SHOT;
        for (int g = 0; g < 8; g++) {
            s->blocks = grids[g][0];
            s->threads = grids[g][1];
            if ((size_t)s->blocks * s->threads * 12 > 4 * s->bytes + 12288 ||
                (size_t)s->blocks * s->threads * 12 * 8 < s->bytes)
                continue;
            row(s, "one-shot");
        }
        s->path = MU_ALGO_RELAY;
        s->threads = 1024;
        for (s->blocks = 4; s->blocks <= 32; s->blocks *= 2)
            row(s, "relay");
    }
}

static void large(struct shot *s, size_t largest)
{
    static const size_t sizes[] = { 1, 2, 4, 8, 16, 25, 64, 256, 1024, 0 };
    static const int grids[] = { 4, 6, 8, 12, 16, 32, 0 };

    for (int i = 0; sizes[i] && sizes[i] <= largest; i++) {
        s->bytes = sizes[i] * MIB;
        s->path = MU_ALGO_NCCL;
        s->blocks = s->threads = 0;
        row(s, "nccl");
        for (int g = 0; grids[g]; g++) {
            s->blocks = grids[g];
            s->threads = 1024;
            s->path = MU_ALGO_PULL;
            row(s, "pull");
            s->path = MU_ALGO_RELAY;
            if (mu_relay_fits(&mu_nccl_of(s->r->b)->reach, s->bytes))
                row(s, "relay");
        }
    }
}

/* The limit: copy engines in both directions at once. */
static void peer_copy(struct shot *s)
{
    int peer = (s->r->world->rank + 1) % s->r->world->size;
    void *from = mu_gpu_event(), *to = mu_gpu_event();
    double best = 1e30;

    for (int i = 0; i < 6; i++) {
        allreduce(s->r, s->arena, s->arena, 4, MUSTER_F32, MUSTER_SUM, 1.0);
        mu_gpu_mark(from, s->r->stream);
        mu_gpu_copy(s->places.peer[peer], s->arena + 256 * MIB, 256 * MIB,
                    s->r->stream);
        mu_gpu_mark(to, s->r->stream);
        double us = mu_gpu_span(from, to);
        best = us < best ? us : best;
    }
    print0(s->r, "peer copy of 256 MiB, all ranks at once: %.1f GB/s\n",
           256 * MIB / best * 1e-3);
}

struct move {
    struct rank *r;
    void *dst;
    const void *src;
    int blocks;
    bool bulk;
};

static void move(void *arg)
{
    struct move *m = arg;

    mu_gpu_check((m->bulk ? limits_bulk : limits_copy)(m->dst, m->src, 64 * MIB,
                                                       m->blocks, m->r->stream),
                 "limits");
}

/* All ranks at once: stores to a peer, loads from it, and the SM's bulk copies. */
static void limits(struct shot *s)
{
    static const char *const names[] = { "store", "load", "bulk store", "bulk load" };
    static const int grids[] = { 4, 8, 16, 32, 0 };
    int peer = (s->r->world->rank + 1) % s->r->world->size;
    char *here = s->arena, *there = s->places.peer[peer];
    double us[5];

    mu_gpu_check(limits_load(), "limits");
    for (int k = 0; k < 4; k++)
        for (int g = 0; grids[g]; g++) {
            struct move m = { s->r, k & 1 ? here : there + 64 * MIB,
                              k & 1 ? there + 64 * MIB : here, grids[g], k >= 2 };

            allreduce(s->r, s->arena, s->arena, 4, MUSTER_F32, MUSTER_SUM, 1.0);
            mu_gpu_time(move, &m, 4, 5, false, us, s->r->stream);
            print0(s->r, "limit: %-10s blocks %2d: %6.1f GB/s\n", names[k], grids[g],
                   64 * MIB / us[2] * 1e-3);
        }
}

static void print_table(struct rank *r)
{
    for (int p = 0; p < MU_ALGOS; p++) {
        const struct mu_algo_curve *c = &mu_nccl_of(r->b)->table.curve[p];

        print0(r, "start-up curve %-8s", mu_algo_names[p]);
        for (int i = 0; i < c->n; i++)
            print0(r, "  %.0f KiB %.1f us", c->bytes[i] / 1024, c->us[i]);
        print0(r, "\n");
    }
}

static int body(struct mu_world *world, void *arg)
{
    struct rank r = { 0 };
    struct shot s = { .r = &r };
    struct mu_err err = { 0 };
    size_t largest = *(size_t *)arg;
    double from = mu_clock_s();

    rank_open(&r, world, 30);
    print0(&r, "%d x %s, open %.0f ms\n", world->size, mu_gpu_name(),
           (mu_clock_s() - from) * 1e3);
    print_table(&r);
    s.arena = r.ops->alloc(r.b, (largest > 512 ? largest : 512) * MIB, &err);
    if (!s.arena || !mu_nccl_arena_peers(mu_nccl_of(r.b), s.arena, 16, &s.places))
        return 1;
    peer_copy(&s);
    limits(&s);
    small(&s);
    large(&s, largest);
    r.ops->free(r.b, s.arena);
    rank_close(&r);
    return 0;
}

int main(int argc, char **argv)
{
    int n = ranks_wanted(argc, argv, 2);
    size_t largest = argc > 2 ? (size_t)atoi(argv[2]) : 1024;

    return mu_forked_run(n, true, 10, body, &largest);
}
