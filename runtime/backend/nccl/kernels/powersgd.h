/* SPDX-License-Identifier: BSD-3-Clause */
/* powersgd.h - what one thread does for PowerSGD's thin matrices, in C and CUDA
 *
 * Of compress.h's M = g (rows x cols), P and Q at most MU_THIN columns are worked on at
 * a time, `k` .. `k` + n - 1 of the rank. Threads that are neighbours have neighbouring
 * columns of M, so that they read neighbouring memory. All sums are taken in an order
 * that the size alone decides, products and sums in one rounding: equal data gives
 * equal bits, on all ranks and in all runs. Loops over columns have a constant end and
 * ask whether there is such a column inside: so they are unrolled, and sums live in
 * registers. `most` is a constant: MU_THIN, or less where n is never more.
 *
 *   left     a block has MU_THIN_ROWS rows, its threads every MU_THIN_THREADS-th column
 *   right    a block has MU_THIN_TILE columns of a segment of rows, a thread two of
 * them finish   a block has MU_THIN_TILE columns of MU_THIN_DEEP rows, a thread two of
 * them columns  one block makes P orthonormal, a thread has every MU_THIN_LONG-th row
 */
#ifndef MU_NCCL_POWERSGD_H
#define MU_NCCL_POWERSGD_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "runtime/core/compress.h"
#include "runtime/core/lowrank_both.h"

#define MU_THIN 8
#define MU_THIN_ROWS 4
#define MU_THIN_THREADS 128
#define MU_THIN_TILE (2 * MU_THIN_THREADS)
#define MU_THIN_DEEP 32
#define MU_THIN_LONG 512

/* ---- P = M Q ----------------------------------------------------------------------
 */

/* Thread t's part of rows row .. row + nrows - 1 of P, into sum[row][column]; with
 * `add` g += rest first.
 */
MU_BOTH static inline void mu_thin_left(const struct mu_lowrank_tensor *x, size_t row,
                                        int nrows, int k, int n, const int most,
                                        bool add, int t,
                                        float sum[MU_THIN_ROWS][MU_THIN])
{
    const size_t cols = x->shape.cols;
    const float *__restrict__ q = x->q + (size_t)k * cols;
    const float *__restrict__ rest = x->rest;
    float *__restrict__ g = x->g;

    for (int r = 0; r < MU_THIN_ROWS; r++)
        for (int c = 0; c < MU_THIN; c++)
            sum[r][c] = 0;
    for (size_t j = (size_t)t; j < cols; j += MU_THIN_THREADS) {
        size_t at = row * cols + j;
        float m[MU_THIN_ROWS];

        for (int r = 0; r < MU_THIN_ROWS; r++)
            if (r < nrows)
                m[r] =
                    g[at + (size_t)r * cols] + (add ? rest[at + (size_t)r * cols] : 0);
        for (int r = 0; r < MU_THIN_ROWS; r++)
            if (r < nrows && add)
                g[at + (size_t)r * cols] = m[r];
        for (int c = 0; c < most; c++)
            if (c < n) {
                float y = q[(size_t)c * cols + j];

                for (int r = 0; r < MU_THIN_ROWS; r++)
                    if (r < nrows)
                        sum[r][c] = fmaf(m[r], y, sum[r][c]);
            }
    }
}

/* ---- Q = M^T P --------------------------------------------------------------------
 */

/* Thread t's columns j and j + MU_THIN_THREADS, j = tile * MU_THIN_TILE + t, over rows
 * from .. to - 1; p has those rows' n values, `most` apart. Into x->parts.
 */
MU_BOTH static inline void mu_thin_right(const struct mu_lowrank_tensor *x, size_t tile,
                                         size_t from, size_t to, const float *p, int n,
                                         const int most, int t, float sum[2][MU_THIN])
{
    const size_t cols = x->shape.cols;
    const size_t j = tile * MU_THIN_TILE + (size_t)t, next = j + MU_THIN_THREADS;

    for (size_t i = from; i < to; i++) {
        float m[2] = { j < cols ? x->g[i * cols + j] : 0,
                       next < cols ? x->g[i * cols + next] : 0 };

        for (int c = 0; c < most; c++)
            if (c < n) {
                float y = p[(i - from) * (size_t)most + (size_t)c];

                sum[0][c] = fmaf(m[0], y, sum[0][c]);
                sum[1][c] = fmaf(m[1], y, sum[1][c]);
            }
    }
}

/* The sum of a segment, stored where mu_thin_combine finds it. */
MU_BOTH static inline void mu_thin_store(const struct mu_lowrank_tensor *x, size_t tile,
                                         size_t segment, int k, int n, const int most,
                                         int t, float sum[2][MU_THIN])
{
    const size_t cols = x->shape.cols, rank = (size_t)x->shape.rank;
    const size_t j = tile * MU_THIN_TILE + (size_t)t;

    for (int c = 0; c < most; c++)
        if (c < n)
            for (int h = 0; h < 2; h++)
                if (j + (size_t)h * MU_THIN_THREADS < cols)
                    x->parts[(segment * rank + (size_t)(k + c)) * cols + j +
                             (size_t)h * MU_THIN_THREADS] = sum[h][c];
}

/* Element e of Q, the sum over all segments in order; 0 where P is not finite. */
MU_BOTH static inline void mu_thin_combine(const struct mu_lowrank_tensor *x,
                                           size_t segments, size_t e)
{
    const size_t nq = x->shape.cols * (size_t)x->shape.rank;
    float sum = 0;

    for (size_t s = 0; s < segments; s++)
        sum += x->parts[s * nq + e];
    x->q[e] = x->own[e] = *x->spoilt ? 0 : sum;
}

/* ---- The mean, and what is left ---------------------------------------------------
 */

/* Column j of rows row .. row + nrows - 1, whose n values of P are in p, `most` apart:
 * k 0 sets g and rest, later ones add to them.
 */
MU_BOTH static inline void mu_thin_finish_rows(const struct mu_lowrank_tensor *x,
                                               size_t j, size_t row, int nrows,
                                               const float *p, int k, int n,
                                               const int most, const float own[MU_THIN],
                                               const float mean[MU_THIN])
{
    const size_t cols = x->shape.cols;
    float *__restrict__ g = x->g + row * cols + j;
    float *__restrict__ rest = x->rest + row * cols + j;
    float left[MU_THIN_ROWS], sum[MU_THIN_ROWS];

    for (int r = 0; r < MU_THIN_ROWS; r++)
        if (r < nrows) {
            left[r] = k == 0 ? g[(size_t)r * cols] : rest[(size_t)r * cols];
            sum[r] = k == 0 ? 0 : g[(size_t)r * cols];
        }
    for (int r = 0; r < MU_THIN_ROWS; r++)
        if (r < nrows) {
            for (int c = 0; c < most; c++)
                if (c < n) {
                    float y = p[r * most + c];

                    left[r] = fmaf(-y, own[c], left[r]);
                    sum[r] = fmaf(y, mean[c], sum[r]);
                }
            rest[(size_t)r * cols] = left[r];
            g[(size_t)r * cols] = sum[r];
        }
}

/* Thread t's two columns of rows from .. to - 1. */
MU_BOTH static inline void mu_thin_finish(const struct mu_lowrank_tensor *x,
                                          size_t tile, size_t from, size_t to,
                                          const float *p, int k, int n, const int most,
                                          int t)
{
    const size_t cols = x->shape.cols;

    for (int h = 0; h < 2; h++) {
        const size_t j = tile * MU_THIN_TILE + (size_t)(t + h * MU_THIN_THREADS);
        float own[MU_THIN], mean[MU_THIN];

        if (j >= cols)
            return;
        for (int c = 0; c < most; c++)
            if (c < n) {
                own[c] = x->own[(size_t)(k + c) * cols + j];
                mean[c] = x->q[(size_t)(k + c) * cols + j];
            }
        for (size_t i = from; i < to; i += MU_THIN_ROWS)
            mu_thin_finish_rows(x, j, i,
                                to - i < MU_THIN_ROWS ? (int)(to - i) : MU_THIN_ROWS,
                                p + (i - from) * (size_t)most, k, n, most, own, mean);
    }
}

/* The same where P or Q is not finite: 1 in *spoilt is P's, which nothing was sent of.
 */
MU_BOTH static inline void mu_thin_spoil(const struct mu_lowrank_tensor *x, size_t tile,
                                         size_t from, size_t to, int t)
{
    const size_t cols = x->shape.cols;

    for (int h = 0; h < 2; h++) {
        const size_t j = tile * MU_THIN_TILE + (size_t)(t + h * MU_THIN_THREADS);

        for (size_t i = from; i < to && j < cols; i++) {
            x->g[i * cols + j] = NAN;
            if (!(*x->spoilt & 1))
                x->rest[i * cols + j] = 0;
        }
    }
}

/* ---- P orthonormal ----------------------------------------------------------------
 */

/* Thread t's part of the products of column k with the n columns from j on; of itself
 * where j is k.
 */
MU_BOTH static inline void mu_thin_dots(const struct mu_lowrank_tensor *x, int k, int j,
                                        int n, int t, double dot[MU_THIN])
{
    const size_t rows = x->shape.rows;
    const float *p = x->p + (size_t)j * rows, *column = x->p + (size_t)k * rows;

    for (int c = 0; c < MU_THIN; c++)
        dot[c] = 0;
    for (size_t i = (size_t)t; i < rows; i += MU_THIN_LONG)
        for (int c = 0; c < MU_THIN; c++)
            if (c < n)
                dot[c] += (double)p[(size_t)c * rows + i] * (double)column[i];
}

/* Take n columns from j on, dot[] times each, out of column k; returns thread t's part
 * of the square of what is left.
 */
MU_BOTH static inline double mu_thin_take_out(const struct mu_lowrank_tensor *x, int k,
                                              int j, int n, int t,
                                              const double dot[MU_THIN])
{
    const size_t rows = x->shape.rows;
    const float *p = x->p + (size_t)j * rows;
    float *column = x->p + (size_t)k * rows;
    double square = 0;

    for (size_t i = (size_t)t; i < rows; i += MU_THIN_LONG) {
        float v = column[i];

        for (int c = 0; c < MU_THIN; c++)
            if (c < n)
                v = fmaf(-(float)dot[c], p[(size_t)c * rows + i], v);
        column[i] = v;
        square += (double)v * (double)v;
    }
    return square;
}

/* Is what is left of a column of norm `whole` no more than rounding noise? */
MU_BOTH static inline bool mu_thin_dependent(double whole, double left)
{
    return left <= MU_LOWRANK_DEPENDENT * whole || left < FLT_MIN;
}

MU_BOTH static inline void mu_thin_redraw(const struct mu_lowrank_tensor *x, int k,
                                          uint64_t draw, int t)
{
    const size_t rows = x->shape.rows;

    for (size_t i = (size_t)t; i < rows; i += MU_THIN_LONG)
        x->p[(size_t)k * rows + i] =
            mu_lowrank_redraw(x->seed, draw, (uint64_t)k * rows + i);
}

MU_BOTH static inline void mu_thin_divide(const struct mu_lowrank_tensor *x, int k,
                                          double by, int t)
{
    const size_t rows = x->shape.rows;

    for (size_t i = (size_t)t; i < rows; i += MU_THIN_LONG)
        x->p[(size_t)k * rows + i] = (float)(x->p[(size_t)k * rows + i] / by);
}

#endif
