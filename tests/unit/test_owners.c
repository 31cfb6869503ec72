/* SPDX-License-Identifier: BSD-3-Clause */
/* test_owners.c - a collective belongs to a ddp object, a bucket and a step: one that
 * meets another's is refused, and is never added to it; and gradients that belong to
 * no rank
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

#include "runtime/base/clock.h"
#include "runtime/ddp/ddp.h"
#include "tests/unit/forked.h"
#include "tests/unit/patience.h"

enum { COUNT = 1024, MODELS = 2, LAYERS = 2 };

struct two {
    struct muster_ddp *ddp[MODELS];
};

static struct two make_two(struct muster *m)
{
    static const struct muster_param params[LAYERS] = {
        { .name = "a", .count = COUNT, .dtype = MUSTER_F32 },
        { .name = "b", .count = COUNT, .dtype = MUSTER_F32 }
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

/* The bucket of a rank that lacks a gradient starts in sync, after the plain
 * all-reduce.
 */
static int absent_before_plain(struct muster *m, struct two *two, bool odd)
{
    float plain[LAYERS * COUNT] = { 0 };
    int rc = layers(m, two, 0, 1, odd ? 1 : 0);

    if (rc == MUSTER_OK && odd)
        rc = muster_ddp_grad_absent(two->ddp[0], 0);
    if (rc == MUSTER_OK)
        rc = muster_allreduce(m, plain, LAYERS * COUNT, MUSTER_F32, MUSTER_SUM, NULL);
    return rc == MUSTER_OK ? muster_ddp_sync(two->ddp[0], NULL) : rc;
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

static struct mu_backend_ops *make_blind(struct muster *m)
{
    struct mu_backend_ops *ops = forked_elsewhere(m);

    real_start = ops->start;
    ops->start = blind_start;
    ops->compares = false;
    return ops;
}

static int refused_body(struct muster *m, int rank, void *arg)
{
    const struct job *job = arg;
    struct two two;
    double begin = mu_clock_s();
    int rc;

    if (job->blind)
        make_blind(m);
    two = make_two(m);
    RANK_CHECK(backward(m, &two, 0) == MUSTER_OK);
    RANK_CHECK(backward(m, &two, 1) == MUSTER_OK);
    RANK_OK(sync_two(&two, 0));
    rc = job->row->call(m, &two, rank == 1);
    if (rc != MUSTER_ECONTRACT || mu_clock_s() - begin > PATIENCE) {
        fprintf(stderr, "rank %d: status %d: %s\n", rank, rc, muster_error(m));
        return 97;
    }
    if (job->blind)
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

/* ---- Refused on the ranks whose own order is right ----------------------------------
 */

/* As on a GPU: a join blocks no host. */
static int join_later(struct mu_backend *b, struct mu_request *request, void *stream,
                      struct mu_err *err)
{
    return 0;
}

static float plain_sum[LAYERS * COUNT];

static int plain(struct muster *m)
{
    return muster_allreduce(m, plain_sum, LAYERS * COUNT, MUSTER_F32, MUSTER_SUM, NULL);
}

static int first_then_second(struct muster *m, struct two *two, bool odd)
{
    int rc = backward(m, two, odd);

    if (rc == MUSTER_OK && odd)
        rc = backward(m, two, 0);
    return rc == MUSTER_OK ? muster_ddp_sync(two->ddp[0], NULL) : rc;
}

/* Rank 1 calls it before its bucket, the others do behind their sync. */
static int plain_behind_sync(struct muster *m, struct two *two, bool odd)
{
    int rc = odd ? plain(m) : MUSTER_OK;

    rc = rc == MUSTER_OK ? backward(m, two, 0) : rc;
    return rc == MUSTER_OK ? muster_ddp_sync(two->ddp[0], NULL) : rc;
}

static int first_plain(struct muster *m, struct two *two, bool odd)
{
    int rc = plain_behind_sync(m, two, odd);

    if (odd || rc != MUSTER_OK)
        return odd ? rc : 0;
    return plain(m);
}

#define AWAY (1.5 * PATIENCE) /* seconds, below the job's deadline */

/* As if rank 1 copied from its GPU, where the all-reduce never ends: the next call into
 * libmuster is late.
 */
static int plain_then_away(struct muster *m, struct two *two, bool odd)
{
    double begin = mu_clock_s();
    int rc = odd ? plain(m) : MUSTER_OK;

    if (odd)
        mu_pause(2 * AWAY);
    rc = rc == MUSTER_OK ? backward(m, two, 0) : rc;
    rc = rc == MUSTER_OK ? muster_ddp_sync(two->ddp[0], NULL) : rc;
    return !odd && mu_clock_s() - begin > AWAY ? MUSTER_ETIMEOUT : rc;
}

static const struct alone {
    const char *name;
    int models;
    bool plain_before; /* all ranks have called one before the wrong step */
    int (*call)(struct muster *m, struct two *two, bool odd);
    const char *expect;
} alone[] = {
    { "only rank 1 starts the second model first", 2, false, first_then_second,
      ": rank 1 (node a) started collectives in a different order than" },
    { "only rank 1 calls an all-reduce before its bucket", 1, true, plain_behind_sync,
      ": rank 1 (node a) started collectives in a different order than" },
    { "rank 1 never comes to its sync behind that all-reduce", 1, true, plain_then_away,
      "rank 1 (node a) started collectives in a different order than 3 others: "
      "all-reduce of 2048 f32 in place of bucket 0 of step 1" },
    { "that is the first all-reduce of the program", 1, false, first_plain,
      "the first all-reduce beside a ddp object: the ranks differ: after 2 "
      "collectives" },
};

static int alone_body(struct muster *m, int rank, void *arg)
{
    const struct alone *row = arg;
    static const struct muster_param params[LAYERS] = {
        { .name = "a", .count = COUNT, .dtype = MUSTER_F32 },
        { .name = "b", .count = COUNT, .dtype = MUSTER_F32 }
    };
    struct muster_ddp_options fixed = { .fixed_order = 1 };
    struct mu_backend_ops *ops = make_blind(m);
    struct two two;
    int rc;

    for (int d = 0; d < row->models; d++)
        RANK_OK(muster_ddp_create(m, params, LAYERS, &fixed, &two.ddp[d]));
    for (int d = 0; d < row->models; d++) {
        RANK_OK(backward(m, &two, d));
        RANK_OK(muster_ddp_sync(two.ddp[d], NULL));
    }
    if (row->plain_before)
        RANK_OK(plain(m));
    ops->join = join_later;
    rc = row->call(m, &two, rank == 1);
    if (rc != MUSTER_ECONTRACT || !strstr(muster_error(m), row->expect)) {
        fprintf(stderr, "rank %d: status %d: %s\n", rank, rc, muster_error(m));
        return 97;
    }
    return 0;
}

static void a_rank_in_the_right_order_gets_the_error_of_the_others(void **state)
{
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++)
        for (int nodes = 1; nodes <= 2; nodes++) {
            struct alone row = alone[i];

            forked_well(
                row.name,
                (struct forked_world){ .size = 4,
                                       .nodes = nodes,
                                       .return_failure = true,
                                       .first_bucket = LAYERS * COUNT * sizeof(float),
                                       .bucket_cap = LAYERS * COUNT * sizeof(float) },
                alone_body, &row);
        }
}

/* A program of one model that calls nothing else pays no round for it. */
static int waits_body(struct muster *m, int rank, void *arg)
{
    struct two two;

    make_blind(m);
    two = make_two(m);
    RANK_CHECK(m->comm.mixes);
    muster_ddp_destroy(two.ddp[1]);
    RANK_OK(muster_ddp_sync(two.ddp[0], NULL));
    muster_ddp_destroy(two.ddp[0]);
    return muster_finalize(m);
}

static int lone_body(struct muster *m, int rank, void *arg)
{
    static const struct muster_param p = { .name = "a",
                                           .count = COUNT,
                                           .dtype = MUSTER_F32 };
    struct two two;

    make_blind(m);
    RANK_OK(plain(m)); /* there is nothing yet that it could be mixed up with */
    RANK_OK(muster_ddp_create(m, &p, 1, NULL, &two.ddp[0]));
    for (int step = 0; step < 3; step++) {
        RANK_OK(layers(m, &two, 0, 0, 0));
        RANK_OK(muster_ddp_sync(two.ddp[0], NULL));
        RANK_CHECK(!m->comm.mixes);
    }
    RANK_OK(plain(m));
    RANK_CHECK(m->comm.mixes);
    muster_ddp_destroy(two.ddp[0]);
    return muster_finalize(m);
}

static void only_a_program_that_could_mix_them_up_waits(void **state)
{
    struct forked_world w = { .size = 3 };

    forked_well("two models", w, waits_body, NULL);
    forked_well("one model", w, lone_body, NULL);
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
    struct two two;
    float sum[2] = { 0 };

    if (arg)
        make_blind(m);
    two = make_two(m);
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
    struct two two;

    make_blind(m);
    two = make_two(m);
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

/* ---- A gradient that nobody has, and nobody declared absent ------------------------
 */

enum { MODEL = 12, SMALL = 7 };

struct missing {
    const char *name;
    int from;         /* gradients from here on are ready, on the ranks of `ready` */
    unsigned ready;   /* bit r: rank r has them */
    unsigned declare; /* bit r: rank r declares the others absent */
    bool shard;
    const char *expect; /* in the one warning; NULL: there is none */
};

static int missing_body(struct muster *m, int rank, void *arg)
{
    const struct missing *row = arg;
    struct muster_ddp_options options = { .shard = row->shard };
    struct muster_param params[MODEL];
    struct muster_ddp *ddp;
    char names[MODEL][8];
    static float data[MODEL][SMALL];

    for (int i = 0; i < MODEL; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        params[i] = (struct muster_param){
            .name = names[i], .count = SMALL, .dtype = MUSTER_F32, .data = data[i]
        };
    }
    RANK_OK(muster_ddp_create(m, params, MODEL, &options, &ddp));
    for (int step = 0; step < 3; step++) {
        for (int i = MODEL - 1; i >= row->from && row->ready >> rank & 1; i--)
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        for (int i = 0; i < row->from && row->declare >> rank & 1; i++)
            RANK_OK(muster_ddp_grad_absent(ddp, i));
        RANK_OK(muster_ddp_sync(ddp, NULL));
    }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static const struct missing missing[] = {
    { "two are missing", 2, 7, 0, false,
      "no rank has a gradient of 'w0', 'w1' in step 0" },
    { "more are missing than a sentence holds", 10, 7, 0, false,
      "'w0', 'w1', 'w2', 'w3', 'w4', 'w5', 'w6', 'w7' and 2 more in step 0" },
    { "none is missing", 0, 7, 0, false, NULL },
    { "one rank has them all", 0, 2, 0, false, NULL },
    { "all ranks declare them absent", 2, 7, 7, false, NULL },
    { "one rank declares them absent", 2, 7, 4, false, NULL },
    { "zero in a sharded mean", 2, 7, 0, true, NULL },
};

static int times(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static void a_gradient_that_no_rank_made_ready_is_named_once(void **state)
{
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++)
        for (int nodes = 1; nodes <= 3; nodes += 2) {
            struct forked_world w = { .size = 3, .nodes = nodes, SMALL_BUCKETS };
            struct missing row = missing[i];
            struct forked_result r;

            forked_run(&w, missing_body, &row, 60, &r);
            for (int k = 0; k < w.size; k++)
                if (r.status[k] != 0)
                    fail_msg("%s: rank %d: %d\n%s", row.name, k, r.status[k], r.text);
            if (times(r.text, "no rank has a gradient") != (row.expect != NULL) ||
                (row.expect && !strstr(r.text, row.expect)))
                fail_msg("%s, %d nodes: \"%s\"", row.name, nodes, r.text);
            forked_clear(&r);
        }
}

/* options.require_all: the same error on each rank, at the end of the first sync. */
static int required_body(struct muster *m, int rank, void *arg)
{
    const struct missing *row = arg;
    struct muster_ddp_options options = { .require_all = 1 };
    struct muster_param params[MODEL];
    struct muster_ddp *ddp;
    char names[MODEL][8];
    int rc;

    for (int i = 0; i < MODEL; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        params[i] = (struct muster_param){ .name = names[i],
                                           .count = SMALL,
                                           .dtype = MUSTER_F32 };
    }
    RANK_OK(muster_ddp_create(m, params, MODEL, &options, &ddp));
    for (int i = MODEL - 1; i >= row->from && row->ready >> rank & 1; i--)
        RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
    for (int i = 0; i < row->from && row->declare >> rank & 1; i++)
        RANK_OK(muster_ddp_grad_absent(ddp, i));
    rc = muster_ddp_sync(ddp, NULL);
    RANK_CHECK(rc == (row->expect ? MUSTER_ECONTRACT : MUSTER_OK));
    if (row->expect)
        RANK_CHECK(strstr(muster_error(m), row->expect));
    muster_ddp_destroy(ddp);
    muster_finalize(m);
    return 0;
}

static void a_gradient_that_all_ranks_require_is_an_error_on_each(void **state)
{
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        struct forked_world w = {
            .size = 3, .nodes = 2, .return_failure = true, SMALL_BUCKETS
        };
        struct missing row = missing[i];

        if (!row.shard)
            forked_well(row.name, w, required_body, &row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_collective_that_meets_another_objects_is_refused),
        cmocka_unit_test(a_backend_that_does_not_compare_is_refused_in_sync),
        cmocka_unit_test(a_rank_in_the_right_order_gets_the_error_of_the_others),
        cmocka_unit_test(only_a_program_that_could_mix_them_up_waits),
        cmocka_unit_test(twins_in_random_order_are_refused_before_a_mean_is_wrong),
        cmocka_unit_test(objects_in_one_order_are_averaged_whichever_is_synced_first),
        cmocka_unit_test(a_rank_that_lacks_a_gradient_keeps_the_order),
        cmocka_unit_test(a_gradient_that_no_rank_made_ready_is_named_once),
        cmocka_unit_test(a_gradient_that_all_ranks_require_is_an_error_on_each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
