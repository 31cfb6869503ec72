/* SPDX-License-Identifier: BSD-3-Clause */
/* test_zero.c - ZeRO-1: optimizers of parts give the weights of one of the whole */
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

static void everywhere(int (*body)(struct muster *m, int rank, void *arg), void *arg)
{
    forked_well("alone", (struct forked_world){ .size = 1, SMALL_BUCKETS }, body, arg);
    forked_well("a node", (struct forked_world){ .size = 3, SMALL_BUCKETS }, body, arg);
    forked_well("nodes", (struct forked_world){ .size = 4, .nodes = 2, SMALL_BUCKETS },
                body, arg);
}

/* Momentum SGD on parts against the same on whole gradients: the same weights. */
static int zero_body(struct muster *m, int rank, void *arg)
{
    static const size_t count[3] = { 7, 130, 1 }; /* nothing divides evenly */
    static float data[3][130], plain[3][130], momentum[3][130];
    const struct muster_ddp_options o = { .shard = 1 };
    struct muster_param p[3] = {
        { .name = "a", .count = 7, .dtype = MUSTER_F32, .data = data[0] },
        { .name = "b", .count = 130, .dtype = MUSTER_F32 },
        { .name = "c", .count = 1, .dtype = MUSTER_F32, .data = data[2] }
    };
    struct muster_ddp *ddp;
    struct muster_shard part;
    float *state[8];
    size_t kept = 0;
    int size = muster_size(m);

    data[0][3] = (float)rank; /* the broadcast makes it rank 0's */
    RANK_OK(muster_ddp_create(m, p, 3, &o, &ddp));
    RANK_OK(muster_ddp_broadcast(ddp, 0));
    for (int b = 0; b < muster_ddp_buckets(ddp); b++) {
        RANK_OK(muster_ddp_shard(ddp, b, &part));
        state[b] = calloc(part.count, sizeof(float));
        kept += part.count;
    }
    RANK_CHECK(kept * (size_t)size <= 138 + 3 * 32 * (size_t)size); /* padding is all */
    for (int step = 1; step <= 5; step++) {
        for (int i = 2; i >= 0; i--) {
            for (size_t k = 0; k < count[i]; k++) {
                float sum = 0, *g = &momentum[i][k];

                for (int r = 0; r < size; r++)
                    sum += (float)((r + 1) * step + (int)k);
                *g = 0.5f * *g + sum * (float)(1.0 / size);
                plain[i][k] -= 0.125f * *g;
                ((float *)muster_ddp_grad(ddp, i))[k] =
                    (float)((rank + 1) * step + (int)k);
            }
            RANK_OK(muster_ddp_grad_ready(ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(ddp, NULL));
        for (int b = 0; b < muster_ddp_buckets(ddp); b++) {
            RANK_OK(muster_ddp_shard(ddp, b, &part));
            for (size_t k = 0; k < part.count; k++) {
                state[b][k] = 0.5f * state[b][k] + ((float *)part.grad)[k];
                ((float *)part.data)[k] -= 0.125f * state[b][k];
            }
        }
        RANK_OK(muster_ddp_gather(ddp));
    }
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < count[i]; k++)
            if (fabsf(((float *)muster_ddp_data(ddp, i))[k] - plain[i][k]) > 1e-3f) {
                fprintf(stderr, "rank %d: parameter %d element %zu: %g, not %g\n", rank,
                        i, k, (double)((float *)muster_ddp_data(ddp, i))[k],
                        (double)plain[i][k]);
                return 97;
            }
    muster_ddp_destroy(ddp);
    return muster_finalize(m);
}

static void
row_23_zero_1_gives_the_same_weights_for_sizes_that_do_not_divide(void **state)
{
    everywhere(zero_body, NULL);
    forked_well("TCP",
                (struct forked_world){ .size = 5, .force_tcp = true, SMALL_BUCKETS },
                zero_body, NULL);
}

/* ---- Uneven data ------------------------------------------------------------------
 */

enum { TENSORS = 3, WIDTH = 130 };
static const size_t width[TENSORS] = { 7, WIDTH, 1 };

/* What a rank keeps: momentum of its parts, and how far it is. */
struct trainer {
    struct muster *m;
    struct muster_ddp *ddp;
    float *momentum[8];
    int steps;
};

/* The optimizer of the parts, then the weights of all. */
static int optimize(void *arg)
{
    struct trainer *t = arg;
    struct muster_shard part;

    for (int b = 0; b < muster_ddp_buckets(t->ddp); b++) {
        int rc = muster_ddp_shard(t->ddp, b, &part);

        if (rc != MUSTER_OK)
            return rc;
        for (size_t k = 0; k < part.count; k++) {
            t->momentum[b][k] = 0.5f * t->momentum[b][k] + ((float *)part.grad)[k];
            ((float *)part.data)[k] -= 0.125f * t->momentum[b][k];
        }
    }
    t->steps++;
    return muster_ddp_gather(t->ddp);
}

/* Rank r has batches for 2 + r steps, of r + 1 samples each. */
static int batches_of(int rank)
{
    return 2 + rank;
}

static float slope(int rank, int step, int i, size_t k)
{
    return (float)((rank + 1) * (step + 2) + i) + (float)k * 0.25f;
}

/* The whole, computed by each rank for itself: weights after all steps. */
static void whole(int size, double out[TENSORS][WIDTH])
{
    static double momentum[TENSORS][WIDTH];

    for (int step = 0; step < batches_of(size - 1); step++)
        for (int i = 0; i < TENSORS; i++)
            for (size_t k = 0; k < width[i]; k++) {
                double top = 0, samples = 0;

                for (int r = 0; r < size; r++)
                    if (step < batches_of(r)) {
                        top += (r + 1) * slope(r, step, i, k);
                        samples += r + 1;
                    }
                momentum[i][k] = 0.5 * momentum[i][k] + top / samples;
                out[i][k] -= 0.125 * momentum[i][k];
            }
}

static int join_body(struct muster *m, int rank, void *arg)
{
    static float data[TENSORS][WIDTH];
    static double want[TENSORS][WIDTH];
    const struct muster_ddp_options o = { .shard = 1, .hook = arg };
    struct muster_param p[TENSORS] = {
        { .name = "a", .count = 7, .dtype = MUSTER_F32, .data = data[0] },
        { .name = "b", .count = WIDTH, .dtype = MUSTER_F32 },
        { .name = "c", .count = 1, .dtype = MUSTER_F32, .data = data[2] }
    };
    struct trainer t = { .m = m };
    struct muster_shard part;

    RANK_OK(muster_ddp_create(m, p, TENSORS, &o, &t.ddp));
    for (int b = 0; b < muster_ddp_buckets(t.ddp); b++) {
        RANK_OK(muster_ddp_shard(t.ddp, b, &part));
        t.momentum[b] = calloc(part.count, sizeof(float));
    }
    for (int step = 0; step < batches_of(rank); step++) {
        RANK_OK(muster_ddp_weight(t.ddp, rank + 1));
        for (int i = TENSORS - 1; i >= 0; i--) {
            float *g = muster_ddp_grad(t.ddp, i);

            for (size_t k = 0; k < width[i]; k++)
                g[k] = slope(rank, step, i, k);
            RANK_OK(muster_ddp_grad_ready(t.ddp, i, NULL));
        }
        RANK_OK(muster_ddp_sync(t.ddp, NULL));
        RANK_OK(optimize(&t));
    }
    RANK_OK(muster_ddp_join(t.ddp, optimize, &t));
    RANK_CHECK(t.steps == batches_of(muster_size(m) - 1));
    whole(muster_size(m), want);
    for (int i = 0; i < TENSORS; i++)
        for (size_t k = 0; k < width[i]; k++) {
            double got = ((float *)muster_ddp_data(t.ddp, i))[k];

            if (fabs(got - want[i][k]) > (arg ? 0.01 : 1e-5) * fabs(want[i][k])) {
                fprintf(stderr, "rank %d: tensor %d element %zu: %g, not %g\n", rank, i,
                        k, got, want[i][k]);
                return 97;
            }
        }
    muster_ddp_destroy(t.ddp);
    return muster_finalize(m);
}

static void
row_9_ranks_out_of_data_go_on_with_their_parts_of_the_optimizer(void **state)
{
    static const struct muster_hook bf16 = { .compress = MUSTER_COMPRESS_BF16 };

    everywhere(join_body, NULL);
    everywhere(join_body, (void *)(uintptr_t)&bf16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            row_23_zero_1_gives_the_same_weights_for_sizes_that_do_not_divide),
        cmocka_unit_test(
            row_9_ranks_out_of_data_go_on_with_their_parts_of_the_optimizer),
    };

    return cmocka_run_group_tests_name("zero", tests, NULL, NULL);
}
