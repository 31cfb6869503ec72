/* SPDX-License-Identifier: BSD-3-Clause */
/* segment.cuh - each rank adds up its segment of all ranks' buffers, and stores the sum
 * in all of them, or does one half of that; a barrier of the blocks of one index
 */
#ifndef MU_NCCL_SEGMENT_CUH
#define MU_NCCL_SEGMENT_CUH

#include "runtime/backend/nccl/kernels/device.cuh"

/* A barrier of block b of every rank. False for all threads of the block: aborted. */
__device__ static bool mu_block_barrier(const struct mu_reach &r, uint32_t epoch)
{
    bool aborted = false;
    int p = threadIdx.x;

    __syncthreads();
    if (p < r.n && p != r.rank) {
        mu_store_release(&r.flags[p]->arrived[r.rank][blockIdx.x], epoch);
        aborted =
            !mu_wait_counter(&r.flags[r.rank]->arrived[p][blockIdx.x], epoch, &r, p);
    }
    return !__syncthreads_or(aborted);
}

template <typename T, int N>
__device__ inline uint4 mu_add_all(const uint4 *in, int n, double scale)
{
    typedef mu_acc<T> A;
    mu_vec<T> x, out;
#pragma unroll
    for (int j = 0; j < (int)(16 / sizeof(T)); j++) {
        x.v = in[0];
        typename A::type sum = A::up(x.e[j]);
#pragma unroll
        for (int p = 1; p < N; p++) {
            x.v = in[p];
            if (p < n)
                sum += A::up(x.e[j]);
        }
        if (scale != 1.0)
            sum = mu_scaled(sum, scale);
        out.e[j] = A::down(sum);
    }
    return out.v;
}

/* This block's part of vectors first .. end - 1. from, to: by rank. SUMS: the sum of
 * all ranks' vectors, else this rank's own. ALL: stored on all ranks, else on this one;
 * own: on this one too.
 */
template <typename T, int N, bool SUMS, bool ALL, typename FROM, typename TO>
__device__ inline void mu_store_span(const struct mu_reach &r, const FROM &from,
                                     const TO &to, size_t first, size_t end,
                                     double scale, bool own)
{
    const int U = N == 2 || !SUMS ? 4 : N == 4 ? 2 : 1;
    const size_t stride = (size_t)gridDim.x * blockDim.x;

    for (size_t at = first + (size_t)blockIdx.x * blockDim.x + threadIdx.x; at < end;
         at += stride * U) {
        uint4 in[U][SUMS ? N : 1];
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int p = 0; p < (SUMS ? N : 1); p++)
                if ((!SUMS || p < r.n) && at + u * stride < end)
                    in[u][p] = mu_load_vec((const uint4 *)from[SUMS ? p : r.rank] + at +
                                           u * stride);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (at + u * stride >= end)
                break;
            uint4 out = SUMS ? mu_add_all<T, N>(in[u], r.n, scale) : in[u][0];
#pragma unroll
            for (int d = 0; d < (ALL ? N : 1); d++) {
                int p = r.rank + d >= r.n ? r.rank + d - r.n : r.rank + d;
                if (d < r.n && (SUMS || d > 0 || own))
                    mu_store_vec((uint4 *)to[p] + at + u * stride, out);
            }
        }
    }
}

/* The same of this rank's segment of `total` vectors. */
template <typename T, int N, typename FROM, typename TO>
__device__ inline void mu_sum_segment(const struct mu_reach &r, const FROM &from,
                                      const TO &to, size_t total, double scale)
{
    const size_t segment = (total + r.n - 1) / r.n, first = segment * r.rank;
    const size_t end = first + segment < total ? first + segment : total;

    mu_store_span<T, N, true, true>(r, from, to, first, end, scale, true);
}

/* The last bytes, which fill no vector, by one block: one thread per element. */
template <typename T, typename FROM, typename TO>
__device__ inline void mu_sum_tail(const struct mu_reach &r, const FROM &from,
                                   const TO &to, size_t first, size_t count,
                                   double scale)
{
    typedef mu_acc<T> A;
    size_t i = first + threadIdx.x;
    if (i >= count)
        return;
    typename A::type sum = A::up(((const volatile T *)from[0])[i]);
    for (int p = 1; p < r.n; p++)
        sum += A::up(((const volatile T *)from[p])[i]);
    if (scale != 1.0)
        sum = mu_scaled(sum, scale);
    for (int p = 0; p < r.n; p++)
        ((T *)to[p])[i] = A::down(sum);
}

#endif
