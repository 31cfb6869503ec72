/* SPDX-License-Identifier: BSD-3-Clause */
/* test_params.c - the list of parameters: frozen ones, and ranks whose lists differ */
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

enum { N = 5, COUNT = 60 };

/* ---- Frozen ---------------------------------------------------------------------- */

static float data[N][COUNT];
static int64_t counter[2];

/* w0 frozen:1 w2 frozen:3 w4; the frozen ones are weights, and counters. */
static struct muster_ddp *make(struct muster *m, int rank, int shard)
{
    static const char *const names[N] = { "w0", "w1", "w2", "steps", "w4" };
    const struct muster_ddp_options o = { .shard = shard };
    struct muster_param p[N] = { { 0 } };
    struct muster_ddp *ddp;

    for (int i = 0; i < N; i++) {
        p[i] = (struct muster_param){
            .name = names[i], .count = COUNT, .data = data[i], .frozen = i % 2
        };
        for (int k = 0; k < COUNT; k++)
            data[i][k] = (float)(100 * rank + i);
    }
    counter[0] = 7 + rank;
    p[3].dtype = MUSTER_I64;
    p[3].count = 2;
    p[3].data = counter;
    RANK_OK(muster_ddp_create(m, p, N, &o, &ddp));
    return ddp;
}

static void check_frozen(struct muster *m, struct muster_ddp *ddp, int i)
{
    RANK_CHECK(!muster_ddp_grad(ddp, i) && muster_ddp_bucket_of(ddp, i) == -1);
    RANK_CHECK(muster_ddp_absent(ddp, i) && muster_ddp_data(ddp, i));
    RANK_CHECK(muster_ddp_grad_ready(ddp, i, NULL) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(m), "was registered as frozen"));
    RANK_OK(muster_ddp_grad_absent(ddp, i));
}

static int frozen_body(struct muster *m, int rank, void *arg)
{
    int shard = arg != NULL, size = muster_size(m);
    struct muster_ddp *ddp = make(m, rank, shard);

    check_frozen(m, ddp, 1);
    check_frozen(m, ddp, 3);
    RANK_OK(muster_ddp_broadcast(ddp, size - 1));
    for (int i = 0; i < N; i++)
        RANK_CHECK(i == 3 || data[i][COUNT - 1] == (float)(100 * (size - 1) + i));
    RANK_CHECK(counter[0] == 7 + size - 1 && counter[1] == 0);
    for (int step = 0; step < 3; step++) {
        uint64_t before = muster_ddp_wire_bytes(ddp);

        for (int i = N - 1; i >= 0; i -= 2) {
            for (int k = 0; k < COUNT; k++)
                ((float *)muster_ddp_grad(ddp, i))[k] = (float)(rank + 10 * i);
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        /* No bucket waits for a frozen one. */
        RANK_CHECK(muster_ddp_wire_bytes(ddp) - before >= 3 * COUNT * sizeof(float));
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; !shard && i < N; i += 2) {
            RANK_CHECK(!muster_ddp_absent(ddp, i));
            for (int k = 0; k < COUNT; k++)
                RANK_CHECK(((float *)muster_ddp_grad(ddp, i))[k] ==
                           (float)(size - 1) / 2 + (float)(10 * i));
        }
        if (shard)
            RANK_OK(muster_ddp_gather(ddp));
    }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void frozen_parameters_are_broadcast_and_nothing_else(void **state)
{
    static int shard;

    for (int size = 1; size <= 4; size++)
        forked_well(
            "frozen",
            (struct forked_world){ .size = size, .nodes = size / 2 + 1, SMALL_BUCKETS },
            frozen_body, size == 3 ? &shard : NULL);
}

/* All ranks make a ddp object in which the backbone is no longer frozen. */
static int unfreeze_body(struct muster *m, int rank, void *arg)
{
    struct muster_param p[2] = {
        { .name = "backbone", .count = COUNT, .data = data[0], .frozen = 1 },
        { .name = "head", .count = COUNT, .data = data[1] },
    };
    struct muster_ddp *ddp;

    RANK_OK(muster_ddp_create(m, p, 2, NULL, &ddp));
    for (int step = 0; step < 6; step++) {
        if (step == 3) {
            muster_ddp_destroy(ddp);
            p[0].frozen = 0;
            RANK_OK(muster_ddp_create(m, p, 2, NULL, &ddp));
        }
        for (int i = 1; i >= p[0].frozen; i--) {
            for (int k = 0; k < COUNT; k++)
                ((float *)muster_ddp_grad(ddp, i))[k] = (float)(rank + 10 * step + i);
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 1; i >= p[0].frozen; i--)
            for (int k = 0; k < COUNT; k++)
                RANK_CHECK(((float *)muster_ddp_grad(ddp, i))[k] ==
                           (float)(1 + 10 * step + i));
        RANK_CHECK((muster_ddp_grad(ddp, 0) != NULL) == (step >= 3));
    }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void case_085_a_parameter_is_unfrozen_in_the_middle(void **state)
{
    for (int nodes = 1; nodes <= 2; nodes++)
        forked_well("unfrozen", (struct forked_world){ .size = 3, .nodes = nodes },
                    unfreeze_body, NULL);
}

static int refusal_body(struct muster *m, int rank, void *arg)
{
    struct muster_param p = { .name = "w", .count = 3, .frozen = 1 };
    struct muster_ddp *ddp;

    RANK_CHECK(muster_ddp_create(m, &p, 1, NULL, &ddp) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(m), "'w' is frozen and has no data"));
    p.dtype = (enum muster_dtype)22; /* row 22: complex, for one */
    p.data = data;
    RANK_CHECK(muster_ddp_create(m, &p, 1, NULL, &ddp) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(m), "'w' has the unknown dtype 22"));
    p.count = 0;
    p.dtype = MUSTER_I32;
    RANK_OK(muster_ddp_create(m, &p, 1, NULL, &ddp));
    RANK_CHECK(muster_ddp_buckets(ddp) == 0);
    RANK_OK(muster_ddp_sync(ddp, NULL));
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void row_22_what_is_no_parameter_is_refused(void **state)
{
    forked_well("refusals", (struct forked_world){ .size = 2, SMALL_BUCKETS },
                refusal_body, NULL);
}

/* ---- Ranks that differ -------------------------------------------------------------
 */

static int no_reduce(void *arg, struct muster *m, const struct muster_bucket *bucket)
{
    return 0;
}

struct list {
    struct muster_param p[3];
    int n;
    size_t rows[3];
    struct muster_hook hook;
    struct muster_ddp_options options;
};

static void another_name(struct list *l)
{
    l->p[1].name = "other";
}
static void another_count(struct list *l)
{
    l->p[1].count--;
}
static void another_dtype(struct list *l)
{
    l->p[1].dtype = MUSTER_F16;
}
static void another_order(struct list *l)
{
    struct muster_param p = l->p[1];

    l->p[1] = l->p[2];
    l->p[2] = p;
}
static void one_frozen(struct list *l)
{
    l->p[1].frozen = 1;
}
static void one_less(struct list *l)
{
    l->n--;
}
static void other_rows(struct list *l)
{
    l->rows[1] = 5;
}
static void other_buckets(struct list *l)
{
    l->options.first_bucket = 512;
}
static void sharded(struct list *l)
{
    l->options.shard = 1;
}
static void screened(struct list *l)
{
    l->options.screen = 1;
}
static void in_order(struct list *l)
{
    l->options.fixed_order = 1;
}
static void plain(struct list *l)
{
    l->options.hook = NULL;
}
static void another_hook(struct list *l)
{
    l->hook.compress = MUSTER_COMPRESS_BF16;
}

static const struct difference {
    const char *name;
    void (*change)(struct list *l);
    const char *ours, *theirs; /* what the others have, what rank 1 has */
} differences[] = {
    { "name", another_name, "parameter 1 'b' f32 x 60 in 6 rows on ranks 0, 2",
      "parameter 1 'other' f32 x 60 in 6 rows on rank 1" },
    { "count", another_count, "'b' f32 x 60 in 6 rows on ranks 0, 2", "x 59" },
    { "dtype", another_dtype, "'b' f32 x 60", "'b' f16 x 60" },
    { "order", another_order, "parameter 1 'b'", "parameter 1 'c'" },
    { "frozen", one_frozen, "'b' f32 x 60 in 6 rows on ranks 0, 2",
      "'b' f32 x 60 in 6 rows, frozen on rank 1" },
    { "number of parameters", one_less, "parameter 2 'c'", "bucket 0 f32" },
    { "rows", other_rows, "x 60 in 6 rows on ranks 0, 2", "x 60 in 5 rows on rank 1" },
    { "bucket plan", other_buckets, "bucket 0 f32, 256 bytes on ranks 0, 2",
      "bucket 0 f32, 512 bytes on rank 1" },
    { "shard", sharded, "bucket 0 f32, 256 bytes",
      "bucket 0 f32, 384 bytes on rank 1" },
    { "screen", screened, "screen 0", "screen 1" },
    { "fixed order", in_order, "fixed order 0", "fixed order 1" },
    { "rows or none", plain, "'a' f32 x 60 in 6 rows", "'a' f32 x 60 on rank 1" },
    { "hook or none", plain, "compression 0 of rank 0 on ranks 0, 2",
      "compression -1 of rank 0 on rank 1" },
    { "another hook", another_hook, "compression 0", "compression 1" },
};

static int difference_body(struct muster *m, int rank, void *arg)
{
    const struct difference *d = arg;
    static float w[COUNT];
    struct list l = { .n = 3, .hook = { .reduce = no_reduce } };
    static const char *const names[3] = { "a", "b", "c" };
    struct muster_ddp *ddp;

    for (int i = 0; i < 3; i++) {
        l.p[i] = (struct muster_param){ .name = names[i], .count = COUNT, .data = w };
        l.rows[i] = 6;
    }
    l.hook.rows = strcmp(d->name, "hook or none") == 0 ? NULL : l.rows;
    l.options.hook = &l.hook;
    l.options.first_bucket = 256;
    l.options.bucket_cap = 512;
    if (rank == 1)
        d->change(&l);
    RANK_CHECK(muster_ddp_create(m, l.p, l.n, &l.options, &ddp) == MUSTER_ECONTRACT);
    if (!strstr(muster_error(m), d->ours) || !strstr(muster_error(m), d->theirs)) {
        fprintf(stderr, "%s: %s\n", d->name, muster_error(m));
        return 97;
    }
    return 0;
}

static void row_7_each_difference_is_refused_with_the_ranks_on_each_side(void **state)
{
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        forked_well(
            differences[i].name,
            (struct forked_world){ .size = 3, .return_failure = true, SMALL_BUCKETS },
            difference_body, (void *)(uintptr_t)&differences[i]);
}

/* Row 20: the lists are equal, but rank 2 reduces other buckets later on: it calls a
 * second model's, then the first's, where the others do it the other way round. The
 * ranks find out at the roll call of that step, not in a mean of unlike things.
 */
static int roll_body(struct muster *m, int rank, void *arg)
{
    struct muster_param p = { .name = "w", .count = COUNT };
    struct muster_ddp *ddp[2];
    double start = mu_clock_s();
    int rc = MUSTER_OK;

    for (int d = 0; d < 2; d++)
        RANK_OK(muster_ddp_create(m, &p, 1, NULL, &ddp[d]));
    for (int step = 0; step < 4 && rc == MUSTER_OK; step++)
        for (int d = 0; d < 2 && rc == MUSTER_OK; d++) {
            struct muster_ddp *now = ddp[step == 2 && rank == 2 ? 1 - d : d];

            rc = muster_ddp_grad_ready(now, 0, NULL);
            if (rc == MUSTER_OK)
                rc = muster_ddp_sync(now, NULL);
        }
    RANK_CHECK(rc == MUSTER_ECONTRACT || rc == MUSTER_ETIMEOUT);
    RANK_CHECK(mu_clock_s() - start < 8);
    if (rank == 0)
        fprintf(stderr, "# %.1f s: %s\n", mu_clock_s() - start, muster_error(m));
    if (!strstr(muster_error(m), "rank 2")) {
        fprintf(stderr, "rank %d: %s\n", rank, muster_error(m));
        return 97;
    }
    return 0;
}

static void row_20_a_rank_that_reduces_other_buckets_is_named(void **state)
{
    forked_well("roll call",
                (struct forked_world){ .size = 4,
                                       .nodes = 2,
                                       .timeout = 2,
                                       .return_failure = true,
                                       SMALL_BUCKETS },
                roll_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_parameters_are_broadcast_and_nothing_else),
        cmocka_unit_test(case_085_a_parameter_is_unfrozen_in_the_middle),
        cmocka_unit_test(row_22_what_is_no_parameter_is_refused),
        cmocka_unit_test(row_7_each_difference_is_refused_with_the_ranks_on_each_side),
        cmocka_unit_test(row_20_a_rank_that_reduces_other_buckets_is_named),
    };

    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
