/* SPDX-License-Identifier: BSD-3-Clause */
/* test_owners.c - a collective belongs to a ddp object, a bucket and a step: one that
 * meets another's is refused, and is never added to it
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/api/ddp.h"
#include "tests/unit/forked.h"
#include "tests/unit/patience.h"

enum { COUNT = 1024, MODELS = 2, LAYERS = 2 };

struct two {
    struct muster_ddp *ddp[MODELS];
};

static struct two make_two(struct muster *m)
{
    static const struct muster_param params[LAYERS] = {
        { "a", COUNT, MUSTER_F32, NULL, NULL, 0 },
        { "b", COUNT, MUSTER_F32, NULL, NULL, 0 }
    };
    struct two two;

    for (int d = 0; d < MODELS; d++)
        RANK_OK(muster_ddp_create(m, params, LAYERS, NULL, &two.ddp[d]));
    return two;
}

static int end_two(struct muster *m, struct two *two)
{
    for (int d = 0; d < MODELS; d++)
        muster_ddp_destroy(two->ddp[d]);
    return muster_finalize(m);
}

/* The gradients of layers from .. to (downwards) of model d on this rank. */
static int layers(struct muster *m, struct two *two, int d, int from, int to)
{
    int rc = MUSTER_OK;

    for (int i = from; i >= to && rc == MUSTER_OK; i--) {
        float *grad = muster_ddp_grad(two->ddp[d], i);

        for (int k = 0; k < COUNT; k++)
            grad[k] = (float)((d + 1) * 100 + muster_rank(m));
        rc = muster_ddp_grad_ready(two->ddp[d], i, NULL);
    }
    return rc;
}

static int backward(struct muster *m, struct two *two, int d)
{
    return layers(m, two, d, LAYERS - 1, 0);
}

static bool is_mean(struct muster *m, struct two *two, int d)
{
    const float *grad = muster_ddp_grad(two->ddp[d], 0);
    float mean = (float)((d + 1) * 100) + (float)(muster_size(m) - 1) / 2;

    return grad[0] == mean && grad[COUNT - 1] == mean;
}

static int sync_two(struct two *two, int first)
{
    int rc = muster_ddp_sync(two->ddp[first], NULL);

    return rc == MUSTER_OK ? muster_ddp_sync(two->ddp[1 - first], NULL) : rc;
}

/* ---- Refused ----------------------------------------------------------------------
 */

static int crossed(struct muster *m, struct two *two, bool odd)
{
    int rc = backward(m, two, odd);

    rc = rc == MUSTER_OK ? backward(m, two, !odd) : rc;
    return rc == MUSTER_OK ? sync_two(two, 0) : rc;
}

static int overtaken(struct muster *m, struct two *two, bool odd)
{
    int rc = layers(m, two, 0, 1, 1);

    if (rc == MUSTER_OK && odd)
        rc = layers(m, two, 0, 0, 0);
    if (rc == MUSTER_OK)
        rc = backward(m, two, 1);
    if (rc == MUSTER_OK && !odd)
        rc = layers(m, two, 0, 0, 0);
    return rc == MUSTER_OK ? sync_two(two, 0) : rc;
}

static int beside_plain(struct muster *m, struct two *two, bool odd)
{
    float plain[LAYERS * COUNT];
    int rc = odd ? MUSTER_OK : backward(m, two, 0);

    for (int k = 0; k < LAYERS * COUNT; k++)
        plain[k] = 5;
    if (rc == MUSTER_OK)
        rc = muster_allreduce(m, plain, LAYERS * COUNT, MUSTER_F32, MUSTER_SUM, NULL);
    if (rc == MUSTER_OK && odd)
        rc = backward(m, two, 0);
    return rc == MUSTER_OK ? muster_ddp_sync(two->ddp[0], NULL) : rc;
}

static const struct row {
    const char *name;
    int (*call)(struct muster *m, struct two *two, bool odd);
    const char *one, *other;
} rows[] = {
    { "gradients of two models become ready in another order on one rank", crossed,
      "bucket 0 of ddp object 2 in step 1", "bucket 0 of ddp object 1 in step 1" },
    { "a model overtakes another between two of its buckets", overtaken,
      "of ddp object 2 in step 1", "of ddp object 1 in step 1" },
    { "a plain all-reduce of the size of a bucket comes before it on one rank",
      beside_plain, "bucket 0 of ddp object 1 in step 1", "all-reduce of 2048 f32" },
};

struct job {
    const struct row *row;
    bool blind; /* the backend does not compare */
};

static int (*real_start)(struct mu_backend *b, const struct mu_coll *coll,
                         struct mu_request **out, struct mu_err *err);

/* As NCCL takes it: count and type decide, and nothing else is looked at. */
static int blind_start(struct mu_backend *b, const struct mu_coll *coll,
                       struct mu_request **out, struct mu_err *err)
{
    struct mu_coll c = *coll;

    c.owner = (struct mu_owner){ 0 };
    c.scale = 1;
    return real_start(b, &c, out, err);
}

static void make_blind(struct muster *m)
{
    struct mu_backend_ops *ops = forked_elsewhere(m);

    real_start = ops->start;
    ops->start = blind_start;
    ops->compares = false;
}

static int refused_body(struct muster *m, int rank, void *arg)
{
    const struct job *job = arg;
    struct two two = make_two(m);
    double begin = forked_now();
    int rc;

    if (job->blind)
        make_blind(m);
    RANK_CHECK(backward(m, &two, 0) == MUSTER_OK);
    RANK_CHECK(backward(m, &two, 1) == MUSTER_OK);
    RANK_OK(sync_two(&two, 0));
    rc = job->row->call(m, &two, rank == 1);
    if (rc != MUSTER_ECONTRACT || forked_now() - begin > PATIENCE) {
        fprintf(stderr, "rank %d: status %d: %s\n", rank, rc, muster_error(m));
        return 97;
    }
    if (job->blind)
        RANK_CHECK(strstr(muster_error(m), "in another order"));
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

            w.return_failure = true;
            w.first_bucket = w.bucket_cap = COUNT * sizeof(float);
            if (rows[i].call == beside_plain)
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
    struct two two = make_two(m);
    int rc = MUSTER_OK;

    srand(100 + (unsigned)rank);
    for (int step = 0; step < 50 && rc == MUSTER_OK; step++) {
        int first = rand() % 2;

        rc = backward(m, &two, first);
        rc = rc == MUSTER_OK ? backward(m, &two, 1 - first) : rc;
        rc = rc == MUSTER_OK ? sync_two(&two, 0) : rc;
        for (int d = 0; d < MODELS && rc == MUSTER_OK; d++)
            RANK_CHECK(is_mean(m, &two, d));
    }
    RANK_CHECK(rc == MUSTER_ECONTRACT);
    return 0;
}

static void twins_in_random_order_are_refused_before_a_mean_is_wrong(void **state)
{
    for (int nodes = 1; nodes <= 2; nodes++)
        forked_well(
            "twins",
            (struct forked_world){ .size = 4, .nodes = nodes, .return_failure = true },
            twins_body, NULL);
}

/* ---- Legal ------------------------------------------------------------------------
 */

static int same_order_body(struct muster *m, int rank, void *arg)
{
    struct two two = make_two(m);
    float sum[2] = { 0 };

    if (arg)
        make_blind(m);
    for (int step = 0; step < 6; step++) {
        bool early = rank % 2 && step % 2;

        RANK_OK(layers(m, &two, 0, 1, 1));
        RANK_OK(layers(m, &two, 1, 1, 1));
        RANK_OK(layers(m, &two, 0, 0, 0));
        /* before or behind the sync of the other one: the buckets start in one order */
        if (step >= 3 && early)
            RANK_OK(muster_ddp_sync(two.ddp[0], NULL));
        RANK_OK(layers(m, &two, 1, 0, 0));
        if (step < 3)
            RANK_OK(sync_two(&two, 1));
        else if (!early)
            RANK_OK(muster_ddp_sync(two.ddp[0], NULL));
        if (step >= 3)
            RANK_OK(muster_ddp_sync(two.ddp[1], NULL));
        if (!arg)
            RANK_CHECK(is_mean(m, &two, 0) && is_mean(m, &two, 1));
        sum[0] = 1;
        RANK_OK(muster_allreduce(m, sum, 1, MUSTER_F32, MUSTER_SUM, NULL));
        RANK_CHECK(sum[0] == (float)muster_size(m));
    }
    return end_two(m, &two);
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
    struct two two = make_two(m);

    make_blind(m);
    for (int step = 0; step < 4; step++) {
        RANK_OK(layers(m, &two, 0, 1, rank == 1 ? 1 : 0));
        RANK_OK(muster_ddp_sync(two.ddp[0], NULL));
        RANK_OK(layers(m, &two, 1, 1, rank == 2 ? 1 : 0));
        RANK_OK(muster_ddp_sync(two.ddp[1], NULL));
    }
    return end_two(m, &two);
}

static void a_rank_that_lacks_a_gradient_keeps_the_order(void **state)
{
    forked_well("lacking",
                (struct forked_world){ .size = 3,
                                       .first_bucket = COUNT * sizeof(float),
                                       .bucket_cap = COUNT * sizeof(float) },
                lacking_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_collective_that_meets_another_objects_is_refused),
        cmocka_unit_test(a_backend_that_does_not_compare_is_refused_in_sync),
        cmocka_unit_test(twins_in_random_order_are_refused_before_a_mean_is_wrong),
        cmocka_unit_test(objects_in_one_order_are_averaged_whichever_is_synced_first),
        cmocka_unit_test(a_rank_that_lacks_a_gradient_keeps_the_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
