/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_host.c - times and checks of the collectives of the host backend */
#include "runtime/tools/bench.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/host/elements.h"
#include "runtime/base/clock.h"
#include "runtime/core/dtype.h"

#define BATCHES_MAX 1000

/* One size of one collective. */
struct shot {
    struct muster *m;
    enum muster_dtype dtype;
    char *send, *recv; /* the same where the call is in place */
    size_t count;      /* as in the call */
};

static int allreduce(const struct shot *s)
{
    return muster_allreduce(s->m, s->recv, s->count, s->dtype, MUSTER_SUM, NULL);
}

static int allgather(const struct shot *s)
{
    return muster_allgather(s->m, s->send, s->recv, s->count, s->dtype, NULL);
}

static int reduce_scatter(const struct shot *s)
{
    return muster_reduce_scatter(s->m, s->send, s->recv, s->count, s->dtype, NULL);
}

static int broadcast(const struct shot *s)
{
    return muster_broadcast(s->m, s->recv, s->count, s->dtype, 0, NULL);
}

static int reduce(const struct shot *s)
{
    return muster_reduce(s->m, s->send, s->recv, s->count, s->dtype, MUSTER_SUM, 0,
                         NULL);
}

static int gather(const struct shot *s)
{
    return muster_gather(s->m, s->send, s->recv, s->count, s->dtype, 0, NULL);
}

static int scatter(const struct shot *s)
{
    return muster_scatter(s->m, s->send, s->recv, s->count, s->dtype, 0, NULL);
}

static int alltoall(const struct shot *s)
{
    return muster_alltoall(s->m, s->send, s->recv, s->count, s->dtype, NULL);
}

/* Each even rank to the next one. */
static int send(const struct shot *s)
{
    int rank = muster_rank(s->m);

    if (rank % 2)
        return muster_recv(s->m, s->recv, s->count, s->dtype, rank - 1, NULL);
    return rank + 1 < muster_size(s->m)
               ? muster_send(s->m, s->send, s->count, s->dtype, rank + 1, NULL)
               : MUSTER_OK;
}

static int previous(const struct shot *s)
{
    return (muster_rank(s->m) + muster_size(s->m) - 1) % muster_size(s->m);
}

/* In a ring. */
static int sendrecv(const struct shot *s)
{
    int next = (muster_rank(s->m) + 1) % muster_size(s->m);

    return muster_sendrecv(s->m, s->send, s->count, next, s->recv, s->count,
                           previous(s), s->dtype, NULL);
}

static int barrier(const struct shot *s)
{
    return muster_barrier(s->m);
}

/* Elements repeat every three: any sum of them is exact in each type. */
struct pattern {
    size_t size;
    char bytes[3 * sizeof(double)];
};

static void pattern_make(struct pattern *p, enum muster_dtype dtype,
                         const double *three)
{
    p->size = mu_dtype_size(dtype);
    mu_elements_convert(p->bytes, dtype, three, MUSTER_F64, 1, 3);
}

static const char *pattern_at(const struct pattern *p, size_t i)
{
    return p->bytes + i % 3 * p->size;
}

static void pattern_fill(const struct pattern *p, char *to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * p->size, pattern_at(p, i), p->size);
}

/* How many of the elements differ from those of the pattern that begin at `from`. */
static size_t pattern_differs(const struct pattern *p, const char *is, size_t count,
                              size_t from)
{
    size_t bad = 0;

    for (size_t i = 0; i < count; i++)
        bad += memcmp(is + i * p->size, pattern_at(p, from + i), p->size) != 0;
    return bad;
}

/* Element i of a rank is -1, 0 or 1. */
static double element(int rank, int i)
{
    return (rank + i) % 3 - 1;
}

static void pattern_of_rank(struct pattern *p, enum muster_dtype dtype, int rank)
{
    double three[3];

    for (int i = 0; i < 3; i++)
        three[i] = element(rank, i);
    pattern_make(p, dtype, three);
}

static void pattern_of_sum(struct pattern *p, enum muster_dtype dtype, int ranks)
{
    double three[3] = { 0 };

    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < 3; i++)
            three[i] += element(r, i);
    pattern_make(p, dtype, three);
}

/* ---- How many elements of this rank's result are wrong ---- */

static int64_t not_of_rank(const struct shot *s, int part, int rank, size_t from)
{
    struct pattern p;

    pattern_of_rank(&p, s->dtype, rank);
    return (int64_t)pattern_differs(&p, s->recv + (size_t)part * s->count * p.size,
                                    s->count, from);
}

static int64_t not_the_sum_from(const struct shot *s, size_t from)
{
    struct pattern p;

    pattern_of_sum(&p, s->dtype, muster_size(s->m));
    return (int64_t)pattern_differs(&p, s->recv, s->count, from);
}

static int64_t not_the_sum(const struct shot *s)
{
    return not_the_sum_from(s, 0);
}

static int64_t not_the_sum_at_root(const struct shot *s)
{
    return muster_rank(s->m) == 0 ? not_the_sum(s) : 0;
}

static int64_t not_own_part_of_sum(const struct shot *s)
{
    return not_the_sum_from(s, (size_t)muster_rank(s->m) * s->count);
}

static int64_t not_all(const struct shot *s)
{
    int64_t bad = 0;

    for (int r = 0; r < muster_size(s->m); r++)
        bad += not_of_rank(s, r, r, 0);
    return bad;
}

static int64_t not_all_at_root(const struct shot *s)
{
    return muster_rank(s->m) == 0 ? not_all(s) : 0;
}

static int64_t not_own_part_of_all(const struct shot *s)
{
    int64_t bad = 0;

    for (int r = 0; r < muster_size(s->m); r++)
        bad += not_of_rank(s, r, r, (size_t)muster_rank(s->m) * s->count);
    return bad;
}

static int64_t not_of_root(const struct shot *s)
{
    return not_of_rank(s, 0, 0, 0);
}

static int64_t not_own_part_of_root(const struct shot *s)
{
    return not_of_rank(s, 0, 0, (size_t)muster_rank(s->m) * s->count);
}

static int64_t not_of_previous(const struct shot *s)
{
    return not_of_rank(s, 0, previous(s), 0);
}

static int64_t not_of_sender(const struct shot *s)
{
    return muster_rank(s->m) % 2 ? not_of_previous(s) : 0;
}

/* ---- Collectives ---- */

static const struct collective {
    const char *name;
    int (*call)(const struct shot *s);
    int64_t (*wrong)(const struct shot *s); /* NULL: there are no data */
    bool gathers, scatters; /* recv, or send, has count elements of each rank */
    bool in_place;
} collectives[] = {
    { "allreduce", allreduce, not_the_sum, false, false, true },
    { "allgather", allgather, not_all, true, false, false },
    { "reduce-scatter", reduce_scatter, not_own_part_of_sum, false, true, false },
    { "broadcast", broadcast, not_of_root, false, false, true },
    { "reduce", reduce, not_the_sum_at_root, false, false, true },
    { "gather", gather, not_all_at_root, true, false, false },
    { "scatter", scatter, not_own_part_of_root, false, true, false },
    { "alltoall", alltoall, not_own_part_of_all, true, true, false },
    { "send", send, not_of_sender, false, false, false },
    { "sendrecv", sendrecv, not_of_previous, false, false, false },
    { "barrier", barrier, NULL, false, false, true },
};

#define NCOLLECTIVES (sizeof collectives / sizeof collectives[0])

static void fire(const struct collective *c, const struct shot *s)
{
    if (c->call(s) != MUSTER_OK)
        exit(muster_report(s->m));
}

/* How many elements of a call are wrong, on all ranks. */
static int64_t wrong(const struct collective *c, const struct shot *s)
{
    size_t parts = c->scatters ? (size_t)muster_size(s->m) : 1;
    struct pattern p;
    int64_t bad;

    pattern_of_rank(&p, s->dtype, muster_rank(s->m));
    pattern_fill(&p, s->send, s->count * parts);
    fire(c, s);
    bad = c->wrong(s);
    if (muster_allreduce(s->m, &bad, 1, MUSTER_I64, MUSTER_SUM, NULL) != MUSTER_OK)
        exit(muster_report(s->m));
    return bad;
}

/* Microseconds of a call in each batch, of the slowest rank. The first is a warm-up. */
static void time_batches(const struct collective *c, const struct shot *s, size_t bytes,
                         int batches, double *us)
{
    int calls = bytes > ((size_t)1 << 22) ? 3 : bytes > ((size_t)1 << 16) ? 20 : 200;

    for (int i = -1; i < batches; i++) {
        double from;

        if (muster_barrier(s->m) != MUSTER_OK)
            exit(muster_report(s->m));
        from = mu_clock_s();
        for (int k = 0; k < calls; k++)
            fire(c, s);
        us[i < 0 ? 0 : i] = (mu_clock_s() - from) * 1e6 / calls;
    }
    if (muster_allreduce(s->m, us, (size_t)batches, MUSTER_F64, MUSTER_MAX, NULL) !=
        MUSTER_OK)
        exit(muster_report(s->m));
}

static int row(struct bench *b, const struct collective *c, struct shot *s,
               size_t bytes)
{
    bool check = b->options->check && c->wrong, bad = check && wrong(c, s) > 0;
    double us[BATCHES_MAX];

    time_batches(c, s, bytes, b->options->batches, us);
    bench_row(b, c->name, "host", bytes, us, !check ? "-" : bad ? "WRONG" : "ok");
    return bad ? 1 : 0;
}

/* Stores the count of the call: at least one element of each rank. Returns the bytes of
 * the larger buffer.
 */
static size_t whole(const struct collective *c, const struct shot *s, size_t bytes,
                    size_t *count)
{
    size_t parts = c->gathers || c->scatters ? (size_t)muster_size(s->m) : 1;
    size_t one = parts * mu_dtype_size(s->dtype);

    *count = bytes > one ? bytes / one : 1;
    return *count * one;
}

int bench_host(struct bench *b)
{
    const struct bench_options *o = b->options;
    size_t half = o->max + (size_t)muster_size(b->m) * sizeof(double);
    struct shot s = { .m = b->m, .dtype = o->dtype };
    char *arena;
    int rc = 0;

    half = (half + 4095) / 4096 * 4096;
    arena = muster_alloc(b->m, 2 * half);
    if (!arena)
        return muster_report(b->m);
    bench_head(b);
    for (size_t i = 0; i < NCOLLECTIVES; i++) {
        const struct collective *c = &collectives[i];

        if (strcmp(o->kind, "all") != 0 && strcmp(o->kind, c->name) != 0)
            continue;
        s.recv = arena;
        s.send = c->in_place ? arena : arena + half;
        if (!c->wrong)
            rc |= row(b, c, &s, 0);
        else
            for (size_t bytes = o->min; bytes <= o->max; bytes *= 4) {
                size_t exact = whole(c, &s, bytes, &s.count);

                rc |= row(b, c, &s, exact);
            }
    }
    muster_free(b->m, arena);
    return rc;
}
