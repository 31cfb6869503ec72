/* SPDX-License-Identifier: BSD-3-Clause */
/* compress_lowrank.c - a matrix as the product of two thin ones */
#include "runtime/core/compress.h"

#include <float.h>
#include <math.h>

/* A column whose part outside of the columns before it is smaller than this, relative
 * to the whole, is rounding noise of a float.
 */
#define DEPENDENT 1e-6

bool mu_lowrank_pays(const struct mu_lowrank *l)
{
    size_t r = (size_t)l->rank;

    return r <= l->rows && r <= l->cols &&
           2 * r * (l->rows + l->cols) <= l->rows * l->cols;
}

/* -1 .. 1, by position alone (SplitMix64's finaliser). */
static float noise(uint64_t seed, uint64_t i)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + (i + 1) * 0xd1342543de82ef95u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (float)((double)(x >> 11) * 0x1p-52 - 1);
}

void mu_lowrank_start(const struct mu_lowrank *l, uint64_t seed, float *q)
{
    for (size_t i = 0; i < l->cols * (size_t)l->rank; i++)
        q[i] = noise(seed, i);
}

/* Eight sums side by side, which a compiler may keep in one vector register. */
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

/* Twice is enough: after the second pass what is left of the others is rounding noise
 * (Kahan, in Parlett, The Symmetric Eigenvalue Problem, 1980). Returns the norm left.
 */
static double take_out(float *p, size_t rows, size_t k)
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
        left = take_out(p, rows, k);
        /* rank <= rows, so there is a direction; a drawn one hits it at once. */
        for (uint64_t draw = 1; left <= DEPENDENT * whole || left < FLT_MIN; draw++) {
            for (size_t i = 0; i < rows; i++)
                column[i] = noise(seed ^ draw << 32, k * rows + i);
            whole = 1;
            left = take_out(p, rows, k);
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
