/* SPDX-License-Identifier: BSD-3-Clause */
/* random_groups.c - one rank of a random program over random groups */
#include "tests/unit/random_groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/core/convert.h"

enum { RANKS = 6, GROUPS = 4, MOST = 6000, SLOTS = 5 };
enum { ROOM = (MOST + 1) * 8 };

enum call {
    ALLREDUCE,
    BROADCAST,
    ALLGATHER,
    REDUCE_SCATTER,
    REDUCE,
    GATHER,
    SCATTER,
    ALLTOALL,
    ALLTOALLV,
    BARRIER,
    RING,
    MESSAGE,
    NCALLS
};

static const char *const names[NCALLS] = { "allreduce",      "broadcast", "allgather",
                                           "reduce_scatter", "reduce",    "gather",
                                           "scatter",        "alltoall",  "alltoallv",
                                           "barrier",        "ring",      "message" };

static void (*copy)(void *to, const void *from, size_t bytes);

/* One call, as this rank makes it: among n ranks, of which it is `me`. */
struct step {
    struct muster *g;
    enum call call;
    enum muster_dtype dtype;
    enum muster_op op;
    int n, me, root, peer;
    int world[RANKS]; /* by rank of the group */
    size_t count, size;
    unsigned salt;
    char *in, *out;          /* of the collectives */
    char *got, *sent;        /* what they hold, in host memory */
    struct muster_handle *h; /* in flight, or NULL */
    size_t results;          /* elements of `in` that it fills */
    int k;                   /* its number */
};

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

/* A small whole number: sums are exact in every type. */
static double value(const struct step *s, int rank, size_t i)
{
    uint64_t x = (uint64_t)s->world[rank] * 7919 + i * 31 + s->salt;

    x = (x ^ x >> 7) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    return (double)(x % 9) + (s->dtype == MUSTER_BYTE ? 0 : -4);
}

static void put(const struct step *s, void *at, size_t i, double x)
{
    switch (s->dtype) {
    case MUSTER_F32:
        ((float *)at)[i] = (float)x;
        break;
    case MUSTER_F64:
        ((double *)at)[i] = x;
        break;
    case MUSTER_F16:
        ((uint16_t *)at)[i] = mu_to_f16((float)x);
        break;
    case MUSTER_BF16:
        ((uint16_t *)at)[i] = mu_to_bf16((float)x);
        break;
    case MUSTER_I32:
        ((int32_t *)at)[i] = (int32_t)x;
        break;
    case MUSTER_I64:
        ((int64_t *)at)[i] = (int64_t)x;
        break;
    case MUSTER_BYTE:
        ((uint8_t *)at)[i] = (uint8_t)x;
    }
}

static double get(const struct step *s, const void *at, size_t i)
{
    switch (s->dtype) {
    case MUSTER_F32:
        return (double)((const float *)at)[i];
    case MUSTER_F64:
        return ((const double *)at)[i];
    case MUSTER_F16:
        return (double)mu_from_f16(((const uint16_t *)at)[i]);
    case MUSTER_BF16:
        return (double)mu_from_bf16(((const uint16_t *)at)[i]);
    case MUSTER_I32:
        return ((const int32_t *)at)[i];
    case MUSTER_I64:
        return (double)((const int64_t *)at)[i];
    case MUSTER_BYTE:
        break;
    }
    return ((const uint8_t *)at)[i];
}

/* What the operator makes of element i of all ranks. */
static double combined(const struct step *s, size_t i, enum muster_op op)
{
    double acc = value(s, 0, i);

    for (int r = 1; r < s->n; r++) {
        double x = value(s, r, i);

        acc = op == MUSTER_MIN   ? fmin(acc, x)
              : op == MUSTER_MAX ? fmax(acc, x)
                                 : acc + x;
    }
    if (op != MUSTER_MEAN)
        return acc;
    acc = acc / s->n;
    return s->dtype == MUSTER_I32 || s->dtype == MUSTER_I64 ? rint(acc) : acc;
}

static bool is_close(const struct step *s, double got, double want)
{
    double part = s->dtype == MUSTER_BF16  ? 1.0 / 128
                  : s->dtype == MUSTER_F16 ? 1.0 / 1024
                                           : 1e-6;

    /* NCCL's mean adds parts that are rounded already: a sum of 0 may be a bit off. */
    return fabs(got - want) <= part * fmax(fabs(want), 1);
}

/* The elements that rank `from` sends to rank `to` in an all-to-all-v. */
static size_t part(const struct step *s, int from, int to)
{
    return (s->count * (size_t)(s->world[from] * 5 + s->world[to] * 3 + 1) + s->salt) %
           (MOST / RANKS);
}

/* Element i of the result on this rank. */
static double wanted(const struct step *s, size_t i)
{
    size_t n = s->count ? s->count : 1, at = 0;
    int from = (s->me + s->n - 1) % s->n;

    switch (s->call) {
    case ALLREDUCE:
    case REDUCE:
        return combined(s, i, s->op);
    case REDUCE_SCATTER:
        return combined(s, (size_t)s->me * n + i, MUSTER_SUM);
    case BROADCAST:
        return value(s, s->root, i);
    case SCATTER:
        return value(s, s->root, (size_t)s->me * n + i);
    case ALLGATHER:
    case GATHER:
        return value(s, (int)(i / n), i % n);
    case ALLTOALL:
        return value(s, (int)(i / n), (size_t)s->me * n + i % n);
    case ALLTOALLV:
        for (from = 0; i >= part(s, from, s->me); from++)
            i -= part(s, from, s->me);
        for (int to = 0; to < s->me; to++)
            at += part(s, from, to);
        return value(s, from, at + i);
    case RING:
        return value(s, from, i);
    default:
        return value(s, s->root, i);
    }
}

static int all_to_all_v(const struct step *s, size_t *got)
{
    size_t out[RANKS], in[RANKS];

    *got = 0;
    for (int r = 0; r < s->n; r++) {
        out[r] = part(s, s->me, r);
        in[r] = part(s, r, s->me);
        *got += in[r];
    }
    return muster_alltoallv(s->g, s->out, out, NULL, s->in, in, NULL, s->dtype, NULL);
}

/* Makes the call; *got: how many elements of s->in are results. */
static int run(const struct step *s, size_t *got)
{
    size_t k = s->count, all = k * (size_t)s->n;
    bool root = s->me == s->root, peer = s->me == s->peer;

    *got = k;
    switch (s->call) {
    case ALLREDUCE:
        copy(s->in, s->out, k * s->size);
        return muster_allreduce(s->g, s->in, k, s->dtype, s->op, NULL);
    case BROADCAST:
        if (root)
            copy(s->in, s->out, k * s->size);
        return muster_broadcast(s->g, s->in, k, s->dtype, s->root, NULL);
    case ALLGATHER:
        *got = all;
        return muster_allgather(s->g, s->out, s->in, k, s->dtype, NULL);
    case REDUCE_SCATTER:
        return muster_reduce_scatter(s->g, s->out, s->in, k, s->dtype, NULL);
    case REDUCE:
        *got = root ? k : 0;
        return muster_reduce(s->g, s->out, s->in, k, s->dtype, s->op, s->root, NULL);
    case GATHER:
        *got = root ? all : 0;
        return muster_gather(s->g, s->out, s->in, k, s->dtype, s->root, NULL);
    case SCATTER:
        return muster_scatter(s->g, s->out, s->in, k, s->dtype, s->root, NULL);
    case ALLTOALL:
        *got = all;
        return muster_alltoall(s->g, s->out, s->in, k, s->dtype, NULL);
    case ALLTOALLV:
        return all_to_all_v(s, got);
    case RING:
        return muster_sendrecv(s->g, s->out, k, (s->me + 1) % s->n, s->in, k,
                               (s->me + s->n - 1) % s->n, s->dtype, NULL);
    case MESSAGE:
        *got = peer && !root ? k : 0;
        if (s->root == s->peer || (!root && !peer))
            return MUSTER_OK;
        return root ? muster_send(s->g, s->out, k, s->dtype, s->peer, NULL)
                    : muster_recv(s->g, s->in, k, s->dtype, s->root, NULL);
    default:
        *got = 0;
        return muster_barrier(s->g);
    }
}

static void must_succeed(const struct step *s, uint64_t seed, int rc)
{
    if (rc == MUSTER_OK)
        return;
    fprintf(stderr, "seed %llu, call %d, %s: %s\n", (unsigned long long)seed, s->k,
            names[s->call], muster_error(s->g));
    _exit(97);
}

/* A rank that neither sends nor receives makes no call; a barrier cannot be started. */
static bool can_start(const struct step *s)
{
    return s->call != BARRIER &&
           (s->call != MESSAGE ||
            (s->root != s->peer && (s->me == s->root || s->me == s->peer)));
}

static void begin(struct step *s, uint64_t seed, bool starts)
{
    s->h = NULL;
    for (size_t i = 0; i < MOST; i++)
        put(s, s->sent, i, value(s, s->me, i));
    memset(s->got, 0x5a, ROOM);
    copy(s->out, s->sent, ROOM);
    copy(s->in, s->got, ROOM);
    if (starts && can_start(s))
        must_succeed(s, seed, muster_start(s->g, &s->h));
    must_succeed(s, seed, run(s, &s->results));
}

static void finish(struct step *s, uint64_t seed)
{
    if (!s->g)
        return;
    must_succeed(s, seed, muster_wait(s->h, 0));
    copy(s->got, s->in, ROOM);
    for (size_t i = 0; i < s->results; i++)
        if (!is_close(s, get(s, s->got, i), wanted(s, i))) {
            fprintf(
                stderr,
                "seed %llu, call %d, rank %d: %s of %zu (type %d, op %d, %d ranks): "
                "element %zu is %g, not %g\n",
                (unsigned long long)seed, s->k, s->world[s->me], names[s->call],
                s->count, (int)s->dtype, (int)s->op, s->n, i, get(s, s->got, i),
                wanted(s, i));
            _exit(96);
        }
    if (((uint8_t *)s->got)[s->results * s->size] != 0x5a) {
        fprintf(stderr, "seed %llu, call %d: %s wrote beyond its result\n",
                (unsigned long long)seed, s->k, names[s->call]);
        _exit(96);
    }
    s->g = NULL;
}

/* The same draws on all ranks; what the draws mean depends on the size of the group. */
static void draw_step(uint64_t *state, struct step *s)
{
    static const size_t counts[] = { 0, 1, 2, 17, 130, MOST / RANKS };
    uint64_t call = draw(state, NCALLS), dtype = draw(state, MUSTER_BYTE + 1);
    uint64_t op = draw(state, MUSTER_MEAN + 1), count = draw(state, 6);
    uint64_t root = draw(state, 720), peer = draw(state, 720);

    s->salt = (unsigned)draw(state, 100000);
    s->call = (enum call)call;
    s->op = (enum muster_op)op;
    s->dtype = (enum muster_dtype)dtype;
    if (s->dtype == MUSTER_BYTE &&
        (s->call == ALLREDUCE || s->call == REDUCE || s->call == REDUCE_SCATTER))
        s->dtype = MUSTER_F32;
    s->size = muster_dtype_size(s->dtype);
    s->count = counts[count];
    if (!s->g)
        return;
    s->n = muster_size(s->g);
    s->me = muster_rank(s->g);
    s->root = (int)(root % (uint64_t)s->n);
    s->peer = (int)(peer % (uint64_t)s->n);
    for (int r = 0; r < s->n; r++)
        s->world[r] = muster_world_rank(s->g, r);
}

/* Group 0 is the world. A later one splits it, or one before. */
static void draw_groups(struct muster *m, uint64_t *state, struct muster **g)
{
    g[0] = m;
    for (int k = 1; k < GROUPS; k++) {
        struct muster *parent = g[draw(state, (uint64_t)k)];
        int colour[RANKS], key[RANKS], rank = muster_rank(m);

        g[k] = NULL;
        for (int r = 0; r < RANKS; r++) {
            colour[r] = (int)draw(state, 4) - 1;
            key[r] = (int)draw(state, 5);
        }
        if (parent && muster_split(parent, colour[rank], key[rank], NULL, &g[k])) {
            fprintf(stderr, "split %d: %s\n", k, muster_error(parent));
            _exit(97);
        }
    }
}

void random_groups(struct muster *m, uint64_t seed, int calls,
                   const struct space *space)
{
    uint64_t state = seed * 2654435761u + 99;
    uint64_t own = state + (uint64_t)muster_rank(m) * 77777; /* what it decides */
    struct step slot[SLOTS] = { { 0 } };
    struct muster *g[GROUPS];

    copy = space->copy;
    for (int i = 0; i < SLOTS; i++) {
        slot[i].in = space->alloc(ROOM);
        slot[i].out = space->alloc(ROOM);
        slot[i].got = malloc(ROOM);
        slot[i].sent = calloc(1, ROOM);
    }
    draw_groups(m, &state, g);
    for (int k = 0; k < calls; k++) {
        struct step *s = &slot[draw(&own, SLOTS)];

        finish(s, seed);
        s->g = g[draw(&state, GROUPS)];
        s->k = k;
        draw_step(&state, s);
        if (s->g)
            begin(s, seed, draw(&own, 3) > 0);
    }
    for (int i = 0; i < SLOTS; i++)
        finish(&slot[i], seed);
    for (int k = GROUPS - 1; k >= 0; k--)
        if (g[k] && (k > 0 || space->ends))
            if (muster_finalize(g[k]) != MUSTER_OK)
                _exit(97);
    for (int i = 0; i < SLOTS; i++) {
        space->free(slot[i].in);
        space->free(slot[i].out);
        free(slot[i].got);
        free(slot[i].sent);
    }
}
