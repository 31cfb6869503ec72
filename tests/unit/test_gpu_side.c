/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gpu_side.c - what the api does on a backend that works elsewhere, as on a GPU
 *
 * The host backend under another name, with a look of its own: the api must leave to it
 * what the CPU could not read on a GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/core/numeric.h"
#include "tests/unit/gradients.h"

static int looks, squares, stages;

static int fake_look(struct mu_backend *b, const struct mu_piece *pieces, int n,
                     enum muster_dtype dtype, uint32_t *found, void *stream,
                     struct mu_err *err)
{
    looks++;
    for (int i = 0; i < n; i++)
        if (mu_first_nonfinite(pieces[i].at, dtype, pieces[i].count) <
                pieces[i].count &&
            *found < (uint32_t)(n - i))
            *found = (uint32_t)(n - i);
    return 0;
}

static int fake_squares(struct mu_backend *b, const void *data, size_t count,
                        enum muster_dtype dtype, double *sums, void *stream,
                        struct mu_err *err)
{
    /* Spread, as a grid does. */
    squares++;
    for (size_t i = 0; i < count; i++)
        sums[i % MU_SQUARES] += mu_element(data, dtype, i) * mu_element(data, dtype, i);
    return 0;
}

static int fake_int8(struct mu_backend *b, enum mu_int8_stage stage,
                     const struct mu_int8_tensor *tensors, int n, int ranks,
                     void *stream, struct mu_err *err)
{
    stages++;
    return mu_backend_host.int8(b, stage, tensors, n, ranks, stream, err);
}

static int fake_lowrank(struct mu_backend *b, enum mu_lowrank_stage stage,
                        const struct mu_lowrank_tensor *tensors, int n, void *stream,
                        struct mu_err *err)
{
    stages++;
    return mu_backend_host.lowrank(b, stage, tensors, n, stream, err);
}

static void fake_kernels(struct muster *m)
{
    struct mu_backend_ops *ops = forked_elsewhere(m);

    ops->find_nonfinite = fake_look;
    ops->squares = fake_squares;
    if (muster_size(m) > 1) {
        ops->int8 = fake_int8;
        ops->lowrank = fake_lowrank;
    }
}

static float value(int rank, int step, int i, int k)
{
    return (float)sin(rank * 3 + step * 5 + i * 7 + k);
}

static void ready(struct muster *m, struct muster_ddp *ddp, int step)
{
    for (int i = N - 1; i >= 0; i--) {
        float *g = grad(ddp, i);

        for (int k = 0; k < COUNT; k++)
            g[k] = value(muster_rank(m), step, i, k);
        RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
    }
}

static int clip_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    const struct muster_ddp_options o = { .shard = arg != NULL };
    struct muster_finish f = { .max_norm = 0.5 };
    struct muster_ddp *ddp;

    fake_kernels(m);
    ddp = make(m, &o, own);
    for (int step = 0; step < 3; step++) {
        double want = 0, after = 0;

        ready(m, ddp, step);
        RANK_OK(muster_ddp_sync_with(ddp, &f, NULL));
        for (int i = 0; i < N; i++)
            for (int k = 0; k < COUNT; k++) {
                double mean = 0, g = grad(ddp, i)[k];

                for (int r = 0; r < muster_size(m); r++)
                    mean += value(r, step, i, k) / muster_size(m);
                want += mean * mean;
                after += g * g;
                if (!o.shard)
                    RANK_CHECK(fabs(g - mean * 0.5 / f.norm) < 1e-5);
            }
        RANK_CHECK(fabs(f.norm - sqrt(want)) < 1e-4 && f.norm > 0.5 && !f.skip);
        RANK_CHECK(o.shard || fabs(sqrt(after) - 0.5) < 1e-4);
    }
    RANK_CHECK(squares >= 3 * muster_ddp_buckets(ddp));
    return finish(m, ddp);
}

static void norm_and_clipping_are_done_where_the_gradients_are(void **state)
{
    forked_well("alone", (struct forked_world){ .size = 1, SMALL_BUCKETS }, clip_body,
                NULL);
    forked_well("plain", (struct forked_world){ .size = 3, SMALL_BUCKETS }, clip_body,
                NULL);
    forked_well("shard", (struct forked_world){ .size = 3, SMALL_BUCKETS }, clip_body,
                state);
}

static int overflow_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    struct muster_scaler scaler = { .scale = 4, .interval = 100 };
    struct muster_finish f = { .scaler = &scaler };
    struct muster_ddp *ddp;

    fake_kernels(m);
    ddp = make(m, NULL, own);
    for (int step = 0; step < 3; step++) {
        for (int i = N - 1; i >= 0; i--) {
            float *g = grad(ddp, i);

            for (int k = 0; k < COUNT; k++)
                g[k] = 4;
            if (step == 1 && rank == 1 && i == 2)
                g[7] = INFINITY;
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync_with(ddp, &f, NULL));
        RANK_CHECK(f.skip == (step == 1));
        RANK_CHECK(scaler.scale == (step == 0 ? 4 : 2));
        if (step == 0)
            RANK_CHECK(grad(ddp, 0)[0] == 1);
    }
    return finish(m, ddp);
}

static void an_overflow_of_one_rank_is_skipped_by_all(void **state)
{
    forked_well("overflow", (struct forked_world){ .size = 3, SMALL_BUCKETS },
                overflow_body, NULL);
}

static int screen_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    const struct muster_ddp_options o = { .screen = 1 };
    int bad = *(int *)arg, rc = MUSTER_OK;
    struct muster_ddp *ddp;

    fake_kernels(m);
    ddp = make(m, &o, own);
    for (int step = 0; step < 2; step++) {
        ready(m, ddp, step);
        RANK_OK(muster_ddp_sync(ddp, NULL));
    }
    RANK_CHECK(looks == 2 * muster_ddp_buckets(ddp));
    for (int i = N - 1; i >= 0 && rc == MUSTER_OK; i--) {
        /* one gradient of the same bucket is absent: it is not counted */
        if (rank == 1 && i == 0 && bad != 0)
            continue;
        grad(ddp, i)[3] = rank == 1 && i == bad ? NAN : 1;
        rc = muster_ddp_grad_ready(ddp, i, NULL);
    }
    if (rc == MUSTER_OK)
        rc = muster_ddp_sync(ddp, NULL);
    if (rc == MUSTER_OK) /* the others hear of it in a step of theirs at the latest */
        for (int step = 2; rc == MUSTER_OK && step < 1000; step++) {
            for (int i = N - 1; i >= 0 && rc == MUSTER_OK; i--)
                rc = muster_ddp_grad_ready(ddp, i, NULL);
            if (rc == MUSTER_OK)
                rc = muster_ddp_sync(ddp, NULL);
        }
    RANK_CHECK(rc == MUSTER_ENUMERIC);
    if (!strstr(muster_error(m), (const char *)arg + sizeof bad)) {
        fprintf(stderr, "%s\n", muster_error(m));
        return 97;
    }
    return 0;
}

static void screening_names_rank_and_parameter_after_the_look(void **state)
{
    struct {
        int bad;
        char text[64];
    } cases[] = { { 3, "rank 1 (node a): the gradient of 'w3' has NaN or Inf" },
                  { 0, "rank 1 (node a): the gradient of 'w0' has NaN or Inf" },
                  { 1, "rank 1 (node a): the gradient of 'w1' has NaN or Inf" },
                  { 4, "rank 1 (node a): the gradient of 'w4' has NaN or Inf" } };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        forked_well(
            cases[i].text,
            (struct forked_world){ .size = 3, .return_failure = true, SMALL_BUCKETS },
            screen_body, &cases[i]);
}

static int compress_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    const struct muster_hook int8 = { .compress = MUSTER_COMPRESS_INT8 };
    const struct muster_ddp_options o = { .hook = &int8 };
    struct muster_ddp *ddp;

    fake_kernels(m);
    ddp = make(m, &o, own);
    for (int step = 0; step < 3; step++) {
        ready(m, ddp, step);
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < N; i++)
            for (int k = 0; k < COUNT; k++) {
                double mean = 0;

                for (int r = 0; r < muster_size(m); r++)
                    mean += value(r, step, i, k) / muster_size(m);
                RANK_CHECK(fabs(grad(ddp, i)[k] - mean) < 0.05);
            }
    }
    RANK_CHECK(stages == 3 * 3 * muster_ddp_buckets(ddp));
    return finish(m, ddp);
}

/* Matrices of 8 x 5 and vectors; what comes is the mean of rank-1 matrices. */
static int factor_body(struct muster *m, int rank, void *arg)
{
    static const size_t rows[N] = { 8, 0, 8, 8, 0 };
    static float own[N][COUNT];
    const struct muster_hook hook = { .compress = MUSTER_COMPRESS_POWERSGD,
                                      .rank = 1,
                                      .rows = rows };
    const struct muster_ddp_options o = { .hook = &hook };
    double mean = 0;
    struct muster_ddp *ddp;

    for (int r = 0; r < muster_size(m); r++)
        mean += (double)(r + 1) / muster_size(m);
    fake_kernels(m);
    ddp = make(m, &o, own);
    for (int step = 0; step < 3; step++) {
        for (int i = N - 1; i >= 0; i--) {
            for (int k = 0; k < COUNT; k++)
                grad(ddp, i)[k] = (float)((rank + 1) * (k / 5 + 1) * (k % 5 - 3));
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < N; i++)
            for (int k = 0; k < COUNT; k++)
                RANK_CHECK(fabs(grad(ddp, i)[k] - mean * (k / 5 + 1) * (k % 5 - 3)) <
                           1e-3);
    }
    RANK_CHECK(stages >= 3 * 3 && stages % 9 == 0);
    return finish(m, ddp);
}

static void compression_is_done_where_the_gradients_are(void **state)
{
    forked_well("int8", (struct forked_world){ .size = 3, SMALL_BUCKETS },
                compress_body, NULL);
    forked_well("PowerSGD", (struct forked_world){ .size = 3, SMALL_BUCKETS },
                factor_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_and_clipping_are_done_where_the_gradients_are),
        cmocka_unit_test(an_overflow_of_one_rank_is_skipped_by_all),
        cmocka_unit_test(screening_names_rank_and_parameter_after_the_look),
        cmocka_unit_test(compression_is_done_where_the_gradients_are),
    };

    return cmocka_run_group_tests_name("gpu_side", tests, NULL, NULL);
}
