/* SPDX-License-Identifier: BSD-3-Clause */
/* norm.cu - sums of squares in a fixed order; search for gradients that are not finite
 */
#include "runtime/backend/nccl/kernels/device.cuh"
#include "runtime/backend/nccl/kernels/norm.h"

/* A template argument that names a static function would put a hash of the build folder
 * into the kernel's name, and two builds would differ.
 */
template <enum muster_dtype DTYPE>
static __device__ double share(const void *data, size_t count, size_t first,
                               size_t step)
{
    if constexpr (DTYPE == MUSTER_F32)
        return mu_norm_share_f32(data, count, first, step);
    else if constexpr (DTYPE == MUSTER_F64)
        return mu_norm_share_f64(data, count, first, step);
    else if constexpr (DTYPE == MUSTER_F16)
        return mu_norm_share_f16(data, count, first, step);
    else
        return mu_norm_share_bf16(data, count, first, step);
}

template <enum muster_dtype DTYPE>
__global__ void __launch_bounds__(MU_NORM_THREADS)
    squares(const void *data, size_t count, double *sums)
{
    __shared__ double part[MU_NORM_THREADS];
    const int t = threadIdx.x;

    part[t] = share<DTYPE>(data, count, (size_t)blockIdx.x * MU_NORM_THREADS + t,
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
        return (const void *)squares<MUSTER_F32>;
    case MUSTER_F64:
        return (const void *)squares<MUSTER_F64>;
    case MUSTER_F16:
        return (const void *)squares<MUSTER_F16>;
    case MUSTER_BF16:
        return (const void *)squares<MUSTER_BF16>;
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

template <typename U> struct nonfinite_args {
    struct mu_list<struct mu_nonfinite_piece, MU_NONFINITE_PIECES> list;
    uint32_t *found;
    U exponent;
};

/* Test for an exponent of all ones with integers, so that no compiler option changes
 * it.
 */
template <typename U>
__global__ void __launch_bounds__(THREADS)
    find(const __grid_constant__ struct nonfinite_args<U> a)
{
    uint32_t block;
    const struct mu_nonfinite_piece &p = a.list.of(&block);
    size_t from = (size_t)block * PER_BLOCK;
    size_t end = p.count - from < PER_BLOCK ? p.count : from + PER_BLOCK;
    bool bad = false;

    for (size_t i = from + threadIdx.x; i < end; i += THREADS)
        bad |= (((const U *)p.at)[i] & a.exponent) == a.exponent;
    if (bad)
        atomicMax(a.found, p.mark);
}

template <typename U>
static cudaError_t launch_nonfinite(const struct mu_nonfinite_piece *pieces, int n,
                                    U exponent, uint32_t *found, cudaStream_t stream)
{
    struct nonfinite_args<U> args;

    args.list.clear();
    args.found = found;
    args.exponent = exponent;
    for (int i = 0; i < n; i++)
        if (!args.list.add(pieces[i], (pieces[i].count + PER_BLOCK - 1) / PER_BLOCK))
            return cudaErrorInvalidValue;
    return mu_launch((const void *)find<U>, &args, THREADS, stream);
}

cudaError_t mu_find_nonfinite(const struct mu_nonfinite_piece *pieces, int n,
                              enum muster_dtype dtype, uint32_t *found,
                              cudaStream_t stream)
{
    switch (dtype) {
    case MUSTER_F32:
        return launch_nonfinite<uint32_t>(pieces, n, 0x7f800000u, found, stream);
    case MUSTER_F64:
        return launch_nonfinite<uint64_t>(pieces, n, (uint64_t)0x7ff << 52, found,
                                          stream);
    case MUSTER_F16:
        return launch_nonfinite<uint16_t>(pieces, n, 0x7c00, found, stream);
    case MUSTER_BF16:
        return launch_nonfinite<uint16_t>(pieces, n, 0x7f80, found, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t mu_norm_load(void)
{
    cudaFuncAttributes attr;
    cudaError_t rc = cudaFuncGetAttributes(&attr, (const void *)find<uint16_t>);

    if (rc == cudaSuccess)
        rc = cudaFuncGetAttributes(&attr, (const void *)find<uint32_t>);
    if (rc == cudaSuccess)
        rc = cudaFuncGetAttributes(&attr, (const void *)find<uint64_t>);
    for (int t = MUSTER_F32; t <= MUSTER_BF16 && rc == cudaSuccess; t++)
        rc = cudaFuncGetAttributes(&attr, squares_kernel((enum muster_dtype)t));
    return rc;
}
