/* SPDX-License-Identifier: BSD-3-Clause */
/* test_layout.c - gradients where the caller keeps them: any address, any order of
 * elements, and embeddings of which a step touches a few rows
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

#include "runtime/core/convert.h"
#include "runtime/core/numeric.h"
#include "tests/unit/forked.h"

static void everywhere(int (*body)(struct muster *m, int rank, void *arg))
{
    forked_well("alone", (struct forked_world){ .size = 1, SMALL_BUCKETS }, body, NULL);
    forked_well("a node", (struct forked_world){ .size = 3, SMALL_BUCKETS }, body,
                NULL);
    forked_well("nodes", (struct forked_world){ .size = 4, .nodes = 2, SMALL_BUCKETS },
                body, NULL);
}

/* ---- Row 4: any address, any order -------------------------------------------------
 */

enum { CHANNELS = 3, PIXELS = 25, IMAGE = CHANNELS * PIXELS, AROUND = 7 };

/* The place of a channel's pixel: channels first, or last. */
static size_t place(bool last, size_t c, size_t p)
{
    return last ? p * CHANNELS + c : c * PIXELS + p;
}

static void put(void *at, enum muster_dtype type, size_t i, double x)
{
    switch (type) {
    case MUSTER_F64:
        ((double *)at)[i] = x;
        break;
    case MUSTER_F32:
        ((float *)at)[i] = (float)x;
        break;
    case MUSTER_F16:
        ((uint16_t *)at)[i] = mu_to_f16((float)x);
        break;
    default:
        ((uint16_t *)at)[i] = mu_to_bf16((float)x);
    }
}

static const struct tensor {
    const char *name;
    enum muster_dtype type;
    size_t before; /* elements between an aligned address and the gradient */
    bool last;     /* channels last */
} tensors[] = {
    { "f32 first", MUSTER_F32, 0, false },
    { "f32 last, off by one", MUSTER_F32, 1, true },
    { "f64 off by one", MUSTER_F64, 1, true },
    { "f16 off by three", MUSTER_F16, 3, true },
    { "bf16 off by one", MUSTER_BF16, 1, false },
    { "f32 off by three", MUSTER_F32, 3, true },
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };

/* Small whole numbers: their sums and, over 1, 2 or 4 ranks, means are exact. */
static double slope(int rank, int i, size_t c, size_t p)
{
    return (double)((rank + 1) * (int)(c + 1) + i) + (double)(p % 5) * 3;
}

static double mean_slope(int size, int i, size_t c, size_t p)
{
    double sum = 0;

    for (int r = 0; r < size; r++)
        sum += slope(r, i, c, p);
    return sum / size;
}

static int layout_body(struct muster *m, int rank, void *arg)
{
    /* Zeros around each gradient, which must stay. */
    static _Alignas(128) unsigned char arena[TENSORS][2048];
    struct muster_param p[TENSORS];
    struct muster_ddp *ddp;
    int size = muster_size(m);

    for (int i = 0; i < TENSORS; i++) {
        const struct tensor *t = &tensors[i];

        p[i] = (struct muster_param){
            .name = t->name,
            .count = IMAGE,
            .dtype = t->type,
            .grad = arena[i] + (AROUND + t->before) * muster_dtype_size(t->type),
        };
    }
    RANK_OK(muster_ddp_create(m, p, TENSORS, NULL, &ddp));
    for (int step = 0; step < 3; step++) {
        for (int i = TENSORS - 1; i >= 0; i--) {
            const struct tensor *t = &tensors[i];

            for (size_t k = 0; k < IMAGE; k++)
                put(p[i].grad, t->type, place(t->last, k / PIXELS, k % PIXELS),
                    slope(rank, i, k / PIXELS, k % PIXELS));
            RANK_CHECK(muster_ddp_grad(ddp, i) == p[i].grad);
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int i = 0; i < TENSORS; i++) {
            const struct tensor *t = &tensors[i];
            size_t width = muster_dtype_size(t->type);
            unsigned char *end = (unsigned char *)p[i].grad + IMAGE * width;
            double bound = t->type == MUSTER_BF16 ? 0.005 : 0.001;

            for (size_t k = 0; k < IMAGE; k++) {
                size_t c = k / PIXELS, at = k % PIXELS;
                double want = mean_slope(size, i, c, at);

                RANK_CHECK(fabs(mu_element(p[i].grad, t->type, place(t->last, c, at)) -
                                want) <= bound * want);
            }
            for (unsigned char *b = arena[i]; b < arena[i] + sizeof arena[i]; b++)
                RANK_CHECK((b >= (unsigned char *)p[i].grad && b < end) || *b == 0);
        }
    }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void row_4_a_gradient_of_any_layout_comes_back_where_it_was(void **state)
{
    everywhere(layout_body);
}

/* ---- Row 8: embeddings --------------------------------------------------------------
 */

enum { ROWS = 40, COLS = 4 };

/* Rank r touches 2 + r rows of the table in a step, some of them others' too. */
static int touched(int rank, int step, int n)
{
    return n < 2 + rank ? (rank * 5 + step * 3 + n * 7) % ROWS : -1;
}

static float entry(int rank, int step, int row, int col)
{
    return (float)((rank + 1) * 4 + step + row + col);
}

/* Without a sparse type: the rows and their numbers are gathered, padded to the longest
 * list, and added up alike by every rank. The table is frozen for the ddp: broadcast,
 * but in no bucket.
 */
static void gather_rows(struct muster *m, int rank, int step, float *sum)
{
    int32_t most = 2 + rank, *index, *indices;
    float *value, *values;
    int size = muster_size(m);

    RANK_OK(muster_allreduce(m, &most, 1, MUSTER_I32, MUSTER_MAX, NULL));
    index = calloc((size_t)most, sizeof *index);
    value = calloc((size_t)most * COLS, sizeof *value);
    indices = calloc((size_t)(most * size), sizeof *indices);
    values = calloc((size_t)(most * size) * COLS, sizeof *values);
    for (int n = 0; n < most; n++) {
        index[n] = touched(rank, step, n);
        for (int c = 0; index[n] >= 0 && c < COLS; c++)
            value[n * COLS + c] = entry(rank, step, index[n], c);
    }
    RANK_OK(muster_allgather(m, index, indices, (size_t)most, MUSTER_I32, NULL));
    RANK_OK(muster_allgather(m, value, values, (size_t)most * COLS, MUSTER_F32, NULL));
    for (int n = 0; n < most * size; n++)
        for (int c = 0; indices[n] >= 0 && c < COLS; c++)
            sum[indices[n] * COLS + c] += values[n * COLS + c];
    free(index);
    free(value);
    free(indices);
    free(values);
}

static int embedding_body(struct muster *m, int rank, void *arg)
{
    static float table[ROWS * COLS], sum[ROWS * COLS], before[ROWS * COLS];
    struct muster_param p[2] = {
        { .name = "table, dense",
          .count = ROWS * COLS,
          .dtype = MUSTER_F32,
          .data = table },
        { .name = "table, sparse",
          .count = ROWS * COLS,
          .dtype = MUSTER_F32,
          .data = table,
          .frozen = 1 },
    };
    struct muster_ddp *ddp;
    float *dense;

    table[5] = (float)rank;
    RANK_OK(muster_ddp_create(m, p, 2, NULL, &ddp));
    RANK_OK(muster_ddp_broadcast(ddp, 0));
    RANK_CHECK(table[5] == 0 && muster_ddp_bucket_of(ddp, 1) == -1);
    dense = muster_ddp_grad(ddp, 0);
    for (int step = 0; step < 4; step++) {
        bool hit[ROWS] = { false };

        memset(dense, 0, ROWS * COLS * sizeof *dense);
        for (int n = 0; touched(rank, step, n) >= 0; n++)
            for (int c = 0; c < COLS; c++)
                dense[touched(rank, step, n) * COLS + c] +=
                    entry(rank, step, touched(rank, step, n), c);
        RANK_OK(muster_ddp_grad_ready(ddp, 0, NULL));
        memset(sum, 0, sizeof sum);
        gather_rows(m, rank, step, sum);
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int r = 0; r < muster_size(m); r++)
            for (int n = 0; touched(r, step, n) >= 0; n++)
                hit[touched(r, step, n)] = true;
        memcpy(before, table, sizeof before);
        for (int k = 0; k < ROWS * COLS; k++) {
            RANK_CHECK(fabsf(dense[k] - sum[k] / (float)muster_size(m)) < 1e-4f);
            RANK_CHECK(hit[k / COLS] || dense[k] == 0);
            table[k] -= sum[k];
            RANK_CHECK(hit[k / COLS] == (table[k] != before[k]));
        }
    }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void row_8_rows_that_a_rank_touches_are_averaged_dense_or_gathered(void **state)
{
    everywhere(embedding_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_4_a_gradient_of_any_layout_comes_back_where_it_was),
        cmocka_unit_test(row_8_rows_that_a_rank_touches_are_averaged_dense_or_gathered),
    };

    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
