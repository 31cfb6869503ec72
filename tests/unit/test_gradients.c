/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gradients.c - weighted means, join, screening, norm, loss scale, compression */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/core/convert.h"
#include "runtime/core/numeric.h"
#include "runtime/core/scaler.h"
#include "runtime/core/weight.h"
#include "tests/unit/forked.h"

enum { N = 4, COUNT = 50 };

static void everywhere(int (*body)(struct muster *m, int rank, void *arg), void *arg)
{
    forked_well("alone", (struct forked_world){ .size = 1, SMALL_BUCKETS }, body, arg);
    forked_well("a node", (struct forked_world){ .size = 3, SMALL_BUCKETS }, body, arg);
    forked_well("nodes", (struct forked_world){ .size = 4, .nodes = 2, SMALL_BUCKETS },
                body, arg);
}

static struct muster_ddp *make(struct muster *m, const struct muster_ddp_options *o,
                               float own[N][COUNT])
{
    static char names[N][8];
    struct muster_param p[N];
    struct muster_ddp *ddp;

    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        p[i] = (struct muster_param){ .name = names[i],
                                      .count = COUNT,
                                      .dtype = MUSTER_F32,
                                      .grad = i % 2 ? own[i] : NULL };
    }
    RANK_OK(muster_ddp_create(m, p, N, o, &ddp));
    return ddp;
}

static float *grad(struct muster_ddp *ddp, int i)
{
    return muster_ddp_grad(ddp, i);
}

static int finish(struct muster *m, struct muster_ddp *ddp)
{
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void all_ready(struct muster *m, struct muster_ddp *ddp)
{
    for (int i = N - 1; i >= 0; i--)
        RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
}

/* ---- Weights ------------------------------------------------------------------------
 */

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

static void a_micro_batch_of_weight_zero_counts_nowhere(void **state)
{
    for (int nodes = 1; nodes <= 2; nodes++)
        forked_well("weight 0",
                    (struct forked_world){ .size = 4, .nodes = nodes, SMALL_BUCKETS },
                    nothing_body, NULL);
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

/* ---- Screening, norm, clipping, loss scale
 * -------------------------------------------- */

static int screen_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    const struct muster_ddp_options o = { .screen = 1 };
    struct muster_ddp *ddp = make(m, &o, own);
    int rc = MUSTER_OK;

    for (int step = 0; step < 3 && rc == MUSTER_OK; step++) {
        if (rank == 2 && step == 1)
            grad(ddp, 1)[17] = NAN;
        for (int i = N - 1; i >= 0 && rc == MUSTER_OK; i--)
            rc = muster_ddp_grad_ready(ddp, i, NULL);
        if (rc == MUSTER_OK)
            rc = muster_ddp_sync(ddp, NULL);
    }
    RANK_CHECK(rc == MUSTER_ENUMERIC);
    if ((!strstr(muster_error(m),
                 "rank 2 (node b): the gradient of 'w1' is nan at element 17") &&
         !strstr(muster_error(m),
                 "rank 2 (node b): the gradient of 'w1' is -nan at element 17")) ||
        !strstr(muster_error(m), " of step 1)")) {
        fprintf(stderr, "%s\n", muster_error(m));
        return 97;
    }
    return 0;
}

static void screening_names_rank_parameter_and_element(void **state)
{
    forked_well("screening",
                (struct forked_world){
                    .size = 4, .nodes = 2, .return_failure = true, SMALL_BUCKETS },
                screen_body, NULL);
}

static int clip_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    const struct muster_ddp_options o = { .shard = arg != NULL };
    struct muster_ddp *ddp = make(m, &o, own);
    struct muster_finish f = { .max_norm = 1 };
    double norm = 3 * sqrt((N - 1) * COUNT), squares = 0;

    for (int i = 0; i < N; i++)
        for (int k = 0; k < COUNT; k++)
            grad(ddp, i)[k] = 3;
    for (int i = N - 1; i > 0;
         i--) /* 0 is absent everywhere: it is no part of the norm */
        RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
    RANK_OK(muster_ddp_sync_with(ddp, &f, NULL));
    RANK_CHECK(fabs(f.norm - norm) < 1e-4 && !f.skip);
    for (int i = 0; i < N; i++)
        RANK_CHECK(muster_ddp_absent(ddp, i) == (i == 0));
    if (!arg) {
        for (int i = 1; i < N; i++)
            squares += mu_sum_squares(grad(ddp, i), MUSTER_F32, COUNT);
        RANK_CHECK(fabs(sqrt(squares) - 1) < 1e-5);
        RANK_CHECK(grad(ddp, 0)[0] == 3);
    }
    return finish(m, ddp);
}

static void clipping_scales_to_the_norm_over_all_gradients(void **state)
{
    static int shard;

    everywhere(clip_body, NULL);
    everywhere(clip_body, &shard);
}

static int scale_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    struct muster_ddp *ddp = make(m, NULL, own);
    struct muster_scaler s = { .scale = 1024, .interval = 2 };
    static const double scales[] = { 1024, 512, 512, 1024 };

    for (int step = 0; step < 4; step++) {
        struct muster_finish f = { .scaler = &s };
        double scale = s.scale;

        for (int i = 0; i < N; i++)
            for (int k = 0; k < COUNT; k++)
                grad(ddp, i)[k] = (float)(0.25 * scale);
        if (step == 1 && rank == muster_size(m) - 1)
            grad(ddp, 2)[7] = INFINITY; /* one rank overflows: all skip */
        all_ready(m, ddp);
        RANK_OK(muster_ddp_sync_with(ddp, &f, NULL));
        RANK_CHECK(f.skip == (step == 1));
        RANK_CHECK(step == 1 || grad(ddp, 3)[7] == 0.25f);
        RANK_CHECK(s.scale == scales[step]);
    }
    RANK_CHECK(s.skipped == 1);
    return finish(m, ddp);
}

static void row_10_an_overflow_on_one_rank_is_skipped_by_all(void **state)
{
    everywhere(scale_body, NULL);
}

/* ---- Compression
 * --------------------------------------------------------------------- */

static int user_reduce(void *arg, struct muster *m, const struct muster_bucket *bucket)
{
    float *x = bucket->data;
    int rc = muster_allreduce(m, x, bucket->count, bucket->dtype, MUSTER_SUM, NULL);

    for (size_t i = 0; i < bucket->count; i++)
        x[i] /= (float)muster_size(m);
    return rc;
}

static float wave(int rank, int step, int k)
{
    return sinf((float)(rank * 7 + step * 3 + k)) * 1000.0f;
}

/* Over many steps the sum of what comes out is the sum of the means: error feedback. */
static int compress_body(struct muster *m, int rank, void *arg)
{
    const struct muster_hook *hook = arg;
    const struct muster_ddp_options o = { .hook = hook };
    enum { ROWS = 40, COLS = 50, STEPS = 60 };
    struct muster_param p[2] = {
        { .name = "bias", .count = 9, .dtype = MUSTER_F32 },
        { .name = "w", .count = ROWS * COLS, .dtype = MUSTER_F32 }
    };
    static double got[ROWS * COLS], want[ROWS * COLS];
    struct muster_ddp *ddp;
    double off = 0, all = 0;

    RANK_OK(muster_ddp_create(m, p, 2, &o, &ddp));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 1; i >= 0; i--) {
            for (size_t k = 0; k < p[i].count; k++)
                grad(ddp, i)[k] = wave(rank, 0, (int)k);
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int k = 0; k < ROWS * COLS; k++) {
            got[k] += grad(ddp, 1)[k];
            for (int r = 0; r < muster_size(m); r++)
                want[k] += wave(r, 0, k) / (double)muster_size(m);
        }
    }
    for (int k = 0; k < ROWS * COLS; k++) {
        off += (got[k] - want[k]) * (got[k] - want[k]);
        all += want[k] * want[k];
    }
    if (!(sqrt(off / all) < 0.02)) {
        fprintf(stderr, "compression %d: off by %g\n", (int)hook->compress,
                sqrt(off / all));
        return 97;
    }
    if (rank == 0)
        fprintf(stderr, "%d: %llu bytes, off by %.5f\n", (int)hook->compress,
                (unsigned long long)muster_ddp_wire_bytes(ddp) / STEPS,
                sqrt(off / all));
    return finish(m, ddp);
}

static const size_t rows[2] = { 0, 40 };

static const struct compress_case {
    const char *name;
    struct muster_hook hook;
    unsigned long long bytes; /* per step, as computed: 2000 + 32 f32 with padding */
} compressions[] = {
    /* bucket 0: w, 8064 bytes (2016 elements); bucket 1: bias, 128 bytes (32) */
    { "bf16", { .compress = MUSTER_COMPRESS_BF16 }, (2016 + 32) * 2 },
    { "f16", { .compress = MUSTER_COMPRESS_F16 }, (2016 + 32) * 2 },
    { "int8", { .compress = MUSTER_COMPRESS_INT8 }, (8 + 1 + 500 + 3) * 4 },
    { "PowerSGD",
      { .compress = MUSTER_COMPRESS_POWERSGD, .rank = 4, .rows = rows },
      ((40 + 50) * 4 + 9) * 4 },
    { "user", { .compress = MUSTER_COMPRESS_USER, .reduce = user_reduce }, 0 },
};

static void compression_keeps_the_mean_and_sends_the_bytes_it_computes(void **state)
{
    for (size_t i = 0; i < sizeof compressions / sizeof compressions[0]; i++) {
        const struct compress_case *t = &compressions[i];
        struct forked_world w = {
            .size = 4, .nodes = 2, .first_bucket = 256, .bucket_cap = 512
        };
        struct forked_result r;
        unsigned long long bytes = 1;
        int which;

        forked_run(&w, compress_body, (void *)(uintptr_t)&t->hook, 60, &r);
        for (int k = 0; k < w.size; k++)
            if (r.status[k] != 0)
                fail_msg("%s: rank %d ended with %d\n%s", t->name, k, r.status[k],
                         r.text);
        assert_int_equal(sscanf(r.text, "%d: %llu bytes", &which, &bytes), 2);
        print_message("# %s: %s", t->name, r.text);
        if (bytes != t->bytes)
            fail_msg("%s: %llu bytes on the wire, not %llu", t->name, bytes, t->bytes);
        forked_clear(&r);
    }
}

/* Where a cast before the division overflows: 4 ranks with 60000 each. */
static int no_overflow_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    const struct muster_hook hook = { .compress = MUSTER_COMPRESS_F16 };
    const struct muster_ddp_options o = { .hook = &hook };
    struct muster_ddp *ddp = make(m, &o, own);

    for (int i = 0; i < N; i++)
        for (int k = 0; k < COUNT; k++)
            grad(ddp, i)[k] = 80000;
    if (rank == 0)
        for (int k = 0; k < COUNT; k++)
            grad(ddp, 1)[k] = grad(ddp, 2)[k] = -80000;
    all_ready(m, ddp);
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_CHECK(muster_size(m) == 1 || fabsf(grad(ddp, 1)[4]) < 65504);
    RANK_CHECK(muster_size(m) != 4 || fabsf(grad(ddp, 1)[4] - 40000) < 40);
    return finish(m, ddp);
}

static void row_10_fp16_compression_divides_before_the_cast(void **state)
{
    forked_well("fp16", (struct forked_world){ .size = 4, SMALL_BUCKETS },
                no_overflow_body, NULL);
}

static void non_finite_elements_are_found_in_every_type(void **state)
{
    float f[4] = { 1, -0.0f, 3.4e38f, INFINITY };
    double d[2] = { 1e308, NAN };
    uint16_t h[3] = { 0x7bff, 0x0001, 0xfc00 }, b[2] = { 0x7f7f, 0x7fc0 };
    int32_t i[2] = { -1, INT32_MAX };

    assert_int_equal(mu_first_nonfinite(f, MUSTER_F32, 4), 3);
    assert_int_equal(mu_first_nonfinite(f, MUSTER_F32, 3), 3);
    assert_int_equal(mu_first_nonfinite(d, MUSTER_F64, 2), 1);
    assert_int_equal(mu_first_nonfinite(h, MUSTER_F16, 3), 2);
    assert_int_equal(mu_first_nonfinite(b, MUSTER_BF16, 2), 1);
    assert_int_equal(mu_first_nonfinite(i, MUSTER_I32, 2), 2);
    assert_int_equal(mu_first_nonfinite(NULL, MUSTER_F32, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_9_unequal_batches_give_the_weighted_mean),
        cmocka_unit_test(a_micro_batch_of_weight_zero_counts_nowhere),
        cmocka_unit_test(equal_weights_give_the_plain_mean_bit_for_bit),
        cmocka_unit_test(row_11_accumulation_weighs_micro_batches_by_their_samples),
        cmocka_unit_test(row_9_a_rank_that_is_out_of_data_joins_with_weight_zero),
        cmocka_unit_test(weights_are_exact_where_they_are_equal),
        cmocka_unit_test(screening_names_rank_parameter_and_element),
        cmocka_unit_test(clipping_scales_to_the_norm_over_all_gradients),
        cmocka_unit_test(row_10_an_overflow_on_one_rank_is_skipped_by_all),
        cmocka_unit_test(compression_keeps_the_mean_and_sends_the_bytes_it_computes),
        cmocka_unit_test(row_10_fp16_compression_divides_before_the_cast),
        cmocka_unit_test(non_finite_elements_are_found_in_every_type),
    };

    return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
