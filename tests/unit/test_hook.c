/* SPDX-License-Identifier: BSD-3-Clause */
/* test_hook.c - compression over forked ranks: absent gradients, NaN, own hooks */
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
#include "tests/unit/forked.h"

enum { ROWS = 24, COLS = 20, NPARAMS = 4 };

/* Matrices w0 and w3, vectors b1 and b2; w3 and b1 in buffers of the caller. */
static const size_t count[NPARAMS] = { ROWS * COLS, 9, 300, ROWS *COLS };
static const size_t rows[NPARAMS] = { ROWS, 0, 0, ROWS };

static int user_reduce(void *arg, struct muster *m, const struct muster_bucket *bucket)
{
    float *x = bucket->data;
    int rc = muster_allreduce(m, x, bucket->count, bucket->dtype, MUSTER_SUM,
                              bucket->stream);

    for (size_t i = 0; i < bucket->count; i++)
        x[i] /= (float)muster_size(m);
    return rc;
}

struct hook_case {
    const char *name;
    struct muster_hook hook;
    double bound; /* of the relative error of one step, of a matrix of rank 1 */
};

static const struct hook_case hooks[] = {
    { "bf16", { .compress = MUSTER_COMPRESS_BF16 }, 0.01 },
    { "fp16", { .compress = MUSTER_COMPRESS_F16 }, 0.001 },
    { "int8", { .compress = MUSTER_COMPRESS_INT8 }, 0.06 },
    { "PowerSGD",
      { .compress = MUSTER_COMPRESS_POWERSGD, .rank = 2, .rows = rows },
      1e-4 },
    { "user", { .compress = MUSTER_COMPRESS_USER, .reduce = user_reduce }, 1e-6 },
};
enum { HOOKS = sizeof hooks / sizeof hooks[0] };

/* Buckets: one for all, and one for each. */
static void every_hook(int (*body)(struct muster *m, int rank, void *arg))
{
    for (int i = 0; i < HOOKS; i++) {
        forked_well(hooks[i].name, (struct forked_world){ .size = 3 }, body,
                    (void *)(uintptr_t)&hooks[i]);
        forked_well(hooks[i].name,
                    (struct forked_world){ .size = 4, .nodes = 2, SMALL_BUCKETS }, body,
                    (void *)(uintptr_t)&hooks[i]);
    }
}

static struct muster_ddp *make(struct muster *m, const struct muster_hook *hook)
{
    static const char *const names[NPARAMS] = { "w0", "b1", "b2", "w3" };
    static float own[NPARAMS][ROWS * COLS];
    const struct muster_ddp_options o = { .hook = hook };
    struct muster_param p[NPARAMS] = { { 0 } };
    struct muster_ddp *ddp;

    for (int i = 0; i < NPARAMS; i++) {
        p[i].name = names[i];
        p[i].count = count[i];
        p[i].grad = i % 2 ? own[i] : NULL;
    }
    RANK_OK(muster_ddp_create(m, p, NPARAMS, &o, &ddp));
    return ddp;
}

static int done(struct muster *m, struct muster_ddp *ddp)
{
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static float *grad(struct muster_ddp *ddp, int i)
{
    return muster_ddp_grad(ddp, i);
}

/* A matrix of rank 1 (of all ranks together, too). */
static float value(int rank, size_t k)
{
    return (float)(rank + 1) * 0.5f * ((float)(k / COLS) - 7.5f) *
           ((float)(k % COLS) - 3.2f);
}

static void fill(struct muster *m, struct muster_ddp *ddp, int i)
{
    for (size_t k = 0; k < count[i]; k++)
        grad(ddp, i)[k] = value(muster_rank(m), k);
}

static double relative_error(struct muster *m, struct muster_ddp *ddp, int i,
                             unsigned present)
{
    double off = 0, all = 1e-30;

    for (size_t k = 0; k < count[i]; k++) {
        double mean = 0;

        for (int r = 0; r < muster_size(m); r++)
            mean += present >> r & 1 ? (double)value(r, k) / muster_size(m) : 0;
        off += pow(grad(ddp, i)[k] - mean, 2);
        all += mean * mean;
    }
    return sqrt(off / all);
}

/* w3 and b2 come from nobody in the odd steps, b1 and w0 from rank 0 alone. */
static int absent_body(struct muster *m, int rank, void *arg)
{
    const struct hook_case *t = arg;
    struct muster_ddp *ddp = make(m, &t->hook);

    for (int step = 0; step < 6; step++) {
        bool all = step % 2 == 0;

        for (int i = NPARAMS - 1; i >= 0; i--) {
            fill(m, ddp, i);
            if (!all && i >= 2) /* what must stay, though it is not fit for sums */
                grad(ddp, i)[5] = rank == 1 ? NAN : 1e30f;
            if (all || (i < 2 && rank == 0))
                RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < NPARAMS; i++) {
            if (all || i < 2) {
                double off = relative_error(m, ddp, i, all ? ~0u : 1);

                /* What int8 left of a step before, relative to a smaller one. */
                if (!(off < t->bound * 4)) {
                    fprintf(stderr, "step %d, parameter %d: off by %g\n", step, i, off);
                    return 97;
                }
                continue;
            }
            for (size_t k = 0; k < count[i]; k++)
                RANK_CHECK(k == 5 ? (rank == 1 ? isnan(grad(ddp, i)[5]) != 0
                                               : grad(ddp, i)[5] == 1e30f)
                                  : grad(ddp, i)[k] == value(rank, k));
        }
    }
    return done(m, ddp);
}

static void row_1_an_absent_gradient_counts_as_zero_or_stays(void **state)
{
    every_hook(absent_body);
}

/* All ranks get the same bits. */
static int same_body(struct muster *m, int rank, void *arg)
{
    const struct hook_case *t = arg;
    struct muster_ddp *ddp = make(m, &t->hook);
    float all[8 * 300];

    for (int step = 0; step < 3; step++) {
        for (int i = NPARAMS - 1; i >= 0; i--) {
            for (size_t k = 0; k < count[i]; k++)
                grad(ddp, i)[k] = sinf((float)(k * k + (size_t)rank)) * 3;
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < NPARAMS; i++) {
            size_t n = count[i] < 300 ? count[i] : 300;

            RANK_OK(muster_allgather(m, grad(ddp, i), all, n, MUSTER_F32, NULL));
            for (int r = 0; r < muster_size(m); r++)
                RANK_CHECK(memcmp(all, all + (size_t)r * n, n * sizeof *all) == 0);
        }
    }
    return done(m, ddp);
}

static void all_ranks_have_the_same_bits(void **state)
{
    every_hook(same_body);
}

/* Rank 1 overflows in step 1: everybody sees it, and step 2 knows nothing of it. */
static int nan_body(struct muster *m, int rank, void *arg)
{
    const struct hook_case *t = arg;
    struct muster_ddp *ddp = make(m, &t->hook);

    for (int step = 0; step < 4; step++) {
        for (int i = NPARAMS - 1; i >= 0; i--) {
            fill(m, ddp, i);
            if (step == 1 && rank == 1)
                grad(ddp, i)[8] = i % 2 ? NAN : INFINITY;
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < NPARAMS; i++)
            if (step == 1) {
                RANK_CHECK(!isfinite(grad(ddp, i)[8]));
            } else {
                double off = relative_error(m, ddp, i, ~0u);

                if (!(off < t->bound * 2)) {
                    fprintf(stderr, "step %d, parameter %d: off by %g\n", step, i, off);
                    return 97;
                }
            }
    }
    return done(m, ddp);
}

static void nan_is_seen_by_all_ranks_and_gone_in_the_next_step(void **state)
{
    every_hook(nan_body);
}

/* The same gradients, of full rank, again and again: what one step does not send comes
 * in later ones, so the mean over steps is the mean over ranks.
 */
static int feedback_body(struct muster *m, int rank, void *arg)
{
    const struct hook_case *t = arg;
    struct muster_ddp *ddp = make(m, &t->hook);
    static double came[NPARAMS][ROWS * COLS];
    double off = 0, all = 0, first = 0;
    enum { STEPS = 200 };

    for (int step = 1; step <= STEPS; step++) {
        for (int i = NPARAMS - 1; i >= 0; i--) {
            for (size_t k = 0; k < count[i]; k++)
                grad(ddp, i)[k] = sinf((float)(k * k + (size_t)rank));
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        off = all = 0;
        for (int i = 0; i < NPARAMS; i++)
            for (size_t k = 0; k < count[i]; k++) {
                double mean = 0;

                for (int r = 0; r < muster_size(m); r++)
                    mean += (double)sinf((float)(k * k + (size_t)r)) / muster_size(m);
                came[i][k] += grad(ddp, i)[k];
                off += pow(came[i][k] / step - mean, 2);
                all += mean * mean;
            }
        first = step == 1 ? sqrt(off / all) : first;
    }
    if (!(sqrt(off / all) < 0.12 && sqrt(off / all) <= first / 5)) {
        fprintf(stderr, "off by %g, then %g\n", first, sqrt(off / all));
        return 97;
    }
    return done(m, ddp);
}

static void what_a_step_does_not_send_comes_in_later_ones(void **state)
{
    forked_well(hooks[2].name, (struct forked_world){ .size = 2 }, feedback_body,
                (void *)(uintptr_t)&hooks[2]);
    forked_well(hooks[3].name,
                (struct forked_world){ .size = 4, .nodes = 2, SMALL_BUCKETS },
                feedback_body, (void *)(uintptr_t)&hooks[3]);
}

/* A loss scale that doubles in each step changes nothing, to the bit, if what was left
 * of smaller gradients doubles too.
 */
static int scaled_body(struct muster *m, int rank, void *arg)
{
    const struct hook_case *t = arg;
    struct muster_ddp *ddp[2];
    struct muster_scaler s = { .scale = 1, .interval = 1 };

    for (int d = 0; d < 2; d++) {
        const struct muster_ddp_options o = { .hook = &t->hook };
        struct muster_param p = { .name = "w",
                                  .count = ROWS * COLS,
                                  .dtype = MUSTER_F32 };

        RANK_OK(muster_ddp_create(m, &p, 1, &o, &ddp[d]));
    }
    for (int step = 0; step < 12; step++) {
        struct muster_finish f[2] = { { .max_norm = 0 }, { .scaler = &s } };
        double scale[2] = { 1, s.scale };

        for (int d = 0; d < 2; d++) {
            for (size_t k = 0; k < ROWS * COLS; k++)
                grad(ddp[d], 0)[k] =
                    sinf((float)(k * k + (size_t)rank)) * (float)scale[d];
            RANK_OK(muster_ddp_grad_ready(ddp[d], 0, NULL));
            RANK_OK(muster_ddp_sync_with(ddp[d], &f[d], NULL));
        }
        RANK_CHECK(s.scale == 2 * scale[1]);
        RANK_CHECK(memcmp(grad(ddp[0], 0), grad(ddp[1], 0), ROWS * COLS * 4) == 0);
        RANK_CHECK(f[0].norm == f[1].norm && f[0].norm > 1);
    }
    muster_ddp_destroy(ddp[1]);
    return done(m, ddp[0]);
}

static void row_10_what_is_left_follows_the_loss_scale(void **state)
{
    forked_well(hooks[2].name, (struct forked_world){ .size = 2 }, scaled_body,
                (void *)(uintptr_t)&hooks[2]);
    forked_well(hooks[3].name, (struct forked_world){ .size = 2 }, scaled_body,
                (void *)(uintptr_t)&hooks[3]);
}

/* A matrix of rank 1 and a vector of 16 bits: what comes is their mean, to their
 * precision, and the same on all ranks.
 */
static int narrow_body(struct muster *m, int rank, void *arg)
{
    const enum muster_dtype dtype = *(const enum muster_dtype *)arg;
    static const size_t of_first[2] = { ROWS, 0 };
    const struct muster_hook hook = { .compress = MUSTER_COMPRESS_POWERSGD,
                                      .rank = 1,
                                      .rows = of_first };
    const struct muster_ddp_options o = { .hook = &hook };
    struct muster_param p[2] = {
        { .name = "w", .count = ROWS * COLS, .dtype = dtype },
        { .name = "b", .count = ROWS * COLS, .dtype = dtype }
    };
    struct muster_ddp *ddp;
    float *seen = calloc(ROWS * COLS, sizeof *seen);

    RANK_OK(muster_ddp_create(m, p, 2, &o, &ddp));
    for (int step = 0; step < 3; step++) {
        for (int i = 1; i >= 0; i--) {
            uint16_t *g = muster_ddp_grad(ddp, i);

            for (size_t k = 0; k < ROWS * COLS; k++)
                g[k] = dtype == MUSTER_F16 ? mu_to_f16(value(rank, k))
                                           : mu_to_bf16(value(rank, k));
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < 2; i++) {
            double off = 0, all = 0;

            RANK_OK(mu_convert(seen, MUSTER_F32, muster_ddp_grad(ddp, i), dtype,
                               ROWS * COLS, 1, NULL));
            for (size_t k = 0; k < ROWS * COLS; k++) {
                double mean = 0;

                for (int r = 0; r < muster_size(m); r++)
                    mean += (double)value(r, k) / muster_size(m);
                off += pow(seen[k] - mean, 2);
                all += mean * mean;
            }
            RANK_CHECK(sqrt(off / all) < (dtype == MUSTER_F16 ? 1e-3 : 8e-3));
            RANK_OK(
                muster_allreduce(m, seen, ROWS * COLS, MUSTER_F32, MUSTER_MAX, NULL));
            for (size_t k = 0; k < ROWS * COLS; k++) {
                uint16_t mine = ((uint16_t *)muster_ddp_grad(ddp, i))[k];

                RANK_CHECK(seen[k] == (dtype == MUSTER_F16 ? mu_from_f16(mine)
                                                           : mu_from_bf16(mine)));
            }
        }
    }
    free(seen);
    return done(m, ddp);
}

static void powersgd_takes_16_bits(void **state)
{
    static const enum muster_dtype dtypes[] = { MUSTER_F16, MUSTER_BF16 };

    for (int i = 0; i < 2; i++)
        forked_well("16 bits", (struct forked_world){ .size = 3 }, narrow_body,
                    (void *)(uintptr_t)&dtypes[i]);
}

/* ---- The user's own ---------------------------------------------------------------
 */

static int failing_reduce(void *arg, struct muster *m, const struct muster_bucket *b)
{
    ++*(int *)arg;
    return b->index == 1 ? 77 : MUSTER_OK;
}

static int failing_body(struct muster *m, int rank, void *arg)
{
    int calls = 0;
    const struct muster_hook hook = { .compress = MUSTER_COMPRESS_USER,
                                      .reduce = failing_reduce,
                                      .arg = &calls };
    struct muster_ddp *ddp = make(m, &hook);

    for (int i = NPARAMS - 1; i >= 0; i--) {
        fill(m, ddp, i);
        RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
    }
    RANK_CHECK(calls == 0);
    RANK_CHECK(muster_ddp_sync(ddp, NULL) == MUSTER_EUSAGE && calls == 2);
    RANK_CHECK(strstr(muster_error(m), "the user hook returned 77 for bucket 1"));
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void a_hook_that_fails_ends_sync_with_its_bucket(void **state)
{
    forked_well("failing hook", (struct forked_world){ .size = 2, SMALL_BUCKETS },
                failing_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_1_an_absent_gradient_counts_as_zero_or_stays),
        cmocka_unit_test(all_ranks_have_the_same_bits),
        cmocka_unit_test(nan_is_seen_by_all_ranks_and_gone_in_the_next_step),
        cmocka_unit_test(what_a_step_does_not_send_comes_in_later_ones),
        cmocka_unit_test(row_10_what_is_left_follows_the_loss_scale),
        cmocka_unit_test(powersgd_takes_16_bits),
        cmocka_unit_test(a_hook_that_fails_ends_sync_with_its_bucket),
    };

    return cmocka_run_group_tests_name("hook", tests, NULL, NULL);
}
