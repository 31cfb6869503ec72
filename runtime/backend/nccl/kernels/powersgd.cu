/* SPDX-License-Identifier: BSD-3-Clause */
/* powersgd.cu - gradients as products of low-rank factors: each stage reads M once for
 * up to MU_FACTOR_COLUMNS columns of the matrix rank
 */
#include "runtime/backend/nccl/kernels/device.cuh"
#include "runtime/backend/nccl/kernels/powersgd.h"

#define FEW 4 /* a matrix rank up to this has kernels with fewer registers */
#define WARPS (MU_FACTOR_THREADS / 32)
#define LONG_WARPS (MU_FACTOR_LONG / 32)
#define SPREAD 1024 /* elements of Q per block of judge and combine */

struct factor_args {
    struct mu_list<struct mu_lowrank_tensor, MU_LOWRANK_TENSORS> list;
    int k, n; /* columns of the matrix rank in this launch */
};

/* ---- LEFT -------------------------------------------------------------------------
 */

template <int MOST, enum muster_dtype KIND>
__global__ void __launch_bounds__(MU_FACTOR_THREADS)
    left(const __grid_constant__ struct factor_args a)
{
    __shared__ float part[WARPS][MU_FACTOR_ROWS * MOST];
    float sum[MU_FACTOR_ROWS][MU_FACTOR_COLUMNS];
    const int t = threadIdx.x;
    uint32_t block;
    const struct mu_lowrank_tensor &x = a.list.of(&block);
    const size_t row = (size_t)block * MU_FACTOR_ROWS, rows = x.shape.rows;
    const int nrows = rows - row < MU_FACTOR_ROWS ? (int)(rows - row) : MU_FACTOR_ROWS;

    if (a.k == 0 && nrows == MU_FACTOR_ROWS)
        mu_factor_left(&x, row, MU_FACTOR_ROWS, 0, a.n, MOST, KIND, true, t, sum);
    else
        mu_factor_left(&x, row, nrows, a.k, a.n, MOST, KIND, a.k == 0, t, sum);
#pragma unroll
    for (int r = 0; r < MU_FACTOR_ROWS; r++)
#pragma unroll
        for (int c = 0; c < MOST; c++) {
            float v = sum[r][c];

            for (int d = 16; d > 0; d /= 2)
                v += __shfl_xor_sync(0xffffffffu, v, d);
            if (t % 32 == 0)
                part[t / 32][r * MOST + c] = v;
        }
    __syncthreads();
    if (t < MU_FACTOR_ROWS * MOST && t / MOST < nrows && t % MOST < a.n) {
        float v = part[0][t];

        for (int w = 1; w < WARPS; w++)
            v += part[w][t];
        x.p[(size_t)(a.k + t % MOST) * rows + row + t / MOST] = v;
    }
}

/* ---- RIGHT ------------------------------------------------------------------------
 */

/* Sums of n values over all threads of a block, returned to all of them. Were it
 * static, the name of its shared memory would have a hash of the build folder, and two
 * builds would differ.
 */
__device__ inline void add_up(double v[MU_FACTOR_COLUMNS], int n)
{
    __shared__ double part[LONG_WARPS][MU_FACTOR_COLUMNS];
    const int t = threadIdx.x;

    __syncthreads(); /* the previous sums have been read */
#pragma unroll
    for (int c = 0; c < MU_FACTOR_COLUMNS; c++)
        if (c < n) {
            for (int d = 16; d > 0; d /= 2)
                v[c] += __shfl_xor_sync(0xffffffffu, v[c], d);
            if (t % 32 == 0)
                part[t / 32][c] = v[c];
        }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < MU_FACTOR_COLUMNS; c++)
        if (c < n) {
            v[c] = part[0][c];
            for (int w = 1; w < LONG_WARPS; w++)
                v[c] += part[w][c];
        }
}

__device__ static double norm(const struct mu_lowrank_tensor &x, int k)
{
    double v[MU_FACTOR_COLUMNS];

    mu_factor_dots(&x, k, k, 1, threadIdx.x, v);
    add_up(v, 1);
    return sqrt(v[0]);
}

/* See the host's version: two passes are enough. Returns the remaining norm. */
__device__ static double orthogonalise(const struct mu_lowrank_tensor &x, int k)
{
    double v[MU_FACTOR_COLUMNS], square[MU_FACTOR_COLUMNS];

    if (k == 0)
        return norm(x, 0);
    for (int pass = 0; pass < 2; pass++)
        for (int j = 0; j < k; j += MU_FACTOR_COLUMNS) {
            int n = k - j < MU_FACTOR_COLUMNS ? k - j : MU_FACTOR_COLUMNS;

            mu_factor_dots(&x, k, j, n, threadIdx.x, v);
            add_up(v, n);
            square[0] = mu_factor_subtract(&x, k, j, n, threadIdx.x, v);
        }
    add_up(square, 1);
    return sqrt(square[0]);
}

/* One block per tensor. A thread reads only its own rows, so that only sums wait. */
__global__ void __launch_bounds__(MU_FACTOR_LONG)
    orthonormal(const __grid_constant__ struct factor_args a)
{
    const int t = threadIdx.x;
    uint32_t block;
    const struct mu_lowrank_tensor &x = a.list.of(&block);

    for (int k = 0; k < x.shape.rank; k++) {
        double whole = norm(x, k), rest;

        if (!(whole <= DBL_MAX)) { /* NaN too */
            if (t == 0)
                *x.spoilt = 1;
            return;
        }
        rest = orthogonalise(x, k);
        for (uint64_t draw = 1; mu_factor_dependent(whole, rest); draw++) {
            mu_factor_redraw(&x, k, draw, t);
            whole = 1;
            rest = orthogonalise(x, k);
        }
        mu_factor_divide(&x, k, rest, t);
    }
    if (t == 0)
        *x.spoilt = 0;
}

/* n columns of rows from .. to - 1 of P, in the order of the arithmetic. */
template <int MOST>
__device__ static void stage(const struct mu_lowrank_tensor &x, size_t from, size_t to,
                             int k, int n, float *p)
{
    const int count = (int)(to - from);

    for (int e = threadIdx.x; e < count * n; e += MU_FACTOR_THREADS)
        p[e % count * MOST + e / count] =
            x.p[(size_t)(k + e / count) * x.shape.rows + from + (size_t)(e % count)];
    __syncthreads();
}

__host__ __device__ static size_t tiles(const struct mu_lowrank &l)
{
    return (l.cols + MU_FACTOR_TILE - 1) / MU_FACTOR_TILE;
}

template <int MOST, enum muster_dtype KIND>
__global__ void __launch_bounds__(MU_FACTOR_THREADS)
    right(const __grid_constant__ struct factor_args a)
{
    __shared__ float p[MU_LOWRANK_SEGMENTS * MOST];
    float sum[2][MU_FACTOR_COLUMNS] = { { 0 } };
    uint32_t block;
    const struct mu_lowrank_tensor &x = a.list.of(&block);
    const size_t tile = block % tiles(x.shape), segment = block / tiles(x.shape);
    const size_t each = mu_lowrank_segment_rows(&x.shape), from = segment * each;
    const size_t end = from + each < x.shape.rows ? from + each : x.shape.rows;

    for (size_t i = from; i < end; i += MU_LOWRANK_SEGMENTS) {
        size_t to = end - i < MU_LOWRANK_SEGMENTS ? end : i + MU_LOWRANK_SEGMENTS;

        __syncthreads();
        stage<MOST>(x, i, to, a.k, a.n, p);
        mu_factor_right(&x, tile, i, to, p, a.n, MOST, KIND, threadIdx.x, sum);
    }
    mu_factor_store(&x, tile, segment, a.k, a.n, MOST, threadIdx.x, sum);
}

__global__ void __launch_bounds__(256)
    combine(const __grid_constant__ struct factor_args a)
{
    uint32_t block;
    const struct mu_lowrank_tensor &x = a.list.of(&block);
    const size_t nq = x.shape.cols * (size_t)x.shape.rank,
                 from = (size_t)block * SPREAD;
    const size_t to = nq - from < SPREAD ? nq : from + SPREAD;

    for (size_t e = from + threadIdx.x; e < to; e += 256)
        mu_factor_combine(&x, mu_lowrank_segments(&x.shape), e);
}

/* ---- FINISH -----------------------------------------------------------------------
 */

__global__ void __launch_bounds__(256)
    judge(const __grid_constant__ struct factor_args a)
{
    uint32_t block;
    const struct mu_lowrank_tensor &x = a.list.of(&block);
    const size_t nq = x.shape.cols * (size_t)x.shape.rank,
                 from = (size_t)block * SPREAD;
    const size_t to = nq - from < SPREAD ? nq : from + SPREAD;
    bool bad = false;

    for (size_t e = from + threadIdx.x; e < to; e += 256)
        bad |= !(fabsf(x.q[e]) <= FLT_MAX);
    if (bad)
        atomicOr(x.spoilt, 2u);
}

template <int MOST, enum muster_dtype KIND>
__global__ void __launch_bounds__(MU_FACTOR_THREADS)
    finish(const __grid_constant__ struct factor_args a)
{
    __shared__ float p[MU_FACTOR_DEEP * MOST];
    uint32_t block;
    const struct mu_lowrank_tensor &x = a.list.of(&block);
    const size_t tile = block % tiles(x.shape), rows = x.shape.rows;
    const size_t from = block / tiles(x.shape) * MU_FACTOR_DEEP;
    const size_t to = rows - from < MU_FACTOR_DEEP ? rows : from + MU_FACTOR_DEEP;

    if (*x.spoilt == 0) {
        stage<MOST>(x, from, to, a.k, a.n, p);
        mu_factor_finish(&x, tile, from, to, p, MOST, KIND, threadIdx.x);
        return;
    }
    mu_factor_spoil(&x, tile, from, to, KIND, threadIdx.x);
    /* No thread reads q any more in such a step. */
    for (size_t e = threadIdx.x; block == 0 && e < x.shape.cols * (size_t)x.shape.rank;
         e += MU_FACTOR_THREADS)
        x.q[e] = mu_lowrank_noise(x.seed, e);
}

/* ---- Launch -----------------------------------------------------------------------
 */

enum kernel { LEFT, ORTHONORMAL, RIGHT, COMBINE, JUDGE, FINISH, KERNELS };

template <int MOST, enum muster_dtype KIND>
static const void *kernel_for(enum kernel which)
{
    return which == LEFT    ? (const void *)left<MOST, KIND>
           : which == RIGHT ? (const void *)right<MOST, KIND>
                            : (const void *)finish<MOST, KIND>;
}

static const void *kernel_of(enum kernel which, bool few, enum muster_dtype kind)
{
    if (which == ORTHONORMAL)
        return (const void *)orthonormal;
    if (which == COMBINE || which == JUDGE)
        return which == COMBINE ? (const void *)combine : (const void *)judge;
    switch (kind) {
    case MUSTER_F32:
        return few ? kernel_for<FEW, MUSTER_F32>(which)
                   : kernel_for<MU_FACTOR_COLUMNS, MUSTER_F32>(which);
    case MUSTER_F16:
        return few ? kernel_for<FEW, MUSTER_F16>(which)
                   : kernel_for<MU_FACTOR_COLUMNS, MUSTER_F16>(which);
    case MUSTER_BF16:
        return few ? kernel_for<FEW, MUSTER_BF16>(which)
                   : kernel_for<MU_FACTOR_COLUMNS, MUSTER_BF16>(which);
    default:
        return NULL;
    }
}

static size_t blocks_of(enum kernel which, const struct mu_lowrank &l)
{
    switch (which) {
    case LEFT:
        return (l.rows + MU_FACTOR_ROWS - 1) / MU_FACTOR_ROWS;
    case ORTHONORMAL:
        return 1;
    case RIGHT:
        return tiles(l) * mu_lowrank_segments(&l);
    case COMBINE:
    case JUDGE:
        return (l.cols * (size_t)l.rank + SPREAD - 1) / SPREAD;
    default:
        return tiles(l) * ((l.rows + MU_FACTOR_DEEP - 1) / MU_FACTOR_DEEP);
    }
}

static int threads_of(enum kernel which)
{
    return which == ORTHONORMAL                 ? MU_FACTOR_LONG
           : which == COMBINE || which == JUDGE ? 256
                                                : MU_FACTOR_THREADS;
}

/* Columns of the matrix rank per launch. */
static int step_of(enum kernel which, int rank, int most)
{
    return which == LEFT || which == RIGHT ? most : rank;
}

static cudaError_t run(enum kernel which, const struct mu_lowrank_tensor *tensors,
                       int n, cudaStream_t stream)
{
    const int rank = tensors[0].shape.rank,
              most = rank <= FEW ? FEW : MU_FACTOR_COLUMNS;
    const void *fn = kernel_of(which, rank <= FEW, tensors[0].kind);
    cudaError_t rc = cudaSuccess;
    struct factor_args args;

    args.list.clear();
    for (int i = 0; i < n; i++)
        if (!fn || tensors[i].shape.rank != rank ||
            tensors[i].kind != tensors[0].kind ||
            !args.list.add(tensors[i], blocks_of(which, tensors[i].shape)))
            return cudaErrorInvalidValue;
    for (args.k = 0; args.k < rank && rc == cudaSuccess;
         args.k += step_of(which, rank, most)) {
        args.n = rank - args.k < most ? rank - args.k : most;
        rc = mu_launch(fn, &args, threads_of(which), stream);
    }
    return rc;
}

cudaError_t mu_lowrank_launch(enum mu_lowrank_stage stage,
                              const struct mu_lowrank_tensor *tensors, int n,
                              cudaStream_t stream)
{
    static const struct {
        enum kernel first, end;
    } stages[] = { { LEFT, ORTHONORMAL }, { ORTHONORMAL, JUDGE }, { JUDGE, KERNELS } };
    cudaError_t rc = cudaSuccess;

    if (n < 1 || n > MU_LOWRANK_TENSORS)
        return n == 0 ? cudaSuccess : cudaErrorInvalidValue;
    for (int k = stages[stage].first; k < stages[stage].end && rc == cudaSuccess; k++)
        rc = run((enum kernel)k, tensors, n, stream);
    return rc;
}

cudaError_t mu_powersgd_load(void)
{
    cudaFuncAttributes attr;
    cudaError_t rc = cudaSuccess;

    for (int t = MUSTER_F32; t <= MUSTER_BF16; t++)
        for (int k = 0; k < 2 * KERNELS && rc == cudaSuccess; k++) {
            const void *fn =
                kernel_of((enum kernel)(k / 2), k % 2, (enum muster_dtype)t);

            if (fn)
                rc = cudaFuncGetAttributes(&attr, fn);
        }
    return rc;
}
