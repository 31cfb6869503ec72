/* SPDX-License-Identifier: BSD-3-Clause */
/* copy.cu - the kernels of the copy algorithm: a barrier and the sum of copied parts
 *
 * An all-reduce by copy engines takes longer than one by kernels, but it leaves the SMs
 * to the computation beside it, except for the sum.
 */
#include "runtime/backend/nccl/kernels/device.cuh"

#define THREADS 256
#define U 2 /* vectors per thread */

struct add_args {
    char *own;         /* this rank's segment, and the result */
    const char *parts; /* of the other ranks, in rank order */
    size_t vectors;    /* of 16 bytes, in each part */
    int rank, n;
    double scale;
};

/* Few registers, because it can wait a long time for a late peer. */
__global__ void __maxnreg__(32) peer_barrier(const __grid_constant__ struct mu_reach r)
{
    struct mu_flags *mine = r.flags[r.rank];
    const uint32_t epoch = *(volatile uint32_t *)&mine->barrier_epoch + 1;
    const int p = threadIdx.x;

    __syncthreads();
    if (p < r.n && p != r.rank) {
        mu_store_release(&r.flags[p]->barrier_arrived[r.rank], epoch);
        mu_wait_counter(&mine->barrier_arrived[p], epoch, &r, p);
    }
    __syncthreads();
    if (p == 0)
        mine->barrier_epoch = epoch;
}

/* The sum uses all SMs at once. A product of cuBLAS fills the registers of each SM, so
 * it waits for the last SM: the duration counts, not the number of SMs. A layer's
 * backward of BERT-large beside sums of 25 MB, on an H200: 41 us slower with 16 blocks
 * of 1024 threads, 16 us slower with all SMs.
 */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    add_parts(const __grid_constant__ struct add_args a)
{
    typedef mu_acc<T> A;
    const int E = 16 / sizeof(T);
    const size_t at = (size_t)blockIdx.x * THREADS * U + threadIdx.x;
    uint4 *own = (uint4 *)a.own;
    typename A::type sum[U][E];
    mu_vec<T> x;

    for (int p = 0; p < a.n; p++) {
        const uint4 *from =
            p == a.rank ? own
                        : (const uint4 *)a.parts + (p > a.rank ? p - 1 : p) * a.vectors;
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (at + u * THREADS >= a.vectors)
                break;
            x.v = mu_load_vec(from + at + u * THREADS);
#pragma unroll
            for (int j = 0; j < E; j++)
                sum[u][j] = p == 0 ? A::up(x.e[j]) : sum[u][j] + A::up(x.e[j]);
        }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        if (at + u * THREADS >= a.vectors)
            break;
#pragma unroll
        for (int j = 0; j < E; j++)
            x.e[j] =
                A::down(a.scale == 1.0 ? sum[u][j] : mu_scaled(sum[u][j], a.scale));
        mu_store_vec(own + at + u * THREADS, x.v);
    }
}

static const void *add_kernel(enum muster_dtype dtype)
{
    return mu_by_float<const void *>(
        dtype, [](auto x) { return (const void *)add_parts<decltype(x)>; });
}

cudaError_t mu_peer_barrier(const struct mu_reach *reach, cudaStream_t stream)
{
    struct mu_reach r = *reach;
    void *argv[] = { &r };

    return cudaLaunchKernel((const void *)peer_barrier, dim3(1), dim3(32), argv, 0,
                            stream);
}

cudaError_t mu_add_parts(const struct mu_reach *reach, void *own, const void *parts,
                         size_t bytes, enum muster_dtype dtype, double scale,
                         cudaStream_t stream)
{
    const unsigned blocks = (unsigned)((bytes / 16 + THREADS * U - 1) / (THREADS * U));
    struct add_args args = { (char *)own, (const char *)parts,
                             bytes / 16,  reach->rank,
                             reach->n,    scale };
    void *argv[] = { &args };

    if (!add_kernel(dtype) || bytes % 16)
        return cudaErrorInvalidValue;
    return blocks == 0 ? cudaSuccess
                       : cudaLaunchKernel(add_kernel(dtype), dim3(blocks),
                                          dim3(THREADS), argv, 0, stream);
}

cudaError_t mu_copy_load(void)
{
    cudaFuncAttributes attr;
    cudaError_t rc = cudaFuncGetAttributes(&attr, (const void *)peer_barrier);

    for (int t = MUSTER_F32; t <= MUSTER_BF16 && rc == cudaSuccess; t++)
        rc = cudaFuncGetAttributes(&attr, add_kernel((enum muster_dtype)t));
    return rc;
}
