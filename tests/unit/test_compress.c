/* SPDX-License-Identifier: BSD-3-Clause */
/* test_compress.c - 8-bit integers, low-rank factors: what is sent, and what is left */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/compress.h"

/* ---- 8-bit integers ------------------------------------------------------------- */

enum { MOST = 600, RANKS = 127 };

struct world {
    int ranks;
    size_t count;
    float g[RANKS][MOST], rest[RANKS][MOST], peak[MOST], mean[MOST];
};

/* What the ranks do in a step, with the collectives done by hand. */
static void int8_step(struct world *w)
{
    int32_t sum[MOST] = { 0 }, word[MOST];
    float peak[MOST];

    memset(w->peak, 0, sizeof w->peak);
    for (int r = 0; r < w->ranks; r++) {
        mu_int8_peaks(w->g[r], w->rest[r], w->count, peak);
        for (size_t k = 0; k < mu_int8_blocks(w->count); k++)
            w->peak[k] = fmaxf(w->peak[k], peak[k]);
    }
    for (int r = 0; r < w->ranks; r++) {
        mu_int8_encode(w->g[r], w->rest[r], w->count, w->peak, w->ranks, word);
        for (size_t k = 0; k < mu_int8_words(w->count); k++)
            assert_false(__builtin_add_overflow(sum[k], word[k], &sum[k]));
    }
    mu_int8_decode(sum, w->count, w->peak, w->ranks, w->mean);
}

static struct world *new_world(int ranks, size_t count)
{
    struct world *w = calloc(1, sizeof *w);

    assert_non_null(w);
    w->ranks = ranks;
    w->count = count;
    return w;
}

static const struct int8_case {
    const char *name;
    int ranks;
    size_t count;
} int8_cases[] = {
    { "one rank", 1, 600 },
    { "one element", 2, 1 },
    { "a word that is not full", 3, 7 },
    { "one less than a block", 4, 255 },
    { "a block", 4, 256 },
    { "one more than a block", 8, 257 },
    { "as many ranks as fit", 127, 300 },
};

/* The mean is off by half a step of each rank at most, and what is off is kept. */
static void integers_add_up_to_the_mean(void **state)
{
    for (size_t c = 0; c < sizeof int8_cases / sizeof int8_cases[0]; c++) {
        const struct int8_case *t = &int8_cases[c];
        struct world *w = new_world(t->ranks, t->count);

        for (int r = 0; r < t->ranks; r++)
            for (size_t k = 0; k < t->count; k++)
                w->g[r][k] = sinf((float)(r * 31 + (int)k)) * (k < 256 ? 1e-3f : 50);
        int8_step(w);
        for (size_t k = 0; k < t->count; k++) {
            float step = w->peak[k / 256] / (float)(127 / t->ranks);
            double sum = 0, left = 0;

            for (int r = 0; r < t->ranks; r++) {
                sum += w->g[r][k];
                left += w->rest[r][k];
                if (fabsf(w->rest[r][k]) > step * 0.5001f)
                    fail_msg("%s: element %zu of rank %d has %g left of a step of %g",
                             t->name, k, r, (double)w->rest[r][k], (double)step);
            }
            if (fabs(w->mean[k] * t->ranks + left - sum) > 1e-4 * step * t->ranks)
                fail_msg("%s: element %zu: %g came, %g is left of %g", t->name, k,
                         (double)w->mean[k], left, sum);
        }
        free(w);
    }
}

static void the_largest_values_of_all_ranks_do_not_overflow(void **state)
{
    static const int ranks[] = { 1, 2, 3, 4, 5, 8, 31, 64, 126, 127 };

    for (size_t c = 0; c < sizeof ranks / sizeof ranks[0]; c++) {
        struct world *w = new_world(ranks[c], 64);

        for (int r = 0; r < w->ranks; r++)
            for (int k = 0; k < 64; k++)
                w->g[r][k] = k % 3 == 0 ? 3e38f : k % 3 == 1 ? -3e38f : 0;
        int8_step(w);
        for (int k = 0; k < 64; k++)
            assert_true(fabsf(w->mean[k] - w->g[0][k]) <= 3e38f * 1e-5f);
        free(w);
    }
}

/* 50 times the same gradient: what came is the sum but for what is left of one step. */
static void nothing_is_lost_over_steps(void **state)
{
    struct world *w = new_world(8, 256);
    double came[256] = { 0 };

    for (int r = 0; r < 8; r++)
        for (int k = 0; k < 256; k++)
            w->g[r][k] = k == 0 ? 100 : cosf((float)(r + k)); /* one outlier */
    for (int step = 0; step < 50; step++) {
        int8_step(w);
        for (int k = 0; k < 256; k++)
            came[k] += w->mean[k];
    }
    for (int k = 0; k < 256; k++) {
        double sum = 0;

        for (int r = 0; r < 8; r++)
            sum += w->g[r][k] / 8.0 * 50;
        assert_true(fabs(came[k] - sum) < 101.0 / 15); /* a step of a sum of 50 */
    }
    free(w);
}

static void nan_spoils_its_block_on_all_ranks_and_leaves_nothing(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    for (int b = 0; b < 3; b++) {
        struct world *w = new_world(2, 520);

        for (int k = 0; k < 520; k++)
            w->rest[0][k] = w->rest[1][k] = 0.25f;
        w->g[1][300] = bad[b];
        int8_step(w);
        for (int k = 0; k < 520; k++)
            assert_true(k / 256 == 1 ? isnan(w->mean[k])
                                     : fabsf(w->mean[k] - 0.25f) < 1e-5f);
        assert_true(w->rest[1][300] == 0.25f && w->rest[0][301] == 0.25f);
        w->g[1][300] = 0;
        int8_step(w);
        assert_true(fabsf(w->mean[300] - 0.25f) < 1e-5f);
        free(w);
    }
}

static void what_is_too_small_for_a_step_waits(void **state)
{
    struct world *w = new_world(2, 8);

    w->g[0][3] = 1e-43f;
    int8_step(w);
    assert_true(w->mean[3] == 0 && w->rest[0][3] == 1e-43f && w->mean[0] == 0);
    free(w);
}

/* ---- Low-rank factors -------------------------------------------------------------
 */

enum { ROWS = 30, COLS = 20, RANK = 3 };

static const struct mu_lowrank shape = { ROWS, COLS, RANK };

static double size_of(const float *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* A step of a world of one: what does not fit is left in rest. */
static void thin_step(const float *g, float *rest, float *q, float *out)
{
    float m[ROWS * COLS], p[ROWS * RANK];

    for (int i = 0; i < ROWS * COLS; i++)
        m[i] = g[i] + rest[i];
    mu_lowrank_left(&shape, m, q, p);
    assert_true(mu_lowrank_orthonormal(&shape, 7, p));
    mu_lowrank_right(&shape, m, p, q);
    memcpy(rest, m, sizeof m);
    mu_lowrank_subtract(&shape, p, q, rest);
    mu_lowrank_expand(&shape, p, q, out);
    for (int i = 0; i < ROWS * COLS; i++)
        assert_true(fabsf(out[i] + rest[i] - m[i]) < 1e-4f * (1 + fabsf(m[i])));
}

static void a_matrix_of_low_rank_comes_back_whole(void **state)
{
    float g[ROWS * COLS], rest[ROWS * COLS] = { 0 }, q[COLS * RANK], out[ROWS * COLS];

    for (int i = 0; i < ROWS; i++) /* rank 2 */
        for (int k = 0; k < COLS; k++)
            g[i * COLS + k] = (float)(i * k) * 0.01f + (float)(i + 1);
    mu_lowrank_start(&shape, 1, q);
    thin_step(g, rest, q, out);
    assert_true(size_of(rest, ROWS * COLS) < 1e-5 * size_of(g, ROWS * COLS));
}

/* The best three directions of five come at once, once the steps have found them. */
static void warm_start_finds_the_largest_directions(void **state)
{
    float g[ROWS * COLS] = { 0 }, rest[ROWS * COLS], q[COLS * RANK], out[ROWS * COLS];
    static const float weight[5] = { 10, 8, 6, 1, 0.5f };
    double first = 0, last = 0;

    for (int d = 0; d < 5; d++)
        g[d * COLS + d] = weight[d];
    mu_lowrank_start(&shape, 5, q);
    for (int step = 0; step < 12; step++) {
        memset(rest, 0, sizeof rest); /* the power iteration alone */
        thin_step(g, rest, q, out);
        last = size_of(rest, ROWS * COLS);
        first = step == 0 ? last : first;
    }
    assert_true(first > 1.2 && fabs(last - sqrt(1.25)) < 1e-3);
}

static void what_is_left_comes_in_later_steps(void **state)
{
    float g[ROWS * COLS], rest[ROWS * COLS] = { 0 }, q[COLS * RANK], out[ROWS * COLS];
    static double came[ROWS * COLS];
    double off = 0;
    enum { STEPS = 200 };

    for (int i = 0; i < ROWS * COLS; i++)
        g[i] = sinf((float)(i * i));
    mu_lowrank_start(&shape, 5, q);
    for (int step = 0; step < STEPS; step++) {
        thin_step(g, rest, q, out);
        for (int i = 0; i < ROWS * COLS; i++)
            came[i] += out[i];
    }
    for (int i = 0; i < ROWS * COLS; i++)
        off += pow(came[i] / STEPS - g[i], 2);
    assert_true(sqrt(off) < 0.1 * size_of(g, ROWS * COLS));
}

static void columns_become_orthonormal(void **state)
{
    static const char *const what[] = { "any", "nearly equal", "equal", "zero",
                                        "tiny" };

    for (int c = 0; c < 5; c++) {
        float p[ROWS * RANK], again[ROWS * RANK];

        for (int k = 0; k < RANK; k++)
            for (int i = 0; i < ROWS; i++) {
                float noise = sinf((float)(i * 3 + k * 71));

                p[k * ROWS + i] = c == 0   ? noise
                                  : c == 1 ? 1 + 1e-3f * noise
                                  : c == 2 ? 1
                                  : c == 3 ? 0
                                           : 1e-30f * noise;
            }
        memcpy(again, p, sizeof p);
        assert_true(mu_lowrank_orthonormal(&shape, 3, p));
        assert_true(mu_lowrank_orthonormal(&shape, 3, again));
        assert_memory_equal(p, again, sizeof p);
        for (int a = 0; a < RANK; a++)
            for (int b = 0; b <= a; b++) {
                double sum = 0;

                for (int i = 0; i < ROWS; i++)
                    sum += (double)p[a * ROWS + i] * p[b * ROWS + i];
                if (fabs(sum - (a == b)) > 1e-5)
                    fail_msg("%s: columns %d and %d: %g", what[c], a, b, sum);
            }
    }
}

static void a_square_of_full_rank_has_room_for_all_columns(void **state)
{
    const struct mu_lowrank small = { 4, 9, 4 };
    float p[16] = { 0 };

    assert_true(mu_lowrank_orthonormal(&small, 1, p));
    for (int k = 0; k < 4; k++)
        assert_true(fabs(size_of(p + 4 * k, 4) - 1) < 1e-5);
}

/* All ranks of a matrix without gradient: the next one comes whole again. */
static void a_step_without_gradient_does_not_end_it(void **state)
{
    float g[ROWS * COLS] = { 0 }, rest[ROWS * COLS] = { 0 }, q[COLS * RANK];
    float out[ROWS * COLS];

    mu_lowrank_start(&shape, 2, q);
    thin_step(g, rest, q, out);
    assert_true(size_of(q, COLS * RANK) == 0);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLS; k++)
            g[i * COLS + k] = (float)(i + 1) * (float)(k - 3);
    for (int step = 0; step < 3; step++)
        thin_step(g, rest, q, out);
    assert_true(size_of(rest, ROWS * COLS) < 1e-3 * size_of(g, ROWS * COLS));
}

static void nan_is_told(void **state)
{
    float p[ROWS * RANK] = { 0 };

    p[ROWS + 3] = INFINITY;
    assert_false(mu_lowrank_orthonormal(&shape, 1, p));
    p[ROWS + 3] = 0;
    p[5] = NAN;
    assert_false(mu_lowrank_orthonormal(&shape, 1, p));
}

static const struct pays_case {
    const char *name;
    struct mu_lowrank l;
    size_t size; /* of an element */
    bool pays;
} pays_cases[] = {
    { "100 x 100 by 4 is a twelfth", { 100, 100, 4 }, 4, true },
    { "16 x 16 by 4 is half", { 16, 16, 4 }, 4, true },
    { "16 x 15 by 4 is more than half", { 16, 15, 4 }, 4, false },
    { "16 x 16 of 16 bits by 4 is all of it", { 16, 16, 4 }, 2, false },
    { "32 x 32 of 16 bits by 4 is half", { 32, 32, 4 }, 2, true },
    { "a row", { 1, 100000, 1 }, 4, false },
    { "a vector has no rows", { 0, 0, 4 }, 4, false },
    { "more columns wanted than there are", { 2000, 3, 4 }, 4, false },
};

static void small_matrices_go_as_they_are(void **state)
{
    for (size_t i = 0; i < sizeof pays_cases / sizeof pays_cases[0]; i++)
        if (mu_lowrank_pays(&pays_cases[i].l, pays_cases[i].size) != pays_cases[i].pays)
            fail_msg("%s", pays_cases[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_add_up_to_the_mean),
        cmocka_unit_test(the_largest_values_of_all_ranks_do_not_overflow),
        cmocka_unit_test(nothing_is_lost_over_steps),
        cmocka_unit_test(nan_spoils_its_block_on_all_ranks_and_leaves_nothing),
        cmocka_unit_test(what_is_too_small_for_a_step_waits),
        cmocka_unit_test(a_matrix_of_low_rank_comes_back_whole),
        cmocka_unit_test(warm_start_finds_the_largest_directions),
        cmocka_unit_test(what_is_left_comes_in_later_steps),
        cmocka_unit_test(columns_become_orthonormal),
        cmocka_unit_test(a_square_of_full_rank_has_room_for_all_columns),
        cmocka_unit_test(a_step_without_gradient_does_not_end_it),
        cmocka_unit_test(nan_is_told),
        cmocka_unit_test(small_matrices_go_as_they_are),
    };

    return cmocka_run_group_tests_name("compress", tests, NULL, NULL);
}
