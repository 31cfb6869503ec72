/* SPDX-License-Identifier: BSD-3-Clause */
/* test_combine.c - every combination of ZeRO-1, compression, weights, accumulation,
 * screening, clipping and loss scale gives the mean that it should
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

#include "tests/unit/forked.h"

/* Gradients of rank 1 (so that rank 4 is exact), 16 x 30, and a vector. */
enum { ROWS = 16, COLS = 30, N = 2, STEPS = 3 };
static const size_t count[N] = { ROWS * COLS, 7 };
static const size_t rows[N] = { ROWS, 0 };

static int average(void *arg, struct muster *m, const struct muster_bucket *bucket)
{
    float *x = bucket->data;
    int rc = muster_allreduce(m, x, bucket->count, bucket->dtype, MUSTER_SUM, NULL);

    for (size_t i = 0; i < bucket->count; i++)
        x[i] /= (float)muster_size(m);
    return rc;
}

static const struct how {
    const char *name;
    struct muster_hook hook;
    bool none;
    double bound; /* of a gradient, relative to its largest element */
} hows[] = {
    { "none", { 0 }, true, 1e-5 },
    { "bf16", { .compress = MUSTER_COMPRESS_BF16 }, false, 2e-2 },
    { "fp16", { .compress = MUSTER_COMPRESS_F16 }, false, 2e-3 },
    { "int8", { .compress = MUSTER_COMPRESS_INT8 }, false, 0.12 },
    { "powersgd:4",
      { .compress = MUSTER_COMPRESS_POWERSGD, .rank = 4, .rows = rows },
      false,
      1e-3 },
    { "your own",
      { .compress = MUSTER_COMPRESS_USER, .reduce = average },
      false,
      1e-5 },
};
enum { HOWS = sizeof hows / sizeof hows[0] };

enum { PLAIN, CLIP, SCALE, SCALE_AND_CLIP, FINISHES };
static const char *const finish_names[FINISHES] = { "plain", "clip", "scale",
                                                    "scale+clip" };

struct combination {
    const struct how *how;
    bool shard, weights, accumulate, screen;
    int finish;
};

static float value(int rank, int step, int i, size_t k)
{
    float v = ((float)(k / COLS) - 7.5f) * ((float)(k % COLS) - 14.2f);

    return (float)(rank + 1 + step) * (i ? (float)k - 2.5f : v) / 64;
}

/* Micro-batch k of rank r weighs this; without weights each counts as 1. */
static double weight_of(const struct combination *c, int rank, int micro)
{
    return c->weights ? 1 + rank + 2 * micro : 1;
}

/* What sync must give: with weights the weighted mean over ranks and micro-batches,
 * without the mean over ranks of the sums over micro-batches.
 */
static double expected(const struct combination *c, int size, int step, int i, size_t k)
{
    int micros = c->accumulate ? 2 : 1;
    double top = 0, below = 0;

    for (int r = 0; r < size; r++)
        for (int micro = 0; micro < micros; micro++) {
            double w = weight_of(c, r, micro);

            top += w * (double)value(r, step + micro, i, k);
            below += w;
        }
    return top / (c->weights ? below : size);
}

static void run_step(struct muster *m, const struct combination *c,
                     struct muster_ddp *ddp, int step, struct muster_finish *f)
{
    int rank = muster_rank(m), micros = c->accumulate ? 2 : 1;
    double scale = f->scaler ? f->scaler->scale : 1;

    for (int micro = 0; micro < micros; micro++) {
        RANK_OK(muster_ddp_no_sync(ddp, micro + 1 < micros));
        if (c->weights)
            RANK_OK(muster_ddp_weight(ddp, weight_of(c, rank, micro)));
        for (int i = N - 1; i >= 0; i--) {
            float *g = muster_ddp_grad(ddp, i);

            for (size_t k = 0; k < count[i]; k++)
                g[k] =
                    (micro ? g[k] : 0) + (float)scale * value(rank, step + micro, i, k);
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
    }
    if (c->finish == PLAIN)
        RANK_OK(muster_ddp_sync(ddp, NULL));
    else
        RANK_OK(muster_ddp_sync_with(ddp, f, NULL));
}

/* The elements of parameter i that this rank may look at. */
static void visible(struct muster *m, const struct combination *c,
                    struct muster_ddp *ddp, int i, size_t *from, size_t *to)
{
    const float *g = muster_ddp_grad(ddp, i), *start, *end;
    struct muster_shard part;

    *from = 0;
    *to = count[i];
    if (!c->shard)
        return;
    RANK_OK(muster_ddp_shard(ddp, muster_ddp_bucket_of(ddp, i), &part));
    start = part.grad;
    end = start + part.count;
    *from = start <= g                   ? 0
            : start - g < (long)count[i] ? (size_t)(start - g)
                                         : count[i];
    *to = end <= g ? 0 : end - g < (long)count[i] ? (size_t)(end - g) : count[i];
}

/* Returns how many elements were looked at. */
static size_t compare(struct muster *m, const struct combination *c,
                      struct muster_ddp *ddp, int step, const struct muster_finish *f)
{
    int size = muster_size(m);
    double squares = 0, factor = 1;
    size_t seen = 0;

    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < count[i]; k++)
            squares += pow(expected(c, size, step, i, k), 2);
    if (f->max_norm > 0 && sqrt(squares) > f->max_norm)
        factor = f->max_norm / sqrt(squares);
    if (c->finish != PLAIN)
        RANK_CHECK(!f->skip && fabs(f->norm / sqrt(squares) - 1) < 0.05);
    for (int i = 0; i < N; i++) {
        double most = 0;
        size_t from, to;

        for (size_t k = 0; k < count[i]; k++)
            most = fmax(most, fabs(factor * expected(c, size, step, i, k)));
        visible(m, c, ddp, i, &from, &to);
        for (size_t k = from; k < to; k++) {
            double want = factor * expected(c, size, step, i, k);
            double got = ((float *)muster_ddp_grad(ddp, i))[k];

            if (!(fabs(got - want) <= c->how->bound * most)) {
                fprintf(stderr, "rank %d, step %d: gradient %d at %zu is %g, not %g\n",
                        muster_rank(m), step, i, k, got, want);
                _exit(97);
            }
        }
        seen += from < to ? to - from : 0;
    }
    return seen;
}

static void run_combination(struct muster *m, const struct combination *c)
{
    const struct muster_ddp_options o = { .shard = c->shard,
                                          .screen = c->screen,
                                          .hook = c->how->none ? NULL : &c->how->hook };
    struct muster_scaler scaler = { .scale = 256, .interval = 2 };
    struct muster_param p[N] = { { .name = "w", .count = count[0] },
                                 { .name = "b", .count = count[1] } };
    int64_t seen = 0;
    struct muster_ddp *ddp;

    RANK_OK(muster_ddp_create(m, p, N, &o, &ddp));
    for (int step = 0; step < STEPS; step++) {
        struct muster_finish f = { 0 };

        if (c->finish == CLIP || c->finish == SCALE_AND_CLIP)
            f.max_norm = 5;
        if (c->finish == SCALE || c->finish == SCALE_AND_CLIP)
            f.scaler = &scaler;
        run_step(m, c, ddp, step, &f);
        seen += (int64_t)compare(m, c, ddp, step, &f);
        if (c->shard)
            RANK_OK(muster_ddp_gather(ddp));
    }
    /* Parts are all there is, each once. */
    RANK_OK(muster_allreduce(m, &seen, 1, MUSTER_I64, MUSTER_SUM, NULL));
    RANK_CHECK(seen == STEPS * (int64_t)(count[0] + count[1]) *
                           (c->shard ? 1 : muster_size(m)));
    RANK_CHECK(c->finish < SCALE || scaler.scale == 512);
    muster_ddp_destroy(ddp);
}

static void name_of(const struct combination *c, char *name, size_t len)
{
    snprintf(name, len, "%-10s %-7s %-8s %-10s %-7s %s", c->how->name,
             c->shard ? "ZeRO-1" : "-", c->weights ? "weights" : "-",
             c->accumulate ? "2 micros" : "-", c->screen ? "screen" : "-",
             finish_names[c->finish]);
}

/* All combinations of one compression, in one world. */
static int body(struct muster *m, int rank, void *arg)
{
    char *doing = arg; /* shared: which one it is */

    for (int n = 0; n < 16 * FINISHES; n++) {
        struct combination c = {
            &hows[doing[0] - '0'], n & 1, n >> 1 & 1, n >> 2 & 1, n >> 3 & 1, n / 16
        };

        if (rank == 0)
            name_of(&c, doing + 1, 127);
        run_combination(m, &c);
    }
    return muster_finalize(m);
}

static void every_combination_gives_its_mean(void **state)
{
    char *doing = forked_shared(128);

    for (int h = 0; h < HOWS; h++) {
        struct forked_world w = {
            .size = 3, .nodes = 2, .first_bucket = 256, .bucket_cap = 512
        };
        struct forked_result r;

        doing[0] = (char)('0' + h);
        forked_run(&w, body, doing, 100, &r);
        for (int k = 0; k < w.size; k++)
            if (r.status[k] != 0)
                fail_msg("%s: rank %d ended with %d\n%s", doing + 1, k, r.status[k],
                         r.text);
        print_message("# %-10s with and without ZeRO-1, weights, accumulation, "
                      "screening; plain, clip, scale, scale+clip: %d work\n",
                      hows[h].name, 16 * FINISHES);
        forked_clear(&r);
    }
}

/* ---- What goes over the wire with ZeRO-1 ------------------------------------------
 */

static const struct bytes_case {
    const struct how *how;
    unsigned long long plain, shard; /* a step; the buckets are 1920 + 128 bytes, and
                                        with parts for 4 ranks 2048 + 512 */
} bytes_cases[] = {
    { &hows[0], 2048,
      2560 }, /* an all-reduce moves each twice, a reduce-scatter once */
    { &hows[1], 1024, 1280 },
    { &hows[2], 1024, 1280 },
    { &hows[3], 4 * (2 + 120 + 1 + 2), 4 * (2 + 120 + 1 + 2) },
    { &hows[4], 4 * (4 * (16 + 30) + 7), 4 * (4 * (16 + 30) + 7) },
};

static int bytes_body(struct muster *m, int rank, void *arg)
{
    const struct bytes_case *t = arg;

    for (int shard = 0; shard < 2; shard++) {
        const struct combination c = { .how = t->how, .shard = shard };
        const struct muster_ddp_options o = { .shard = shard,
                                              .hook =
                                                  t->how->none ? NULL : &t->how->hook };
        struct muster_param p[N] = { { .name = "w", .count = count[0] },
                                     { .name = "b", .count = count[1] } };
        struct muster_finish none = { 0 };
        unsigned long long want = shard ? t->shard : t->plain, got;
        struct muster_ddp *ddp;

        RANK_OK(muster_ddp_create(m, p, N, &o, &ddp));
        run_step(m, &c, ddp, 0, &none);
        got = muster_ddp_wire_bytes(ddp);
        muster_ddp_destroy(ddp);
        if (got != want) {
            fprintf(stderr, "%s, shard %d: %llu bytes, not %llu\n", t->how->name, shard,
                    got, want);
            return 97;
        }
    }
    return muster_finalize(m);
}

static void zero_1_sends_the_bytes_that_its_compression_computes(void **state)
{
    for (size_t i = 0; i < sizeof bytes_cases / sizeof bytes_cases[0]; i++)
        forked_well(bytes_cases[i].how->name,
                    (struct forked_world){ .size = 4, SMALL_BUCKETS }, bytes_body,
                    (void *)(uintptr_t)&bytes_cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_gives_its_mean),
        cmocka_unit_test(zero_1_sends_the_bytes_that_its_compression_computes),
    };

    return cmocka_run_group_tests_name("combine", tests, NULL, NULL);
}
