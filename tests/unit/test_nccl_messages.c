/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_messages.c - messages of the NCCL backend among 2 to 4 fake GPUs: which way
 * each size goes, in how many calls; what arrives, whatever order the streams run in
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/fake_ranks.h"

#define MAIL MU_MAIL_MOST
#define LARGE (2 * MIB)

/* What a rank sends, to `to`, and receives, from `from`; -1: nothing. */
struct mine {
    int to, from;
    size_t out, in; /* bytes */
};

struct buffers {
    float *out, *in;
    float *seen; /* what the program has read behind the message */
};

static struct buffers new_buffers(const struct mine *m)
{
    return (struct buffers){ fake_room(m->out + 4), fake_room(m->in + 4),
                             fake_room(m->in + 4) };
}

static float element(int rank, int message, size_t i)
{
    return (float)(1000 * message + 100 * rank) + (float)(i % 4099);
}

static int start(int rank, const struct mine *m, const struct buffers *at, int message,
                 struct mu_err *err)
{
    struct fake_rank *g = &fake_rank[rank];
    struct mu_nccl_request *r;
    struct mu_coll c = { .kind = MU_COLL_PAIR,
                         .dtype = MUSTER_F32,
                         .send = at->out,
                         .recv = at->in,
                         .count = m->out / 4,
                         .recv_count = m->in / 4,
                         .to = m->to,
                         .from = m->from,
                         .scale = 1,
                         .stream = g->s1,
                         .what = "a message" };

    for (size_t i = 0; i < m->out / 4; i++)
        at->out[i] = element(rank, message, i);
    fake_fill(g->s1, at->in, m->in / 4, -1); /* the program's earlier work */
    if (mu_nccl_start(&g->b, &c, &r, err) < 0 || mu_nccl_join(&g->b, r, g->s1, err) < 0)
        return -1;
    fake_read(g->s1, at->seen, at->in, m->in / 4 + 1);
    return 0;
}

static void check(const char *what, int rank, const struct mine *m,
                  const struct buffers *at, int message)
{
    for (size_t i = 0; i < m->in / 4; i++)
        if (at->seen[i] != element(m->from, message, i))
            fail_msg("%s: element %zu of message %d from rank %d to %d is %g, not %g",
                     what, i, message, m->from, rank, (double)at->seen[i],
                     (double)element(m->from, message, i));
    if (at->seen[m->in / 4] != 0)
        fail_msg("%s: rank %d got more than it asked for", what, rank);
}

static void free_buffers(const struct buffers *at)
{
    free(at->out);
    free(at->in);
    free(at->seen);
}

/* One message each of n ranks; what rank 0 calls for it at most. */
static const struct exchange {
    const char *name;
    int n;
    bool captured;
    int forced; /* an algorithm, and 1; 0: none */
    struct mine mine[FAKE_RANKS];
    struct fake_calls limit;
} exchanges[] = {
    { "a small one is one kernel",
      2,
      false,
      0,
      { { 1, -1, MAIL, 0 }, { -1, 0, 0, MAIL } },
      { .events = 4, .kernels = 1 } },
    { "so is one of more than mail holds",
      2,
      false,
      0,
      { { 1, -1, MAIL + 4, 0 }, { -1, 0, 0, MAIL + 4 } },
      { .events = 4, .kernels = 1 } },
    { "and its receiver's",
      2,
      false,
      0,
      { { -1, 1, 0, LARGE }, { 0, -1, LARGE, 0 } },
      { .events = 4, .kernels = 1 } },
    { "both ways at once",
      2,
      false,
      0,
      { { 1, 1, LARGE, LARGE }, { 0, 0, LARGE, LARGE } },
      { .events = 4, .kernels = 1 } },
    { "a small one for a large one",
      2,
      false,
      0,
      { { 1, 1, 20, LARGE }, { 0, 0, LARGE, 20 } },
      { .events = 4, .kernels = 2 } },
    { "a large one for a small one",
      2,
      false,
      0,
      { { 1, 1, LARGE, 20 }, { 0, 0, 20, LARGE } },
      { .events = 4, .kernels = 3 } },
    { "in a graph",
      2,
      true,
      0,
      { { 1, 1, LARGE, LARGE }, { 0, 0, LARGE, LARGE } },
      { .events = 4, .kernels = 1 } },
    { "a ring of large ones",
      4,
      false,
      0,
      { { 1, 3, LARGE, LARGE },
        { 2, 0, LARGE, LARGE },
        { 3, 1, LARGE, LARGE },
        { 0, 2, LARGE, LARGE } },
      { .events = 4, .kernels = 1 } },
    { "a ring of all sizes",
      3,
      false,
      0,
      { { 1, 2, LARGE, 20 }, { 2, 0, MAIL + 4, LARGE }, { 0, 1, 20, MAIL + 4 } },
      { .events = 4, .kernels = 3 } },
    { "by NCCL, where that is forced",
      2,
      false,
      MU_ALGO_NCCL + 1,
      { { 1, 1, LARGE, 20 }, { 0, 0, 20, LARGE } },
      { .events = 4, .nccl = 1 } },
};

static void run_exchange(const struct exchange *x, unsigned order)
{
    struct buffers at[FAKE_RANKS];

    fake_open_ranks(x->n, true);
    fake_capture(x->captured);
    for (int message = 0; message < 2; message++) {
        struct fake_calls before = fake_calls_of(0);

        for (int r = 0; r < x->n; r++) {
            fake_rank[r].b.forced = x->forced - 1;
            at[r] = new_buffers(&x->mine[r]);
            assert_int_equal(start(r, &x->mine[r], &at[r], message, NULL), 0);
        }
        fake_at_most(x->name, before, x->limit);
        fake_run_to_end(x->name, order);
        for (int r = 0; r < x->n; r++) {
            check(x->name, r, &x->mine[r], &at[r], message);
            free_buffers(&at[r]);
        }
    }
    fake_close_ranks();
}

static void every_size_arrives_in_few_calls(void **state)
{
    for (size_t i = 0; i < sizeof exchanges / sizeof exchanges[0]; i++)
        for (unsigned order = 0; order < 6; order++)
            run_exchange(&exchanges[i], order);
}

/* Rank 0 runs ahead by `n` messages of both kinds. */
static void messages_that_follow_each_other_keep_apart(void **state)
{
    enum { N = 6 };
    static const size_t sizes[N] = { LARGE, MAIL + 4, LARGE, 20, 24, MAIL + 8 };
    struct buffers at[2][N];

    for (unsigned order = 0; order < 12; order++) {
        fake_open_ranks(2, true);
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < N; i++) {
                const struct mine m = { r == 0 ? 1 : -1, r == 0 ? -1 : 0,
                                        r == 0 ? sizes[i] : 0, r == 0 ? 0 : sizes[i] };

                at[r][i] = new_buffers(&m);
                assert_int_equal(start(r, &m, &at[r][i], i, NULL), 0);
            }
        fake_run_to_end("a row of messages", order);
        for (int i = 0; i < N; i++) {
            const struct mine m = { -1, 0, 0, sizes[i] };

            check("a row of messages", 1, &m, &at[1][i], i);
            free_buffers(&at[0][i]);
            free_buffers(&at[1][i]);
        }
        fake_close_ranks();
    }
}

/* Of which the part for the next rank is small where they are mixed. */
static void exchange(bool mixed, int kernels)
{
    enum { N = 3, COUNT = LARGE / 4, FEW = 5 };
    float *out[N], *in[N];

    fake_open_ranks(N, true);
    for (int p = 0; p < N; p++) {
        struct mu_part sends[N], recvs[N];
        struct mu_coll c = { .kind = MU_COLL_EXCHANGE,
                             .dtype = MUSTER_F32,
                             .pattern = MU_ALLTOALL,
                             .sends = sends,
                             .recvs = recvs,
                             .count = COUNT,
                             .scale = 1,
                             .stream = fake_rank[p].s1 };
        struct fake_calls before = fake_calls_of(p);
        struct mu_nccl_request *r;

        out[p] = fake_room((size_t)N * LARGE);
        in[p] = fake_room((size_t)N * LARGE);
        for (int q = 0; q < N; q++) {
            size_t at = (size_t)q * COUNT;

            sends[q] = (struct mu_part){ at, mixed && q == (p + 1) % N ? FEW : COUNT };
            recvs[q] = (struct mu_part){ at, mixed && p == (q + 1) % N ? FEW : COUNT };
            out[p][at] = (float)(10 * p + q);
        }
        c.send = out[p];
        c.recv = in[p];
        assert_int_equal(mu_nccl_start(&fake_rank[p].b, &c, &r, NULL), 0);
        assert_int_equal(mu_nccl_join(&fake_rank[p].b, r, fake_rank[p].s1, NULL), 0);
        assert_int_equal(fake_calls_of(p).kernels - before.kernels, kernels);
        assert_int_equal(fake_calls_of(p).copies - before.copies, 1); /* its own */
        assert_int_equal(fake_calls_of(p).nccl - before.nccl, 0);
    }
    fake_run_to_end("parts", 0);
    for (int p = 0; p < N; p++) {
        for (int q = 0; q < N; q++)
            assert_true(in[p][(size_t)q * COUNT] == (float)(10 * q + p));
        free(out[p]);
        free(in[p]);
    }
    fake_close_ranks();
}

static void large_parts_of_an_exchange_are_one_kernel(void **state)
{
    exchange(false, 1);
}

/* Small ones that are sent, large ones, small ones that are received. */
static void small_parts_lie_around_large_ones(void **state)
{
    exchange(true, 3);
}

/* Let each call of a large message in both directions fail in turn. */
static void a_call_that_fails_is_an_error_and_leaks_nothing(void **state)
{
    const struct mine m = { 1, 1, LARGE, LARGE };
    int failed = 0, rc = -1;

    for (int n = 2; rc < 0; n++) { /* the first call is the test's own */
        struct buffers at = new_buffers(&m);
        struct mu_err err = { 0 };

        fake_open_ranks(2, true);
        fake_fail(n);
        rc = start(0, &m, &at, 0, &err);
        if (rc < 0 && (err.code != MUSTER_EDEVICE || !err.text[0]))
            fail_msg("call %d: %d \"%s\"", n, err.code, err.text);
        failed += rc < 0;
        fake_close_ranks();
        free_buffers(&at);
    }
    assert_int_equal(failed, 7); /* 6 of events, a kernel */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_arrives_in_few_calls),
        cmocka_unit_test(messages_that_follow_each_other_keep_apart),
        cmocka_unit_test(large_parts_of_an_exchange_are_one_kernel),
        cmocka_unit_test(small_parts_lie_around_large_ones),
        cmocka_unit_test(a_call_that_fails_is_an_error_and_leaks_nothing),
    };

    return cmocka_run_group_tests_name("nccl_messages", tests, NULL, NULL);
}
