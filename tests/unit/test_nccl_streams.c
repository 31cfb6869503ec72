/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl_streams.c - which stream waits for which collective of the NCCL backend, on
 * fake GPUs
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/fake_ranks.h"

/* A bucket that is copied back can be read before the next one is done. */
static void a_bucket_with_its_own_event_does_not_wait_for_the_next(void **state)
{
    struct mu_coll c;

    for (unsigned order = 0; order < ORDERS(0); order++) {
        fake_open_ranks(2, true);
        c = fake_bucket(64 * KIB);
        c.batch_join = false;
        for (int k = 0; k < 2; k++)
            assert_int_equal(fake_start(0, k, &c, fake_rank[0].s1, NULL), 0);
        assert_int_equal(fake_join(0, 0, &c, fake_rank[0].s1, NULL), 0);
        assert_int_equal(fake_start(1, 0, &c, fake_rank[1].s1, NULL), 0);
        assert_non_null(fake_run(order)); /* bucket 1 waits for rank 1 */
        fake_check("its own event", 0, 0, &c);
        assert_int_equal(fake_start(1, 1, &c, fake_rank[1].s1, NULL), 0);
        assert_int_equal(fake_join(0, 1, &c, fake_rank[0].s1, NULL), 0);
        assert_int_equal(fake_join(1, 0, &c, fake_rank[1].s1, NULL), 0);
        assert_int_equal(fake_join(1, 1, &c, fake_rank[1].s1, NULL), 0);
        fake_run_to_end("its own event", order);
        for (int k = 0; k < 2; k++)
            fake_check("its own event", 1, k, &c);
        fake_close_ranks();
    }
}

/* What is started only, of one element, is done when all ranks have it, or at an abort.
 */
static void a_request_is_done_when_the_gpu_has_done_it(void **state)
{
    struct mu_coll c;

    for (int abort = 0; abort < 2; abort++) {
        struct mu_nccl_backend *b = &fake_rank[0].b;

        fake_open_ranks(2, true);
        c = fake_bucket(sizeof(float));
        c.batch_join = false;
        assert_int_equal(fake_start(0, 0, &c, fake_rank[0].s1, NULL), 0);
        assert_false(mu_nccl_test(b, fake_rank[0].request[0]));
        assert_non_null(fake_run(0)); /* it waits for rank 1 */
        assert_false(mu_nccl_test(b, fake_rank[0].request[0]));
        b->aborted = abort;
        assert_int_equal(mu_nccl_test(b, fake_rank[0].request[0]), abort);
        assert_int_equal(fake_start(1, 0, &c, fake_rank[1].s1, NULL), 0);
        fake_run_to_end("both started", 0);
        assert_true(mu_nccl_test(b, fake_rank[0].request[0]));
        b->aborted = false;
        for (int r = 0; r < 2; r++)
            assert_int_equal(fake_join(r, 0, &c, fake_rank[r].s1, NULL), 0);
        fake_run_to_end("both joined", 0);
        fake_close_ranks();
    }
}

static void each_stream_that_joins_has_the_result(void **state)
{
    struct mu_coll c;

    for (unsigned order = 0; order < ORDERS(0); order++) {
        fake_open_ranks(2, true);
        c = fake_bucket(64 * KIB);
        for (int r = 0; r < fake_nranks; r++) {
            struct fake_calls before;

            for (int k = 0; k < BUCKETS; k++)
                assert_int_equal(fake_start(r, k, &c, fake_rank[r].s1, NULL), 0);
            before = fake_calls_of(0);
            assert_int_equal(fake_join(r, 0, &c, fake_rank[r].s1, NULL), 0);
            assert_int_equal(fake_join(r, 1, &c, fake_rank[r].s2, NULL), 0);
            assert_int_equal(fake_join(r, 2, &c, fake_rank[r].s2, NULL), 0);
            fake_at_most("one event for each stream", before,
                         (struct fake_calls){ .events = 4 });
        }
        fake_run_to_end("two streams join", order);
        for (int r = 0; r < fake_nranks; r++)
            for (int k = 0; k < BUCKETS; k++)
                fake_check("two streams join", r, k, &c);
        fake_close_ranks();
    }
}

static void what_starts_after_a_join_is_waited_for_anew(void **state)
{
    struct mu_coll c;

    for (unsigned order = 0; order < ORDERS(0); order++) {
        fake_open_ranks(2, true);
        c = fake_bucket(64 * KIB);
        for (int r = 0; r < fake_nranks; r++)
            for (int k = 0; k < 2; k++) {
                assert_int_equal(fake_start(r, k, &c, fake_rank[r].s1, NULL), 0);
                assert_int_equal(fake_join(r, k, &c, fake_rank[r].s1, NULL), 0);
            }
        fake_run_to_end("one after the other", order);
        for (int k = 0; k < 2; k++)
            fake_check("one after the other", 1, k, &c);
        fake_close_ranks();
    }
}

/* Kernels match by their order, so a direct one must not overtake one of the backend's
 * stream, nor the other way round.
 */
static void a_direct_one_keeps_the_order_of_all_ranks(void **state)
{
    struct mu_coll c, direct;

    for (unsigned order = 0; order < ORDERS(0); order++) {
        fake_open_ranks(2, true);
        c = fake_bucket(64 * KIB);
        direct = fake_bucket(32 * KIB);
        direct.direct = true;
        for (int r = 0; r < fake_nranks; r++) {
            struct fake_rank *g = &fake_rank[r];

            assert_int_equal(fake_start(r, 0, &c, g->s1, NULL), 0);
            assert_int_equal(fake_start(r, 1, &direct, g->s2, NULL), 0);
            assert_int_equal(fake_join(r, 1, &direct, g->s2, NULL), 0);
            assert_int_equal(fake_start(r, 2, &c, g->s1, NULL), 0);
            assert_int_equal(fake_join(r, 2, &c, g->s1, NULL), 0);
            assert_int_equal(fake_join(r, 0, &c, g->s1, NULL), 0);
        }
        fake_run_to_end("direct", order);
        for (int r = 0; r < fake_nranks; r++) {
            fake_check("before a direct one", r, 0, &c);
            fake_check("direct", r, 1, &direct);
            fake_check("behind a direct one", r, 2, &c);
        }
        fake_close_ranks();
    }
}

static void a_direct_one_is_a_single_call_where_its_stream_is_the_last(void **state)
{
    static const struct fake_calls kernel = { .kernels = 1 },
                                   ordered = { .events = 2, .kernels = 1 };
    struct fake_calls before;
    struct mu_coll c;

    fake_open_ranks(2, true);
    c = fake_bucket(64 * KIB);
    fake_step("aside", &c, 1, 0);
    c.direct = true;
    before = fake_calls_of(0);
    fake_step("direct on the stream that has joined", &c, 1, 1);
    fake_at_most("direct on the stream that has joined", before, kernel);
    before = fake_calls_of(0);
    for (int r = 0; r < fake_nranks; r++) {
        assert_int_equal(fake_start(r, 0, &c, fake_rank[r].s2, NULL), 0);
        assert_int_equal(fake_join(r, 0, &c, fake_rank[r].s2, NULL), 0);
    }
    fake_at_most("direct on another stream", before, ordered);
    fake_run_to_end("direct on another stream", 2);
    fake_close_ranks();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_with_its_own_event_does_not_wait_for_the_next),
        cmocka_unit_test(a_request_is_done_when_the_gpu_has_done_it),
        cmocka_unit_test(each_stream_that_joins_has_the_result),
        cmocka_unit_test(what_starts_after_a_join_is_waited_for_anew),
        cmocka_unit_test(a_direct_one_keeps_the_order_of_all_ranks),
        cmocka_unit_test(a_direct_one_is_a_single_call_where_its_stream_is_the_last),
    };

    return cmocka_run_group_tests_name("nccl_streams", tests, NULL, NULL);
}
