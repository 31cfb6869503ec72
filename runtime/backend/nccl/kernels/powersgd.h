/* SPDX-License-Identifier: BSD-3-Clause */
/* powersgd.h - the work of one thread on PowerSGD's low-rank factors, in C and CUDA
 *
 * compress.h defines M = g (rows x cols), P and Q. A launch works on at most
 * MU_FACTOR_COLUMNS columns of the matrix rank, `k` .. `k` + n - 1. Adjacent threads
 * have adjacent columns of M, so that they read adjacent memory. The order of all sums
 * depends on the size alone, and each product with its sum is rounded once: equal data
 * gives equal bits on all ranks and in all runs. Loops over columns have a constant end
 * and test each column, so that they are unrolled and sums stay in registers. `most` is
 * a constant: MU_FACTOR_COLUMNS, or less if n is always smaller.
 *
 *   left     a block: MU_FACTOR_ROWS rows; a thread: every MU_FACTOR_THREADS-th column
 *   right    a block: MU_FACTOR_TILE columns of a segment of rows; a thread: two
 *   finish   a block: MU_FACTOR_TILE columns of MU_FACTOR_DEEP rows; a thread: two
 *   columns  one block makes P orthonormal; a thread: every MU_FACTOR_LONG-th row
 */
#ifndef MU_NCCL_POWERSGD_H
#define MU_NCCL_POWERSGD_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "runtime/core/compress.h"
#include "runtime/core/convert.h"
#include "runtime/core/lowrank_both.h"

#define MU_FACTOR_COLUMNS 8
#define MU_FACTOR_ROWS 4
#define MU_FACTOR_THREADS 128
#define MU_FACTOR_TILE (2 * MU_FACTOR_THREADS)
#define MU_FACTOR_DEEP 32
#define MU_FACTOR_LONG 1024

/* Rows that a thread of the long block reads ahead: the block is alone on its SM and
 * would wait for memory otherwise.
 */
#ifdef __CUDACC__
#define MU_FACTOR_AHEAD _Pragma("unroll 4")
#else
#define MU_FACTOR_AHEAD
#endif

/* ---- M ----------------------------------------------------------------------------
 *
 * The first read turns an f32 gradient into M in place. A 16-bit gradient cannot hold
 * M, so each stage reads gradient and residual, and adds them.
 */

MU_BOTH static inline float mu_factor_up(uint16_t bits, const enum muster_dtype kind)
{
#ifdef __CUDACC__
    return kind == MUSTER_F16 ? __half2float(__ushort_as_half(bits))
                              : __bfloat162float(__ushort_as_bfloat16(bits));
#else
    return kind == MUSTER_F16 ? mu_from_f16(bits) : mu_from_bf16(bits);
#endif
}

MU_BOTH static inline uint16_t mu_factor_down(float x, const enum muster_dtype kind)
{
#ifdef __CUDACC__
    return kind == MUSTER_F16 ? __half_as_ushort(__float2half_rn(x))
                              : __bfloat16_as_ushort(__float2bfloat16_rn(x));
#else
    return kind == MUSTER_F16 ? mu_to_f16(x) : mu_to_bf16(x);
#endif
}

/* Element `at` of M; first: the gradient has not become M yet. */
MU_BOTH static inline float mu_factor_m(const struct mu_lowrank_tensor *x, size_t at,
                                        const enum muster_dtype kind, bool first)
{
    if (kind != MUSTER_F32)
        return mu_factor_up(x->g16[at], kind) + x->rest[at];
    return first ? x->g[at] + x->rest[at] : x->g[at];
}

MU_BOTH static inline void mu_factor_set(const struct mu_lowrank_tensor *x, size_t at,
                                         const enum muster_dtype kind, float value)
{
    if (kind == MUSTER_F32)
        x->g[at] = value;
    else
        x->g16[at] = mu_factor_down(value, kind);
}

/* ---- P = M Q ----------------------------------------------------------------------
 */

/* Thread t's part of rows row .. row + nrows - 1 of P, into sum[row][column]; `first`:
 * these are the first columns of the matrix rank.
 */
MU_BOTH static inline void mu_factor_left(const struct mu_lowrank_tensor *x, size_t row,
                                          int nrows, int k, int n, const int most,
                                          const enum muster_dtype kind, bool first,
                                          int t,
                                          float sum[MU_FACTOR_ROWS][MU_FACTOR_COLUMNS])
{
    const size_t cols = x->shape.cols;
    const float *__restrict__ q = x->q + (size_t)k * cols;

    for (int r = 0; r < MU_FACTOR_ROWS; r++)
        for (int c = 0; c < MU_FACTOR_COLUMNS; c++)
            sum[r][c] = 0;
    for (size_t j = (size_t)t; j < cols; j += MU_FACTOR_THREADS) {
        size_t at = row * cols + j;
        float m[MU_FACTOR_ROWS];

        for (int r = 0; r < MU_FACTOR_ROWS; r++)
            if (r < nrows)
                m[r] = mu_factor_m(x, at + (size_t)r * cols, kind, first);
        for (int r = 0; r < MU_FACTOR_ROWS; r++)
            if (r < nrows && first && kind == MUSTER_F32)
                x->g[at + (size_t)r * cols] = m[r];
        for (int c = 0; c < most; c++)
            if (c < n) {
                float y = q[(size_t)c * cols + j];

                for (int r = 0; r < MU_FACTOR_ROWS; r++)
                    if (r < nrows)
                        sum[r][c] = fmaf(m[r], y, sum[r][c]);
            }
    }
}

/* ---- Q = M^T P --------------------------------------------------------------------
 */

/* Thread t's columns j and j + MU_FACTOR_THREADS, j = tile * MU_FACTOR_TILE + t, over
 * rows from .. to - 1. p has those rows' n values, `most` apart. Result in x->parts.
 */
MU_BOTH static inline void mu_factor_right(const struct mu_lowrank_tensor *x,
                                           size_t tile, size_t from, size_t to,
                                           const float *p, int n, const int most,
                                           const enum muster_dtype kind, int t,
                                           float sum[2][MU_FACTOR_COLUMNS])
{
    const size_t cols = x->shape.cols;
    const size_t j = tile * MU_FACTOR_TILE + (size_t)t, next = j + MU_FACTOR_THREADS;

    for (size_t i = from; i < to; i++) {
        float m[2] = { j < cols ? mu_factor_m(x, i * cols + j, kind, false) : 0,
                       next < cols ? mu_factor_m(x, i * cols + next, kind, false) : 0 };

        for (int c = 0; c < most; c++)
            if (c < n) {
                float y = p[(i - from) * (size_t)most + (size_t)c];

                sum[0][c] = fmaf(m[0], y, sum[0][c]);
                sum[1][c] = fmaf(m[1], y, sum[1][c]);
            }
    }
}

/* Store the sum of a segment where mu_factor_combine reads it. */
MU_BOTH static inline void mu_factor_store(const struct mu_lowrank_tensor *x,
                                           size_t tile, size_t segment, int k, int n,
                                           const int most, int t,
                                           float sum[2][MU_FACTOR_COLUMNS])
{
    const size_t cols = x->shape.cols, rank = (size_t)x->shape.rank;
    const size_t j = tile * MU_FACTOR_TILE + (size_t)t;

    for (int c = 0; c < most; c++)
        if (c < n)
            for (int h = 0; h < 2; h++)
                if (j + (size_t)h * MU_FACTOR_THREADS < cols)
                    x->parts[(segment * rank + (size_t)(k + c)) * cols + j +
                             (size_t)h * MU_FACTOR_THREADS] = sum[h][c];
}

/* Element e of Q, the sum over all segments in order; 0 where P is not finite. */
MU_BOTH static inline void mu_factor_combine(const struct mu_lowrank_tensor *x,
                                             size_t segments, size_t e)
{
    const size_t nq = x->shape.cols * (size_t)x->shape.rank;
    float sum = 0;

    for (size_t s = 0; s < segments; s++)
        sum += x->parts[s * nq + e];
    x->q[e] = x->own[e] = *x->spoilt ? 0 : sum;
}

/* ---- The mean and the residual ----------------------------------------------------
 */

/* Of column j, n columns of the matrix rank from k on: this rank's Q, and the mean. */
MU_BOTH static inline void mu_factor_pair(const struct mu_lowrank_tensor *x, size_t j,
                                          int k, int n, const int most,
                                          float own[MU_FACTOR_COLUMNS],
                                          float mean[MU_FACTOR_COLUMNS])
{
    for (int c = 0; c < most; c++)
        if (c < n) {
            own[c] = x->own[(size_t)(k + c) * x->shape.cols + j];
            mean[c] = x->q[(size_t)(k + c) * x->shape.cols + j];
        }
}

/* Subtract n products from *left and add them to *sum; P's values are `apart` apart. */
MU_BOTH static inline void mu_factor_products(const float *p, size_t apart, int n,
                                              const int most,
                                              const float own[MU_FACTOR_COLUMNS],
                                              const float mean[MU_FACTOR_COLUMNS],
                                              float *left, float *sum)
{
    for (int c = 0; c < most; c++)
        if (c < n) {
            float y = p[(size_t)c * apart];

            *left = fmaf(-y, own[c], *left);
            *sum = fmaf(y, mean[c], *sum);
        }
}

/* Column j of rows row .. row + nrows - 1. own, mean and p belong to the first columns
 * of the matrix rank; p's rows are `most` apart.
 */
MU_BOTH static inline void mu_factor_finish_rows(const struct mu_lowrank_tensor *x,
                                                 size_t j, size_t row, int nrows,
                                                 const float *p, const int most,
                                                 const enum muster_dtype kind,
                                                 const float own[MU_FACTOR_COLUMNS],
                                                 const float mean[MU_FACTOR_COLUMNS])
{
    const size_t cols = x->shape.cols, at = row * cols + j;
    const int rank = x->shape.rank;
    float left[MU_FACTOR_ROWS], sum[MU_FACTOR_ROWS];

    for (int r = 0; r < MU_FACTOR_ROWS; r++)
        if (r < nrows) {
            left[r] = mu_factor_m(x, at + (size_t)r * cols, kind, false);
            sum[r] = 0;
        }
    for (int r = 0; r < MU_FACTOR_ROWS; r++)
        if (r < nrows)
            mu_factor_products(p + r * most, 1, rank, most, own, mean, &left[r],
                               &sum[r]);
    for (int k = most; k < rank; k += most) {
        float more_own[MU_FACTOR_COLUMNS], more_mean[MU_FACTOR_COLUMNS];

        mu_factor_pair(x, j, k, rank - k, most, more_own, more_mean);
        for (int r = 0; r < MU_FACTOR_ROWS; r++)
            if (r < nrows)
                mu_factor_products(x->p + (size_t)k * x->shape.rows + row + (size_t)r,
                                   x->shape.rows, rank - k, most, more_own, more_mean,
                                   &left[r], &sum[r]);
    }
    for (int r = 0; r < MU_FACTOR_ROWS; r++)
        if (r < nrows) {
            x->rest[at + (size_t)r * cols] = left[r];
            mu_factor_set(x, at + (size_t)r * cols, kind, sum[r]);
        }
}

/* Thread t's two columns of rows from .. to - 1. */
MU_BOTH static inline void mu_factor_finish(const struct mu_lowrank_tensor *x,
                                            size_t tile, size_t from, size_t to,
                                            const float *p, const int most,
                                            const enum muster_dtype kind, int t)
{
    for (int h = 0; h < 2; h++) {
        const size_t j = tile * MU_FACTOR_TILE + (size_t)(t + h * MU_FACTOR_THREADS);
        float own[MU_FACTOR_COLUMNS], mean[MU_FACTOR_COLUMNS];

        if (j >= x->shape.cols)
            return;
        mu_factor_pair(x, j, 0, x->shape.rank, most, own, mean);
        for (size_t i = from; i < to; i += MU_FACTOR_ROWS)
            mu_factor_finish_rows(
                x, j, i, to - i < MU_FACTOR_ROWS ? (int)(to - i) : MU_FACTOR_ROWS,
                p + (i - from) * (size_t)most, most, kind, own, mean);
    }
}

/* The same where P or Q is not finite. 1 in *spoilt: P is not finite, and nothing of it
 * was sent.
 */
MU_BOTH static inline void mu_factor_spoil(const struct mu_lowrank_tensor *x,
                                           size_t tile, size_t from, size_t to,
                                           const enum muster_dtype kind, int t)
{
    const size_t cols = x->shape.cols;

    for (int h = 0; h < 2; h++) {
        const size_t j = tile * MU_FACTOR_TILE + (size_t)(t + h * MU_FACTOR_THREADS);

        for (size_t i = from; i < to && j < cols; i++) {
            mu_factor_set(x, i * cols + j, kind, NAN);
            if (!(*x->spoilt & 1))
                x->rest[i * cols + j] = 0;
        }
    }
}

/* ---- P orthonormal ----------------------------------------------------------------
 */

/* Thread t's part of the products of column k with the n columns from j on; for j == k
 * with itself.
 */
MU_BOTH static inline void mu_factor_dots(const struct mu_lowrank_tensor *x, int k,
                                          int j, int n, int t,
                                          double dot[MU_FACTOR_COLUMNS])
{
    const size_t rows = x->shape.rows;
    const float *p = x->p + (size_t)j * rows, *column = x->p + (size_t)k * rows;

    for (int c = 0; c < MU_FACTOR_COLUMNS; c++)
        dot[c] = 0;
    MU_FACTOR_AHEAD
    for (size_t i = (size_t)t; i < rows; i += MU_FACTOR_LONG)
        for (int c = 0; c < MU_FACTOR_COLUMNS; c++)
            if (c < n)
                dot[c] += (double)p[(size_t)c * rows + i] * (double)column[i];
}

/* Subtract n columns from j on, times dot[], from column k; returns thread t's part of
 * the square of the remainder.
 */
MU_BOTH static inline double mu_factor_subtract(const struct mu_lowrank_tensor *x,
                                                int k, int j, int n, int t,
                                                const double dot[MU_FACTOR_COLUMNS])
{
    const size_t rows = x->shape.rows;
    const float *__restrict__ p = x->p + (size_t)j * rows;
    float *__restrict__ column = x->p + (size_t)k * rows;
    double square = 0;

    MU_FACTOR_AHEAD
    for (size_t i = (size_t)t; i < rows; i += MU_FACTOR_LONG) {
        float v = column[i];

        for (int c = 0; c < MU_FACTOR_COLUMNS; c++)
            if (c < n)
                v = fmaf(-(float)dot[c], p[(size_t)c * rows + i], v);
        column[i] = v;
        square += (double)v * (double)v;
    }
    return square;
}

/* True if the remainder of a column of norm `whole` is only rounding noise. */
MU_BOTH static inline bool mu_factor_dependent(double whole, double left)
{
    return left <= MU_LOWRANK_DEPENDENT * whole || left < FLT_MIN;
}

MU_BOTH static inline void mu_factor_redraw(const struct mu_lowrank_tensor *x, int k,
                                            uint64_t draw, int t)
{
    const size_t rows = x->shape.rows;

    for (size_t i = (size_t)t; i < rows; i += MU_FACTOR_LONG)
        x->p[(size_t)k * rows + i] =
            mu_lowrank_redraw(x->seed, draw, (uint64_t)k * rows + i);
}

MU_BOTH static inline void mu_factor_divide(const struct mu_lowrank_tensor *x, int k,
                                            double by, int t)
{
    const size_t rows = x->shape.rows;

    MU_FACTOR_AHEAD
    for (size_t i = (size_t)t; i < rows; i += MU_FACTOR_LONG)
        x->p[(size_t)k * rows + i] = (float)(x->p[(size_t)k * rows + i] / by);
}

#endif
