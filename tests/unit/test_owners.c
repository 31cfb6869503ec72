/* SPDX-License-Identifier: BSD-3-Clause */
/* test_owners.c - a collective belongs to a ddp object, a bucket and a step: one that
 * meets another's is refused, and is never added to it
 */
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

#include "runtime/base/clock.h"
#include "tests/unit/forked.h"
#include "tests/unit/patience.h"
#include "tests/unit/two_models.h"

static int crossed(struct muster *m, struct two *two, bool odd)
{
    int rc = two_backward(m, two, odd);

    rc = rc == MUSTER_OK ? two_backward(m, two, !odd) : rc;
    return rc == MUSTER_OK ? two_sync(two, 0) : rc;
}

static int overtaken(struct muster *m, struct two *two, bool odd)
{
    int rc = two_layers(m, two, 0, 1, 1);

    if (rc == MUSTER_OK && odd)
        rc = two_layers(m, two, 0, 0, 0);
    if (rc == MUSTER_OK)
        rc = two_backward(m, two, 1);
    if (rc == MUSTER_OK && !odd)
        rc = two_layers(m, two, 0, 0, 0);
    return rc == MUSTER_OK ? two_sync(two, 0) : rc;
}

static int beside_plain(struct muster *m, struct two *two, bool odd)
{
    float plain[LAYERS * COUNT];
    int rc = odd ? MUSTER_OK : two_backward(m, two, 0);

    for (int k = 0; k < LAYERS * COUNT; k++)
        plain[k] = 5;
    if (rc == MUSTER_OK)
        rc = muster_allreduce(m, plain, LAYERS * COUNT, MUSTER_F32, MUSTER_SUM, NULL);
    if (rc == MUSTER_OK && odd)
        rc = two_backward(m, two, 0);
    return rc == MUSTER_OK ? muster_ddp_sync(two->ddp[0], NULL) : rc;
}

/* The bucket of a rank that lacks a gradient starts in sync, after the plain
 * all-reduce.
 */
static int absent_before_plain(struct muster *m, struct two *two, bool odd)
{
    float plain[LAYERS * COUNT] = { 0 };
    int rc = two_layers(m, two, 0, 1, odd ? 1 : 0);

    if (rc == MUSTER_OK && odd)
        rc = muster_ddp_grad_absent(two->ddp[0], 0);
    if (rc == MUSTER_OK)
        rc = muster_allreduce(m, plain, LAYERS * COUNT, MUSTER_F32, MUSTER_SUM, NULL);
    return rc == MUSTER_OK ? muster_ddp_sync(two->ddp[0], NULL) : rc;
}

static int weighted(struct muster *m, struct two *two, bool odd)
{
    int rc = MUSTER_OK;

    for (int k = 0; k < MODELS && rc == MUSTER_OK; k++)
        rc = muster_ddp_weight(two->ddp[odd ? MODELS - 1 - k : k], k + 1);
    for (int d = 0; d < MODELS && rc == MUSTER_OK; d++)
        rc = two_backward(m, two, d);
    return rc == MUSTER_OK ? two_sync(two, 0) : rc;
}

static const struct row {
    const char *name;
    int (*call)(struct muster *m, struct two *two, bool odd);
    const char *one, *other;
    bool one_bucket; /* holds all layers */
} rows[] = {
    { "gradients of two models become ready in another order on one rank", crossed,
      "bucket 0 of ddp object 2 in step 1", "bucket 0 of ddp object 1 in step 1",
      false },
    { "a model overtakes another between two of its buckets", overtaken,
      "of ddp object 2 in step 1", "of ddp object 1 in step 1", false },
    { "a plain all-reduce of the size of a bucket comes before it on one rank",
      beside_plain, "bucket 0 of ddp object 1 in step 1", "all-reduce of 2048 f32",
      true },
    { "a plain all-reduce comes between grad_ready and sync, and one rank lacks a "
      "gradient",
      absent_before_plain, "bucket 0 of ddp object 1 in step 1",
      "all-reduce of 2048 f32", true },
    { "the weights of two models are given in another order on one rank", weighted,
      "weights of ddp object 2 in step 1", "weights of ddp object 1 in step 1", false },
};

struct job {
    const struct row *row;
    bool blind; /* the backend does not compare */
};

static int refused_body(struct muster *m, int rank, void *arg)
{
    const struct job *job = arg;
    struct two two;
    double begin = mu_clock_s();
    int rc;

    if (job->blind)
        two_make_blind(m);
    two = two_make(m);
    RANK_CHECK(two_backward(m, &two, 0) == MUSTER_OK);
    RANK_CHECK(two_backward(m, &two, 1) == MUSTER_OK);
    RANK_OK(two_sync(&two, 0));
    rc = job->row->call(m, &two, rank == 1);
    if (rc != MUSTER_ECONTRACT || mu_clock_s() - begin > PATIENCE) {
        fprintf(stderr, "rank %d: status %d: %s\n", rank, rc, muster_error(m));
        return 97;
    }
    if (job->blind && job->row->call != weighted)
        RANK_CHECK(strstr(muster_error(m), "in a different order"));
    else
        RANK_CHECK(strstr(muster_error(m), job->row->one) &&
                   strstr(muster_error(m), job->row->other));
    RANK_CHECK(strstr(muster_error(m), "rank 1"));
    return 0;
}

static void refuse_all(bool blind)
{
    static const struct forked_world worlds[] = {
        { .size = 2, .nodes = 1 },
        { .size = 3, .nodes = 1, .force_tcp = true },
        { .size = 4, .nodes = 2 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t k = 0; k < sizeof worlds / sizeof worlds[0]; k++) {
            struct forked_world w = worlds[k];
            struct job job = { &rows[i], blind };

            /* On a GPU this all-reduce returns at once; here it would wait. */
            if (blind && rows[i].call == absent_before_plain)
                continue;
            w.return_failure = true;
            w.first_bucket = w.bucket_cap = COUNT * sizeof(float);
            if (rows[i].one_bucket)
                w.first_bucket = w.bucket_cap = LAYERS * COUNT * sizeof(float);
            forked_well(rows[i].name, w, refused_body, &job);
        }
}

static void a_collective_that_meets_another_objects_is_refused(void **state)
{
    refuse_all(false);
}

static void a_backend_that_does_not_compare_is_refused_in_sync(void **state)
{
    refuse_all(true);
}

/* Two nets of one shape; each rank draws which of them is done first. */
static int twins_body(struct muster *m, int rank, void *arg)
{
    struct two two = two_make(m);
    int rc = MUSTER_OK;

    srand(100 + (unsigned)rank);
    for (int step = 0; step < 50 && rc == MUSTER_OK; step++) {
        int first = rand() % 2;

        rc = two_backward(m, &two, first);
        rc = rc == MUSTER_OK ? two_backward(m, &two, 1 - first) : rc;
        rc = rc == MUSTER_OK ? two_sync(&two, 0) : rc;
        for (int d = 0; d < MODELS && rc == MUSTER_OK; d++)
            RANK_CHECK(two_is_mean(m, &two, d));
    }
    RANK_CHECK(rc == MUSTER_ECONTRACT);
    return 0;
}

static void c081_twins_in_random_order_are_refused_before_a_mean_is_wrong(void **state)
{
    for (int nodes = 1; nodes <= 2; nodes++)
        forked_well(
            "twins",
            (struct forked_world){ .size = 4, .nodes = nodes, .return_failure = true },
            twins_body, NULL);
}

static int same_order_body(struct muster *m, int rank, void *arg)
{
    struct two two;
    float sum[2] = { 0 };

    if (arg)
        two_make_blind(m);
    two = two_make(m);
    for (int step = 0; step < 6; step++) {
        bool early = rank % 2 && step % 2;

        RANK_OK(two_layers(m, &two, 0, 1, 1));
        RANK_OK(two_layers(m, &two, 1, 1, 1));
        RANK_OK(two_layers(m, &two, 0, 0, 0));
        /* before or behind the sync of the other one: the buckets start in one order */
        if (step >= 3 && early)
            RANK_OK(muster_ddp_sync(two.ddp[0], NULL));
        RANK_OK(two_layers(m, &two, 1, 0, 0));
        if (step < 3)
            RANK_OK(two_sync(&two, 1));
        else if (!early)
            RANK_OK(muster_ddp_sync(two.ddp[0], NULL));
        if (step >= 3)
            RANK_OK(muster_ddp_sync(two.ddp[1], NULL));
        if (!arg)
            RANK_CHECK(two_is_mean(m, &two, 0) && two_is_mean(m, &two, 1));
        sum[0] = 1;
        RANK_OK(muster_allreduce(m, sum, 1, MUSTER_F32, MUSTER_SUM, NULL));
        RANK_CHECK(sum[0] == (float)muster_size(m));
    }
    return two_end(m, &two);
}

static void objects_in_one_order_are_averaged_whichever_is_synced_first(void **state)
{
    static int blind;

    for (int nodes = 1; nodes <= 2; nodes++)
        for (int k = 0; k < 2; k++)
            forked_well("one order",
                        (struct forked_world){ .size = 4,
                                               .nodes = nodes,
                                               .first_bucket = COUNT * sizeof(float),
                                               .bucket_cap = COUNT * sizeof(float) },
                        same_order_body, k ? &blind : NULL);
}

/* Ranks lack gradients, each another one, while the second model waits. */
static int lacking_body(struct muster *m, int rank, void *arg)
{
    struct two two;

    two_make_blind(m);
    two = two_make(m);
    for (int step = 0; step < 4; step++) {
        RANK_OK(two_layers(m, &two, 0, 1, rank == 1 ? 1 : 0));
        RANK_OK(muster_ddp_sync(two.ddp[0], NULL));
        RANK_OK(two_layers(m, &two, 1, 1, rank == 2 ? 1 : 0));
        RANK_OK(muster_ddp_sync(two.ddp[1], NULL));
    }
    return two_end(m, &two);
}

static void a_rank_that_lacks_a_gradient_keeps_the_order(void **state)
{
    forked_well("lacking",
                (struct forked_world){ .size = 3,
                                       .first_bucket = COUNT * sizeof(float),
                                       .bucket_cap = COUNT * sizeof(float) },
                lacking_body, NULL);
}

/* ---- A communicator of its own ---- */

static int open_group(struct muster *m, struct muster **out)
{
    return muster_split(m, 0, 0, "own", out);
}

/* The size of a bucket that holds all layers. */
static void own_sum(struct muster *m, struct muster *own)
{
    static float x[LAYERS * COUNT];
    int size = muster_size(m);
    float sum = (float)(size * (size + 1) / 2);

    for (int k = 0; k < LAYERS * COUNT; k++)
        x[k] = (float)(muster_rank(m) + 1);
    RANK_OK(muster_allreduce(own, x, LAYERS * COUNT, MUSTER_F32, MUSTER_SUM, NULL));
    for (int k = 0; k < LAYERS * COUNT; k++)
        RANK_CHECK(x[k] == sum);
}

/* The mean of layer 0, to which the rank that lacks it gives 0. */
static bool is_mean_without(struct muster *m, struct two *two, int lacking)
{
    const float *grad = muster_ddp_grad(two->ddp[0], 0);
    float sum = 0;

    for (int r = 0; r < muster_size(m); r++)
        sum += r == lacking ? 0 : (float)(100 + r);
    for (int k = 0; k < COUNT; k++)
        if (fabsf(grad[k] - sum / (float)muster_size(m)) > 1e-4f)
            return false;
    return true;
}

/* A rank that lacks its gradient starts the bucket in sync, the others before their own
 * all-reduce. In every other step it declares the gradient absent.
 */
static int own_body(struct muster *m, int rank, void *arg)
{
    int (*const *open)(struct muster * m, struct muster * *out) = arg;
    struct two two = two_make(m);
    struct muster *own;

    RANK_OK((*open)(m, &own));
    for (int step = 0; step < 6; step++) {
        int lacking = step % muster_size(m);
        const float *layer_1 = muster_ddp_grad(two.ddp[0], 1);

        RANK_OK(two_layers(m, &two, 0, 1, rank == lacking ? 1 : 0));
        own_sum(m, own);
        if (rank == lacking && step % 2)
            RANK_OK(muster_ddp_grad_absent(two.ddp[0], 0));
        own_sum(m, own);
        RANK_OK(muster_ddp_sync(two.ddp[0], NULL));
        RANK_CHECK(is_mean_without(m, &two, lacking));
        RANK_CHECK(layer_1[0] == 100 + (float)(muster_size(m) - 1) / 2);
    }
    RANK_OK(muster_finalize(own));
    return two_end(m, &two);
}

static void on_its_own(const char *what,
                       int (*open)(struct muster *m, struct muster **out))
{
    static const struct forked_world worlds[] = {
        { .size = 2, .nodes = 1 },
        { .size = 3, .nodes = 1, .force_tcp = true },
        { .size = 4, .nodes = 2 },
    };

    for (size_t k = 0; k < sizeof worlds / sizeof worlds[0]; k++)
        for (int layers = 1; layers <= LAYERS; layers++) {
            struct forked_world w = worlds[k];

            w.timeout = 20 * PATIENCE;
            w.first_bucket = w.bucket_cap = (size_t)layers * COUNT * sizeof(float);
            forked_well(what, w, own_body, &open);
        }
}

static void a_group_takes_collectives_while_a_gradient_is_lacking(void **state)
{
    on_its_own("a group", open_group);
}

static void a_second_world_takes_collectives_while_a_gradient_is_lacking(void **state)
{
    on_its_own("a second world", forked_second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_collective_that_meets_another_objects_is_refused),
        cmocka_unit_test(a_backend_that_does_not_compare_is_refused_in_sync),
        cmocka_unit_test(c081_twins_in_random_order_are_refused_before_a_mean_is_wrong),
        cmocka_unit_test(objects_in_one_order_are_averaged_whichever_is_synced_first),
        cmocka_unit_test(a_rank_that_lacks_a_gradient_keeps_the_order),
        cmocka_unit_test(a_group_takes_collectives_while_a_gradient_is_lacking),
        cmocka_unit_test(a_second_world_takes_collectives_while_a_gradient_is_lacking),
    };

    return cmocka_run_group_tests_name("owners", tests, NULL, NULL);
}
