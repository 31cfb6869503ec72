/* SPDX-License-Identifier: BSD-3-Clause */
/* test_missing.c - gradients that no rank made ready, and none declared absent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/ddp/ddp.h"
#include "tests/unit/forked.h"

enum { MODEL = 12, SMALL = 7 };

struct missing {
    const char *name;
    int from;         /* gradients from here on are ready, on the ranks of `ready` */
    unsigned ready;   /* bit r: rank r has them */
    unsigned declare; /* bit r: rank r declares the others absent */
    bool shard;
    unsigned empty;     /* bit r: rank r has weight 0, the others 1; 0: no weights */
    const char *expect; /* in the one warning; NULL: there is none */
};

static int weigh(const struct missing *row, struct muster_ddp *ddp, int rank)
{
    return row->empty ? muster_ddp_weight(ddp, row->empty >> rank & 1 ? 0 : 1)
                      : MUSTER_OK;
}

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
        RANK_OK(weigh(row, ddp, rank));
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
    { "two are missing", 2, 7, 0, false, 0,
      "no rank has a gradient of 'w0', 'w1' in step 0" },
    { "more are missing than a sentence holds", 10, 7, 0, false, 0,
      "'w0', 'w1', 'w2', 'w3', 'w4', 'w5', 'w6', 'w7' and 2 more in step 0" },
    { "none is missing", 0, 7, 0, false, 0, NULL },
    { "one rank has them all", 0, 2, 0, false, 0, NULL },
    { "all ranks declare them absent", 2, 7, 7, false, 0, NULL },
    { "one rank declares them absent", 2, 7, 4, false, 0, NULL },
    { "zero in a sharded mean", 2, 7, 0, true, 0, NULL },
    { "no rank has data", 0, 0, 0, false, 7, NULL },
    { "one rank has no data, and two are missing on the others", 2, 6, 0, false, 1,
      "no rank has a gradient of 'w0', 'w1' in step 0" },
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
    struct muster_ddp_options options = { .require_all = 1, .shard = row->shard };
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
    RANK_OK(weigh(row, ddp, rank));
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
    static const struct {
        int size, nodes;
        bool shard;
    } worlds[] = { { 3, 2, false }, { 3, 2, true }, { 1, 1, false } };

    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++)
        for (size_t k = 0; k < sizeof worlds / sizeof worlds[0]; k++) {
            struct forked_world w = { .size = worlds[k].size,
                                      .nodes = worlds[k].nodes,
                                      .return_failure = true,
                                      SMALL_BUCKETS };
            struct missing row = missing[i];

            /* In a world of one, rank 0 has and declares what any of three does. */
            if (w.size == 1) {
                row.ready = row.ready != 0;
                row.declare = row.declare != 0;
                row.empty = row.empty == 7;
            }
            if (row.shard)
                continue;
            row.shard = worlds[k].shard;
            forked_well(row.name, w, required_body, &row);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gradient_that_no_rank_made_ready_is_named_once),
        cmocka_unit_test(a_gradient_that_all_ranks_require_is_an_error_on_each),
    };

    return cmocka_run_group_tests_name("missing", tests, NULL, NULL);
}
