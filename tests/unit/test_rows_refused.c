/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rows_refused.c - rows that are refused: calls out of order, ranks that differ,
 * values that are not finite
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/embedding.h"

#define REFUSED(call, words)                                                           \
    do {                                                                               \
        RANK_CHECK((call) == MUSTER_EUSAGE);                                           \
        if (!strstr(muster_error(m), words))                                           \
            fprintf(stderr, "%s\n", muster_error(m));                                  \
        RANK_CHECK(strstr(muster_error(m), words));                                    \
    } while (0)

static void on_two_ranks(const char *name,
                         int (*body)(struct muster *m, int rank, void *arg))
{
    forked_well(name, (struct forked_world){ .size = 2, .return_failure = true }, body,
                NULL);
}

static int misuse_body(struct muster *m, int rank, void *arg)
{
    static const struct how h = { .size = 2 };
    struct muster_param bad = { .name = "odd", .count = 7, .rows = 2 };
    struct muster_ddp *ddp, *none;
    static float zeros[2 * WIDTH];
    const int64_t in[2] = { 0, 4 }, out[2] = { 0, ROWS }, below[1] = { -1 };

    REFUSED(muster_ddp_create(m, &bad, 1, NULL, &none), "not 2 rows of equal length");
    ddp = make(m, &h, true, NULL);
    REFUSED(muster_ddp_grad_rows(ddp, N, in, 2, zeros, NULL), "not in 0..2");
    REFUSED(muster_ddp_grad_rows(ddp, 0, in, 2, zeros, NULL),
            "'first' was registered without rows");
    REFUSED(muster_ddp_grad_rows(ddp, AT, in, 2, NULL, NULL), "of 2 rows is NULL");
    REFUSED(muster_ddp_grad_rows(ddp, AT, out, 2, zeros, NULL),
            "row "
            "400 of 'embedding', number 1 of the list, is not in 0..399");
    REFUSED(muster_ddp_grad_rows(ddp, AT, below, 1, zeros, NULL), "row -1 of");
    RANK_OK(muster_ddp_grad_rows(ddp, AT, in, 2, zeros, NULL));
    REFUSED(muster_ddp_grad_rows(ddp, AT, in, 2, zeros, NULL),
            "rows of 'embedding' became ready twice in step 0: pass them in one call");
    REFUSED(muster_ddp_grad_ready(ddp, AT, NULL), "became ready after its rows");
    REFUSED(muster_ddp_grad_absent(ddp, AT), "already ready in this step");
    REFUSED(muster_ddp_no_sync(ddp, 1), "is already ready");
    REFUSED(muster_ddp_weight(ddp, 1), "after the gradient of 'embedding'");
    REFUSED(muster_ddp_join(ddp, NULL, NULL), "in the middle of step 0");
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_OK(muster_ddp_grad_absent(ddp, AT));
    REFUSED(muster_ddp_grad_rows(ddp, AT, in, 2, zeros, NULL), "declared absent");
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_OK(muster_ddp_weight(ddp, rank));
    if (rank == 0)
        REFUSED(muster_ddp_grad_rows(ddp, AT, in, 2, zeros, NULL), "weight 0");
    RANK_OK(muster_ddp_sync(ddp, NULL));
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void misuse_gets_one_sentence(void **state)
{
    on_two_ranks("misuse", misuse_body);
}

/* The dense part is held back for rows: it counts as ready all the same. */
static int held_body(struct muster *m, int rank, void *arg)
{
    static const struct how h = { .size = 2, .shard = true };
    struct muster_ddp *ddp = make(m, &h, true, NULL);

    memset(muster_ddp_grad(ddp, AT), 0, COUNT * sizeof(float));
    RANK_OK(muster_ddp_grad_ready(ddp, AT, NULL));
    REFUSED(muster_ddp_grad_ready(ddp, AT, NULL), "became ready twice in step 0");
    REFUSED(muster_ddp_grad_absent(ddp, AT), "already ready in this step");
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_OK(muster_ddp_grad_ready(ddp, AT, NULL));
    RANK_OK(muster_ddp_sync(ddp, NULL));
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void a_dense_part_that_waits_for_rows_is_ready(void **state)
{
    on_two_ranks("held", held_body);
}

static int differ_body(struct muster *m, int rank, void *arg)
{
    struct muster_param p = { .name = "w", .count = 8, .rows = rank ? 4 : 2 };
    struct muster_ddp *ddp;

    RANK_CHECK(muster_ddp_create(m, &p, 1, NULL, &ddp) == MUSTER_ECONTRACT);
    RANK_CHECK(strstr(muster_error(m), "'w' is ready in 2 rows"));
    return 0;
}

static void ranks_that_differ_in_rows_are_refused(void **state)
{
    on_two_ranks("differ", differ_body);
}

static int screen_body(struct muster *m, int rank, void *arg)
{
    static const struct how h = { .size = 2 };
    struct muster_ddp *ddp = make(m, &h, true, NULL);
    float rows[2 * WIDTH] = { 0 };
    const int64_t in[2] = { 9, 4 };

    if (rank == 1)
        rows[WIDTH + 2] = NAN;
    RANK_OK(muster_ddp_grad_rows(ddp, AT, in, 2, rows, NULL));
    RANK_CHECK(muster_ddp_sync(ddp, NULL) == MUSTER_ENUMERIC);
    RANK_CHECK(
        strstr(muster_error(m),
               "rank 1 (node a): the gradient of 'embedding' is nan at element 30 "
               "(bucket 1 of step 0)"));
    return 0;
}

static void screening_names_the_element_of_a_row(void **state)
{
    on_two_ranks("screen", screen_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misuse_gets_one_sentence),
        cmocka_unit_test(a_dense_part_that_waits_for_rows_is_ready),
        cmocka_unit_test(ranks_that_differ_in_rows_are_refused),
        cmocka_unit_test(screening_names_the_element_of_a_row),
    };

    return cmocka_run_group_tests_name("rows refused", tests, NULL, NULL);
}
