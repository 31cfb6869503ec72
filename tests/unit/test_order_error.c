/* SPDX-License-Identifier: BSD-3-Clause */
/* test_order_error.c - every rank gets the error of a wrong order, also one whose own
 * order is right
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "tests/unit/forked.h"
#include "tests/unit/two_models.h"

/* As on a GPU: a join blocks no host. */
static int join_later(struct mu_backend *b, struct mu_request *request, void *stream,
                      struct mu_err *err)
{
    return 0;
}

static float plain_sum[LAYERS * COUNT], other_sum[LAYERS * COUNT];

static int all_reduce(struct muster *m, float *sum)
{
    return muster_allreduce(m, sum, LAYERS * COUNT, MUSTER_F32, MUSTER_SUM, NULL);
}

static int plain(struct muster *m)
{
    return all_reduce(m, plain_sum);
}

/* As if plain_sum were from muster_alloc and other_sum not: two ways on a GPU. */
static unsigned way_of_sum(const struct mu_backend *b, const struct mu_coll *coll)
{
    return coll->recv == plain_sum ? MU_WAY_ALLOCATED : MU_WAY_OTHER;
}

/* As if plain_sum were host memory and other_sum a GPU's. */
static bool plain_is_host(const struct mu_backend *b, const void *p)
{
    return p == plain_sum;
}

static void *lend(struct mu_backend *b, size_t bytes, void *stream, struct mu_err *err)
{
    return calloc(1, bytes);
}

static void take_back(struct mu_backend *b, void *p, void *stream)
{
    free(p);
}

static void in_any_memory(struct mu_backend_ops *ops)
{
}

static void in_two_ways(struct mu_backend_ops *ops)
{
    ops->way = way_of_sum;
}

static void in_host_or_gpu(struct mu_backend_ops *ops)
{
    ops->is_host = plain_is_host;
    ops->alloc_private = lend;
    ops->free_private = take_back;
}

static int first_then_second(struct muster *m, struct two *two, bool odd)
{
    int rc = two_backward(m, two, odd);

    if (rc == MUSTER_OK && odd)
        rc = two_backward(m, two, 0);
    return rc == MUSTER_OK ? muster_ddp_sync(two->ddp[0], NULL) : rc;
}

/* Rank 1 calls it before its bucket, the others do behind their sync. */
static int plain_behind_sync(struct muster *m, struct two *two, bool odd)
{
    int rc = odd ? plain(m) : MUSTER_OK;

    rc = rc == MUSTER_OK ? two_backward(m, two, 0) : rc;
    return rc == MUSTER_OK ? muster_ddp_sync(two->ddp[0], NULL) : rc;
}

static int first_plain(struct muster *m, struct two *two, bool odd)
{
    int rc = plain_behind_sync(m, two, odd);

    if (odd || rc != MUSTER_OK)
        return odd ? rc : 0;
    return plain(m);
}

#define RANKS 4
#define AWAY 15 /* seconds at most, below the job's deadline */

/* Shared: how many ranks have their error while rank 1 is away. */
static struct {
    _Atomic int returned;
    _Atomic bool over;
} * away;

static void stay_away(void)
{
    double until = mu_clock_s() + AWAY;

    while (away->returned < RANKS - 1 && mu_clock_s() < until)
        mu_pause(0.001);
    away->over = true;
}

/* As if rank 1 copied from its GPU, where the all-reduce never ends: the next call into
 * libmuster is late.
 */
static int bucket_then_away(struct muster *m, struct two *two, bool odd)
{
    int rc;

    if (odd)
        stay_away();
    rc = two_backward(m, two, 0);
    rc = rc == MUSTER_OK ? muster_ddp_sync(two->ddp[0], NULL) : rc;
    if (!odd && away->over)
        return MUSTER_ETIMEOUT;
    away->returned += !odd;
    return rc;
}

static int plain_then_away(struct muster *m, struct two *two, bool odd)
{
    int rc = odd ? plain(m) : MUSTER_OK;

    return rc == MUSTER_OK ? bucket_then_away(m, two, odd) : rc;
}

/* All call an all-reduce of one size, rank 1 with other memory than the others. */
static int two_kinds_then_away(struct muster *m, struct two *two, bool odd)
{
    int rc = all_reduce(m, odd ? plain_sum : other_sum);

    return rc == MUSTER_OK ? bucket_then_away(m, two, odd) : rc;
}

static const struct alone {
    const char *name;
    int models;
    bool plain_before; /* all ranks have called one before the wrong step */
    void (*memory)(struct mu_backend_ops *ops);
    int (*call)(struct muster *m, struct two *two, bool odd);
    const char *expect;
} alone[] = {
    { "only rank 1 starts the second model first", 2, false, in_any_memory,
      first_then_second,
      ": rank 1 (node a) started collectives in a different order than" },
    { "only rank 1 calls an all-reduce before its bucket", 1, true, in_any_memory,
      plain_behind_sync,
      ": rank 1 (node a) started collectives in a different order than" },
    { "rank 1 never comes to its sync behind that all-reduce", 1, true, in_any_memory,
      plain_then_away,
      "rank 1 (node a) started collectives in a different order than 3 others: "
      "all-reduce of 2048 f32 in place of bucket 0 of step 1" },
    { "only rank 1 has memory of muster_alloc", 1, true, in_two_ways,
      two_kinds_then_away,
      "rank 1 (node a) started collectives in a different order than 3 others: "
      "all-reduce of 2048 f32 in memory of muster_alloc in place of all-reduce of 2048 "
      "f32" },
    { "only rank 1 has host memory", 1, true, in_host_or_gpu, two_kinds_then_away,
      "rank 1 (node a) started collectives in a different order than 3 others: "
      "all-reduce of 2048 f32 in host memory in place of all-reduce of 2048 f32" },
    { "that is the first all-reduce of the program", 1, false, in_any_memory,
      first_plain,
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
    struct mu_backend_ops *ops = two_make_blind(m);
    struct two two;
    int rc;

    for (int d = 0; d < row->models; d++)
        RANK_OK(muster_ddp_create(m, params, LAYERS, &fixed, &two.ddp[d]));
    for (int d = 0; d < row->models; d++) {
        RANK_OK(two_backward(m, &two, d));
        RANK_OK(muster_ddp_sync(two.ddp[d], NULL));
    }
    if (row->plain_before)
        RANK_OK(plain(m));
    ops->join = join_later;
    row->memory(ops);
    rc = row->call(m, &two, rank == 1);
    if (rc != MUSTER_ECONTRACT || !strstr(muster_error(m), row->expect)) {
        fprintf(stderr, "rank %d: status %d: %s\n", rank, rc, muster_error(m));
        return 97;
    }
    return 0;
}

static void c081_a_rank_in_the_right_order_gets_the_error_of_the_others(void **state)
{
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++)
        for (int nodes = 1; nodes <= 2; nodes++) {
            struct alone row = alone[i];

            away = forked_shared(sizeof *away);
            forked_well(
                row.name,
                (struct forked_world){ .size = RANKS,
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

    two_make_blind(m);
    two = two_make(m);
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

    two_make_blind(m);
    RANK_OK(plain(m)); /* there is nothing yet that it could be mixed up with */
    RANK_OK(muster_ddp_create(m, &p, 1, NULL, &two.ddp[0]));
    for (int step = 0; step < 3; step++) {
        RANK_OK(two_layers(m, &two, 0, 0, 0));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c081_a_rank_in_the_right_order_gets_the_error_of_the_others),
        cmocka_unit_test(only_a_program_that_could_mix_them_up_waits),
    };

    return cmocka_run_group_tests_name("order_error", tests, NULL, NULL);
}
