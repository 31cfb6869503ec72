/* SPDX-License-Identifier: BSD-3-Clause */
/* test_bucket_cut.c - buckets cut for the least waiting, against every way to cut */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "runtime/core/bucket.h"
#include "runtime/core/bucket_cut.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define MAX 10

/* alpha us + bytes / rate (bytes per us), as points. */
static struct mu_curve line(double alpha, double rate)
{
    struct mu_curve c = { .n = 2, .bytes = { 65536, 1 << 24 } };

    for (int i = 0; i < c.n; i++)
        c.us[i] = alpha + c.bytes[i] / rate;
    return c;
}

/* As 2 GPUs on NVLink show it: two slopes. */
static struct mu_curve bent(void)
{
    struct mu_curve c = { 4,
                          { 64 << 10, 1 << 20, 16 << 20, 64 << 20 },
                          { 3, 7.5, 58, 208 } };

    return c;
}

/* us exposed by the plan whose buckets end where last[] says; infinite above the cap.
 */
static double play(const struct mu_bucket_load *load, const bool *last, int *buckets)
{
    double now = 0;
    size_t bytes = 0;
    int members = 0;

    *buckets = 0;
    for (int i = 0; i < load->n; i++) {
        bytes += load->bytes[i];
        members++;
        if (!last[i])
            continue;
        if (members > 1 && bytes > load->cap)
            return DBL_MAX;
        now = now > load->ready[i] ? now : load->ready[i];
        now += mu_curve_time(load->curve, (double)bytes);
        bytes = 0;
        members = 0;
        ++*buckets;
    }
    return now - load->ready[load->n - 1];
}

/* The least waiting of all ways to cut, and the least buckets that reach it + slack. */
static double try_all(const struct mu_bucket_load *load, int *fewest)
{
    double least = DBL_MAX;
    bool last[MAX];
    int buckets;

    *fewest = MAX + 1;
    for (int pass = 0; pass < 2; pass++)
        for (unsigned way = 0; way < 1u << (load->n - 1); way++) {
            double us;

            for (int i = 0; i < load->n; i++)
                last[i] = i == load->n - 1 || way >> i & 1;
            us = play(load, last, &buckets);
            if (pass == 0 && us < least)
                least = us;
            if (pass == 1 && us <= least + load->slack + 1e-6 && buckets < *fewest)
                *fewest = buckets;
        }
    return least;
}

static void no_other_cut_waits_less(void **state)
{
    srand(7);
    for (int round = 0; round < 3000; round++) {
        struct mu_curve curve = round % 2 ? line(1 + rand() % 40, 1e5) : bent();
        size_t bytes[MAX];
        double ready[MAX], now = 0, exposed, least, got;
        bool last[MAX];
        struct mu_bucket_load load = { 1 + rand() % MAX,
                                       bytes,
                                       ready,
                                       &curve,
                                       (size_t)(1 + rand() % 32) * MIB,
                                       round % 3 == 0 ? 5 : 0 };
        int fewest, buckets;

        for (int i = 0; i < load.n; i++) {
            bytes[i] = (size_t)(rand() % 3 ? rand() % 64 : rand() % 8192) * KIB;
            now += (double)bytes[i] / (1e4 * (1 + rand() % 60));
            ready[i] = now;
        }
        assert_int_equal(mu_bucket_cut(&load, last, &exposed, NULL), 0);
        least = try_all(&load, &fewest);
        got = play(&load, last, &buckets);
        assert_true(last[load.n - 1]);
        if (exposed > least + 1e-6 || exposed < least - 1e-6)
            fail_msg("round %d: %g us said to be the least, it is %g", round, exposed,
                     least);
        if (got > least + load.slack + 1e-5)
            fail_msg("round %d: %g us, possible are %g", round, got, least);
        if (round % 2 && buckets != fewest)
            fail_msg("round %d: %d buckets, %d are enough", round, buckets, fewest);
    }
}

/* A model of 50 x 4 MiB and a last gradient of 64 KiB: */
static void make(struct mu_bucket_item *item, int n)
{
    for (int i = 0; i < n; i++)
        item[i] = (struct mu_bucket_item){ i == 0 ? 16 * KIB : MIB, MUSTER_F32 };
}

static void the_last_bucket_is_small_and_those_before_it_reach_the_cap(void **state)
{
    struct mu_bucket_item item[51];
    struct mu_curve curve = bent();
    struct mu_bucket_rule rule = { MIB, 25 * MIB, 1, NULL, &curve, 0, NULL };
    struct mu_bucket_plan plan;
    int last;

    make(item, 51);
    assert_int_equal(mu_bucket_plan_make(item, 51, &rule, &plan, NULL), 0);
    last = plan.nbuckets - 1;
    assert_int_equal(plan.place[0].bucket, last);
    assert_true(plan.bucket[last].bytes <= 4 * MIB + 64 * KIB);
    assert_true(plan.bucket[1].bytes > 16 * MIB);
    for (int b = 0; b < plan.nbuckets; b++)
        assert_true(plan.bucket[b].bytes <= 25 * MIB);
    for (int b = 2; b < plan.nbuckets; b++)
        assert_true(plan.bucket[b].bytes <= plan.bucket[b - 1].bytes + 64 * KIB);
    mu_bucket_plan_clear(&plan);
}

static void what_cannot_be_hidden_is_sent_in_large_buckets(void **state)
{
    struct mu_bucket_item item[51];
    struct mu_curve curve = line(20, 1e5);
    /* a backward pass of no time at all */
    struct mu_bucket_rule rule = { MIB, 1024 * MIB, 1, NULL, &curve, 1e-12, NULL };
    struct mu_bucket_plan plan;

    make(item, 51);
    assert_int_equal(mu_bucket_plan_make(item, 51, &rule, &plan, NULL), 0);
    assert_int_equal(plan.nbuckets, 1);
    mu_bucket_plan_clear(&plan);
}

static void dtypes_are_cut_by_themselves(void **state)
{
    struct mu_bucket_item item[40];
    struct mu_curve curve = bent();
    struct mu_bucket_rule rule = { MIB, 25 * MIB, 1, NULL, &curve, 0, NULL };
    struct mu_bucket_plan plan;

    for (int i = 0; i < 40; i++)
        item[i] = (struct mu_bucket_item){ i % 2 ? MIB : 2 * MIB,
                                           i % 2 ? MUSTER_F32 : MUSTER_BF16 };
    assert_int_equal(mu_bucket_plan_make(item, 40, &rule, &plan, NULL), 0);
    for (int i = 0; i < 40; i++)
        assert_int_equal(plan.bucket[plan.place[i].bucket].dtype, item[i].dtype);
    for (int b = 1; b < plan.nbuckets; b++)
        assert_true(plan.bucket[b].last_at > plan.bucket[b - 1].last_at);
    mu_bucket_plan_clear(&plan);
}

static void time_follows_the_points(void **state)
{
    struct mu_curve c = bent(), noise = { 2, { 1, 2 }, { 9, 4 } }, none = { 0 };

    assert_float_equal(mu_curve_time(&c, 64 << 10), 3, 1e-9);
    assert_float_equal(mu_curve_time(&c, 40 << 20), 133, 1e-9);
    assert_float_equal(mu_curve_time(&c, 112 << 20), 358, 1e-9);
    assert_true(mu_curve_time(&noise, 100) >= 9);
    assert_true(mu_curve_time(&none, 100) == 0);
}

static void the_knee_is_where_the_rate_is_near_its_top(void **state)
{
    struct mu_curve c = line(9, 360e3);
    size_t knee = mu_curve_knee(&c, 0.9, 64 * MIB);

    /* 9 us + S/360e3 has 90 % of the rate of 64 MiB near 20 MiB. */
    assert_true(knee >= 12 * MIB && knee <= 24 * MIB);
    assert_int_equal(knee % MIB, 0);
    assert_int_equal(mu_curve_knee(&c, 1, 8 * MIB), 8 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_other_cut_waits_less),
        cmocka_unit_test(the_last_bucket_is_small_and_those_before_it_reach_the_cap),
        cmocka_unit_test(what_cannot_be_hidden_is_sent_in_large_buckets),
        cmocka_unit_test(dtypes_are_cut_by_themselves),
        cmocka_unit_test(time_follows_the_points),
        cmocka_unit_test(the_knee_is_where_the_rate_is_near_its_top),
    };

    return cmocka_run_group_tests_name("bucket_cut", tests, NULL, NULL);
}
