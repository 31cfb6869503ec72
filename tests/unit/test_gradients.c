/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gradients.c - weighted means, and ranks that are out of data */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/weight.h"
#include "tests/unit/gradients.h"

/* Case 055: gradients 1, 2, 3, ..., the last rank counts five times. */
static int weighted_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    struct muster_ddp *ddp = make(m, NULL, own);
    int size = muster_size(m);
    double top = 0, sum = 0;

    for (int r = 0; r < size; r++) {
        double w = r == size - 1 ? 5 : 1;

        top += w * (r + 1);
        sum += w;
    }
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < N; i++)
            for (int k = 0; k < COUNT; k++)
                grad(ddp, i)[k] = (float)(rank + 1);
        RANK_OK(muster_ddp_weight(ddp, rank == size - 1 ? 5 : 1));
        all_ready(m, ddp);
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < N; i++)
            RANK_CHECK(fabs(grad(ddp, i)[COUNT - 1] - top / sum) < 1e-6);
    }
    if (size == 4)
        RANK_CHECK(fabs(grad(ddp, 0)[0] - 3.25) < 1e-6);
    return finish(m, ddp);
}

/* A rank without samples makes no gradient ready; what its buffers hold counts nowhere.
 */
static int nothing_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    struct muster_ddp *ddp = make(m, NULL, own);
    int size = muster_size(m);

    for (int step = 0; step < 2; step++) {
        RANK_OK(muster_ddp_weight(ddp, rank == 0 ? 0 : 2));
        for (int i = 0; i < N; i++)
            for (int k = 0; k < COUNT; k++)
                grad(ddp, i)[k] = rank == 0 ? NAN : (float)rank;
        if (rank == 0)
            RANK_CHECK(muster_ddp_grad_ready(ddp, 0, NULL) == MUSTER_EUSAGE);
        else
            all_ready(m, ddp);
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < N; i++)
            RANK_CHECK(fabs(grad(ddp, i)[0] - (double)size / 2) < 1e-6);
    }
    return finish(m, ddp);
}

enum { PARTS = 3 };

/* The weight of micro-batch k on a rank: 0 in the first, in the middle, or in the last.
 */
static double part_weight(int rank, int k)
{
    static const double weight[PARTS][PARTS] = { { 0, 3, 1 },
                                                 { 2, 0, 5 },
                                                 { 1, 4, 0 } };

    return weight[rank % PARTS][k];
}

static double part_grad(int rank, int k)
{
    return rank + 1 + 10 * k;
}

/* Write the gradients of micro-batch k. Before the first that counts, the buffers hold
 * anything.
 */
static void micro_batch(struct muster *m, struct muster_ddp *ddp, int k, bool first)
{
    int rank = muster_rank(m);
    bool nothing = part_weight(rank, k) == 0;

    for (int i = 0; i < N; i++)
        for (int e = 0; e < COUNT; e++) {
            float g = nothing ? 0 : (float)part_grad(rank, k);

            if (first)
                grad(ddp, i)[e] = nothing ? NAN : g;
            else
                grad(ddp, i)[e] += g;
        }
    if (nothing)
        for (int i = 0; i < N; i++)
            RANK_CHECK(muster_ddp_grad_ready(ddp, i, NULL) == MUSTER_EUSAGE);
    else
        all_ready(m, ddp);
}

static int until_the_next_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    struct muster_ddp *ddp = make(m, NULL, own);
    double top = 0, sum = 0;

    for (int r = 0; r < muster_size(m); r++)
        for (int k = 0; k < PARTS; k++) {
            top += part_weight(r, k) * part_grad(r, k);
            sum += part_weight(r, k);
        }
    for (int step = 0; step < 3; step++) {
        bool first = true;

        for (int k = 0; k < PARTS; k++) {
            RANK_OK(muster_ddp_no_sync(ddp, k < PARTS - 1));
            RANK_OK(muster_ddp_weight(ddp, part_weight(rank, k)));
            micro_batch(m, ddp, k, first);
            first &= part_weight(rank, k) == 0;
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < N; i++)
            RANK_CHECK(fabs(grad(ddp, i)[COUNT - 1] - top / sum) < 1e-5);
    }
    return finish(m, ddp);
}

static void a_micro_batch_of_weight_zero_counts_nowhere(void **state)
{
    for (int nodes = 1; nodes <= 2; nodes++)
        forked_well("weight 0",
                    (struct forked_world){ .size = 4, .nodes = nodes, SMALL_BUCKETS },
                    nothing_body, NULL);
}

static void the_micro_batch_after_one_of_weight_zero_counts(void **state)
{
    everywhere(until_the_next_body, NULL);
}

static void row_9_unequal_batches_give_the_weighted_mean(void **state)
{
    everywhere(weighted_body, NULL);
}

/* With and without the same weight: the same bits, also where the sum rounds. */
static int equal_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT], plain[N][COUNT];
    struct muster_ddp *ddp = make(m, NULL, own);

    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < N; i++)
            for (int k = 0; k < COUNT; k++)
                grad(ddp, i)[k] = 0.1f * (float)(rank + 1) + 0.7f * (float)k;
        if (pass > 0)
            RANK_OK(muster_ddp_weight(ddp, pass == 1 ? 1.0 : 0.1));
        all_ready(m, ddp);
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < N; i++) {
            if (pass == 0)
                memcpy(plain[i], grad(ddp, i), sizeof plain[i]);
            RANK_CHECK(memcmp(plain[i], grad(ddp, i), sizeof plain[i]) == 0);
        }
    }
    return finish(m, ddp);
}

static void equal_weights_give_the_plain_mean_bit_for_bit(void **state)
{
    everywhere(equal_body, NULL);
}

/* Row 11: micro-batches of 1 and 3 samples on rank 0, of 2 and 2 on the others. */
static int micro_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    struct muster_ddp *ddp = make(m, NULL, own);
    double top = 0, sum = 0;

    for (int r = 0; r < muster_size(m); r++)
        for (int k = 0; k < 2; k++) {
            double w = r == 0 ? 1 + 2 * k : 2;

            top += w * (r + 1 + 10 * k);
            sum += w;
        }
    for (int k = 0; k < 2; k++) {
        RANK_OK(muster_ddp_no_sync(ddp, k == 0));
        RANK_OK(muster_ddp_weight(ddp, rank == 0 ? 1 + 2 * k : 2));
        for (int i = 0; i < N; i++)
            for (int e = 0; e < COUNT; e++)
                grad(ddp, i)[e] += (float)(rank + 1 + 10 * k);
        all_ready(m, ddp);
    }
    RANK_OK(muster_ddp_sync(ddp, NULL));
    for (int i = 0; i < N; i++)
        RANK_CHECK(fabs(grad(ddp, i)[3] - top / sum) < 1e-5);
    return finish(m, ddp);
}

static void row_11_accumulation_weighs_micro_batches_by_their_samples(void **state)
{
    everywhere(micro_body, NULL);
}

static int count_steps(void *arg)
{
    ++*(int *)arg;
    return 0;
}

/* Rank r has data for 2 + r steps. */
static int join_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    struct muster_ddp *ddp = make(m, NULL, own);
    int size = muster_size(m), steps = 2 + rank, after = 0;

    for (int step = 0; step < steps; step++) {
        double sum = 0;
        int active = 0;

        for (int r = 0; r < size; r++)
            if (step < 2 + r) {
                sum += r + 1;
                active++;
            }
        for (int i = 0; i < N; i++)
            for (int k = 0; k < COUNT; k++)
                grad(ddp, i)[k] = (float)(rank + 1);
        RANK_OK(muster_ddp_weight(ddp, 32));
        all_ready(m, ddp);
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < N; i++)
            RANK_CHECK(fabs(grad(ddp, i)[5] - sum / active) < 1e-5);
    }
    RANK_OK(muster_ddp_join(ddp, count_steps, &after));
    RANK_CHECK(steps + after == 2 + size - 1);
    /* the last step had the last rank alone */
    RANK_CHECK(size == 1 || fabs(grad(ddp, 0)[5] - size) < 1e-5);
    return finish(m, ddp);
}

static void row_9_a_rank_that_is_out_of_data_joins_with_weight_zero(void **state)
{
    everywhere(join_body, NULL);
}

static void weights_are_exact_where_they_are_equal(void **state)
{
    double sums[7];
    struct mu_weight w = { 0 };

    assert_true(mu_weight_begin(&w, 0.1) == 1);
    for (int i = 0; i < 7; i++)
        sums[i] = 0.1;
    assert_true(mu_weight_factor(&w, sums, 7) == 1);
    sums[3] = 0;
    assert_true(fabs(mu_weight_factor(&w, sums, 7) - 7.0 / 6) < 1e-12);
    assert_true(mu_weight_begin(&w, 0.2) == 0.5);
    assert_true(mu_weight_begin(&w, 0) == 1 && w.nothing);
    memset(sums, 0, sizeof sums);
    assert_true(mu_weight_factor(&w, sums, 7) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_9_unequal_batches_give_the_weighted_mean),
        cmocka_unit_test(a_micro_batch_of_weight_zero_counts_nowhere),
        cmocka_unit_test(the_micro_batch_after_one_of_weight_zero_counts),
        cmocka_unit_test(equal_weights_give_the_plain_mean_bit_for_bit),
        cmocka_unit_test(row_11_accumulation_weighs_micro_batches_by_their_samples),
        cmocka_unit_test(row_9_a_rank_that_is_out_of_data_joins_with_weight_zero),
        cmocka_unit_test(weights_are_exact_where_they_are_equal),
    };

    return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
