/* SPDX-License-Identifier: BSD-3-Clause */
/* test_compressed.c - compressed gradients: their mean, and the bytes that are sent */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/unit/gradients.h"

static int user_reduce(void *arg, struct muster *m, const struct muster_bucket *bucket)
{
    float *x = bucket->data;
    int rc = muster_allreduce(m, x, bucket->count, bucket->dtype, MUSTER_SUM, NULL);

    for (size_t i = 0; i < bucket->count; i++)
        x[i] /= (float)muster_size(m);
    return rc;
}

static float wave(int rank, int step, int k)
{
    return sinf((float)(rank * 7 + step * 3 + k)) * 1000.0f;
}

/* Over many steps the sum of what comes out is the sum of the means: error feedback. */
static int compress_body(struct muster *m, int rank, void *arg)
{
    const struct muster_hook *hook = arg;
    const struct muster_ddp_options o = { .hook = hook };
    enum { ROWS = 40, COLS = 50, STEPS = 60 };
    struct muster_param p[2] = {
        { .name = "bias", .count = 9, .dtype = MUSTER_F32 },
        { .name = "w", .count = ROWS * COLS, .dtype = MUSTER_F32 }
    };
    static double got[ROWS * COLS], want[ROWS * COLS];
    struct muster_ddp *ddp;
    double off = 0, all = 0;

    RANK_OK(muster_ddp_create(m, p, 2, &o, &ddp));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 1; i >= 0; i--) {
            for (size_t k = 0; k < p[i].count; k++)
                grad(ddp, i)[k] = wave(rank, 0, (int)k);
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int k = 0; k < ROWS * COLS; k++) {
            got[k] += grad(ddp, 1)[k];
            for (int r = 0; r < muster_size(m); r++)
                want[k] += wave(r, 0, k) / (double)muster_size(m);
        }
    }
    for (int k = 0; k < ROWS * COLS; k++) {
        off += (got[k] - want[k]) * (got[k] - want[k]);
        all += want[k] * want[k];
    }
    if (!(sqrt(off / all) < 0.02)) {
        fprintf(stderr, "compression %d: off by %g\n", (int)hook->compress,
                sqrt(off / all));
        return 97;
    }
    if (rank == 0)
        fprintf(stderr, "%d: %llu bytes, off by %.5f\n", (int)hook->compress,
                (unsigned long long)muster_ddp_wire_bytes(ddp) / STEPS,
                sqrt(off / all));
    return finish(m, ddp);
}

static const size_t rows[2] = { 0, 40 };

static const struct compress_case {
    const char *name;
    struct muster_hook hook;
    unsigned long long bytes; /* per step, as computed: 2000 + 32 f32 with padding */
} compressions[] = {
    /* bucket 0: w, 8064 bytes (2016 elements); bucket 1: bias, 128 bytes (32) */
    { "bf16", { .compress = MUSTER_COMPRESS_BF16 }, (2016 + 32) * 2 },
    { "f16", { .compress = MUSTER_COMPRESS_F16 }, (2016 + 32) * 2 },
    { "int8", { .compress = MUSTER_COMPRESS_INT8 }, (8 + 1 + 500 + 3) * 4 },
    { "PowerSGD",
      { .compress = MUSTER_COMPRESS_POWERSGD, .rank = 4, .rows = rows },
      ((40 + 50) * 4 + 9) * 4 },
    { "user", { .compress = MUSTER_COMPRESS_USER, .reduce = user_reduce }, 0 },
};

static void compression_keeps_the_mean_and_sends_the_bytes_it_computes(void **state)
{
    for (size_t i = 0; i < sizeof compressions / sizeof compressions[0]; i++) {
        const struct compress_case *t = &compressions[i];
        struct forked_world w = {
            .size = 4, .nodes = 2, .first_bucket = 256, .bucket_cap = 512
        };
        struct forked_result r;
        unsigned long long bytes = 1;
        int which;

        forked_run(&w, compress_body, (void *)(uintptr_t)&t->hook, 60, &r);
        for (int k = 0; k < w.size; k++)
            if (r.status[k] != 0)
                fail_msg("%s: rank %d ended with %d\n%s", t->name, k, r.status[k],
                         r.text);
        assert_int_equal(sscanf(r.text, "%d: %llu bytes", &which, &bytes), 2);
        print_message("# %s: %s", t->name, r.text);
        if (bytes != t->bytes)
            fail_msg("%s: %llu bytes on the wire, not %llu", t->name, bytes, t->bytes);
        forked_clear(&r);
    }
}

/* Where a cast before the division overflows: 4 ranks with 60000 each. */
static int no_overflow_body(struct muster *m, int rank, void *arg)
{
    static float own[N][COUNT];
    const struct muster_hook hook = { .compress = MUSTER_COMPRESS_F16 };
    const struct muster_ddp_options o = { .hook = &hook };
    struct muster_ddp *ddp = make(m, &o, own);

    for (int i = 0; i < N; i++)
        for (int k = 0; k < COUNT; k++)
            grad(ddp, i)[k] = 80000;
    if (rank == 0)
        for (int k = 0; k < COUNT; k++)
            grad(ddp, 1)[k] = grad(ddp, 2)[k] = -80000;
    all_ready(m, ddp);
    RANK_OK(muster_ddp_sync(ddp, NULL));
    RANK_CHECK(muster_size(m) == 1 || fabsf(grad(ddp, 1)[4]) < 65504);
    RANK_CHECK(muster_size(m) != 4 || fabsf(grad(ddp, 1)[4] - 40000) < 40);
    return finish(m, ddp);
}

static void row_10_fp16_compression_divides_before_the_cast(void **state)
{
    forked_well("fp16", (struct forked_world){ .size = 4, SMALL_BUCKETS },
                no_overflow_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compression_keeps_the_mean_and_sends_the_bytes_it_computes),
        cmocka_unit_test(row_10_fp16_compression_divides_before_the_cast),
    };

    return cmocka_run_group_tests_name("compressed", tests, NULL, NULL);
}
