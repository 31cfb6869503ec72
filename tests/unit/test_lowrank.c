/* SPDX-License-Identifier: BSD-3-Clause */
/* test_lowrank.c - the arithmetic of powersgd.cu, thread by thread on the CPU */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/backend/nccl/kernels/powersgd.h"
#include "tests/unit/lowrank_host.h"

/* A tensor with all that a step of it needs. */
struct factors {
    struct mu_lowrank_tensor x;
    size_t count, np, nq;
    uint32_t spoilt;
};

static float *floats(size_t n)
{
    float *p = calloc(n + 1, sizeof *p);

    assert_non_null(p);
    return p;
}

static struct factors *factors_new(struct mu_lowrank shape, uint64_t seed,
                                   enum muster_dtype kind)
{
    struct factors *t = calloc(1, sizeof *t);

    assert_non_null(t);
    t->count = shape.rows * shape.cols;
    t->np = shape.rows * (size_t)shape.rank;
    t->nq = shape.cols * (size_t)shape.rank;
    t->x = (struct mu_lowrank_tensor){
        .shape = shape,
        .seed = seed,
        .kind = kind,
        .g16 = (uint16_t *)floats(t->count),
        .g = floats(t->count),
        .rest = floats(t->count),
        .p = floats(t->np),
        .q = floats(t->nq),
        .own = floats(t->nq),
        .parts = floats(mu_lowrank_parts(&shape, kind)),
        .spoilt = &t->spoilt,
    };
    mu_lowrank_start(&shape, seed, t->x.q);
    return t;
}

static void factors_free(struct factors *t)
{
    lowrank_host_free(&t->x);
    free(t);
}

/* ---- The kernels of powersgd.cu, with their grids ---------------------------------
 */

/* A warp's shuffles, then warp after warp. */
#define FOLD(name, type)                                                               \
    static type name(type *v, int threads)                                             \
    {                                                                                  \
        type sum = 0;                                                                  \
                                                                                       \
        for (int w = 0; w < threads; w += 32) {                                        \
            for (int d = 16; d > 0; d /= 2)                                            \
                for (int l = 0; l < d; l++)                                            \
                    v[w + l] += v[w + l + d];                                          \
            sum = w == 0 ? v[0] : sum + v[w];                                          \
        }                                                                              \
        return sum;                                                                    \
    }
FOLD(fold, float)
FOLD(fold_double, double)

static void left(const struct mu_lowrank_tensor *x, int k, int n, int most)
{
    static float sum[MU_FACTOR_THREADS][MU_FACTOR_ROWS][MU_FACTOR_COLUMNS],
        v[MU_FACTOR_THREADS];

    for (size_t row = 0; row < x->shape.rows; row += MU_FACTOR_ROWS) {
        size_t left = x->shape.rows - row;
        int nrows = left < MU_FACTOR_ROWS ? (int)left : MU_FACTOR_ROWS;

        for (int t = 0; t < MU_FACTOR_THREADS; t++)
            mu_factor_left(x, row, nrows, k, n, most, x->kind, k == 0, t, sum[t]);
        for (int r = 0; r < nrows; r++)
            for (int c = 0; c < n; c++) {
                for (int t = 0; t < MU_FACTOR_THREADS; t++)
                    v[t] = sum[t][r][c];
                x->p[(size_t)(k + c) * x->shape.rows + row + (size_t)r] =
                    fold(v, MU_FACTOR_THREADS);
            }
    }
}

static void dots(const struct mu_lowrank_tensor *x, int k, int j, int n,
                 double sum[MU_FACTOR_COLUMNS])
{
    static double dot[MU_FACTOR_LONG][MU_FACTOR_COLUMNS], v[MU_FACTOR_LONG];

    for (int t = 0; t < MU_FACTOR_LONG; t++)
        mu_factor_dots(x, k, j, n, t, dot[t]);
    for (int c = 0; c < n; c++) {
        for (int t = 0; t < MU_FACTOR_LONG; t++)
            v[t] = dot[t][c];
        sum[c] = fold_double(v, MU_FACTOR_LONG);
    }
}

static double norm(const struct mu_lowrank_tensor *x, int k)
{
    double sum[MU_FACTOR_COLUMNS];

    dots(x, k, k, 1, sum);
    return sqrt(sum[0]);
}

static double take_out(const struct mu_lowrank_tensor *x, int k)
{
    static double square[MU_FACTOR_LONG];
    double sum[MU_FACTOR_COLUMNS];

    if (k == 0)
        return norm(x, 0);
    for (int pass = 0; pass < 2; pass++)
        for (int j = 0; j < k; j += MU_FACTOR_COLUMNS) {
            int n = k - j < MU_FACTOR_COLUMNS ? k - j : MU_FACTOR_COLUMNS;

            dots(x, k, j, n, sum);
            for (int t = 0; t < MU_FACTOR_LONG; t++)
                square[t] = mu_factor_subtract(x, k, j, n, t, sum);
        }
    return sqrt(fold_double(square, MU_FACTOR_LONG));
}

static void orthonormal(const struct mu_lowrank_tensor *x)
{
    *x->spoilt = 1;
    for (int k = 0; k < x->shape.rank; k++) {
        double whole = norm(x, k), rest;

        if (!(whole <= DBL_MAX))
            return;
        rest = take_out(x, k);
        for (uint64_t draw = 1; mu_factor_dependent(whole, rest); draw++) {
            for (int t = 0; t < MU_FACTOR_LONG; t++)
                mu_factor_redraw(x, k, draw, t);
            whole = 1;
            rest = take_out(x, k);
        }
        for (int t = 0; t < MU_FACTOR_LONG; t++)
            mu_factor_divide(x, k, rest, t);
    }
    *x->spoilt = 0;
}

static void stage(const struct mu_lowrank_tensor *x, size_t from, size_t to, int k,
                  int n, int most, float *p)
{
    for (size_t i = from; i < to; i++)
        for (int c = 0; c < n; c++)
            p[(i - from) * (size_t)most + (size_t)c] =
                x->p[(size_t)(k + c) * x->shape.rows + i];
}

static size_t tiles(const struct mu_lowrank_tensor *x)
{
    return (x->shape.cols + MU_FACTOR_TILE - 1) / MU_FACTOR_TILE;
}

static size_t at_most(size_t from, size_t step, size_t end)
{
    return end - from < step ? end : from + step;
}

static void right(const struct mu_lowrank_tensor *x, int k, int n, int most)
{
    const size_t each = mu_lowrank_segment_rows(&x->shape);
    float p[MU_LOWRANK_SEGMENTS * MU_FACTOR_COLUMNS];

    for (size_t s = 0; s < mu_lowrank_segments(&x->shape); s++)
        for (size_t tile = 0; tile < tiles(x); tile++)
            for (int t = 0; t < MU_FACTOR_THREADS; t++) {
                float sum[2][MU_FACTOR_COLUMNS] = { { 0 } };
                size_t end = at_most(s * each, each, x->shape.rows), to;

                for (size_t i = s * each; i < end; i = to) {
                    to = at_most(i, MU_LOWRANK_SEGMENTS, end);
                    stage(x, i, to, k, n, most, p);
                    mu_factor_right(x, tile, i, to, p, n, most, x->kind, t, sum);
                }
                mu_factor_store(x, tile, s, k, n, most, t, sum);
            }
}

static void finish(const struct mu_lowrank_tensor *x, int most)
{
    const int n = x->shape.rank < most ? x->shape.rank : most;
    float p[MU_FACTOR_DEEP * MU_FACTOR_COLUMNS];

    for (size_t from = 0; from < x->shape.rows; from += MU_FACTOR_DEEP)
        for (size_t tile = 0; tile < tiles(x); tile++)
            for (int t = 0; t < MU_FACTOR_THREADS; t++) {
                size_t to = at_most(from, MU_FACTOR_DEEP, x->shape.rows);

                if (*x->spoilt) {
                    mu_factor_spoil(x, tile, from, to, x->kind, t);
                    continue;
                }
                stage(x, from, to, 0, n, most, p);
                mu_factor_finish(x, tile, from, to, p, most, x->kind, t);
            }
}

static void by_threads(enum mu_lowrank_stage which, const struct mu_lowrank_tensor *x)
{
    const size_t nq = x->shape.cols * (size_t)x->shape.rank;
    const int most = x->shape.rank <= 4 ? 4 : MU_FACTOR_COLUMNS;

    if (which == MU_LOWRANK_RIGHT)
        orthonormal(x);
    for (size_t e = 0; which == MU_LOWRANK_FINISH && e < nq; e++)
        if (!(fabsf(x->q[e]) <= FLT_MAX))
            *x->spoilt |= 2;
    for (int k = 0; k < x->shape.rank; k += most) {
        int n = x->shape.rank - k < most ? x->shape.rank - k : most;

        if (which == MU_LOWRANK_LEFT)
            left(x, k, n, most);
        else if (which == MU_LOWRANK_RIGHT)
            right(x, k, n, most);
        else if (k == 0)
            finish(x, most);
    }
    for (size_t e = 0; which == MU_LOWRANK_RIGHT && e < nq; e++)
        mu_factor_combine(x, mu_lowrank_segments(&x->shape), e);
    if (which == MU_LOWRANK_FINISH && *x->spoilt)
        mu_lowrank_start(&x->shape, x->seed, x->q);
}

/* ---- Against the host's -----------------------------------------------------------
 */

/* Relative to the whole: elements that should be 0 are rounding noise. */
static double off(const float *got, const float *want, size_t n)
{
    double sum = 0, all = 1e-30;

    for (size_t i = 0; i < n; i++) {
        sum += pow((double)got[i] - (double)want[i], 2);
        all += pow((double)want[i], 2);
    }
    return sqrt(sum / all);
}

static const struct factors_case {
    const char *name;
    struct mu_lowrank shape;
    bool low; /* M has rank 1: columns of P depend on one another */
    enum muster_dtype kind;
} cases[] = {
    { "one row of blocks", { 4, 300, 1 }, false, MUSTER_F32 },
    { "rank 4", { 130, 257, 4 }, false, MUSTER_F32 },
    { "rank 3, rows and columns that are not full", { 67, 129, 3 }, false, MUSTER_F32 },
    { "rank 8", { 70, 512, 8 }, false, MUSTER_F32 },
    { "rank 11, in two goes", { 90, 260, 11 }, false, MUSTER_F32 },
    { "rank 19, in three goes", { 90, 100, 19 }, false, MUSTER_F32 },
    { "more rows than 64 segments of 64", { 4170, 40, 4 }, false, MUSTER_F32 },
    { "columns that depend on one another", { 100, 80, 4 }, true, MUSTER_F32 },
    { "bf16", { 130, 257, 4 }, false, MUSTER_BF16 },
    { "bf16 of rank 11", { 90, 260, 11 }, false, MUSTER_BF16 },
    { "fp16", { 67, 129, 3 }, false, MUSTER_F16 },
};

static void fill(struct factors *t, const struct factors_case *c, int step)
{
    for (size_t e = 0; e < t->count; e++) {
        size_t i = e / c->shape.cols, j = e % c->shape.cols;

        float v = c->low ? (float)(i + 1) * (float)((int)j - 3) * (float)(step + 1)
                         : sinf((float)(e * e % 10007) + (float)step);

        t->x.g[e] = v;
        t->x.g16[e] = c->kind == MUSTER_F16 ? mu_to_f16(v) : mu_to_bf16(v);
    }
}

/* The gradient as the host can read it. */
static const float *seen(struct factors *t)
{
    for (size_t e = 0; t->x.kind != MUSTER_F32 && e < t->count; e++)
        t->x.g[e] = t->x.kind == MUSTER_F16 ? mu_from_f16(t->x.g16[e])
                                            : mu_from_bf16(t->x.g16[e]);
    return t->x.g;
}

static void compare(const struct factors_case *c, int step, struct factors *gpu,
                    struct factors *cpu)
{
    /* Directions that were drawn for columns that are noise are any. */
    const double bound = c->low ? 1e-3 : 2e-4;

    if (gpu->spoilt || off(seen(gpu), seen(cpu), cpu->count) > bound)
        fail_msg("%s, step %d: the mean is off by %g", c->name, step,
                 off(gpu->x.g, cpu->x.g, cpu->count));
    if (!c->low && off(gpu->x.rest, cpu->x.rest, cpu->count) > bound)
        fail_msg("%s, step %d: what is left is off by %g", c->name, step,
                 off(gpu->x.rest, cpu->x.rest, cpu->count));
}

static void threads_do_what_the_host_does(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct factors_case *c = &cases[i];
        struct factors *gpu = factors_new(c->shape, 3, c->kind),
                       *cpu = factors_new(c->shape, 3, c->kind);

        for (int step = 0; step < 3; step++) {
            fill(gpu, c, step);
            fill(cpu, c, step);
            for (int s = MU_LOWRANK_LEFT; s <= MU_LOWRANK_FINISH; s++) {
                by_threads((enum mu_lowrank_stage)s, &gpu->x);
                mu_lowrank_run((enum mu_lowrank_stage)s, &cpu->x, 1);
            }
            compare(c, step, gpu, cpu);
        }
        factors_free(gpu);
        factors_free(cpu);
    }
}

static void columns_are_orthonormal_whatever_they_were(void **state)
{
    const struct mu_lowrank shape = { 700, 60, 12 };
    static const float noise[] = { 1, 1e-3f, 0, 1e-30f };

    for (int c = 0; c < 4; c++) {
        struct factors *t = factors_new(shape, 9, MUSTER_F32);

        for (size_t i = 0; i < t->np; i++)
            t->x.p[i] = (c == 1 ? 1 : 0) + noise[c] * sinf((float)(i * 7));
        orthonormal(&t->x);
        assert_int_equal(t->spoilt, 0);
        for (int a = 0; a < shape.rank; a++)
            for (int b = 0; b <= a; b++) {
                double sum = 0;

                for (size_t i = 0; i < shape.rows; i++)
                    sum += (double)t->x.p[(size_t)a * shape.rows + i] *
                           t->x.p[(size_t)b * shape.rows + i];
                if (fabs(sum - (a == b)) > 1e-5)
                    fail_msg("noise %g: columns %d and %d: %g", (double)noise[c], a, b,
                             sum);
            }
        factors_free(t);
    }
}

/* As the host has it, to the bit: what stays, what begins anew. Of f32 and of bf16. */
static void nan_spoils(const struct factors_case *c)
{
    for (int late = 0; late < 2; late++) {
        struct factors *t[2] = { factors_new(c->shape, 3, c->kind),
                                 factors_new(c->shape, 3, c->kind) };

        for (int k = 0; k < 2; k++) {
            fill(t[k], c, 0);
            t[k]->x.rest[5] = 0.5f;
            t[k]->x.g[300] = late ? 1 : NAN;
            t[k]->x.g16[300] = late ? 0 : 0xffff;
            for (int s = MU_LOWRANK_LEFT; s <= MU_LOWRANK_FINISH; s++) {
                if (late && s == MU_LOWRANK_FINISH) /* came from another rank */
                    t[k]->x.q[7] = INFINITY;
                if (k == 0)
                    by_threads((enum mu_lowrank_stage)s, &t[k]->x);
                else
                    mu_lowrank_run((enum mu_lowrank_stage)s, &t[k]->x, 1);
                /* What is sent of it is not NaN once more. */
                for (size_t e = 0; s == MU_LOWRANK_RIGHT && e < t[k]->nq; e++)
                    assert_true(late ? isfinite(t[k]->x.q[e]) : t[k]->x.q[e] == 0);
            }
            for (size_t e = 0; e < t[k]->count; e++)
                assert_true(isnan(seen(t[k])[e]));
            assert_true(t[k]->x.rest[5] == (late ? 0 : 0.5f));
        }
        assert_memory_equal(t[0]->x.rest, t[1]->x.rest, t[0]->count * 4);
        assert_memory_equal(t[0]->x.q, t[1]->x.q, t[0]->nq * 4);
        factors_free(t[0]);
        factors_free(t[1]);
    }
}

static void nan_spoils_a_step_as_on_the_host(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (cases[i].shape.rank == 4 && cases[i].shape.cols == 257)
            nan_spoils(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_what_the_host_does),
        cmocka_unit_test(columns_are_orthonormal_whatever_they_were),
        cmocka_unit_test(nan_spoils_a_step_as_on_the_host),
    };

    return cmocka_run_group_tests_name("lowrank", tests, NULL, NULL);
}
