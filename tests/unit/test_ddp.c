/* SPDX-License-Identifier: BSD-3-Clause */
/* test_ddp.c - gradients over forked ranks: means, absent gradients, accumulation */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/core/convert.h"
#include "tests/unit/forked.h"

/* Run in worlds of 1, 2, 4 ranks on one node and 4 on two nodes; all ranks must end
 * well. */
static void everywhere(int (*body)(struct muster *m, int rank, void *arg))
{
    static const struct forked_world worlds[] = {
        { .size = 1, SMALL_BUCKETS },
        { .size = 2, SMALL_BUCKETS },
        { .size = 4, SMALL_BUCKETS },
        { .size = 4, .nodes = 2, SMALL_BUCKETS },
        { .size = 3, .force_tcp = true, SMALL_BUCKETS },
    };

    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++)
        forked_well("everywhere", worlds[i], body, NULL);
}

enum { N = 6, COUNT = 40 };

/* Parameters of 40 floats; the odd ones with buffers of the caller. */
struct model {
    float data[N][COUNT], own[N][COUNT];
    struct muster_ddp *ddp;
};

static void make(struct muster *m, struct model *model)
{
    struct muster_param p[N];
    char names[N][16];

    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "layer%d", i);
        p[i] = (struct muster_param){ .name = names[i],
                                      .count = COUNT,
                                      .dtype = MUSTER_F32,
                                      .data = model->data[i],
                                      .grad = i % 2 ? model->own[i] : NULL };
        for (int k = 0; k < COUNT; k++)
            model->data[i][k] = (float)(muster_rank(m) * 1000 + i * COUNT + k);
    }
    RANK_OK(muster_ddp_create(m, p, N, NULL, &model->ddp));
}

static int end(struct muster *m, struct model *model)
{
    muster_ddp_destroy(model->ddp);
    return muster_finalize(m);
}

/* value of rank r in parameter i: whole numbers, so that sums are exact. */
static float value(int rank, int i, int k)
{
    return (float)((rank + 1) * (i + 2) + k);
}

static void fill(struct muster *m, struct model *model, int i)
{
    float *g = muster_ddp_grad(model->ddp, i);

    for (int k = 0; k < COUNT; k++)
        g[k] = value(muster_rank(m), i, k);
}

/* The mean over ranks in `present` (others count as zero). */
static float mean(struct muster *m, int i, int k, unsigned present)
{
    float sum = 0;

    for (int r = 0; r < muster_size(m); r++)
        if (present >> r & 1)
            sum += value(r, i, k);
    return sum * (float)(1.0 / muster_size(m));
}

static int mean_body(struct muster *m, int rank, void *arg)
{
    struct muster_ledger ledger;
    struct model model = { 0 };

    make(m, &model);
    RANK_CHECK(muster_ddp_buckets(model.ddp) == 4);
    RANK_OK(muster_ddp_broadcast(model.ddp, 0));
    for (int i = 0; i < N; i++)
        for (int k = 0; k < COUNT; k++)
            RANK_CHECK(model.data[i][k] == (float)(i * COUNT + k));
    for (int step = 0; step < 3; step++) {
        for (int i = N - 1; i >= 0; i--) {
            fill(m, &model, i);
            RANK_OK(muster_ddp_grad_ready(model.ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(model.ddp, NULL));
        for (int i = 0; i < N; i++)
            for (int k = 0; k < COUNT; k++)
                RANK_CHECK(((float *)muster_ddp_grad(model.ddp, i))[k] ==
                           mean(m, i, k, ~0u));
    }
    muster_ddp_ledger(model.ddp, &ledger);
    RANK_CHECK(ledger.steps == 2 && ledger.exposed > 0);
    RANK_CHECK(ledger.exposed <= ledger.communication &&
               ledger.communication <= ledger.seconds);
    return end(m, &model);
}

static void sync_gives_the_mean_on_every_rank(void **state)
{
    everywhere(mean_body);
}

static int order_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };

    make(m, &model);
    for (int step = 0; step < 20; step++) {
        for (int n = 0; n < N; n++) {
            int i = (n * 5 + rank + step) % N; /* another order on each rank */

            fill(m, &model, i);
            RANK_OK(muster_ddp_grad_ready(model.ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(model.ddp, NULL));
        for (int i = 0; i < N; i++)
            RANK_CHECK(((float *)muster_ddp_grad(model.ddp, i))[7] ==
                           mean(m, i, 7, ~0u) &&
                       !muster_ddp_absent(model.ddp, i));
    }
    return end(m, &model);
}

static void row_16_ranks_may_finish_their_gradients_in_any_order(void **state)
{
    everywhere(order_body);
}

static int absent_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };

    make(m, &model);
    for (int step = 0; step < 3; step++) {
        for (int i = N - 1; i >= 0; i--) {
            fill(m, &model, i);
            /* 0: rank 0 alone; 1 (own buffer): all but rank 0; 2, 3: nobody */
            if ((i == 0 && rank != 0) || (i == 1 && rank == 0 && muster_size(m) > 1) ||
                i == 2)
                continue;
            if (i == 3)
                RANK_OK(muster_ddp_grad_absent(model.ddp, 3));
            else
                RANK_OK(muster_ddp_grad_ready(model.ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(model.ddp, NULL));
        for (int k = 0; k < COUNT; k++) {
            RANK_CHECK(((float *)muster_ddp_grad(model.ddp, 0))[k] == mean(m, 0, k, 1));
            RANK_CHECK(((float *)muster_ddp_grad(model.ddp, 1))[k] ==
                       mean(m, 1, k, muster_size(m) > 1 ? ~1u : 1));
            RANK_CHECK(((float *)muster_ddp_grad(model.ddp, 2))[k] ==
                       value(rank, 2, k));
            RANK_CHECK(((float *)muster_ddp_grad(model.ddp, 3))[k] ==
                       value(rank, 3, k));
            RANK_CHECK(((float *)muster_ddp_grad(model.ddp, 4))[k] ==
                       mean(m, 4, k, ~0u));
        }
        for (int i = -1; i <= N; i++)
            RANK_CHECK(muster_ddp_absent(model.ddp, i) == (i == 2 || i == 3));
    }
    for (int i = N - 1; i >= 0; i--)
        RANK_OK(muster_ddp_grad_ready(model.ddp, i, NULL));
    RANK_OK(muster_ddp_sync(model.ddp, NULL));
    for (int i = 0; i < N; i++)
        RANK_CHECK(!muster_ddp_absent(model.ddp, i));
    return end(m, &model);
}

static void
row_1_an_absent_gradient_is_zero_here_and_untouched_if_absent_everywhere(void **s)
{
    everywhere(absent_body);
}

static int accumulate_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };

    make(m, &model);
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < N; i++)
            memset(muster_ddp_grad(model.ddp, i), 0, COUNT * sizeof(float));
        for (int micro = 0; micro < 3; micro++) {
            RANK_OK(muster_ddp_no_sync(model.ddp, micro < 2));
            for (int i = N - 1; i >= 0; i--) {
                float *g = muster_ddp_grad(model.ddp, i);

                /* 1: used in the first micro-batch only, 2: there on rank 0 only */
                if ((i == 1 && micro > 0) || (i == 2 && (micro != 1 || rank != 0)))
                    continue;
                for (int k = 0; k < COUNT; k++)
                    g[k] += value(rank, i, k);
                RANK_OK(muster_ddp_grad_ready(model.ddp, i, NULL));
            }
        }
        RANK_OK(muster_ddp_sync(model.ddp, NULL));
        for (int k = 0; k < COUNT; k++) {
            RANK_CHECK(((float *)muster_ddp_grad(model.ddp, 0))[k] ==
                       3 * mean(m, 0, k, ~0u));
            RANK_CHECK(((float *)muster_ddp_grad(model.ddp, 1))[k] ==
                       mean(m, 1, k, ~0u));
            RANK_CHECK(((float *)muster_ddp_grad(model.ddp, 2))[k] == mean(m, 2, k, 1));
        }
    }
    return end(m, &model);
}

static void row_2_gradients_of_earlier_micro_batches_count(void **state)
{
    everywhere(accumulate_body);
}

/* Who has which gradient, another set in each step; rank 0 now and then has all, and so
 * does not wait for the word about the others' before it begins the next step.
 */
static bool has_gradient(int rank, int step, int i)
{
    return (rank == 0 && step % 3 == 0) || (step * 7 + rank * 5 + i * 3) % 4 != 0;
}

static int bitmap_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };

    make(m, &model);
    for (int step = 0; step < 60; step++) {
        for (int i = N - 1; i >= 0; i--) {
            fill(m, &model, i);
            if (has_gradient(rank, step, i))
                RANK_OK(muster_ddp_grad_ready(model.ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(model.ddp, NULL));
        for (int i = 0; i < N; i++) {
            float *g = muster_ddp_grad(model.ddp, i);
            unsigned present = 0;

            for (int r = 0; r < muster_size(m); r++)
                present |= (unsigned)has_gradient(r, step, i) << r;
            /* The rank that has all need not know who lacks what. */
            RANK_CHECK(!muster_ddp_absent(model.ddp, i) == (present != 0));
            for (int k = 0; k < COUNT; k++)
                RANK_CHECK(g[k] ==
                           (present ? mean(m, i, k, present) : value(rank, i, k)));
        }
    }
    return end(m, &model);
}

static void row_3_each_step_has_its_own_bitmap_of_absent_gradients(void **state)
{
    everywhere(bitmap_body);
}

static int misuse_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };
    struct muster_param bad = { .name = "ints", .count = 3, .dtype = MUSTER_I32 };
    struct muster_ddp *none = NULL;

    make(m, &model);
    RANK_CHECK(muster_ddp_grad_ready(model.ddp, N, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(muster_ddp_grad_ready(model.ddp, -1, NULL) == MUSTER_EUSAGE);
    RANK_OK(muster_ddp_grad_ready(model.ddp, 0, NULL));
    RANK_CHECK(muster_ddp_grad_ready(model.ddp, 0, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(m), "'layer0' became ready twice in step 0"));
    RANK_CHECK(muster_ddp_grad_absent(model.ddp, 0) == MUSTER_EUSAGE);
    RANK_CHECK(muster_ddp_no_sync(model.ddp, 1) == MUSTER_EUSAGE);
    RANK_OK(muster_ddp_grad_absent(model.ddp, 1));
    RANK_CHECK(muster_ddp_grad_ready(model.ddp, 1, NULL) == MUSTER_EUSAGE);
    RANK_OK(muster_ddp_sync(model.ddp, NULL));
    RANK_OK(muster_ddp_no_sync(model.ddp, 1));
    RANK_CHECK(muster_ddp_sync(model.ddp, NULL) == MUSTER_EUSAGE); /* row 12 */
    RANK_OK(muster_ddp_no_sync(model.ddp, 0));
    RANK_CHECK(muster_ddp_create(m, &bad, 1, NULL, &none) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(m), "'ints'"));
    RANK_CHECK(muster_allreduce(m, NULL, 4, MUSTER_F32, MUSTER_SUM, NULL) ==
               MUSTER_EUSAGE);
    RANK_CHECK(muster_broadcast(m, &rank, 1, MUSTER_I32, 99, NULL) == MUSTER_EUSAGE);
    return end(m, &model);
}

static void row_12_wrong_calls_are_refused_and_nothing_breaks(void **state)
{
    everywhere(misuse_body);
}

static int empty_body(struct muster *m, int rank, void *arg)
{
    struct muster_param p[3] = { { .name = "a", .dtype = MUSTER_F32 },
                                 { .name = "b", .count = 5, .dtype = MUSTER_F64 },
                                 { .name = "c", .dtype = MUSTER_F64 } };
    struct muster_ddp *ddp, *nothing;
    double *g;

    RANK_OK(muster_ddp_create(m, NULL, 0, NULL, &nothing));
    RANK_OK(muster_ddp_sync(nothing, NULL));
    RANK_OK(muster_ddp_broadcast(nothing, 0));
    RANK_OK(muster_ddp_create(m, p, 3, NULL, &ddp));
    g = muster_ddp_grad(ddp, 1);
    for (int i = 2; i >= 0; i--) {
        for (int k = 0; i == 1 && k < 5; k++)
            g[k] = rank;
        RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
    }
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_CHECK(g[4] ==
               (muster_size(m) - 1) * muster_size(m) / 2 * (1.0 / muster_size(m)));
    RANK_OK(muster_allreduce(m, NULL, 0, MUSTER_F32, MUSTER_SUM, NULL));
    muster_ddp_destroy(ddp);
    muster_ddp_destroy(nothing);
    muster_ddp_destroy(NULL);
    return muster_finalize(m);
}

static void row_5_empty_parameters_and_empty_models_work(void **state)
{
    everywhere(empty_body);
}

/* Case 055: 8 ranks with 20000 each in fp16: the sum 160000 is above 65504, the mean
 * not. */
static int half_body(struct muster *m, int rank, void *arg)
{
    struct muster_param p = { .name = "w", .count = 10, .dtype = MUSTER_F16 };
    struct muster_ddp *ddp;
    uint16_t *g;

    RANK_OK(muster_ddp_create(m, &p, 1, NULL, &ddp));
    g = muster_ddp_grad(ddp, 0);
    for (int k = 0; k < 10; k++)
        g[k] = mu_to_f16(20000);
    RANK_OK(muster_ddp_grad_ready(ddp, 0, NULL));
    RANK_OK(muster_ddp_sync(ddp, NULL));
    for (int k = 0; k < 10; k++)
        RANK_CHECK(mu_from_f16(g[k]) == 20000);
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void row_10_fp16_means_do_not_overflow_in_the_sum(void **state)
{
    forked_well("fp16", (struct forked_world){ .size = 8, SMALL_BUCKETS }, half_body,
                NULL);
}

/* ---- Ranks that do not have the same model -------------------------------------- */

struct other {
    const char *name;
    int nparams[2]; /* of the other ranks, of rank 1 */
    const char *pname[2];
    size_t count[2];
    enum muster_dtype dtype[2];
    const char *expect; /* in the sentence */
};

static const struct other others[] = {
    { "another shape",
      { 2, 2 },
      { "w", "w" },
      { 8, 9 },
      { MUSTER_F32, MUSTER_F32 },
      "parameter 1 'w' f32 x 8 on ranks 0, 2 (node a), but parameter 1 'w' f32 x 9 on "
      "rank 1 (node a)" },
    { "row 7: another dtype",
      { 2, 2 },
      { "w", "w" },
      { 8, 8 },
      { MUSTER_F32, MUSTER_BF16 },
      "'w' bf16 x 8 on rank 1" },
    { "row 7: another name",
      { 2, 2 },
      { "w", "v" },
      { 8, 8 },
      { MUSTER_F32, MUSTER_F32 },
      "parameter 1 'v'" },
    { "row 7: one parameter more",
      { 2, 3 },
      { "w", "w" },
      { 8, 8 },
      { MUSTER_F32, MUSTER_F32 },
      "parameter 2 'w' f32 x 8 on rank 1" },
};

static int other_body(struct muster *m, int rank, void *arg)
{
    const struct other *o = arg;
    int side = rank == 1;
    struct muster_param p[3] = { { .name = "first", .count = 4, .dtype = MUSTER_F32 } };
    struct muster_ddp *ddp;

    for (int i = 1; i < 3; i++)
        p[i] = (struct muster_param){ .name = o->pname[side],
                                      .count = o->count[side],
                                      .dtype = o->dtype[side] };
    RANK_CHECK(muster_ddp_create(m, p, o->nparams[side], NULL, &ddp) ==
               MUSTER_ECONTRACT);
    RANK_CHECK(ddp == NULL);
    if (!strstr(muster_error(m), o->expect)) {
        fprintf(stderr, "rank %d: %s\n", rank, muster_error(m));
        return 97;
    }
    return muster_finalize(m);
}

static void
row_7_another_model_is_refused_with_the_parameter_and_the_ranks(void **state)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        forked_well(
            others[i].name,
            (struct forked_world){ .size = 3, .return_failure = true, SMALL_BUCKETS },
            other_body, (void *)(uintptr_t)&others[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_gives_the_mean_on_every_rank),
        cmocka_unit_test(row_16_ranks_may_finish_their_gradients_in_any_order),
        cmocka_unit_test(
            row_1_an_absent_gradient_is_zero_here_and_untouched_if_absent_everywhere),
        cmocka_unit_test(row_3_each_step_has_its_own_bitmap_of_absent_gradients),
        cmocka_unit_test(row_2_gradients_of_earlier_micro_batches_count),
        cmocka_unit_test(row_12_wrong_calls_are_refused_and_nothing_breaks),
        cmocka_unit_test(row_5_empty_parameters_and_empty_models_work),
        cmocka_unit_test(row_10_fp16_means_do_not_overflow_in_the_sum),
        cmocka_unit_test(
            row_7_another_model_is_refused_with_the_parameter_and_the_ranks),
    };

    return cmocka_run_group_tests_name("ddp", tests, NULL, NULL);
}
