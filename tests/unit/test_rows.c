/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rows.c - gradients that are ready in rows: the same as the dense way gives */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/core/dtype.h"
#include "runtime/core/numeric.h"
#include "tests/unit/embedding.h"

enum { STEPS = 3 };

static struct how hows[] = {
    { "f32", .size = 2 },
    { "f64", .size = 2, .dtype = MUSTER_F64 },
    { "bf16", .size = 2, .dtype = MUSTER_BF16 },
    { "fp16", .size = 2, .dtype = MUSTER_F16 },
    { "one rank", .size = 1 },
    { "buffers of the program", .size = 2, .own = true },
    { "two nodes", .size = 2, .nodes = 2 },
    { "weights", .size = 2, .weights = true },
    { "micro-batches", .size = 2, .micros = 3 },
    { "weighted micro-batches", .size = 2, .micros = 3, .weights = true },
    { "a quarter of the rows", .size = 2, .tokens = 100, .dense = true },
    { "a quarter of the rows, two nodes", .size = 2, .nodes = 2, .tokens = 100 },
    { "all rows, two nodes", .size = 2, .nodes = 2, .tokens = MOST, .dense = true },
    { "all rows", .size = 2, .tokens = MOST, .dense = true },
    { "all rows, buffers of the program", .size = 2, .tokens = MOST, .dense = true,
      .own = true },
    { "a fixed order", .size = 2, .ordered = true },
    { "bf16 on the way, but for rows", .size = 2, .cast = true },
    { "shard", .size = 2, .shard = true },
    { "shard, micro-batches", .size = 2, .shard = true, .micros = 2, .own = true },
    { "memory elsewhere", .size = 2, .gpu = true },
    { "memory elsewhere, micro-batches", .size = 2, .gpu = true, .micros = 2 },
    { "dense on one rank, rows on another", .size = 2, .alternate = true },
    { "three ranks", .size = 3, .bound = 1e-6 },
    { "four ranks of two nodes", .size = 4, .nodes = 2, .bound = 1e-6 },
    { "tied", .size = 2, .tied = true, .bound = 1e-6 },
    { "tied, bf16", .size = 2, .tied = true, .dtype = MUSTER_BF16, .bound = 8e-3 },
    { "tied, weights", .size = 3, .tied = true, .weights = true, .bound = 1e-6 },
    { "tied, micro-batches", .size = 2, .tied = true, .micros = 3, .own = true,
      .bound = 1e-6 },
    { "tied, all rows", .size = 2, .tied = true, .tokens = MOST, .dense = true,
      .bound = 1e-5 },
    { "tied, shard", .size = 2, .tied = true, .shard = true, .bound = 1e-6 },
    { "tied, memory elsewhere", .size = 2, .tied = true, .gpu = true, .bound = 1e-6 },
};
enum { HOWS = sizeof hows / sizeof hows[0] };

static void step_of(struct muster *m, const struct how *h, struct muster_ddp *ddp,
                    bool by_row, int step, struct muster_finish *f)
{
    int micros = h->micros ? h->micros : 1;

    for (int micro = 0; micro < micros; micro++) {
        RANK_OK(muster_ddp_no_sync(ddp, micro + 1 < micros));
        backward(m, h, ddp, by_row, step, micro);
    }
    RANK_OK(muster_ddp_sync_with(ddp, f, NULL));
}

static void compare(struct muster *m, const struct how *h, const void *a, const void *b,
                    size_t n)
{
    double largest = 0;

    for (size_t k = 0; k < n; k++)
        largest = fmax(largest, fabs(mu_element(b, h->dtype, k)));
    for (size_t k = 0; k < n; k++) {
        double x = mu_element(a, h->dtype, k), y = mu_element(b, h->dtype, k);

        if (h->bound > 0)
            RANK_CHECK(fabs(x - y) <= h->bound * largest);
        else if (x != y)
            fprintf(stderr, "element %zu: %.17g in rows, %.17g dense\n", k, x, y);
        if (h->bound == 0)
            RANK_CHECK(x == y);
    }
}

static void compare_all(struct muster *m, const struct how *h, struct muster_ddp *rows,
                        struct muster_ddp *dense)
{
    if (!h->shard) {
        compare(m, h, muster_ddp_grad(rows, AT), muster_ddp_grad(dense, AT), COUNT);
        if (!h->cast)
            compare(m, h, muster_ddp_grad(rows, 0), muster_ddp_grad(dense, 0),
                    count[0]);
        return;
    }
    for (int k = 0; k < muster_ddp_buckets(rows); k++) {
        struct muster_shard a, b;

        RANK_OK(muster_ddp_shard(rows, k, &a));
        RANK_OK(muster_ddp_shard(dense, k, &b));
        RANK_CHECK(a.count == b.count);
        compare(m, h, a.grad, b.grad, a.count);
    }
}

/* Do all ranks have the same bits? */
static void same_on_all(struct muster *m, const struct how *h, struct muster_ddp *ddp)
{
    static char all[8 * COUNT * 8];
    size_t bytes = COUNT * mu_dtype_size(h->dtype);

    if (h->shard || h->gpu)
        return;
    RANK_OK(muster_allgather(m, muster_ddp_grad(ddp, AT), all, COUNT, h->dtype, NULL));
    for (int r = 1; r < muster_size(m); r++)
        RANK_CHECK(memcmp(all, all + (size_t)r * bytes, bytes) == 0);
}

static int copy_any(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                    struct mu_err *err)
{
    memcpy(dst, src, bytes);
    return 0;
}

static int same_body(struct muster *m, int rank, void *arg)
{
    static char own[2][N][COUNT * 8];
    const struct how *h = arg;
    struct muster_ddp *rows, *dense;

    if (h->gpu)
        forked_elsewhere(m)->copy_any = copy_any;
    rows = make(m, h, true, own[0]);
    dense = make(m, h, false, own[1]);
    RANK_CHECK(muster_ddp_buckets(rows) == 3 && muster_ddp_bucket_of(rows, AT) == 1);
    for (int step = 0; step < STEPS; step++) {
        struct muster_finish f = { .max_norm = 0.5 }, g = f;

        step_of(m, h, rows, true, step, &f);
        step_of(m, h, dense, false, step, &g);
        RANK_CHECK(f.norm > 0 &&
                   fabs(f.norm - g.norm) <= (h->bound + 1e-2 * h->cast) * g.norm);
        RANK_CHECK(!muster_ddp_absent(rows, AT));
        if (!h->cast)
            compare_all(m, h, rows, dense);
        same_on_all(m, h, rows);
    }
    if (h->bound == 0 && h->size == 2 && !h->shard && !h->gpu && !h->cast &&
        !h->alternate) {
        uint64_t sent = muster_ddp_wire_bytes(rows),
                 whole = muster_ddp_wire_bytes(dense);

        RANK_CHECK(sent <= whole && (sent + COUNT < whole) == !h->dense);
    }
    muster_ddp_destroy(rows);
    muster_ddp_destroy(dense);
    return muster_finalize(m);
}

static void rows_give_what_the_dense_way_gives(void **state)
{
    for (size_t k = 0; k < HOWS; k++) {
        struct how *h = &hows[k];

        forked_well(
            h->name,
            (struct forked_world){ .size = h->size, .nodes = h->nodes ? h->nodes : 1 },
            same_body, h);
    }
}

/* At most half a unit in the last place of each of the two results that are rounded:
 * the mean of the dense parts, and the sum.
 */
static int tied_body(struct muster *m, int rank, void *arg)
{
    static const struct how h = { .tied = true, .size = 2 };
    struct muster_ddp *ddp = make(m, &h, true, NULL);
    const float *g = muster_ddp_grad(ddp, AT);
    static double part[COUNT], rows[COUNT];
    static float x[COUNT];
    struct batch batch;

    for (int r = 0; r < 2; r++) {
        fill(&h, r, 0, AT, x);
        draw(&h, r, 0, &batch);
        for (size_t k = 0; k < COUNT; k++)
            part[k] += x[k] / 2.0;
        add(&h, x, &batch, NULL, false);
        for (size_t k = 0; k < COUNT; k++)
            rows[k] += x[k] / 2.0;
    }
    backward(m, &h, ddp, true, 0, 0);
    RANK_OK(muster_ddp_sync(ddp, NULL));
    for (size_t k = 0; k < COUNT; k++)
        RANK_CHECK(fabs((double)g[k] - (part[k] + rows[k])) <=
                   ldexp(fabs(part[k]) + fabs(part[k] + rows[k]), -24) * 1.0001);
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void a_tied_weight_is_rounded_once_more_than_the_dense_mean(void **state)
{
    forked_well("tied", (struct forked_world){ .size = 2, .nodes = 1 }, tied_body,
                NULL);
}

/* A step in which no rank has the embedding, one in which rank 1 has no row of it, and
 * one in which it is out of data.
 */
static int lacking_body(struct muster *m, int rank, void *arg)
{
    static const struct how h = { .size = 2 };
    struct muster_ddp *ddp = make(m, &h, true, NULL);
    float *g = muster_ddp_grad(ddp, AT), one[WIDTH];
    const int64_t five = 5;

    for (int j = 0; j < WIDTH; j++)
        one[j] = (float)j + 1;
    for (int k = 0; k < COUNT; k++)
        g[k] = 3;
    RANK_OK(muster_ddp_grad_absent(ddp, AT));
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_CHECK(muster_ddp_absent(ddp, AT) && g[0] == 3);
    if (rank == 0)
        RANK_OK(muster_ddp_grad_rows(ddp, AT, &five, 1, one, NULL));
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_CHECK(!muster_ddp_absent(ddp, AT));
    for (int k = 0; k < COUNT; k++)
        RANK_CHECK(g[k] == (k / WIDTH == 5 ? one[k % WIDTH] / 2 : 0));
    /* No row at all is a gradient of zeros. */
    RANK_OK(muster_ddp_grad_rows(ddp, AT, NULL, 0, NULL, NULL));
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_CHECK(!muster_ddp_absent(ddp, AT) && g[5 * WIDTH] == 0);
    if (rank == 0) {
        RANK_OK(muster_ddp_weight(ddp, 4));
        RANK_OK(muster_ddp_grad_rows(ddp, AT, &five, 1, one, NULL));
        RANK_OK(muster_ddp_sync(ddp, NULL));
        RANK_CHECK(g[5 * WIDTH] == 1);
    }
    RANK_OK(muster_ddp_join(ddp, NULL, NULL));
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void a_rank_may_lack_rows(void **state)
{
    forked_well("lacking", (struct forked_world){ .size = 2, .nodes = 1 }, lacking_body,
                NULL);
}

/* Rank 2 dies between two steps; what the survivors had ready belongs to no step. */
static int death_body(struct muster *m, int rank, void *arg)
{
    static const struct how h = { .size = 3 };
    struct muster_ddp *ddp = make(m, &h, true, NULL);
    const float *g = muster_ddp_grad(ddp, AT);
    float one[WIDTH] = { 1, 1, 1, 1, 1, 1, 1 };
    const int64_t row[3] = { 2, 3, 4 };
    int rc;

    RANK_OK(muster_ddp_grad_rows(ddp, AT, &row[0], 1, one, NULL));
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_CHECK(g[2 * WIDTH] == 1 && g[3 * WIDTH] == 0);
    if (rank == 2)
        _exit(7);
    rc = muster_ddp_grad_rows(ddp, AT, &row[1], 1, one, NULL);
    RANK_CHECK(rc == MUSTER_OK);
    RANK_CHECK(muster_ddp_sync(ddp, NULL) == MUSTER_ESHRUNK);
    RANK_CHECK(muster_size(m) == 2);
    for (int step = 0; step < 3; step++) {
        RANK_OK(muster_ddp_grad_rows(ddp, AT, &row[2], 1, one, NULL));
        RANK_OK(muster_ddp_sync(ddp, NULL));
        RANK_CHECK(g[3 * WIDTH] == 0 && g[4 * WIDTH] == 1);
    }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void survivors_repeat_a_step_with_rows(void **state)
{
    struct forked_world w = { .size = 3, .nodes = 1, .elastic = 1 };
    struct forked_result result;

    forked_run(&w, death_body, NULL, 60, &result);
    if (result.status[0] != 0 || result.status[1] != 0 || result.status[2] != 7)
        fail_msg("%d %d %d: %s", result.status[0], result.status[1], result.status[2],
                 result.text);
    forked_clear(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_give_what_the_dense_way_gives),
        cmocka_unit_test(a_tied_weight_is_rounded_once_more_than_the_dense_mean),
        cmocka_unit_test(a_rank_may_lack_rows),
        cmocka_unit_test(survivors_repeat_a_step_with_rows),
    };

    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
