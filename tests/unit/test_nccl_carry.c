/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_carry.c - all-reduces of a program on its own streams, on fake GPUs */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/unit/fake_ranks.h"

#define CALLS 24

static int start(void **state)
{
    fake_open_ranks(2, true);
    for (int r = 0; r < fake_nranks; r++) {
        assert_int_equal(mu_carry_open(&fake_rank[r].b, NULL), 0);
        fake_rank[r].b.device = r;
    }
    return 0;
}

static int stop(void **state)
{
    for (int r = 0; r < fake_nranks; r++)
        mu_carry_close(&fake_rank[r].b);
    fake_close_ranks();
    return 0;
}

static float value(int rank, int k)
{
    return (float)(100 * k + 12 * rank);
}

static size_t count_of(int k)
{
    return (size_t)(k * 5 % 7 + 1) * 16;
}

static float *place(char *base, int k)
{
    return (float *)(void *)(base + (size_t)k * 4096);
}

/* Call k of rank r: fill, all-reduce, read; all on stream s. */
static int call(int r, int k, cudaStream_t s, bool *carried, struct mu_err *err)
{
    struct fake_rank *g = &fake_rank[r];
    float *p = place(g->arena, k);
    const struct mu_coll c = { .kind = MU_COLL_ALLREDUCE,
                               .dtype = MUSTER_F32,
                               .op = MUSTER_SUM,
                               .send = p,
                               .recv = p,
                               .count = count_of(k),
                               .scale = 1.0,
                               .stream = s,
                               .direct = true,
                               .what = "ncclAllReduce" };
    int rc;

    fake_fill(s, p, c.count, value(r, k));
    rc = mu_nccl_carry((struct mu_backend *)&g->b, &c, carried, err);
    fake_read(s, place(g->seen, k), p, c.count);
    return rc;
}

/* The ranks choose their streams by themselves. */
static void calls_on_several_streams_run_in_the_order_of_the_calls(void **state)
{
    for (unsigned order = 0; order < ORDERS(0); order++) {
        bool carried;

        start(state);
        for (int r = 0; r < fake_nranks; r++)
            for (int k = 0; k < CALLS; k++) {
                unsigned which = (order >> k % 5) + (unsigned)(k * (r + 1) / 3);

                assert_int_equal(call(r, k,
                                      which % 2 ? fake_rank[r].s1 : fake_rank[r].s2,
                                      &carried, NULL),
                                 0);
                assert_true(carried);
            }
        fake_run_to_end("two streams", order);
        for (int r = 0; r < fake_nranks; r++)
            for (int k = 0; k < CALLS; k++)
                for (size_t i = 0; i < count_of(k); i++)
                    assert_true(place(fake_rank[r].seen, k)[i] ==
                                value(0, k) + value(1, k));
        stop(state);
    }
}

/* By its number: a handle may be that of another stream meanwhile. */
static void a_call_waits_for_the_one_before_unless_its_stream_is_the_same(void **state)
{
    static const struct fake_calls same = { .events = 1, .kernels = 1 },
                                   other = { .events = 2, .kernels = 1 };
    struct fake_rank *g = &fake_rank[0];
    const struct {
        cudaStream_t stream;
        bool again;
        struct fake_calls limit;
    } rows[] = { { g->s1, false, same },
                 { g->s1, false, same },
                 { g->s2, false, other },
                 { g->s2, true, other },
                 { g->s2, false, same } };

    for (int i = 0; i < 5; i++) {
        struct fake_calls before = fake_calls_of(0), after;
        bool carried;

        if (rows[i].again)
            fake_stream_again(rows[i].stream);
        assert_int_equal(call(0, i, rows[i].stream, &carried, NULL), 0);
        after = fake_calls_of(0);
        assert_int_equal(after.events - before.events, rows[i].limit.events);
        assert_int_equal(after.kernels - before.kernels, rows[i].limit.kernels);
        assert_int_equal(after.nccl, 0);
    }
}

static void nothing_is_done_for_a_captured_stream_or_a_large_call(void **state)
{
    struct fake_rank *g = &fake_rank[0];
    struct mu_coll large = { .kind = MU_COLL_ALLREDUCE,
                             .dtype = MUSTER_F32,
                             .count = MIB, /* elements */
                             .stream = g->s1 };
    bool carried = true;

    fake_capture(true);
    assert_int_equal(call(0, 0, g->s1, &carried, NULL), 0);
    assert_false(carried);
    fake_capture(false);
    carried = true;
    assert_int_equal(mu_nccl_carry((struct mu_backend *)&g->b, &large, &carried, NULL),
                     0);
    assert_false(carried);
    assert_int_equal(fake_calls_of(0).kernels, 0);
    assert_int_equal(fake_calls_of(0).events, 0);
}

static void the_program_s_device_stays_current(void **state)
{
    bool carried;

    fake_device = 7;
    assert_int_equal(call(1, 0, fake_rank[1].s1, &carried, NULL), 0);
    assert_int_equal(fake_device, 7);
    fake_device = 0;
}

/* After an error the backend's own stream is its own. */
static void an_error_is_reported_and_the_next_call_works(void **state)
{
    for (int n = 2; n < 4; n++) { /* the kernel, the event; the fill is the first */
        struct mu_err err = { 0 };
        bool carried = true;
        cudaStream_t own = fake_rank[0].b.stream;

        fake_fail(n);
        assert_int_equal(call(0, n, fake_rank[0].s1, &carried, &err), -1);
        assert_false(carried);
        assert_string_equal(err.text, "CUDA: ncclAllReduce");
        assert_ptr_equal(fake_rank[0].b.stream, own);
        assert_int_equal(call(0, n, fake_rank[0].s1, &carried, NULL), 0);
        assert_true(carried);
    }
}

static void after_an_abort_no_call_starts(void **state)
{
    struct mu_err err = { 0 };
    bool carried = true;

    fake_rank[0].b.aborted = true;
    assert_int_equal(call(0, 0, fake_rank[0].s1, &carried, &err), -1);
    assert_false(carried);
    assert_int_equal(fake_calls_of(0).kernels, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_on_several_streams_run_in_the_order_of_the_calls),
        TEST(a_call_waits_for_the_one_before_unless_its_stream_is_the_same),
        TEST(nothing_is_done_for_a_captured_stream_or_a_large_call),
        TEST(the_program_s_device_stays_current),
        TEST(an_error_is_reported_and_the_next_call_works),
        TEST(after_an_abort_no_call_starts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
