/* SPDX-License-Identifier: BSD-3-Clause */
/* test_finish.c - the end of a step: screening, norm, clipping, loss scale */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/numeric.h"
#include "tests/unit/gradients.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(screening_names_rank_parameter_and_element),
        cmocka_unit_test(clipping_scales_to_the_norm_over_all_gradients),
        cmocka_unit_test(row_10_an_overflow_on_one_rank_is_skipped_by_all),
    };

    return cmocka_run_group_tests_name("finish", tests, NULL, NULL);
}
