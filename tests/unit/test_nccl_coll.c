/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_coll.c - collectives of the NCCL backend for 2 to 4 ranks on fake GPUs: the
 * results, whatever order their streams run in; how many calls they take; errors
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/backend/nccl/nccl.h"
#include "tests/unit/fake_gpu.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define BUCKETS 3
#define ROOM (5 * MIB) /* bytes of each bucket's place in the arena */
/* Orders in which the streams run; large data take their time. */
#define ORDERS(bytes) ((bytes) > MIB ? 2u : 30u)

static struct gpu {
    struct mu_nccl_backend b;
    struct mu_host_words words;
    struct mu_nccl_request *request[BUCKETS];
    cudaStream_t s1, s2; /* the program's */
    char *arena, *seen;
    int watched;
} gpus[FAKE_RANKS];
static int ranks;
static bool foreign; /* buffers lie outside of the backend's memory */

/* ---- The rest of the backend ----------------------------------------------------- */

static struct gpu *gpu_of(const struct mu_nccl_backend *b)
{
    return &gpus[b->env.rank];
}

int mu_comm_wait(struct mu_nccl_backend *b, double timeout, const char *what,
                 struct mu_err *err)
{
    fail_msg("%s: the fake NCCL is never in progress", what);
    return -1;
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

cudaError_t mu_own_launch(struct mu_nccl_backend *b, const struct mu_coll *coll,
                          int blocks, bool captured)
{
    const struct mu_own_buffers buffers = { .send = coll->send, .recv = coll->recv };

    return mu_own(&b->reach, NULL, &buffers, coll->count, coll->dtype, coll->scale,
                  blocks, b->stream);
}

bool mu_nccl_arena_peers(const struct mu_nccl_backend *b, const void *p, size_t bytes,
                         void **buffer)
{
    if (foreign)
        return false;
    for (int r = 0; r < ranks; r++)
        buffer[r] = gpus[r].arena + ((const char *)p - gpu_of(b)->arena);
    return true;
}

int mu_nccl_aborted(struct mu_nccl_backend *b, struct mu_err *err)
{
    return b->aborted ? mu_err_set(err, MUSTER_EPEER, "%s", b->why) : 0;
}

/* ---- Ranks ----------------------------------------------------------------------- */

static void *room(size_t bytes)
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
    struct gpu *g = &gpus[r];

    *g = (struct gpu){ .s1 = fake_stream(r), .s2 = fake_stream(r) };
    g->b = (struct mu_nccl_backend){
        .env = { .rank = r, .size = ranks, .local_size = ranks, .timeout = 1 },
        .stream = fake_stream(r),
        .forced = -1,
        .own = own,
        .table = table,
        .reach = { .rank = r, .n = ranks, .words = &g->words }
    };
    g->b.tail = g->b.stream;
    g->arena = room(BUCKETS * ROOM);
    g->seen = room(BUCKETS * ROOM);
}

static void open_ranks(int n, bool own)
{
    fake_reset(n);
    ranks = n;
    for (int r = 0; r < n; r++)
        open_gpu(r, own);
    for (int r = 0; r < n; r++) {
        char *parts = room(MU_PARTS_BYTES);

        for (int p = 0; p < n; p++)
            gpus[p].b.peer_control[r] = parts;
    }
}

static void close_ranks(void)
{
    for (int r = 0; r < ranks; r++) {
        mu_nccl_close(&gpus[r].b);
        free(gpus[0].b.peer_control[r]);
        free(gpus[r].arena);
        free(gpus[r].seen);
    }
    assert_int_equal(fake_calls_of(0).created, 0); /* all events are destroyed */
}

static struct mu_coll bucket(size_t bytes)
{
    return (struct mu_coll){ .kind = MU_COLL_ALLREDUCE,
                             .dtype = MUSTER_F32,
                             .op = MUSTER_SUM,
                             .count = bytes / sizeof(float),
                             .scale = 1.0 / ranks,
                             .batch_join = true,
                             .what = "bucket 0 of step 7" };
}

static float value(int rank, int k)
{
    return (float)(100 * k + 12 * rank);
}

/* Rank r computes bucket k on its stream, and starts it. */
static int start(int r, int k, const struct mu_coll *like, cudaStream_t s,
                 struct mu_err *err)
{
    struct gpu *g = &gpus[r];
    struct mu_coll c = *like;

    c.send = c.recv = g->arena + (size_t)k * ROOM;
    c.stream = s;
    fake_fill(s, c.recv, c.count, value(r, k));
    return mu_nccl_start(&g->b, &c, &g->request[k], err);
}

/* The program reads bucket k on the stream that joined it. */
static int join(int r, int k, const struct mu_coll *like, cudaStream_t s,
                struct mu_err *err)
{
    struct gpu *g = &gpus[r];
    size_t at = (size_t)k * ROOM;
    int rc = mu_nccl_join(&g->b, g->request[k], s, err);

    fake_read(s, (float *)(g->seen + at), (const float *)(g->arena + at), like->count);
    return rc;
}

static void check(const char *what, int r, int k, const struct mu_coll *like)
{
    const float *seen = (const float *)(gpus[r].seen + (size_t)k * ROOM);
    double sum = (value(0, k) + value(ranks - 1, k)) / 2.0 * ranks;
    float mean = (float)(sum * like->scale);

    for (size_t i = 0; i < like->count; i++)
        if (seen[i] != mean)
            fail_msg("%s: element %zu of bucket %d on rank %d of %d is %g, not %g",
                     what, i, k, r, ranks, (double)seen[i], (double)mean);
}

static void run_to_end(const char *what, unsigned order)
{
    const char *wrong = fake_run(order);

    if (wrong)
        fail_msg("%s, %d ranks, order %u: %s", what, ranks, order, wrong);
}

/* n buckets on every rank: all start, then all are joined; then every mean is right. */
static void step(const char *what, const struct mu_coll *like, int n, unsigned order)
{
    for (int r = 0; r < ranks; r++) {
        for (int k = 0; k < n; k++)
            assert_int_equal(start(r, k, like, gpus[r].s1, NULL), 0);
        for (int k = 0; k < n; k++)
            assert_int_equal(join(r, k, like, gpus[r].s1, NULL), 0);
    }
    run_to_end(what, order);
    for (int r = 0; r < ranks; r++)
        for (int k = 0; k < n; k++)
            check(what, r, k, like);
}

static void at_most(const char *what, struct fake_calls before, struct fake_calls limit)
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

/* ---- Every path ------------------------------------------------------------------ */

static const struct path {
    const char *name;
    size_t bytes;
    bool hidden, batch_join, captured, between_nodes;
    int forced;
    double scale;            /* 1: the mean */
    struct fake_calls limit; /* of a step of three buckets; copies: for each peer */
} paths[] = {
    { "a hidden bucket leaves the SMs free but for its sum",
      4 * MIB,
      true,
      true,
      false,
      false,
      -1,
      1,
      { .events = 8, .kernels = 9, .copies = 6 } },
    { "a hidden bucket of uneven segments",
      4 * MIB + 112,
      true,
      true,
      false,
      false,
      -1,
      1,
      { .events = 8, .kernels = 9, .copies = 6 } },
    { "a bucket that the stream waits for is one kernel",
      2 * MIB,
      false,
      true,
      false,
      false,
      -1,
      1,
      { .events = 8, .kernels = 3 } },
    { "a small bucket is one kernel",
      64 * KIB,
      false,
      true,
      false,
      false,
      -1,
      1,
      { .events = 8, .kernels = 3 } },
    { "a small hidden bucket is one kernel",
      64 * KIB,
      true,
      true,
      false,
      false,
      -1,
      1,
      { .events = 8, .kernels = 3 } },
    { "relay",
      256 * KIB,
      false,
      true,
      false,
      false,
      MU_ALGO_RELAY,
      1,
      { .events = 8, .kernels = 3 } },
    { "buckets that are copied back have an event each",
      2 * MIB,
      false,
      false,
      false,
      false,
      -1,
      1,
      { .events = 12, .kernels = 3 } },
    { "a hidden bucket of a graph has no copies, which would hang",
      4 * MIB,
      true,
      true,
      true,
      false,
      -1,
      1,
      { .events = 8, .kernels = 3 } },
    { "so has one that is forced to the copy path",
      4 * MIB,
      true,
      true,
      true,
      false,
      MU_ALGO_COPY,
      1,
      { .events = 8, .kernels = 3 } },
    { "between nodes NCCL computes the mean itself",
      4 * MIB,
      true,
      true,
      false,
      true,
      -1,
      1,
      { .events = 8, .nccl = 3 } },
    { "another factor than the mean's is one kernel more",
      64 * KIB,
      false,
      true,
      false,
      true,
      -1,
      2,
      { .events = 8, .kernels = 3, .nccl = 3 } },
    { "NCCL in a graph is marked on both sides",
      64 * KIB,
      false,
      true,
      true,
      true,
      -1,
      1,
      { .events = 8, .kernels = 6, .nccl = 3 } },
};

static void run_path(const struct path *p, int n, unsigned order)
{
    struct fake_calls before, limit = p->limit;
    struct mu_coll c;
    int created;

    open_ranks(n, !p->between_nodes);
    for (int r = 0; r < n; r++)
        gpus[r].b.forced = p->forced;
    limit.copies *= n - 1;
    c = bucket(p->bytes);
    c.scale *= p->scale;
    c.hidden = p->hidden;
    c.batch_join = p->batch_join;
    fake_capture(p->captured);
    step(p->name, &c, BUCKETS, order);
    created = fake_calls_of(0).created;
    before = fake_calls_of(0);
    step(p->name, &c, BUCKETS, order + 1);
    at_most(p->name, before, limit);
    /* Where copies are allowed, the engines must do the work. */
    assert_int_equal(fake_calls_of(0).copies - before.copies, limit.copies);
    assert_int_equal(fake_calls_of(0).created, created);
    assert_int_equal(gpus[0].watched,
                     p->between_nodes && !p->captured ? 2 * BUCKETS : 0);
    assert_int_equal(gpus[0].words.mark_begin, gpus[0].words.mark_end);
    assert_int_equal(gpus[0].words.mark_end,
                     p->between_nodes && p->captured ? 2 * BUCKETS : 0);
    close_ranks();
}

static void every_path_gives_the_mean_in_few_calls(void **state)
{
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        for (int n = 2; n <= FAKE_RANKS; n++)
            for (unsigned order = 0; order < ORDERS(paths[i].bytes); order++)
                run_path(&paths[i], n, order);
}

static void parts_beyond_their_area_go_in_rounds(void **state)
{
    struct mu_coll c;
    size_t bytes = 2 * MU_PARTS_BYTES + 4 * MIB;

    open_ranks(2, true);
    c = bucket(bytes);
    c.hidden = true;
    for (int r = 0; r < ranks; r++) {
        free(gpus[r].arena);
        free(gpus[r].seen);
        gpus[r].arena = room(bytes);
        gpus[r].seen = room(bytes);
    }
    step("two rounds", &c, 1, 1);
    close_ranks();
}

/* What one rank can see of its own memory never decides the kernel: the others see
 * theirs.
 */
static void memory_of_the_program_is_one_kernel_whatever_its_alignment(void **state)
{
    struct mu_coll c;

    for (unsigned order = 0; order < ORDERS(0); order++) {
        open_ranks(3, true);
        foreign = true;
        c = bucket(2 * MIB);
        for (int r = 0; r < ranks; r++) {
            gpus[r].b.ours.open = true;
            gpus[r].arena += r == 1 ? sizeof(float) : 0;
        }
        step("the program's memory", &c, 1, order);
        assert_int_equal(fake_calls_of(0).kernels, 1);
        assert_int_equal(fake_calls_of(0).nccl, 0);
        gpus[1].arena -= sizeof(float);
        foreign = false;
        close_ranks();
    }
}

static void where_it_cannot_be_shared_nccl_has_it(void **state)
{
    struct mu_coll c;

    open_ranks(2, true);
    foreign = true;
    c = bucket(2 * MIB);
    step("the program's memory", &c, 1, 1);
    assert_int_equal(fake_calls_of(0).nccl, 1);
    foreign = false;
    close_ranks();
}

/* ---- Which stream waits for what ------------------------------------------------- */

/* A bucket that is copied back can be read before the next one is done. */
static void a_bucket_with_its_own_event_does_not_wait_for_the_next(void **state)
{
    struct mu_coll c;

    for (unsigned order = 0; order < ORDERS(0); order++) {
        open_ranks(2, true);
        c = bucket(64 * KIB);
        c.batch_join = false;
        for (int k = 0; k < 2; k++)
            assert_int_equal(start(0, k, &c, gpus[0].s1, NULL), 0);
        assert_int_equal(join(0, 0, &c, gpus[0].s1, NULL), 0);
        assert_int_equal(start(1, 0, &c, gpus[1].s1, NULL), 0);
        assert_non_null(fake_run(order)); /* bucket 1 waits for rank 1 */
        check("its own event", 0, 0, &c);
        assert_int_equal(start(1, 1, &c, gpus[1].s1, NULL), 0);
        assert_int_equal(join(0, 1, &c, gpus[0].s1, NULL), 0);
        assert_int_equal(join(1, 0, &c, gpus[1].s1, NULL), 0);
        assert_int_equal(join(1, 1, &c, gpus[1].s1, NULL), 0);
        run_to_end("its own event", order);
        for (int k = 0; k < 2; k++)
            check("its own event", 1, k, &c);
        close_ranks();
    }
}

static void each_stream_that_joins_has_the_result(void **state)
{
    struct mu_coll c;

    for (unsigned order = 0; order < ORDERS(0); order++) {
        open_ranks(2, true);
        c = bucket(64 * KIB);
        for (int r = 0; r < ranks; r++) {
            struct fake_calls before;

            for (int k = 0; k < BUCKETS; k++)
                assert_int_equal(start(r, k, &c, gpus[r].s1, NULL), 0);
            before = fake_calls_of(0);
            assert_int_equal(join(r, 0, &c, gpus[r].s1, NULL), 0);
            assert_int_equal(join(r, 1, &c, gpus[r].s2, NULL), 0);
            assert_int_equal(join(r, 2, &c, gpus[r].s2, NULL), 0);
            at_most("one event for each stream", before,
                    (struct fake_calls){ .events = 4 });
        }
        run_to_end("two streams join", order);
        for (int r = 0; r < ranks; r++)
            for (int k = 0; k < BUCKETS; k++)
                check("two streams join", r, k, &c);
        close_ranks();
    }
}

static void what_starts_after_a_join_is_waited_for_anew(void **state)
{
    struct mu_coll c;

    for (unsigned order = 0; order < ORDERS(0); order++) {
        open_ranks(2, true);
        c = bucket(64 * KIB);
        for (int r = 0; r < ranks; r++)
            for (int k = 0; k < 2; k++) {
                assert_int_equal(start(r, k, &c, gpus[r].s1, NULL), 0);
                assert_int_equal(join(r, k, &c, gpus[r].s1, NULL), 0);
            }
        run_to_end("one after the other", order);
        for (int k = 0; k < 2; k++)
            check("one after the other", 1, k, &c);
        close_ranks();
    }
}

/* Kernels match by their order, so a direct one must not overtake one of the backend's
 * stream, nor the other way round.
 */
static void a_direct_one_keeps_the_order_of_all_ranks(void **state)
{
    struct mu_coll c, direct;

    for (unsigned order = 0; order < ORDERS(0); order++) {
        open_ranks(2, true);
        c = bucket(64 * KIB);
        direct = bucket(32 * KIB);
        direct.direct = true;
        for (int r = 0; r < ranks; r++) {
            struct gpu *g = &gpus[r];

            assert_int_equal(start(r, 0, &c, g->s1, NULL), 0);
            assert_int_equal(start(r, 1, &direct, g->s2, NULL), 0);
            assert_int_equal(join(r, 1, &direct, g->s2, NULL), 0);
            assert_int_equal(start(r, 2, &c, g->s1, NULL), 0);
            assert_int_equal(join(r, 2, &c, g->s1, NULL), 0);
            assert_int_equal(join(r, 0, &c, g->s1, NULL), 0);
        }
        run_to_end("direct", order);
        for (int r = 0; r < ranks; r++) {
            check("before a direct one", r, 0, &c);
            check("direct", r, 1, &direct);
            check("behind a direct one", r, 2, &c);
        }
        close_ranks();
    }
}

static void a_direct_one_is_a_single_call_where_its_stream_is_the_last(void **state)
{
    static const struct fake_calls kernel = { .kernels = 1 },
                                   ordered = { .events = 2, .kernels = 1 };
    struct fake_calls before;
    struct mu_coll c;

    open_ranks(2, true);
    c = bucket(64 * KIB);
    step("aside", &c, 1, 0);
    c.direct = true;
    before = fake_calls_of(0);
    step("direct on the stream that has joined", &c, 1, 1);
    at_most("direct on the stream that has joined", before, kernel);
    before = fake_calls_of(0);
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(start(r, 0, &c, gpus[r].s2, NULL), 0);
        assert_int_equal(join(r, 0, &c, gpus[r].s2, NULL), 0);
    }
    at_most("direct on another stream", before, ordered);
    run_to_end("direct on another stream", 2);
    close_ranks();
}

/* ---- Other collectives ----------------------------------------------------------- */

static void nccl_carries_out_the_other_collectives(void **state)
{
    enum { N = 3, COUNT = 8 };
    float from[N][N * COUNT], to[N][N * COUNT];
    struct mu_nccl_request *r;

    for (int kind = MU_COLL_BROADCAST; kind <= MU_COLL_REDUCE_SCATTER; kind++) {
        open_ranks(N, true);
        for (int p = 0; p < N; p++) {
            struct mu_coll c = { .kind = (enum mu_coll_kind)kind,
                                 .dtype = MUSTER_F32,
                                 .op = MUSTER_SUM,
                                 .send = from[p],
                                 .recv = to[p],
                                 .count = COUNT,
                                 .root = 1,
                                 .scale = 1,
                                 .stream = gpus[p].s1 };

            for (int i = 0; i < N * COUNT; i++)
                from[p][i] = (float)(100 * p + i);
            assert_int_equal(mu_nccl_start(&gpus[p].b, &c, &r, NULL), 0);
            assert_int_equal(mu_nccl_join(&gpus[p].b, r, gpus[p].s1, NULL), 0);
        }
        run_to_end("another collective", 0);
        for (int p = 0; p < N; p++)
            for (int i = 0; i < COUNT; i++) {
                if (kind == MU_COLL_BROADCAST)
                    assert_true(to[p][i] == (float)(100 + i));
                else if (kind == MU_COLL_ALLGATHER)
                    assert_true(to[p][COUNT + i] == (float)(100 + i));
                else
                    assert_true(to[p][i] == (float)(300 + 3 * (COUNT * p + i)));
            }
        close_ranks();
    }
}

static void nccl_reduces_to_the_root_alone(void **state)
{
    enum { N = 3, ROOT = 1 };
    float from[N], to[N] = { -1, -1, -1 };
    struct mu_nccl_request *r;

    open_ranks(N, true);
    for (int p = 0; p < N; p++) {
        struct mu_coll c = { .kind = MU_COLL_REDUCE,
                             .dtype = MUSTER_F32,
                             .op = MUSTER_SUM,
                             .send = &from[p],
                             .recv = &to[p],
                             .count = 1,
                             .root = ROOT,
                             .scale = 1,
                             .stream = gpus[p].s1 };

        from[p] = (float)(100 * p + 1);
        assert_int_equal(mu_nccl_start(&gpus[p].b, &c, &r, NULL), 0);
        assert_int_equal(mu_nccl_join(&gpus[p].b, r, gpus[p].s1, NULL), 0);
    }
    run_to_end("reduce", 0);
    for (int p = 0; p < N; p++)
        assert_true(to[p] == (p == ROOT ? 303 : -1));
    close_ranks();
}

/* Rank p sends r + 1 elements to rank r, behind those to the ranks before. */
static void nccl_exchanges_parts_in_one_launch(void **state)
{
    enum { N = 3, MOST = 9 };
    static const struct fake_calls one = { .nccl = 1, .copies = 1, .events = 4 };
    float from[N][MOST], to[N][MOST];
    struct mu_part sends[N][N], recvs[N][N];
    struct fake_calls before;
    struct mu_nccl_request *r;

    open_ranks(N, true);
    before = fake_calls_of(0);
    for (int p = 0; p < N; p++) {
        struct mu_coll c = { .kind = MU_COLL_EXCHANGE,
                             .dtype = MUSTER_F32,
                             .pattern = MU_ALLTOALLV,
                             .send = from[p],
                             .recv = to[p],
                             .sends = sends[p],
                             .recvs = recvs[p],
                             .scale = 1,
                             .stream = gpus[p].s1 };

        for (int q = 0; q < N; q++) {
            sends[p][q] = (struct mu_part){ (size_t)(q * (q + 1) / 2), (size_t)q + 1 };
            recvs[p][q] = (struct mu_part){ (size_t)(q * (p + 1)), (size_t)p + 1 };
        }
        for (int i = 0; i < MOST; i++)
            from[p][i] = (float)(100 * p + i);
        assert_int_equal(mu_nccl_start(&gpus[p].b, &c, &r, NULL), 0);
        assert_int_equal(mu_nccl_join(&gpus[p].b, r, gpus[p].s1, NULL), 0);
    }
    at_most("exchange", before, one);
    run_to_end("exchange", 0);
    for (int p = 0; p < N; p++)
        for (int q = 0; q < N; q++)
            for (int i = 0; i <= p; i++)
                assert_true(to[p][q * (p + 1) + i] ==
                            (float)(100 * q + p * (p + 1) / 2 + i));
    close_ranks();
}

/* ---- Errors ---------------------------------------------------------------------- */

static int run_failing(const struct mu_coll *c, struct mu_err *err)
{
    if (start(0, 0, c, gpus[0].s1, err) < 0)
        return -1;
    return mu_nccl_join(&gpus[0].b, gpus[0].request[0], gpus[0].s1, err);
}

/* Let each call of a collective fail in turn, until none is left to fail. */
static void fail_each(const struct path *p)
{
    int failed = 0, rc = -1;

    for (int n = 2; rc < 0; n++) { /* the first call is the test's own */
        struct mu_err err = { 0 };
        struct mu_coll c;

        open_ranks(2, !p->between_nodes);
        c = bucket(p->bytes);
        c.hidden = p->hidden;
        c.batch_join = p->batch_join;
        c.scale *= p->scale;
        fake_capture(p->captured);
        fake_fail(n);
        rc = run_failing(&c, &err);
        if (rc < 0 && (err.code != MUSTER_EDEVICE || !err.text[0]))
            fail_msg("%s: call %d: %d \"%s\"", p->name, n, err.code, err.text);
        failed += rc < 0;
        close_ranks();
    }
    if (failed < 5)
        fail_msg("%s: only %d calls failed", p->name, failed);
}

static void a_call_that_fails_is_an_error_and_leaks_nothing(void **state)
{
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        fail_each(&paths[i]);
}

static void an_aborted_backend_refuses_and_joins_with_its_reason(void **state)
{
    struct mu_err err = { 0 };
    struct mu_coll c;

    open_ranks(2, true);
    c = bucket(64 * KIB);
    assert_int_equal(start(0, 0, &c, gpus[0].s1, NULL), 0);
    gpus[0].b.aborted = true;
    snprintf(gpus[0].b.why, sizeof gpus[0].b.why, "rank 1 died");
    assert_int_equal(join(0, 0, &c, gpus[0].s1, &err), -1);
    assert_int_equal(err.code, MUSTER_EPEER);
    err = (struct mu_err){ 0 };
    assert_int_equal(start(0, 1, &c, gpus[0].s1, &err), -1);
    assert_string_equal(err.text, "rank 1 died");
    close_ranks();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_gives_the_mean_in_few_calls),
        cmocka_unit_test(parts_beyond_their_area_go_in_rounds),
        cmocka_unit_test(memory_of_the_program_is_one_kernel_whatever_its_alignment),
        cmocka_unit_test(where_it_cannot_be_shared_nccl_has_it),
        cmocka_unit_test(a_bucket_with_its_own_event_does_not_wait_for_the_next),
        cmocka_unit_test(each_stream_that_joins_has_the_result),
        cmocka_unit_test(what_starts_after_a_join_is_waited_for_anew),
        cmocka_unit_test(a_direct_one_keeps_the_order_of_all_ranks),
        cmocka_unit_test(a_direct_one_is_a_single_call_where_its_stream_is_the_last),
        cmocka_unit_test(nccl_carries_out_the_other_collectives),
        cmocka_unit_test(nccl_reduces_to_the_root_alone),
        cmocka_unit_test(nccl_exchanges_parts_in_one_launch),
        cmocka_unit_test(a_call_that_fails_is_an_error_and_leaks_nothing),
        cmocka_unit_test(an_aborted_backend_refuses_and_joins_with_its_reason),
    };

    return cmocka_run_group_tests_name("nccl_coll", tests, NULL, NULL);
}
