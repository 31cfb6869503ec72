/* SPDX-License-Identifier: BSD-3-Clause */
/* check_coll.c - every algorithm of the NCCL backend gives the right bits on all ranks
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/algo.h"
#include "runtime/core/dtype.h"
#include "tests/gpu/common.h"

/* Exported by the backend for tools and tests. */
int mu_nccl_force(struct mu_backend *b, const char *path);
const struct mu_algo_table *mu_nccl_table(const struct mu_backend *b);

#define MIB ((size_t)1 << 20)
#define ARENA (96 * MIB)

static int repetitions = 3000;
static bool is_short;

static const size_t counts[] = { 1,       2,       3,       5,      7,
                                 31,      64,      255,     1000,   4097,
                                 16384,   65537,   100003,  262144, 500009,
                                 1 << 20, 3000017, 8 << 20, 0 };
static const enum muster_dtype dtypes[] = { MUSTER_F32,  MUSTER_F64, MUSTER_F16,
                                            MUSTER_BF16, MUSTER_I32, MUSTER_I64 };

struct tally {
    uint64_t wrong, hash;
    size_t first, count;
};

/* One all-reduce in place at `offset` bytes of the arena. The same stream writes the
 * data just before, and the bytes behind the data must not change.
 */
static void once(struct rank *r, char *arena, size_t offset, size_t count,
                 enum muster_dtype dtype, enum muster_op op, uint32_t seed,
                 struct tally *t)
{
    int rank = r->world->rank, n = r->world->size;
    size_t element = mu_dtype_size(dtype), first = 0;
    bool floats = dtype <= MUSTER_BF16;
    double scale = floats && op == MUSTER_SUM ? 1.0 / n : 1.0;
    char *at = arena + offset;
    uint64_t wrong;

    mu_gpu_fill(at, count + 2, dtype, seed, rank, r->stream);
    allreduce(r, at, at, count, dtype, op, scale);
    wrong = mu_gpu_wrong(at, count, dtype, seed, n, op, scale, 0, &first, r->stream);
    /* The two elements behind it must not have changed. */
    wrong +=
        mu_gpu_differs(at + count * element, 2, dtype, seed, rank, count, r->stream);
    if (wrong && t->wrong == 0) {
        t->first = first;
        t->count = count;
    }
    t->wrong += wrong;
    t->hash = t->hash * 31 + mu_gpu_hash(at, count * element, r->stream);
}

static void one_type(struct rank *r, char *arena, const char *path,
                     enum muster_dtype dtype, enum muster_op op)
{
    struct tally t = { 0 };
    uint32_t seed = 1;

    for (int i = 0; counts[i] && !(is_short && counts[i] > 70000); i++)
        for (size_t shift = 0; shift < 4; shift++) {
            size_t offset = shift == 0   ? 0
                            : shift == 1 ? 128
                            : shift == 2 ? mu_dtype_size(dtype)
                                         : 4096 + 16;

            if ((counts[i] + 2) * mu_dtype_size(dtype) + offset <= ARENA)
                once(r, arena, offset, counts[i], dtype, op, seed++, &t);
        }
    check(
        r, t.wrong == 0,
        "%s %s %s: sizes 1 to 8 Mi elements, aligned or not (wrong %llu, first %zu of "
        "%zu)",
        path, mu_dtype_name(dtype),
        op == MUSTER_SUM   ? "mean"
        : op == MUSTER_MIN ? "min"
                           : "max",
        (unsigned long long)t.wrong, t.first, t.count);
    check(r, same_everywhere(r, t.hash), "%s %s: the same bits on all ranks", path,
          mu_dtype_name(dtype));
}

/* Thousands in a row with different sizes: a race would give a wrong element. */
static void many(struct rank *r, char *arena, const char *path)
{
    struct tally t = { 0 };
    unsigned x = 12345;

    for (int i = 0; i < repetitions; i++) {
        x = x * 1103515245u + 12345;
        size_t count = 1 + (x >> 8) % (i % 8 == 0 ? 2000000 : 40000);
        size_t offset = (size_t)((x >> 4) % 64) * 128;

        once(r, arena, offset, count, i & 1 ? MUSTER_F32 : MUSTER_BF16, MUSTER_SUM,
             (uint32_t)i, &t);
    }
    check(r, t.wrong == 0, "%s: %d in a row, a producer right before each (wrong %llu)",
          path, repetitions, (unsigned long long)t.wrong);
    check(r, same_everywhere(r, t.hash), "%s: %d in a row, the same bits", path,
          repetitions);
}

/* ---- Places that differ among the ranks -------------------------------------------
 */

/* Bytes from the start of the memory to the data of a rank. */
static const struct places {
    const char *name;
    size_t each; /* for each rank before this one */
    size_t elements;
    bool elements_of_each; /* as many more for each rank */
} places[] = {
    { "another place", 4096, 0, false },
    { "another place, equal and odd alignment", MIB + 4096, 1, false },
    { "another alignment", 0, 1, true },
    { "another place and alignment", 128, 3, true },
};

static size_t offset_of(const struct places *p, int rank, enum muster_dtype dtype)
{
    size_t elements = p->elements * (p->elements_of_each ? (size_t)rank : 1);

    return p->each * (size_t)rank + elements * mu_dtype_size(dtype);
}

/* memory: "muster_alloc", of which rank 1 uses another allocation, or "cudaMalloc". */
static void apart(struct rank *r, char *at, const char *memory, const char *path,
                  enum muster_dtype dtype)
{
    uint32_t seed = 77;

    for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
        size_t offset = offset_of(&places[k], r->world->rank, dtype);
        struct tally t = { 0 };

        for (int i = 0; counts[i] && counts[i] < (is_short ? 70000 : 4000000); i++)
            once(r, at, offset, counts[i], dtype, MUSTER_SUM, seed++, &t);
        check(r, t.wrong == 0,
              "%s %s in %s, %s on each rank (wrong %llu, first %zu of %zu)", path,
              mu_dtype_name(dtype), memory, places[k].name, (unsigned long long)t.wrong,
              t.first, t.count);
        check(r, same_everywhere(r, t.hash), "%s %s in %s, %s: the same bits", path,
              mu_dtype_name(dtype), memory, places[k].name);
    }
}

/* A race between a rank that adds and one that writes its next data would show. */
static void many_apart(struct rank *r, char *at, const char *path)
{
    struct tally t = { 0 };
    unsigned x = 777;

    for (int i = 0; i < repetitions / 4; i++) {
        x = x * 1103515245u + 12345;
        size_t count = 1 + (x >> 8) % (i % 8 == 0 ? 2000000 : 40000);
        const struct places *p = &places[x >> 4 & 3];

        once(r, at, offset_of(p, r->world->rank, MUSTER_F32), count, MUSTER_F32,
             MUSTER_SUM, (uint32_t)i, &t);
    }
    check(r, t.wrong == 0, "%s: %d in a row, at other places each (wrong %llu)", path,
          repetitions / 4, (unsigned long long)t.wrong);
    check(r, same_everywhere(r, t.hash), "%s: %d in a row, other places: the same bits",
          path, repetitions / 4);
}

static void graphs(struct rank *r, char *arena, const char *path);

static void places_apart(struct rank *r, char *arena)
{
    static const char *const allocated[] = { "auto",  "one-shot", "pull",
                                             "relay", "nccl",     NULL };
    struct mu_err err = { 0 };
    char *other = r->ops->alloc(r->b, ARENA, &err), *own = mu_gpu_alloc(ARENA);
    char *at = r->world->rank % 2 ? other : arena;
    int types = is_short ? 1 : 4;

    if (!other) {
        fprintf(stderr, "# rank %d: %s\n", r->world->rank, err.text);
        exit(1);
    }
    for (int p = 0; allocated[p]; p++) {
        bool pulls = strcmp(allocated[p], "pull") == 0;

        mu_nccl_force(r->b, allocated[p]);
        for (int d = 0; d < types; d++) {
            apart(r, at, "muster_alloc", allocated[p], dtypes[d]);
            if (!pulls)
                apart(r, own, "cudaMalloc", allocated[p], dtypes[d]);
        }
        many_apart(r, at, allocated[p]);
        if (!is_short)
            graphs(r, at + 20 * r->world->rank, allocated[p]);
    }
    mu_nccl_force(r->b, "auto");
    r->ops->free(r->b, other);
    mu_gpu_free(own);
}

/* In flight together, each with its size's algorithm, joined at the end. */
static void in_flight(struct rank *r, char *arena)
{
    enum { N = 24 };
    static const size_t sizes[] = { 1000, 300000, 20000, 2000000 };
    struct mu_request *request[N];
    struct mu_err err = { 0 };
    uint64_t wrong = 0;
    int n = r->world->size;
    size_t offset = 0;

    for (int round = 0; round < 20; round++) {
        offset = 0;
        for (int i = 0; i < N; i++) {
            struct mu_coll c = { .kind = MU_COLL_ALLREDUCE,
                                 .dtype = MUSTER_F32,
                                 .op = MUSTER_SUM,
                                 .count = sizes[i % 4],
                                 .scale = 1.0 / n,
                                 .stream = r->stream,
                                 .what = "in flight" };

            c.send = c.recv = arena + offset;
            mu_gpu_fill(c.recv, c.count, MUSTER_F32, 1000 + i + 100 * round,
                        r->world->rank, r->stream);
            if (r->ops->start(r->b, &c, &request[i], &err) < 0)
                exit(1);
            offset += (c.count * 4 + 127) / 128 * 128;
        }
        for (int i = 0; i < N; i++)
            if (r->ops->join(r->b, request[i], r->stream, &err) < 0)
                exit(1);
        offset = 0;
        for (int i = 0; i < N; i++) {
            wrong += mu_gpu_wrong(arena + offset, sizes[i % 4], MUSTER_F32,
                                  1000 + i + 100 * round, n, MUSTER_SUM, 1.0 / n, 0,
                                  NULL, r->stream);
            offset += (sizes[i % 4] * 4 + 127) / 128 * 128;
        }
    }
    check(r, wrong == 0, "24 buckets in flight, 20 steps (wrong %llu)",
          (unsigned long long)wrong);
}

struct step {
    struct rank *r;
    char *arena;
};

static void graph_step(void *arg)
{
    struct step *s = arg;

    allreduce(s->r, s->arena, s->arena, 1000, MUSTER_F32, MUSTER_SUM, 1.0);
    allreduce(s->r, s->arena + MIB, s->arena + MIB, 500000, MUSTER_F32, MUSTER_SUM,
              1.0);
    allreduce(s->r, s->arena + 8 * MIB, s->arena + 8 * MIB, 4000000, MUSTER_F32,
              MUSTER_SUM, 1.0);
}

/* A captured step is replayed on new data, mixed with steps that are not captured. */
static void graphs(struct rank *r, char *arena, const char *path)
{
    struct step step = { r, arena };
    void *graph = mu_gpu_capture(graph_step, &step, 1, r->stream);
    int n = r->world->size, rank = r->world->rank;
    uint64_t wrong = 0;

    for (int i = 0; i < 100; i++) {
        mu_gpu_fill(arena, 1000, MUSTER_F32, i, rank, r->stream);
        mu_gpu_fill(arena + MIB, 500000, MUSTER_F32, i + 1, rank, r->stream);
        mu_gpu_fill(arena + 8 * MIB, 4000000, MUSTER_F32, i + 2, rank, r->stream);
        if (i % 5 == 4)
            graph_step(&step);
        else
            mu_gpu_replay(graph, r->stream);
        wrong += mu_gpu_wrong(arena, 1000, MUSTER_F32, i, n, MUSTER_SUM, 1, 0, NULL,
                              r->stream);
        wrong += mu_gpu_wrong(arena + MIB, 500000, MUSTER_F32, i + 1, n, MUSTER_SUM, 1,
                              0, NULL, r->stream);
        wrong += mu_gpu_wrong(arena + 8 * MIB, 4000000, MUSTER_F32, i + 2, n,
                              MUSTER_SUM, 1, 0, NULL, r->stream);
    }
    mu_gpu_capture_free(graph);
    check(r, wrong == 0,
          "%s: a captured step replayed 80 times among others (wrong %llu)", path,
          (unsigned long long)wrong);
}

/* More than 2^31 elements, which need 64-bit indices. */
static void huge(struct rank *r)
{
    size_t count = ((size_t)1 << 31) + 40000;
    struct mu_err err = { 0 };
    static const char *const paths[] = { "auto", "pull", "copy", "nccl" };
    char *big = r->ops->alloc(r->b, count * 2 + 4096, &err);

    if (!big) {
        print0(r, "# no memory for 2^31 elements: %s\n", err.text);
        return;
    }
    for (int i = 0; i < 4; i++) {
        mu_nccl_force(r->b, paths[i]);
        r->same_place = strcmp(paths[i], "copy") == 0;
        mu_gpu_fill(big, count, MUSTER_BF16, 7 + i, r->world->rank, r->stream);
        allreduce(r, big, big, count, MUSTER_BF16, MUSTER_SUM, 1.0);
        check(r,
              mu_gpu_wrong(big, count, MUSTER_BF16, 7 + i, r->world->size, MUSTER_SUM,
                           1, 0, NULL, r->stream) == 0,
              "%s: 2^31 + 40000 elements", paths[i]);
    }
    mu_nccl_force(r->b, "auto");
    r->ops->free(r->b, big);
}

static void nothing(struct rank *r, char *arena)
{
    struct mu_coll barrier = {
        .kind = MU_COLL_BARRIER, .scale = 1, .stream = r->stream, .what = "barrier"
    };
    struct mu_request *request;
    struct mu_err err = { 0 };

    allreduce(r, arena, arena, 0, MUSTER_F32, MUSTER_SUM, 1.0);
    check(r, r->ops->drain(r->b, r->stream, &err) == 0, "no elements at all");
    check(r,
          r->ops->start(r->b, &barrier, &request, &err) == 0 &&
              r->ops->join(r->b, request, r->stream, &err) == 0 &&
              r->ops->drain(r->b, r->stream, &err) == 0,
          "a barrier");
}

/* Pack and unpack tensors of several types, also with 600 pieces. */
static void packs(struct rank *r, char *arena)
{
    enum { N = 600 };
    struct mu_piece piece[N];
    struct mu_err err = { 0 };
    char *outside = mu_gpu_alloc(16 * MIB), *back = mu_gpu_alloc(16 * MIB);
    size_t at = 0, inside = 0;
    uint64_t wrong = 0;
    float probe[2] = { 0 };
    bool ok;

    for (int i = 0; i < N; i++) {
        size_t count = (size_t)(i * 37 % 4001);

        piece[i] = (struct mu_piece){ outside + at, inside, count };
        mu_gpu_fill(piece[i].at, count, MUSTER_F32, i, 0, r->stream);
        at += (count + i % 3) * 4; /* some not aligned to 16 bytes */
        inside += (count * 4 + 127) / 128 * 128;
    }
    ok = r->ops->pack(r->b, piece, N, MUSTER_F32, arena, MUSTER_F32, 1.0, r->stream,
                      &err) == 0;
    for (int i = 0; i < N; i++)
        wrong += mu_gpu_differs(arena + piece[i].offset, piece[i].count, MUSTER_F32, i,
                                0, 0, r->stream);
    check(r, ok && wrong == 0, "pack of 600 tensors (wrong %llu)",
          (unsigned long long)wrong);
    for (int i = 0; i < N; i++)
        piece[i].at = back + ((char *)piece[i].at - outside);
    ok = r->ops->unpack(r->b, piece, N, MUSTER_F32, arena, MUSTER_F32, 1.0, r->stream,
                        &err) == 0;
    wrong = 0;
    for (int i = 0; i < N; i++)
        wrong +=
            mu_gpu_differs(piece[i].at, piece[i].count, MUSTER_F32, i, 0, 0, r->stream);
    check(r, ok && wrong == 0, "unpack of 600 tensors (wrong %llu)",
          (unsigned long long)wrong);
    piece[0] = (struct mu_piece){ outside, 0, 2 };
    mu_gpu_fill(outside, 2, MUSTER_BF16, 3, 0, r->stream);
    ok = r->ops->pack(r->b, piece, 1, MUSTER_BF16, arena, MUSTER_F32, 1.0, r->stream,
                      &err) == 0;
    mu_gpu_sync(r->stream);
    mu_gpu_get(probe, arena, sizeof probe);
    check(r, ok && probe[0] != 0 && probe[0] >= -1 && probe[0] <= 1,
          "pack with a cast, bf16 to f32 (%g)", probe[0]);
    mu_gpu_free(outside);
    mu_gpu_free(back);
}

static void others(struct rank *r, char *arena)
{
    int n = r->world->size, rank = r->world->rank;
    size_t count = 100003;
    struct mu_coll c = { .dtype = MUSTER_F32,
                         .op = MUSTER_SUM,
                         .scale = 1.0,
                         .stream = r->stream,
                         .count = count,
                         .what = "other" };
    struct mu_request *q;
    struct mu_err err = { 0 };
    uint64_t wrong = 0;

    mu_gpu_fill(arena, count, MUSTER_F32, 5, rank, r->stream);
    c.kind = MU_COLL_BROADCAST;
    c.root = n - 1;
    c.send = c.recv = arena;
    if (r->ops->start(r->b, &c, &q, &err) < 0 ||
        r->ops->join(r->b, q, r->stream, &err) < 0)
        exit(1);
    wrong = mu_gpu_differs(arena, count, MUSTER_F32, 5, n - 1, 0, r->stream);
    check(r, wrong == 0, "broadcast");

    mu_gpu_fill(arena, count, MUSTER_F32, 6, rank, r->stream);
    c.kind = MU_COLL_ALLGATHER;
    c.send = arena;
    c.recv = arena + 8 * MIB;
    if (r->ops->start(r->b, &c, &q, &err) < 0 ||
        r->ops->join(r->b, q, r->stream, &err) < 0)
        exit(1);
    for (int i = 0; i < n; i++)
        wrong += mu_gpu_differs(arena + 8 * MIB + i * count * 4, count, MUSTER_F32, 6,
                                i, 0, r->stream);
    check(r, wrong == 0, "all-gather");
}

static int body(struct mu_world *world, void *arg)
{
    static const char *const paths[] = { "auto", "one-shot", "pull", "relay",
                                         "copy", "nccl",     NULL };
    struct rank r = { 0 };
    struct mu_err err = { 0 };
    char *arena;

    rank_open(&r, world, 120);
    arena = r.ops->alloc(r.b, ARENA, &err);
    if (!arena) {
        fprintf(stderr, "# rank %d: %s\n", world->rank, err.text);
        return 1;
    }
    print0(&r, "# %d x %s, %s\n", world->size, mu_gpu_name(), r.ops->transport(r.b));
    for (int p = 0; paths[p]; p++) {
        mu_nccl_force(r.b, paths[p]);
        r.same_place = strcmp(paths[p], "copy") == 0;
        for (int d = 0; d < (is_short ? 1 : 6); d++)
            one_type(&r, arena, paths[p], dtypes[d], MUSTER_SUM);
        one_type(&r, arena, paths[p], MUSTER_F32, MUSTER_MAX);
        one_type(&r, arena, paths[p], MUSTER_I64, MUSTER_MIN);
        many(&r, arena, paths[p]);
        if (!is_short)
            graphs(&r, arena, paths[p]);
    }
    r.same_place = false;
    places_apart(&r, arena);
    if (!is_short)
        in_flight(&r, arena);
    nothing(&r, arena);
    packs(&r, arena);
    others(&r, arena);
    if (!is_short)
        huge(&r);
    print0(&r, "1..%d\n", r.number);
    r.ops->free(r.b, arena);
    rank_close(&r);
    return r.failures ? 1 : 0;
}

int main(int argc, char **argv)
{
    int n = ranks_wanted(argc, argv, 2);

    if (argc > 2)
        repetitions = atoi(argv[2]);
    is_short = argc > 3;
    return mu_forked_run(n, true, 20, body, NULL);
}
