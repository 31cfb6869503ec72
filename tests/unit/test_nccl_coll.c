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

#include "tests/unit/fake_ranks.h"

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

    fake_open_ranks(n, !p->between_nodes);
    for (int r = 0; r < n; r++)
        fake_rank[r].b.forced = p->forced;
    limit.copies *= n - 1;
    c = fake_bucket(p->bytes);
    c.scale *= p->scale;
    c.hidden = p->hidden;
    c.batch_join = p->batch_join;
    fake_capture(p->captured);
    fake_step(p->name, &c, BUCKETS, order);
    created = fake_calls_of(0).created;
    before = fake_calls_of(0);
    fake_step(p->name, &c, BUCKETS, order + 1);
    fake_at_most(p->name, before, limit);
    /* Where copies are allowed, the engines must do the work. */
    assert_int_equal(fake_calls_of(0).copies - before.copies, limit.copies);
    assert_int_equal(fake_calls_of(0).created, created);
    assert_int_equal(fake_rank[0].watched,
                     p->between_nodes && !p->captured ? 2 * BUCKETS : 0);
    assert_int_equal(fake_rank[0].words.mark_begin, fake_rank[0].words.mark_end);
    assert_int_equal(fake_rank[0].words.mark_end,
                     p->between_nodes && p->captured ? 2 * BUCKETS : 0);
    fake_close_ranks();
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

    fake_open_ranks(2, true);
    c = fake_bucket(bytes);
    c.hidden = true;
    for (int r = 0; r < fake_nranks; r++) {
        free(fake_rank[r].arena);
        free(fake_rank[r].seen);
        fake_rank[r].arena = fake_room(bytes);
        fake_rank[r].seen = fake_room(bytes);
    }
    fake_step("two rounds", &c, 1, 1);
    fake_close_ranks();
}

/* What one rank can see of its own memory never decides the kernel: the others see
 * theirs. shift: bytes between the places of the ranks' data.
 */
static void one_kernel(const char *what, size_t bytes, size_t shift, int forced)
{
    struct mu_coll c;

    for (unsigned order = 0; order < ORDERS(bytes); order++) {
        fake_open_ranks(3, true);
        c = fake_bucket(bytes);
        c.hidden = true;
        c.same_place = false;
        for (int r = 0; r < fake_nranks; r++) {
            fake_rank[r].b.ours.open = true;
            fake_rank[r].b.forced = forced;
            fake_rank[r].shift = (size_t)r * shift;
        }
        fake_step(what, &c, 1, order);
        assert_int_equal(fake_calls_of(0).kernels, 1);
        assert_int_equal(fake_calls_of(0).nccl, 0);
        fake_close_ranks();
    }
    fake_foreign = false;
}

static void memory_of_the_program_is_one_kernel_whatever_its_alignment(void **state)
{
    fake_foreign = true;
    one_kernel("the program's memory", 2 * MIB, sizeof(float), -1);
    fake_foreign = true;
    one_kernel("a relay of it", 256 * KIB, sizeof(float), MU_ALGO_RELAY);
}

static void each_rank_has_its_own_place_in_memory_of_the_library(void **state)
{
    fake_foreign = false;
    one_kernel("another place", 2 * MIB, 4096, -1);
    one_kernel("another place, copies are forced", 4 * MIB, 4096, MU_ALGO_COPY);
    one_kernel("another alignment", 2 * MIB, sizeof(float), -1);
    one_kernel("a relay, another alignment", 256 * KIB, sizeof(float), MU_ALGO_RELAY);
}

static void where_it_cannot_be_shared_nccl_has_it(void **state)
{
    struct mu_coll c;

    fake_open_ranks(2, true);
    fake_foreign = true;
    c = fake_bucket(2 * MIB);
    fake_step("the program's memory", &c, 1, 1);
    assert_int_equal(fake_calls_of(0).nccl, 1);
    fake_foreign = false;
    fake_close_ranks();
}

static const struct way {
    const char *name;
    size_t bytes;
    bool foreign, open, direct, between_nodes;
    unsigned way;
} ways[] = {
    { "a small one has one way", 32 * KIB, false, false, true, false, 0 },
    { "a sum that one-shot adds in any memory", 256 * KIB, true, false, true, false,
      0 },
    { "memory from alloc", 2 * MIB, false, false, true, false, MU_WAY_ALLOCATED },
    { "the same, started", 2 * MIB, false, false, false, false,
      MU_WAY_ALLOCATED | MU_WAY_ASIDE },
    { "other memory, by NCCL", 2 * MIB, true, false, true, false, MU_WAY_OTHER },
    { "the same, started: NCCL's blocks are its own", 2 * MIB, true, false, false,
      false, MU_WAY_OTHER },
    { "other memory that the peers map, started", 2 * MIB, true, true, false, false,
      MU_WAY_OTHER | MU_WAY_ASIDE },
    { "between nodes NCCL has all", 2 * MIB, false, false, true, true, 0 },
};

/* Ranks of one way meet; those of two ways do not. */
static void a_way_names_what_the_ranks_must_have_in_common(void **state)
{
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const struct way *w = &ways[i];
        struct mu_coll c;
        unsigned got;

        fake_open_ranks(2, !w->between_nodes);
        c = fake_bucket(w->bytes);
        c.send = c.recv = fake_rank[0].arena;
        c.direct = w->direct;
        c.same_place = false;
        fake_rank[0].b.ours.open = w->open;
        fake_foreign = w->foreign;
        got = mu_nccl_way(&fake_rank[0].b, &c);
        fake_foreign = false;
        fake_close_ranks();
        if (got != w->way)
            fail_msg("%s: way %u, not %u", w->name, got, w->way);
    }
}

static void nccl_carries_out_the_other_collectives(void **state)
{
    enum { N = 3, COUNT = 8 };
    float from[N][N * COUNT], to[N][N * COUNT];
    struct mu_nccl_request *r;

    for (int kind = MU_COLL_BROADCAST; kind <= MU_COLL_REDUCE_SCATTER; kind++) {
        fake_open_ranks(N, true);
        for (int p = 0; p < N; p++) {
            struct mu_coll c = { .kind = (enum mu_coll_kind)kind,
                                 .dtype = MUSTER_F32,
                                 .op = MUSTER_SUM,
                                 .send = from[p],
                                 .recv = to[p],
                                 .count = COUNT,
                                 .root = 1,
                                 .scale = 1,
                                 .stream = fake_rank[p].s1 };

            for (int i = 0; i < N * COUNT; i++)
                from[p][i] = (float)(100 * p + i);
            assert_int_equal(mu_nccl_start(&fake_rank[p].b, &c, &r, NULL), 0);
            assert_int_equal(mu_nccl_join(&fake_rank[p].b, r, fake_rank[p].s1, NULL),
                             0);
        }
        fake_run_to_end("another collective", 0);
        for (int p = 0; p < N; p++)
            for (int i = 0; i < COUNT; i++) {
                if (kind == MU_COLL_BROADCAST)
                    assert_true(to[p][i] == (float)(100 + i));
                else if (kind == MU_COLL_ALLGATHER)
                    assert_true(to[p][COUNT + i] == (float)(100 + i));
                else
                    assert_true(to[p][i] == (float)(300 + 3 * (COUNT * p + i)));
            }
        fake_close_ranks();
    }
}

static void nccl_reduces_to_the_root_alone(void **state)
{
    enum { N = 3, ROOT = 1 };
    float from[N], to[N] = { -1, -1, -1 };
    struct mu_nccl_request *r;

    fake_open_ranks(N, true);
    for (int p = 0; p < N; p++) {
        struct mu_coll c = { .kind = MU_COLL_REDUCE,
                             .dtype = MUSTER_F32,
                             .op = MUSTER_SUM,
                             .send = &from[p],
                             .recv = &to[p],
                             .count = 1,
                             .root = ROOT,
                             .scale = 1,
                             .stream = fake_rank[p].s1 };

        from[p] = (float)(100 * p + 1);
        assert_int_equal(mu_nccl_start(&fake_rank[p].b, &c, &r, NULL), 0);
        assert_int_equal(mu_nccl_join(&fake_rank[p].b, r, fake_rank[p].s1, NULL), 0);
    }
    fake_run_to_end("reduce", 0);
    for (int p = 0; p < N; p++)
        assert_true(to[p] == (p == ROOT ? 303 : -1));
    fake_close_ranks();
}

/* Rank p sends r + 1 elements to rank r, behind those to the ranks before. */
static void exchange(bool own, struct fake_calls one)
{
    enum { N = 3, MOST = 9 };
    float from[N][MOST], to[N][MOST];
    struct mu_part sends[N][N], recvs[N][N];
    struct fake_calls before;
    struct mu_nccl_request *r;

    fake_open_ranks(N, own);
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
                             .stream = fake_rank[p].s1 };

        for (int q = 0; q < N; q++) {
            sends[p][q] = (struct mu_part){ (size_t)(q * (q + 1) / 2), (size_t)q + 1 };
            recvs[p][q] = (struct mu_part){ (size_t)(q * (p + 1)), (size_t)p + 1 };
        }
        for (int i = 0; i < MOST; i++)
            from[p][i] = (float)(100 * p + i);
        assert_int_equal(mu_nccl_start(&fake_rank[p].b, &c, &r, NULL), 0);
        assert_int_equal(mu_nccl_join(&fake_rank[p].b, r, fake_rank[p].s1, NULL), 0);
    }
    fake_at_most("exchange", before, one);
    fake_run_to_end("exchange", 0);
    for (int p = 0; p < N; p++)
        for (int q = 0; q < N; q++)
            for (int i = 0; i <= p; i++)
                assert_true(to[p][q * (p + 1) + i] ==
                            (float)(100 * q + p * (p + 1) / 2 + i));
    fake_close_ranks();
}

static void parts_are_exchanged_in_one_launch(void **state)
{
    exchange(true, (struct fake_calls){ .kernels = 1, .copies = 1, .events = 4 });
    exchange(false, (struct fake_calls){ .nccl = 1, .copies = 1, .events = 4 });
}

static int run_failing(const struct mu_coll *c, struct mu_err *err)
{
    if (fake_start(0, 0, c, fake_rank[0].s1, err) < 0)
        return -1;
    return mu_nccl_join(&fake_rank[0].b, fake_rank[0].request[0], fake_rank[0].s1, err);
}

/* Let each call of a collective fail in turn, until none is left to fail. */
static void fail_each(const struct path *p)
{
    int failed = 0, rc = -1;

    for (int n = 2; rc < 0; n++) { /* the first call is the test's own */
        struct mu_err err = { 0 };
        struct mu_coll c;

        fake_open_ranks(2, !p->between_nodes);
        c = fake_bucket(p->bytes);
        c.hidden = p->hidden;
        c.batch_join = p->batch_join;
        c.scale *= p->scale;
        fake_capture(p->captured);
        fake_fail(n);
        rc = run_failing(&c, &err);
        if (rc < 0 && (err.code != MUSTER_EDEVICE || !err.text[0]))
            fail_msg("%s: call %d: %d \"%s\"", p->name, n, err.code, err.text);
        failed += rc < 0;
        fake_close_ranks();
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

    fake_open_ranks(2, true);
    c = fake_bucket(64 * KIB);
    assert_int_equal(fake_start(0, 0, &c, fake_rank[0].s1, NULL), 0);
    fake_rank[0].b.aborted = true;
    snprintf(fake_rank[0].b.why, sizeof fake_rank[0].b.why, "rank 1 died");
    assert_int_equal(fake_join(0, 0, &c, fake_rank[0].s1, &err), -1);
    assert_int_equal(err.code, MUSTER_EPEER);
    err = (struct mu_err){ 0 };
    assert_int_equal(fake_start(0, 1, &c, fake_rank[0].s1, &err), -1);
    assert_string_equal(err.text, "rank 1 died");
    fake_close_ranks();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_gives_the_mean_in_few_calls),
        cmocka_unit_test(parts_beyond_their_area_go_in_rounds),
        cmocka_unit_test(memory_of_the_program_is_one_kernel_whatever_its_alignment),
        cmocka_unit_test(each_rank_has_its_own_place_in_memory_of_the_library),
        cmocka_unit_test(where_it_cannot_be_shared_nccl_has_it),
        cmocka_unit_test(a_way_names_what_the_ranks_must_have_in_common),
        cmocka_unit_test(nccl_carries_out_the_other_collectives),
        cmocka_unit_test(nccl_reduces_to_the_root_alone),
        cmocka_unit_test(parts_are_exchanged_in_one_launch),
        cmocka_unit_test(a_call_that_fails_is_an_error_and_leaks_nothing),
        cmocka_unit_test(an_aborted_backend_refuses_and_joins_with_its_reason),
    };

    return cmocka_run_group_tests_name("nccl_coll", tests, NULL, NULL);
}
