/* SPDX-License-Identifier: BSD-3-Clause */
/* compress_lowrank.c - a matrix as the product of two low-rank factors */
#include "runtime/core/compress.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "runtime/core/convert.h"
#include "runtime/core/lowrank_both.h"
#include "runtime/core/numeric.h"

bool mu_lowrank_pays(const struct mu_lowrank *l, size_t size)
{
    size_t r = (size_t)l->rank;

    return r <= l->rows && r <= l->cols &&
           2 * sizeof(float) * r * (l->rows + l->cols) <= size * l->rows * l->cols;
}

void mu_lowrank_start(const struct mu_lowrank *l, uint64_t seed, float *q)
{
    for (size_t i = 0; i < l->cols * (size_t)l->rank; i++)
        q[i] = mu_lowrank_noise(seed, i);
}

/* Eight partial sums, which a compiler may keep in one vector register. */
static float dot(const float *a, const float *b, size_t n)
{
    float sum[8] = { 0 };
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 8; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) +
           ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

static void add_scaled(float *restrict y, float factor, const float *restrict x,
                       size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

void mu_lowrank_left(const struct mu_lowrank *l, const float *m, const float *q,
                     float *p)
{
    for (size_t i = 0; i < l->rows; i++)
        for (size_t k = 0; k < (size_t)l->rank; k++)
            p[k * l->rows + i] = dot(m + i * l->cols, q + k * l->cols, l->cols);
}

void mu_lowrank_right(const struct mu_lowrank *l, const float *m, const float *p,
                      float *q)
{
    for (size_t i = 0; i < l->cols * (size_t)l->rank; i++)
        q[i] = 0;
    for (size_t i = 0; i < l->rows; i++)
        for (size_t k = 0; k < (size_t)l->rank; k++)
            add_scaled(q + k * l->cols, p[k * l->rows + i], m + i * l->cols, l->cols);
}

static double dot_double(const float *a, const float *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Make column k orthogonal to those before it. Two passes suffice: what remains is
 * rounding noise (Kahan, in Parlett, The Symmetric Eigenvalue Problem, 1980). Returns
 * the norm of column k.
 */
static double orthogonalize(float *p, size_t rows, size_t k)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t j = 0; j < k; j++)
            add_scaled(p + k * rows,
                       (float)-dot_double(p + j * rows, p + k * rows, rows),
                       p + j * rows, rows);
    return sqrt(dot_double(p + k * rows, p + k * rows, rows));
}

bool mu_lowrank_orthonormal(const struct mu_lowrank *l, uint64_t seed, float *p)
{
    size_t rows = l->rows;

    for (size_t k = 0; k < (size_t)l->rank; k++) {
        float *column = p + k * rows;
        double whole = sqrt(dot_double(column, column, rows)), left;

        if (!isfinite(whole))
            return false;
        left = orthogonalize(p, rows, k);
        /* A direction exists, since rank <= rows; a random one almost always has it. */
        for (uint64_t draw = 1; left <= MU_LOWRANK_DEPENDENT * whole || left < FLT_MIN;
             draw++) {
            for (size_t i = 0; i < rows; i++)
                column[i] = mu_lowrank_redraw(seed, draw, k * rows + i);
            whole = 1;
            left = orthogonalize(p, rows, k);
        }
        for (size_t i = 0; i < rows; i++)
            column[i] = (float)(column[i] / left);
    }
    return true;
}

void mu_lowrank_subtract(const struct mu_lowrank *l, const float *p, const float *q,
                         float *m)
{
    for (size_t i = 0; i < l->rows; i++)
        for (size_t k = 0; k < (size_t)l->rank; k++)
            add_scaled(m + i * l->cols, -p[k * l->rows + i], q + k * l->cols, l->cols);
}

void mu_lowrank_expand(const struct mu_lowrank *l, const float *p, const float *q,
                       float *m)
{
    for (size_t i = 0; i < l->rows * l->cols; i++)
        m[i] = 0;
    for (size_t i = 0; i < l->rows; i++)
        for (size_t k = 0; k < (size_t)l->rank; k++)
            add_scaled(m + i * l->cols, p[k * l->rows + i], q + k * l->cols, l->cols);
}

/* ---- A step of a tensor -----------------------------------------------------------
 */

static void left_half(const struct mu_lowrank_tensor *t)
{
    for (size_t e = 0; e < t->shape.rows * t->shape.cols; e++)
        t->g[e] += t->rest[e];
    mu_lowrank_left(&t->shape, t->g, t->q, t->p);
}

static void right_half(const struct mu_lowrank_tensor *t)
{
    size_t bytes = t->shape.cols * (size_t)t->shape.rank * sizeof *t->q;

    *t->spoilt = !mu_lowrank_orthonormal(&t->shape, t->seed, t->p);
    if (*t->spoilt)
        memset(t->q, 0, bytes);
    else
        mu_lowrank_right(&t->shape, t->g, t->p, t->q);
    memcpy(t->own, t->q, bytes);
}

static void finish(const struct mu_lowrank_tensor *t)
{
    size_t count = t->shape.rows * t->shape.cols;
    size_t nq = t->shape.cols * (size_t)t->shape.rank;

    if (!*t->spoilt && mu_first_nonfinite(t->q, MUSTER_F32, nq) == nq) {
        memcpy(t->rest, t->g, count * sizeof *t->rest);
        mu_lowrank_subtract(&t->shape, t->p, t->own, t->rest);
        mu_lowrank_expand(&t->shape, t->p, t->q, t->g);
        return;
    }
    if (!*t->spoilt)
        memset(t->rest, 0, count * sizeof *t->rest);
    for (size_t e = 0; e < count; e++)
        t->g[e] = NAN;
    mu_lowrank_start(&t->shape, t->seed, t->q);
}

/* Convert a gradient of 16 bits to f32, into t->parts. */
static void widen(const struct mu_lowrank_tensor *t, bool with_rest)
{
    for (size_t e = 0; e < t->shape.rows * t->shape.cols; e++) {
        t->parts[e] =
            t->kind == MUSTER_F16 ? mu_from_f16(t->g16[e]) : mu_from_bf16(t->g16[e]);
        if (with_rest)
            t->parts[e] += t->rest[e];
    }
}

static void narrow(const struct mu_lowrank_tensor *t)
{
    for (size_t e = 0; e < t->shape.rows * t->shape.cols; e++)
        t->g16[e] =
            t->kind == MUSTER_F16 ? mu_to_f16(t->parts[e]) : mu_to_bf16(t->parts[e]);
}

void mu_lowrank_run(enum mu_lowrank_stage stage,
                    const struct mu_lowrank_tensor *tensors, int n)
{
    static void (*const stages[])(const struct mu_lowrank_tensor *) = {
        [MU_LOWRANK_LEFT] = left_half,
        [MU_LOWRANK_RIGHT] = right_half,
        [MU_LOWRANK_FINISH] = finish,
    };

    for (int i = 0; i < n; i++) {
        struct mu_lowrank_tensor t = tensors[i];

        if (t.kind != MUSTER_F32) {
            widen(&t, stage != MU_LOWRANK_LEFT);
            t.g = t.parts;
        }
        stages[stage](&t);
        if (t.kind != MUSTER_F32 && stage == MU_LOWRANK_FINISH)
            narrow(&t);
    }
}

/* A GPU keeps the sums of its segments there, the host M in f32. */
size_t mu_lowrank_parts(const struct mu_lowrank *l, enum muster_dtype kind)
{
    size_t parts = mu_lowrank_segments(l) * l->cols * (size_t)l->rank;
    size_t whole = kind == MUSTER_F32 ? 0 : l->rows * l->cols;

    return parts > whole ? parts : whole;
}
