/* SPDX-License-Identifier: BSD-3-Clause */
/* norm.cu - sums of squares in one order for all, and which gradient is not finite */
#include "runtime/backend/nccl/kernels/device.cuh"
#include "runtime/backend/nccl/kernels/norm.h"

typedef double (*share_fn)(const void *, size_t, size_t, size_t);

template <share_fn SHARE>
__global__ void __launch_bounds__(MU_NORM_THREADS)
    squares(const void *data, size_t count, double *sums)
{
    __shared__ double part[MU_NORM_THREADS];
    const int t = threadIdx.x;

    part[t] = SHARE(data, count, (size_t)blockIdx.x * MU_NORM_THREADS + t,
                    (size_t)gridDim.x * MU_NORM_THREADS);
    for (int half = MU_NORM_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half)
            mu_norm_fold(part, t, half);
    }
    if (t == 0)
        sums[blockIdx.x] += part[0];
}

static const void *squares_kernel(enum muster_dtype dtype)
{
    switch (dtype) {
    case MUSTER_F32:
        return (const void *)squares<mu_norm_share_f32>;
    case MUSTER_F64:
        return (const void *)squares<mu_norm_share_f64>;
    case MUSTER_F16:
        return (const void *)squares<mu_norm_share_f16>;
    case MUSTER_BF16:
        return (const void *)squares<mu_norm_share_bf16>;
    default:
        return NULL;
    }
}

cudaError_t mu_squares(const void *data, size_t count, enum muster_dtype dtype,
                       double *sums, cudaStream_t stream)
{
    void *argv[] = { &data, &count, &sums };

    if (!squares_kernel(dtype))
        return cudaErrorInvalidValue;
    return cudaLaunchKernel(squares_kernel(dtype), dim3(MU_SQUARES),
                            dim3(MU_NORM_THREADS), argv, 0, stream);
}

/* ---- NaN and Inf ----------------------------------------------------------------- */

#define THREADS 512
#define PER_BLOCK (THREADS * 16) /* elements */

struct look_args {
    int n;
    uint32_t *found;
    uint32_t first[MU_LOOKS + 1]; /* block that begins piece i; first[n] is the grid */
    struct mu_look piece[MU_LOOKS];
};

/* An exponent of all ones, in integers: no option of the compiler changes the answer.
 */
template <typename U>
__global__ void __launch_bounds__(THREADS)
    look(const __grid_constant__ struct look_args a, U exponent)
{
    int lo = 0, hi = a.n - 1;
    bool bad = false;

    while (lo < hi) { /* the last piece that begins at or before this block */
        int mid = (lo + hi + 1) / 2;
        if (a.first[mid] <= blockIdx.x)
            lo = mid;
        else
            hi = mid - 1;
    }
    const struct mu_look &p = a.piece[lo];
    size_t from = (size_t)(blockIdx.x - a.first[lo]) * PER_BLOCK;
    size_t end = p.count - from < PER_BLOCK ? p.count : from + PER_BLOCK;
    for (size_t i = from + threadIdx.x; i < end; i += THREADS)
        bad |= (((const U *)p.at)[i] & exponent) == exponent;
    if (bad)
        atomicMax(a.found, p.mark);
}

cudaError_t mu_look_for_nonfinite(const struct mu_look *pieces, int n,
                                  enum muster_dtype dtype, uint32_t *found,
                                  cudaStream_t stream)
{
    struct look_args args;
    uint16_t e16 = dtype == MUSTER_F16 ? 0x7c00 : 0x7f80;
    uint32_t e32 = 0x7f800000u;
    uint64_t e64 = (uint64_t)0x7ff << 52;
    const void *fn = (const void *)look<uint16_t>;
    void *exponent = &e16;
    size_t blocks = 0;

    if (n > MU_LOOKS || dtype > MUSTER_BF16)
        return cudaErrorInvalidValue;
    if (dtype == MUSTER_F32) {
        fn = (const void *)look<uint32_t>;
        exponent = &e32;
    } else if (dtype == MUSTER_F64) {
        fn = (const void *)look<uint64_t>;
        exponent = &e64;
    }
    args.n = 0;
    args.found = found;
    for (int i = 0; i < n; i++) {
        if (pieces[i].count == 0)
            continue;
        args.piece[args.n] = pieces[i];
        args.first[args.n++] = (uint32_t)blocks;
        blocks += (pieces[i].count + PER_BLOCK - 1) / PER_BLOCK;
    }
    if (blocks == 0)
        return cudaSuccess;
    if (blocks > 0x7fffffff)
        return cudaErrorInvalidValue;
    args.first[args.n] = (uint32_t)blocks;
    void *argv[] = { &args, exponent };
    return cudaLaunchKernel(fn, dim3((unsigned)blocks), dim3(THREADS), argv, 0, stream);
}

cudaError_t mu_norm_load(void)
{
    cudaFuncAttributes attr;
    cudaError_t rc = cudaFuncGetAttributes(&attr, (const void *)look<uint16_t>);

    if (rc == cudaSuccess)
        rc = cudaFuncGetAttributes(&attr, (const void *)look<uint32_t>);
    if (rc == cudaSuccess)
        rc = cudaFuncGetAttributes(&attr, (const void *)look<uint64_t>);
    for (int t = MUSTER_F32; t <= MUSTER_BF16 && rc == cudaSuccess; t++)
        rc = cudaFuncGetAttributes(&attr, squares_kernel((enum muster_dtype)t));
    return rc;
}
