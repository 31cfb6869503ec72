/* SPDX-License-Identifier: BSD-3-Clause */
/* embedding.c - a model with an embedding, whose gradient is ready in rows or dense */
#include "tests/unit/embedding.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/core/convert.h"
#include "runtime/core/dtype.h"
#include "runtime/core/numeric.h"

const size_t count[N] = { 5, COUNT, 11 };
static const char *const names[N] = { "first", "embedding", "last" };

static double value(int rank, int step, int i, size_t k)
{
    return sin(rank * 3.1 + step * 5.3 + i * 7.7 + (double)k * 1.3);
}

void draw(const struct how *h, int rank, int step, struct batch *out)
{
    size_t size = mu_dtype_size(h->dtype);

    out->n = h->tokens ? (size_t)h->tokens : (size_t)((rank + step) % 3 * 4);
    for (size_t k = 0; k < out->n; k++) {
        out->index[k] =
            (int64_t)(h->tokens ? k * 7 % ROWS : (k * k + (size_t)(rank + step)) % 15);
        for (size_t j = 0; j < WIDTH; j++) {
            double x = value(rank, step, 9, k * WIDTH + j);

            mu_convert(out->values + (k * WIDTH + j) * size, h->dtype, &x, MUSTER_F64,
                       1, 1, NULL);
        }
    }
}

void add(const struct how *h, void *g, const struct batch *batch, const void *part,
         bool keep)
{
    enum muster_dtype sums = h->dtype == MUSTER_F64 ? MUSTER_F64 : MUSTER_F32;
    static double room[COUNT];
    float *f = (float *)room;

    memset(room, 0, sizeof room);
    if (keep)
        mu_convert(room, sums, g, h->dtype, COUNT, 1, NULL);
    for (size_t k = 0; batch && k < batch->n * WIDTH; k++) {
        size_t to = (size_t)batch->index[k / WIDTH] * WIDTH + k % WIDTH;
        double x = mu_element(batch->values, h->dtype, k);

        if (sums == MUSTER_F64)
            room[to] += x;
        else
            f[to] += (float)x;
    }
    for (size_t k = 0; part && k < COUNT; k++)
        if (sums == MUSTER_F64)
            room[k] += mu_element(part, h->dtype, k);
        else
            f[k] += (float)mu_element(part, h->dtype, k);
    mu_convert(g, h->dtype, room, sums, COUNT, 1, NULL);
}

struct muster_ddp *make(struct muster *m, const struct how *h, bool by_row,
                        char own[N][COUNT * 8])
{
    static char weights[2][N][COUNT * 8];
    static const struct muster_hook cast = { .compress = MUSTER_COMPRESS_BF16 };
    /* Dense: a bucket for each too, so that the norm is added up in one order. */
    size_t cap = by_row ? 1 << 20 : 1;
    struct muster_ddp_options o = { .first_bucket = cap,
                                    .bucket_cap = cap,
                                    .shard = h->shard,
                                    .fixed_order = h->ordered,
                                    .screen = 1,
                                    /* In the table every gradient is there. */
                                    .require_all = h->name != NULL,
                                    .hook = h->cast && by_row ? &cast : NULL };
    struct muster_param p[N];
    struct muster_ddp *ddp;

    for (int i = 0; i < N; i++)
        p[i] = (struct muster_param){ .name = names[i],
                                      .count = count[i],
                                      .dtype = h->dtype,
                                      .data = weights[by_row][i],
                                      .grad = h->own ? own[i] : NULL,
                                      .rows = i == AT && by_row ? ROWS : 0 };
    RANK_OK(muster_ddp_create(m, p, N, &o, &ddp));
    return ddp;
}

void fill(const struct how *h, int rank, int step, int i, void *g)
{
    for (size_t k = 0; k < count[i]; k++) {
        double x = value(rank, step, i, k);

        mu_convert((char *)g + k * mu_dtype_size(h->dtype), h->dtype, &x, MUSTER_F64, 1,
                   1, NULL);
    }
}

void backward(struct muster *m, const struct how *h, struct muster_ddp *ddp,
              bool by_row, int step, int micro)
{
    static char part[COUNT * 8];
    int rank = muster_rank(m), number = step * 10 + micro;
    struct batch batch;

    draw(h, rank, number, &batch);
    fill(h, rank, number, AT, part);
    if (h->weights)
        RANK_OK(muster_ddp_weight(ddp, 1 + rank + micro));
    if (h->tied && by_row) {
        add(h, muster_ddp_grad(ddp, AT), NULL, part, micro > 0);
        RANK_OK(muster_ddp_grad_ready(ddp, AT, NULL));
    }
    for (int i = N - 1; i >= 0; i--)
        if (i != AT) {
            fill(h, rank, number, i, muster_ddp_grad(ddp, i));
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
    if (by_row && !(h->alternate && rank == step % 2)) {
        RANK_OK(
            muster_ddp_grad_rows(ddp, AT, batch.index, batch.n, batch.values, NULL));
        memset(&batch, 0x7f, sizeof batch); /* it was copied */
    } else {
        add(h, muster_ddp_grad(ddp, AT), &batch, h->tied ? part : NULL, micro > 0);
        RANK_OK(muster_ddp_grad_ready(ddp, AT, NULL));
    }
}
