/* SPDX-License-Identifier: BSD-3-Clause */
/* test_order.c - the order of arrival learned in the first step, over forked ranks */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/ddp/ddp.h"
#include "tests/unit/forked.h"

/* 8 gradients of 128 bytes, buckets of two: from the last to the first these are
 * {7,6} {5,4} {3,2} {1,0}.
 */
enum { N = 8, COUNT = 32 };

static const int reverse[N] = { 7, 6, 5, 4, 3, 2, 1, 0 };
static const int arrival[N] = { 0, 7, 3, 5, 1, 6, 2, 4 };

struct model {
    float own[N][COUNT];
    struct muster_ddp *ddp;
};

enum which { OWN, VIEWS, MIXED, OWN_ON_0 };

static void make(struct muster *m, struct model *model, enum which which,
                 const struct muster_ddp_options *options)
{
    struct muster_param p[N];
    char names[N][16];

    for (int i = 0; i < N; i++) {
        bool own = which == OWN || (which == MIXED && i % 2) ||
                   (which == OWN_ON_0 && muster_rank(m) == 0);

        snprintf(names[i], sizeof names[i], "layer%d", i);
        p[i] = (struct muster_param){ .name = names[i],
                                      .count = COUNT,
                                      .dtype = MUSTER_F32,
                                      .grad = own ? model->own[i] : NULL };
    }
    RANK_OK(muster_ddp_create(m, p, N, options, &model->ddp));
}

/* Anything that rounds when it is added up. */
static float value(int rank, int i, int k)
{
    return (float)((rank * 31 + i * 7 + k) % 97 + 1) / 3.0f;
}

/* One step with gradients in this order; out (may be NULL) gets the means. */
static void step(struct muster *m, struct model *model, const int *order, int n,
                 float out[N][COUNT])
{
    for (int k = 0; k < n; k++) {
        float *g = muster_ddp_grad(model->ddp, order[k]);

        for (int e = 0; e < COUNT; e++)
            g[e] = value(muster_rank(m), order[k], e);
        RANK_OK(muster_ddp_grad_ready(model->ddp, order[k], NULL));
    }
    RANK_OK(muster_ddp_sync(model->ddp, NULL));
    for (int i = 0; out && i < N; i++)
        memcpy(out[i], muster_ddp_grad(model->ddp, i), sizeof out[i]);
}

/* How many buckets are under way when the first n gradients are there. */
static int started(struct muster *m, struct model *model, const int *order, int n)
{
    int buckets;

    for (int k = 0; k < n; k++)
        RANK_OK(muster_ddp_grad_ready(model->ddp, order[k], NULL));
    buckets = model->ddp->ready.next;
    for (int k = n; k < N; k++)
        RANK_OK(muster_ddp_grad_ready(model->ddp, order[k], NULL));
    RANK_OK(muster_ddp_sync(model->ddp, NULL));
    return buckets;
}

static int end(struct muster *m, struct model *model)
{
    muster_ddp_destroy(model->ddp);
    return muster_finalize(m);
}

static void run(const char *what, struct forked_world w,
                int (*body)(struct muster *m, int rank, void *arg))
{
    w.first_bucket = w.bucket_cap = 2 * COUNT * sizeof(float);
    forked_well(what, w, body, NULL);
}

static void everywhere(int (*body)(struct muster *m, int rank, void *arg))
{
    run("1 rank", (struct forked_world){ .size = 1 }, body);
    run("3 ranks", (struct forked_world){ .size = 3 }, body);
    run("4 ranks on 2 nodes", (struct forked_world){ .size = 4, .nodes = 2 }, body);
}

static int rebuilt_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };
    float before[N][COUNT], after[N][COUNT];

    make(m, &model, OWN, NULL);
    RANK_CHECK(muster_ddp_bucket_of(model.ddp, 0) == 3);
    step(m, &model, arrival, N, before);
    for (int k = 0; k < N; k++)
        RANK_CHECK(muster_ddp_bucket_of(model.ddp, arrival[k]) == k / 2);
    /* every second gradient closes a bucket: nothing waits any more */
    for (int n = 0; n <= N; n++)
        RANK_CHECK(started(m, &model, arrival, n) == n / 2);
    step(m, &model, arrival, N, after);
    RANK_CHECK(memcmp(before, after, sizeof before) == 0);
    /* another order is still right, and does not change the buckets again */
    step(m, &model, reverse, N, after);
    RANK_CHECK(memcmp(before, after, sizeof before) == 0);
    RANK_CHECK(muster_ddp_bucket_of(model.ddp, 7) == 0);
    return end(m, &model);
}

static void own_buffers_get_the_buckets_of_their_order_of_arrival(void **state)
{
    everywhere(rebuilt_body);
}

static int views_body(struct muster *m, int rank, void *arg)
{
    static const int twos[N] = { 1, 0, 5, 4, 7, 6, 3, 2 };

    for (enum which which = VIEWS; which <= OWN_ON_0; which++) {
        struct model model = { 0 };
        float before[N][COUNT], after[N][COUNT];
        void *grad[N];

        make(m, &model, which, NULL);
        for (int i = 0; i < N; i++)
            grad[i] = muster_ddp_grad(model.ddp, i);
        step(m, &model, twos, N, before);
        for (int i = 0; i < N; i++) {
            RANK_CHECK(muster_ddp_grad(model.ddp, i) == grad[i]);
            if (which != OWN_ON_0 || muster_size(m) > 1)
                RANK_CHECK(muster_ddp_bucket_of(model.ddp, i) == 3 - i / 2);
        }
        for (int n = 0; n <= N; n++)
            RANK_CHECK(started(m, &model, twos, n) == n / 2);
        step(m, &model, twos, N, after);
        RANK_CHECK(memcmp(before, after, sizeof before) == 0);
        muster_ddp_destroy(model.ddp);
    }
    return muster_finalize(m);
}

static void views_stay_and_their_buckets_start_in_the_order_of_arrival(void **state)
{
    everywhere(views_body);
}

static int unlike_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };
    float before[N][COUNT], after[N][COUNT];
    int mine[N];

    /* rank r turns rank 0's order by r */
    for (int k = 0; k < N; k++)
        mine[k] = arrival[(k + rank) % N];
    make(m, &model, OWN, NULL);
    step(m, &model, mine, N, before);
    for (int k = 0; k < N; k++)
        RANK_CHECK(muster_ddp_bucket_of(model.ddp, arrival[k]) == k / 2);
    for (int s = 0; s < 3; s++) {
        step(m, &model, mine, N, after);
        RANK_CHECK(memcmp(before, after, sizeof before) == 0);
    }
    return end(m, &model);
}

static void ranks_of_unlike_orders_take_that_of_rank_0(void **state)
{
    everywhere(unlike_body);
}

static int absent_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };
    float *g;

    make(m, &model, OWN, NULL);
    /* 5 and 1, 6, 2, 4 have no gradient on rank 0 in the first step */
    step(m, &model, arrival, rank == 0 ? 3 : N, NULL);
    RANK_CHECK(muster_ddp_bucket_of(model.ddp, 0) == 0);
    RANK_CHECK(muster_ddp_bucket_of(model.ddp, 7) == 0);
    RANK_CHECK(muster_ddp_bucket_of(model.ddp, 3) == 1);
    RANK_CHECK(muster_ddp_bucket_of(model.ddp, 6) == 1);
    RANK_CHECK(muster_ddp_bucket_of(model.ddp, 1) == 3);
    step(m, &model, arrival, N, NULL);
    g = muster_ddp_grad(model.ddp, 4);
    for (int e = 0; e < COUNT; e++) {
        float sum = 0;

        for (int r = 0; r < muster_size(m); r++)
            sum += value(r, 4, e);
        RANK_CHECK(g[e] > sum / (float)muster_size(m) * 0.999f &&
                   g[e] < sum / (float)muster_size(m) * 1.001f);
    }
    return end(m, &model);
}

static void those_that_rank_0_lacked_come_last(void **state)
{
    everywhere(absent_body);
}

static int micro_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };
    int none = 0;

    make(m, &model, OWN, NULL);
    /* gradients that only accumulate have no order */
    RANK_OK(muster_ddp_no_sync(model.ddp, 1));
    for (int k = 0; k < N; k++)
        RANK_OK(muster_ddp_grad_ready(model.ddp, reverse[k], NULL));
    RANK_OK(muster_ddp_no_sync(model.ddp, 0));
    step(m, &model, arrival, N, NULL);
    for (int k = 0; k < N; k++)
        none += muster_ddp_bucket_of(model.ddp, arrival[k]) != k / 2;
    RANK_CHECK(none == 0);
    return end(m, &model);
}

static void micro_batches_before_it_do_not_count(void **state)
{
    everywhere(micro_body);
}

static int fixed_body(struct muster *m, int rank, void *arg)
{
    const struct muster_ddp_options fixed = { .fixed_order = 1 };
    const struct muster_ddp_options shard = { .shard = 1 };
    struct model model = { 0 };

    make(m, &model, OWN, &fixed);
    step(m, &model, arrival, N, NULL);
    for (int i = 0; i < N; i++)
        RANK_CHECK(muster_ddp_bucket_of(model.ddp, i) == 3 - i / 2);
    muster_ddp_destroy(model.ddp);
    make(m, &model, OWN, &shard);
    for (int s = 0; s < 3; s++) {
        for (int k = 0; k < N; k++)
            RANK_OK(muster_ddp_grad_ready(model.ddp, arrival[k], NULL));
        RANK_OK(muster_ddp_sync(model.ddp, NULL));
        for (int i = 0; i < N; i++)
            RANK_CHECK(muster_ddp_bucket_of(model.ddp, i) == 3 - i / 2);
    }
    return end(m, &model);
}

static void a_fixed_order_and_parts_keep_their_buckets(void **state)
{
    everywhere(fixed_body);
}

static int clipped_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };
    struct muster_finish f = { .max_norm = 1 };
    float before[N][COUNT];

    make(m, &model, OWN, NULL);
    for (int s = 0; s < 3; s++) {
        for (int k = 0; k < N; k++) {
            float *g = muster_ddp_grad(model.ddp, arrival[k]);

            for (int e = 0; e < COUNT; e++)
                g[e] = value(rank, arrival[k], e);
            RANK_OK(muster_ddp_grad_ready(model.ddp, arrival[k], NULL));
        }
        RANK_OK(muster_ddp_sync_with(model.ddp, &f, NULL));
        for (int i = 0; i < N; i++) {
            float *g = muster_ddp_grad(model.ddp, i);

            if (s == 0)
                memcpy(before[i], g, sizeof before[i]);
            /* the norm is added up bucket by bucket: its last bits may differ */
            for (int e = 0; e < COUNT; e++)
                RANK_CHECK(g[e] <= before[i][e] * 1.000001f &&
                           g[e] >= before[i][e] * 0.999999f);
        }
    }
    return end(m, &model);
}

static void clipping_goes_on_over_the_change(void **state)
{
    everywhere(clipped_body);
}

/* ---- Rounds over the control connections -------------------------------------------
 */

/* Rounds of a sync whose buckets have all started. */
static int rounds(struct muster *m, struct model *model)
{
    uint64_t before;

    for (int k = 0; k < N; k++)
        RANK_OK(muster_ddp_grad_ready(model->ddp, arrival[k], NULL));
    RANK_CHECK(model->ddp->ready.next == model->ddp->plan.nbuckets);
    before = m->comm.flight.entered;
    RANK_OK(muster_ddp_sync(model->ddp, NULL));
    return (int)(m->comm.flight.entered - before);
}

static int rounds_body(struct muster *m, int rank, void *arg)
{
    int vote = m->comm.config.elastic > 0;

    for (enum which which = OWN; which <= OWN_ON_0; which++) {
        struct model model = { 0 };

        make(m, &model, which, NULL);
        RANK_CHECK(rounds(m, &model) == 1); /* the order; in an elastic world a vote */
        for (int s = 0; s < 3; s++)
            RANK_CHECK(rounds(m, &model) == vote);
        muster_ddp_destroy(model.ddp);
    }
    return muster_finalize(m);
}

static void the_first_sync_has_one_round_and_a_later_one_its_vote(void **state)
{
    for (int elastic = 0; elastic <= 1; elastic++) {
        struct forked_world w = { .size = 3, .elastic = elastic };

        run(elastic ? "elastic" : "3 ranks", w, rounds_body);
        w.nodes = 3;
        run(elastic ? "elastic, 3 nodes" : "3 nodes", w, rounds_body);
    }
}

static int elastic_body(struct muster *m, int rank, void *arg)
{
    struct model model = { 0 };
    float before[N][COUNT], after[N][COUNT];

    make(m, &model, OWN, NULL);
    step(m, &model, arrival, N, before);
    RANK_CHECK(muster_ddp_bucket_of(model.ddp, 0) == 3);
    step(m, &model, reverse, N, after);
    for (int s = 0; s < 2; s++) {
        RANK_CHECK(memcmp(before, after, sizeof before) == 0);
        for (int k = 0; k < N; k++)
            RANK_CHECK(muster_ddp_bucket_of(model.ddp, arrival[k]) == k / 2);
        step(m, &model, s ? reverse : arrival, N, after);
    }
    return end(m, &model);
}

static void an_elastic_world_takes_the_order_when_all_ranks_have_it(void **state)
{
    run("elastic", (struct forked_world){ .size = 4, .nodes = 2, .elastic = 1 },
        elastic_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_buffers_get_the_buckets_of_their_order_of_arrival),
        cmocka_unit_test(views_stay_and_their_buckets_start_in_the_order_of_arrival),
        cmocka_unit_test(ranks_of_unlike_orders_take_that_of_rank_0),
        cmocka_unit_test(those_that_rank_0_lacked_come_last),
        cmocka_unit_test(micro_batches_before_it_do_not_count),
        cmocka_unit_test(a_fixed_order_and_parts_keep_their_buckets),
        cmocka_unit_test(clipping_goes_on_over_the_change),
        cmocka_unit_test(the_first_sync_has_one_round_and_a_later_one_its_vote),
        cmocka_unit_test(an_elastic_world_takes_the_order_when_all_ranks_have_it),
    };

    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
