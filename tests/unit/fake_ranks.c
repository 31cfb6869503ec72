/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_ranks.c - see fake_ranks.h; the rest of the backend, which coll.c calls */
#include "tests/unit/fake_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

struct fake_rank fake_rank[FAKE_RANKS];
int fake_nranks;
bool fake_foreign;

static struct fake_rank *gpu_of(const struct mu_nccl_backend *b)
{
    return &fake_rank[b->env.rank];
}

void mu_comm_calls(struct mu_nccl_backend *b)
{
}

int mu_comm_called(struct mu_nccl_backend *b, ncclResult_t rc, const char *what,
                   struct mu_err *err)
{
    if (rc == ncclInProgress)
        fail_msg("%s: the fake NCCL is never in progress", what);
    return rc == ncclSuccess ? 0 : mu_nccl_err(err, b, rc, what);
}

int mu_cuda_err(struct mu_err *err, cudaError_t rc, const char *what)
{
    return mu_err_set(err, MUSTER_EDEVICE, "CUDA: %s", what);
}

int mu_nccl_err(struct mu_err *err, const struct mu_nccl_backend *b, ncclResult_t rc,
                const char *what)
{
    return mu_err_set(err, MUSTER_EDEVICE, "NCCL: %s", what);
}

void mu_watch_add(struct mu_nccl_backend *b, const char *what)
{
    gpu_of(b)->watched++;
}

char *mu_parts_of(const struct mu_nccl_backend *b, int local_rank)
{
    return b->peer_control[local_rank];
}

cudaError_t mu_own_launch(struct mu_nccl_backend *b, const struct mu_work *work,
                          int blocks, bool captured)
{
    const struct mu_own_buffers buffers = { .stage_bytes = MU_PARTS_BYTES };

    return mu_own(&b->reach, NULL, work, &buffers, blocks, b->stream);
}

bool mu_nccl_arena_peers(const struct mu_nccl_backend *b, const void *p, size_t bytes,
                         struct mu_places *out)
{
    if (fake_foreign)
        return false;
    for (int r = 0; r < fake_nranks; r++) {
        out->peer[r] = fake_rank[r].arena + ((const char *)p - gpu_of(b)->arena);
        out->there[r] = (char *)(uintptr_t)p; /* at one address in all */
    }
    return true;
}

int mu_nccl_aborted(struct mu_nccl_backend *b, struct mu_err *err)
{
    return b->aborted ? mu_err_set(err, MUSTER_EPEER, "%s", b->why) : 0;
}

void *fake_room(size_t bytes)
{
    void *p = calloc(1, bytes);

    assert_non_null(p);
    return p;
}

static void open_gpu(int r, bool own)
{
    static const struct mu_algo_table table = {
        .curve = { [MU_ALGO_NCCL] = { 2, { 1 << 16, 1 << 24 }, { 20, 70 }, 0 },
                   [MU_ALGO_PULL] = { 2, { 1 << 16, 1 << 24 }, { 8, 58 }, 0 },
                   [MU_ALGO_OWN] = { 2, { 1 << 16, 1 << 24 }, { 9, 59 }, 0 },
                   [MU_ALGO_ONE_SHOT] = { 2, { 1 << 12, 1 << 20 }, { 3, 12 }, 0 } }
    };
    struct fake_rank *g = &fake_rank[r];

    *g = (struct fake_rank){ .s1 = fake_stream(r), .s2 = fake_stream(r) };
    g->b = (struct mu_nccl_backend){
        .env = { .rank = r,
                 .size = fake_nranks,
                 .local_size = fake_nranks,
                 .timeout = 1 },
        .stream = fake_stream(r),
        .forced = -1,
        .own = own,
        .table = table,
        .reach = { .rank = r, .n = fake_nranks, .words = &g->words }
    };
    g->b.tail = g->b.stream;
    g->arena = fake_room(BUCKETS * ROOM);
    g->seen = fake_room(BUCKETS * ROOM);
}

void fake_open_ranks(int n, bool own)
{
    fake_reset(n);
    fake_nranks = n;
    for (int r = 0; r < n; r++)
        open_gpu(r, own);
    for (int r = 0; r < n; r++) {
        char *parts = fake_room(MU_PARTS_BYTES);

        for (int p = 0; p < n; p++)
            fake_rank[p].b.peer_control[r] = parts;
    }
}

void fake_close_ranks(void)
{
    for (int r = 0; r < fake_nranks; r++) {
        mu_nccl_close(&fake_rank[r].b);
        free(fake_rank[0].b.peer_control[r]);
        free(fake_rank[r].arena);
        free(fake_rank[r].seen);
    }
    assert_int_equal(fake_calls_of(0).created, 0); /* all events are destroyed */
}

struct mu_coll fake_bucket(size_t bytes)
{
    return (struct mu_coll){ .kind = MU_COLL_ALLREDUCE,
                             .dtype = MUSTER_F32,
                             .op = MUSTER_SUM,
                             .count = bytes / sizeof(float),
                             .scale = 1.0 / fake_nranks,
                             .same_place = true,
                             .batch_join = true,
                             .what = "bucket 0 of step 7" };
}

static float value(int rank, int k)
{
    return (float)(100 * k + 12 * rank);
}

int fake_start(int r, int k, const struct mu_coll *like, cudaStream_t s,
               struct mu_err *err)
{
    struct fake_rank *g = &fake_rank[r];
    struct mu_coll c = *like;

    c.send = c.recv = g->arena + (size_t)k * ROOM + g->shift;
    c.stream = s;
    fake_fill(s, c.recv, c.count, value(r, k));
    return mu_nccl_start(&g->b, &c, &g->request[k], err);
}

int fake_join(int r, int k, const struct mu_coll *like, cudaStream_t s,
              struct mu_err *err)
{
    struct fake_rank *g = &fake_rank[r];
    size_t at = (size_t)k * ROOM + g->shift;
    int rc = mu_nccl_join(&g->b, g->request[k], s, err);

    fake_read(s, (float *)(g->seen + at), (const float *)(g->arena + at), like->count);
    return rc;
}

void fake_check(const char *what, int r, int k, const struct mu_coll *like)
{
    const struct fake_rank *g = &fake_rank[r];
    const float *seen = (const float *)(g->seen + (size_t)k * ROOM + g->shift);
    double sum = (value(0, k) + value(fake_nranks - 1, k)) / 2.0 * fake_nranks;
    float mean = (float)(sum * like->scale);

    for (size_t i = 0; i < like->count; i++)
        if (seen[i] != mean)
            fail_msg("%s: element %zu of bucket %d on rank %d of %d is %g, not %g",
                     what, i, k, r, fake_nranks, (double)seen[i], (double)mean);
}

void fake_run_to_end(const char *what, unsigned order)
{
    const char *wrong = fake_run(order);

    if (wrong)
        fail_msg("%s, %d ranks, order %u: %s", what, fake_nranks, order, wrong);
}

void fake_step(const char *what, const struct mu_coll *like, int n, unsigned order)
{
    for (int r = 0; r < fake_nranks; r++) {
        for (int k = 0; k < n; k++)
            assert_int_equal(fake_start(r, k, like, fake_rank[r].s1, NULL), 0);
        for (int k = 0; k < n; k++)
            assert_int_equal(fake_join(r, k, like, fake_rank[r].s1, NULL), 0);
    }
    fake_run_to_end(what, order);
    for (int r = 0; r < fake_nranks; r++)
        for (int k = 0; k < n; k++)
            fake_check(what, r, k, like);
}

void fake_at_most(const char *what, struct fake_calls before, struct fake_calls limit)
{
    struct fake_calls now = fake_calls_of(0);

    if (now.events - before.events > limit.events ||
        now.kernels - before.kernels > limit.kernels ||
        now.copies - before.copies > limit.copies ||
        now.nccl - before.nccl > limit.nccl)
        fail_msg("%s: %d event calls, %d kernels, %d copies, %d of NCCL", what,
                 now.events - before.events, now.kernels - before.kernels,
                 now.copies - before.copies, now.nccl - before.nccl);
}
