/* SPDX-License-Identifier: BSD-3-Clause */
/* lowrank.c - a matrix as the product of two thin ones; row-major floats */
#include "runtime/core/lowrank.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

bool mu_lowrank_pays(size_t n, size_t m, size_t r)
{
    return n > 0 && m > 0 && r <= n && r <= m && (n + m) * r * 2 <= n * m;
}

void mu_lowrank_p(const float *mat, size_t n, size_t m, const float *q, size_t r,
                  float *p)
{
    memset(p, 0, n * r * sizeof *p);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++)
            for (size_t j = 0; j < r; j++)
                p[i * r + j] += mat[i * m + k] * q[k * r + j];
}

void mu_lowrank_q(const float *mat, size_t n, size_t m, const float *p, size_t r,
                  float *q)
{
    memset(q, 0, m * r * sizeof *q);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++)
            for (size_t j = 0; j < r; j++)
                q[k * r + j] += mat[i * m + k] * p[i * r + j];
}

void mu_lowrank_product(const float *p, const float *q, size_t n, size_t m, size_t r,
                        float *out, const float *mat, float *rest)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++) {
            float sum = 0;

            for (size_t j = 0; j < r; j++)
                sum += p[i * r + j] * q[k * r + j];
            rest[i * m + k] = mat[i * m + k] - sum;
            out[i * m + k] = sum;
        }
}

static double dot(const float *p, size_t n, size_t r, size_t a, size_t b)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)p[i * r + a] * p[i * r + b];
    return sum;
}

/* Take away what column a shares with the (orthonormal) columns before it. */
static void project(float *p, size_t n, size_t r, size_t a)
{
    for (size_t b = 0; b < a; b++) {
        float shared = (float)dot(p, n, r, a, b);

        for (size_t i = 0; i < n; i++)
            p[i * r + a] -= shared * p[i * r + b];
    }
}

void mu_lowrank_orthonormal(float *p, size_t n, size_t r)
{
    for (size_t a = 0; a < r; a++) {
        double before = sqrt(dot(p, n, r, a, a)), norm;

        project(p, n, r, a);
        project(p, n, r,
                a); /* the first leaves rounding errors of nearly equal columns */
        norm = sqrt(dot(p, n, r, a, a));
        for (size_t i = 0; i < n; i++)
            p[i * r + a] = norm > 1e-5 * before ? (float)(p[i * r + a] / norm) : 0;
    }
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void mu_lowrank_random(float *q, size_t n, unsigned long long seed)
{
    uint64_t state = seed;

    /* Four uniform numbers add up to something near enough to normal. */
    for (size_t i = 0; i < n; i++) {
        double sum = 0;

        for (int k = 0; k < 4; k++)
            sum += (double)(next(&state) >> 11) * 0x1p-53 - 0.5;
        q[i] = (float)sum;
    }
}
