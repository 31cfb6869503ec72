/* SPDX-License-Identifier: BSD-3-Clause */
/* test_bucket.c - gradients into buckets, and which bucket may start */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/bucket.h"
#include "runtime/core/ledger.h"
#include "runtime/core/ready.h"

#define F MUSTER_F32
#define H MUSTER_BF16
#define MAX 8

static const struct bucket_case {
    const char *name;
    size_t first, cap;
    int granule, n;
    struct mu_bucket_item item[MAX];
    int nbuckets;
    int bucket[MAX];
    size_t offset[MAX], bytes[MAX];
} cases[] = {
    { "no parameters: no buckets",
      1024,
      1024,
      1,
      0,
      { { 0, F } },
      0,
      { 0 },
      { 0 },
      { 0 } },
    { "reverse order, the last parameter starts the first bucket",
      1024,
      1024,
      1,
      3,
      { { 32, F }, { 32, F }, { 32, F } },
      1,
      { 0, 0, 0 },
      { 256, 128, 0 },
      { 384 } },
    { "closed before it would exceed its cap",
      256,
      256,
      1,
      3,
      { { 32, F }, { 32, F }, { 32, F } },
      2,
      { 1, 0, 0 },
      { 0, 128, 0 },
      { 256, 128 } },
    { "the first bucket has its own cap",
      128,
      512,
      1,
      4,
      { { 32, F }, { 32, F }, { 32, F }, { 32, F } },
      2,
      { 1, 1, 1, 0 },
      { 256, 128, 0, 0 },
      { 128, 384 } },
    { "a gradient above the cap gets a bucket of its own",
      128,
      256,
      1,
      3,
      { { 32, F }, { 1000, F }, { 32, F } },
      3,
      { 2, 1, 0 },
      { 0, 0, 0 },
      { 128, 4096, 128 } },
    { "every gradient starts at a multiple of 128 bytes",
      1024,
      1024,
      1,
      3,
      { { 1, F }, { 33, F }, { 1, F } },
      1,
      { 0, 0, 0 },
      { 384, 128, 0 },
      { 512 } },
    { "dtypes do not share a bucket, and each keeps filling its own",
      1024,
      1024,
      1,
      4,
      { { 32, F }, { 64, H }, { 32, F }, { 64, H } },
      2,
      { 1, 0, 1, 0 },
      { 128, 128, 0, 0 },
      { 256, 256 } },
    { "buckets are numbered by completion, not by opening",
      256,
      256,
      1,
      4,
      { { 32, H }, { 32, F }, { 32, F }, { 32, H } },
      2,
      { 1, 0, 0, 1 },
      { 128, 128, 0, 0 },
      { 256, 256 } },
    { "empty gradients belong to a bucket",
      1024,
      1024,
      1,
      3,
      { { 0, F }, { 32, F }, { 0, F } },
      1,
      { 0, 0, 0 },
      { 128, 0, 0 },
      { 128 } },
    { "only empty gradients: one bucket of nothing",
      1024,
      1024,
      1,
      2,
      { { 0, F }, { 0, F } },
      1,
      { 0, 0 },
      { 0, 0 },
      { 0 } },
    { "a granule of 3 ranks: the bucket divides evenly",
      1024,
      1024,
      3,
      2,
      { { 32, F }, { 1, F } },
      1,
      { 0, 0 },
      { 128, 0 },
      { 384 } },
    { "more than 2^31 elements (ddp.md row 6)",
      1024,
      1024,
      1,
      2,
      { { (size_t)3 << 31, F }, { 1, F } },
      2,
      { 1, 0 },
      { 0, 0 },
      { 128, (size_t)3 << 33 } },
};

static int plan_make(const struct mu_bucket_item *item, int n, size_t first, size_t cap,
                     int granule, struct mu_bucket_plan *plan, struct mu_err *err)
{
    const struct mu_bucket_rule rule = { first, cap, granule, NULL, NULL, 0, NULL };

    return mu_bucket_plan_make(item, n, &rule, plan, err);
}

static void row_21_gradients_are_cut_into_buckets(void **state)
{
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const struct bucket_case *t = &cases[c];
        struct mu_bucket_plan plan;
        struct mu_err err = { 0 };

        if (plan_make(t->item, t->n, t->first, t->cap, t->granule, &plan, &err) < 0)
            fail_msg("%s: %s", t->name, err.text);
        if (plan.nbuckets != t->nbuckets)
            fail_msg("%s: %d buckets", t->name, plan.nbuckets);
        for (int i = 0; i < t->n; i++)
            if (plan.place[i].bucket != t->bucket[i] ||
                plan.place[i].offset != t->offset[i])
                fail_msg("%s: parameter %d in bucket %d at %zu", t->name, i,
                         plan.place[i].bucket, plan.place[i].offset);
        for (int b = 0; b < plan.nbuckets; b++)
            if (plan.bucket[b].bytes != t->bytes[b])
                fail_msg("%s: bucket %d has %zu bytes", t->name, b,
                         plan.bucket[b].bytes);
        mu_bucket_plan_clear(&plan);
    }
}

static void what_cannot_be_a_gradient_is_refused(void **state)
{
    const struct mu_bucket_item bad_type = { 1, (enum muster_dtype)77 };
    const struct mu_bucket_item too_large = { SIZE_MAX / 4, F };
    struct mu_bucket_plan plan;
    struct mu_err err = { 0 };

    assert_int_equal(plan_make(&bad_type, 1, 1, 1, 1, &plan, &err), -1);
    assert_non_null(strstr(err.text, "77"));
    assert_int_equal(plan_make(&too_large, 1, 1, 1, 1, &plan, &err), -1);
    assert_int_equal(err.code, MUSTER_EUSAGE);
}

static void buckets_start_in_index_order(void **state)
{
    const struct mu_bucket_item item[] = { { 32, F }, { 32, F }, { 32, F }, { 32, F } };
    struct mu_bucket_plan plan; /* bucket 0: parameters 3, 2; bucket 1: 1, 0 */
    struct mu_ready ready;

    assert_int_equal(plan_make(item, 4, 256, 256, 1, &plan, NULL), 0);
    assert_int_equal(mu_ready_init(&ready, &plan, NULL), 0);
    for (int step = 0; step < 2; step++) {
        assert_true(mu_ready_mark(&ready, 0));
        assert_true(mu_ready_mark(&ready, 1));
        /* bucket 1 is complete but waits for bucket 0 */
        assert_int_equal(mu_ready_take(&ready), -1);
        assert_true(mu_ready_mark(&ready, 3));
        assert_int_equal(mu_ready_take(&ready), -1);
        assert_false(mu_ready_mark(&ready, 3));
        assert_int_equal(mu_ready_take(&ready), -1);
        assert_true(mu_ready_mark(&ready, 2));
        assert_int_equal(mu_ready_take(&ready), 0);
        assert_int_equal(mu_ready_take(&ready), 1);
        assert_int_equal(mu_ready_take(&ready), -1);
        mu_ready_reset(&ready);
    }
    mu_ready_clear(&ready);
    mu_bucket_plan_clear(&plan);
}

static void the_order_of_arrival_decides_where_a_gradient_lies(void **state)
{
    const struct mu_bucket_item item[] = { { 32, F }, { 32, F }, { 64, H }, { 32, F } };
    const int order[] = { 1, 3, 2, 0 };
    const struct mu_bucket_rule rule = { 256, 256, 1, order, NULL, 0, NULL };
    const int bucket[] = { 2, 0, 1, 0 };
    const size_t offset[] = { 0, 0, 0, 128 };
    struct mu_bucket_plan plan;

    assert_int_equal(mu_bucket_plan_make(item, 4, &rule, &plan, NULL), 0);
    assert_int_equal(plan.nbuckets, 3);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(plan.place[i].bucket, bucket[i]);
        assert_int_equal(plan.place[i].offset, offset[i]);
    }
    mu_bucket_plan_clear(&plan);
}

static void a_gradient_may_have_a_bucket_of_its_own(void **state)
{
    const struct mu_bucket_item item[] = { { 32, F }, { 32, F }, { 32, H }, { 32, F } };
    const bool alone[] = { false, true, false, false };
    const struct mu_bucket_rule rule = { 4096, 4096, 1, NULL, NULL, 0, alone };
    const int bucket[] = { 3, 2, 1, 0 };
    struct mu_bucket_plan plan;

    assert_int_equal(mu_bucket_plan_make(item, 4, &rule, &plan, NULL), 0);
    assert_int_equal(plan.nbuckets, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(plan.place[i].bucket, bucket[i]);
    mu_bucket_plan_clear(&plan);
}

static void only_a_permutation_is_an_order(void **state)
{
    const int good[] = { 2, 0, 1 }, twice[] = { 2, 0, 2 }, outside[] = { 0, 1, 3 },
              below[] = { 0, -1, 2 };

    assert_true(mu_bucket_is_order(good, 3));
    assert_true(mu_bucket_is_order(good, 0));
    assert_false(mu_bucket_is_order(twice, 3));
    assert_false(mu_bucket_is_order(outside, 3));
    assert_false(mu_bucket_is_order(below, 3));
}

static void what_comes_before_the_last_bucket_is_known(void **state)
{
    const struct mu_bucket_item item[] = {
        { 128, F }, { 64, F }, { 96, F }, { 32, F }
    };
    struct mu_bucket_plan
        plan; /* one gradient each; those of 32, 96, 64, 128 in turn */
    struct mu_ready ready;
    static const size_t between[] = { 640, 256, 0, 0 };

    assert_int_equal(plan_make(item, 4, 1, 1, 1, &plan, NULL), 0);
    assert_int_equal(mu_ready_init(&ready, &plan, NULL), 0);
    for (int i = 3; i >= 0; i--) {
        assert_true(mu_ready_mark(&ready, i));
        assert_int_equal(mu_ready_take(&ready), 3 - i);
        assert_int_equal(mu_ready_between(&ready), between[3 - i]);
    }
    mu_ready_clear(&ready);
    mu_bucket_plan_clear(&plan);
}

static void buckets_that_stay_start_as_they_are_complete(void **state)
{
    const struct mu_bucket_item item[] = { { 32, F }, { 32, F }, { 32, F },
                                           { 32, F }, { 32, F }, { 32, F } };
    const int arrival[] = { 0, 3, 1, 4, 2, 5 };
    struct mu_bucket_plan plan; /* bucket 0: 5, 4; bucket 1: 3, 2; bucket 2: 1, 0 */
    struct mu_ready ready;

    assert_int_equal(plan_make(item, 6, 256, 256, 1, &plan, NULL), 0);
    assert_int_equal(mu_ready_init(&ready, &plan, NULL), 0);
    mu_bucket_starts(&plan, arrival, ready.order);
    assert_int_equal(ready.order[0], 2);
    assert_int_equal(ready.order[1], 1);
    assert_int_equal(ready.order[2], 0);
    for (int k = 0; k < 2; k++)
        assert_true(mu_ready_mark(&ready, arrival[k]));
    assert_int_equal(mu_ready_take(&ready), -1);
    assert_true(mu_ready_mark(&ready, arrival[2]));
    assert_int_equal(mu_ready_take(&ready), 2);
    for (int k = 3; k < 6; k++)
        assert_true(mu_ready_mark(&ready, arrival[k]));
    assert_int_equal(mu_ready_take(&ready), 1);
    assert_int_equal(mu_ready_take(&ready), 0);
    assert_int_equal(mu_ready_take(&ready), -1);
    mu_ready_clear(&ready);
    mu_bucket_plan_clear(&plan);
}

static void the_ledger_tells_hidden_from_exposed_communication(void **state)
{
    struct muster_ledger l = { 0 };
    const struct mu_ledger_step first = { 0, 1, 2, 3 }, overlapped = { 10, 14, 18, 20 },
                                late = { 20, 0, 25, 26 };

    mu_ledger_add(&l, &first);
    assert_int_equal(l.steps, 0);
    mu_ledger_add(&l, &overlapped);
    assert_true(l.steps == 1 && l.seconds == 10 && l.communication == 6 &&
                l.exposed == 2);
    mu_ledger_add(&l, &late);
    assert_true(l.steps == 2 && l.seconds == 16 && l.communication == 7 &&
                l.exposed == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_21_gradients_are_cut_into_buckets),
        cmocka_unit_test(what_cannot_be_a_gradient_is_refused),
        cmocka_unit_test(buckets_start_in_index_order),
        cmocka_unit_test(the_order_of_arrival_decides_where_a_gradient_lies),
        cmocka_unit_test(a_gradient_may_have_a_bucket_of_its_own),
        cmocka_unit_test(only_a_permutation_is_an_order),
        cmocka_unit_test(what_comes_before_the_last_bucket_is_known),
        cmocka_unit_test(buckets_that_stay_start_as_they_are_complete),
        cmocka_unit_test(the_ledger_tells_hidden_from_exposed_communication),
    };

    return cmocka_run_group_tests_name("bucket", tests, NULL, NULL);
}
