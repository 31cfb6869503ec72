/* SPDX-License-Identifier: BSD-3-Clause */
/* pull.cu - all-reduce in place: read the parts of our segment, add, write to all ranks
 *
 * Each block has a barrier before (a peer's data is complete when its kernel runs) and
 * after (no rank reads from or writes to our buffer any more).
 */
#include "runtime/backend/nccl/kernels/device.cuh"

#define THREADS 1024

struct pull_args {
    struct mu_reach reach;
    uint4 *buffer[MU_PEERS];
    size_t count;
    double scale;
};

/* A barrier of block b of every rank. False for all threads of the block: aborted. */
__device__ static bool barrier(const struct mu_reach &r, uint32_t epoch)
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
__device__ inline uint4 add_all(const uint4 *in, int n, double scale)
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

/* The last bytes, which fill no vector: one thread per element. */
template <typename T>
__device__ inline void tail(const struct pull_args &a, size_t from)
{
    typedef mu_acc<T> A;
    size_t i = from + threadIdx.x;
    if (i >= a.count)
        return;
    typename A::type sum = A::up(((volatile T *)a.buffer[0])[i]);
    for (int p = 1; p < a.reach.n; p++)
        sum += A::up(((volatile T *)a.buffer[p])[i]);
    if (a.scale != 1.0)
        sum = mu_scaled(sum, a.scale);
    for (int p = 0; p < a.reach.n; p++)
        ((T *)a.buffer[p])[i] = A::down(sum);
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS, 1)
    pull(const __grid_constant__ struct pull_args a)
{
    const int U = N == 2 ? 4 : N == 4 ? 2 : 1;
    const struct mu_reach &r = a.reach;
    uint32_t *counter = &r.flags[r.rank]->barrier[blockIdx.x];
    const uint32_t epoch = *(volatile uint32_t *)counter;
    const size_t per = 16 / sizeof(T), total = a.count / per;
    const size_t segment = (total + r.n - 1) / r.n,
                 stride = (size_t)gridDim.x * THREADS;
    const size_t first = segment * r.rank;
    const size_t end = first + segment < total ? first + segment : total;

    if (!barrier(r, epoch + 1))
        return;
    for (size_t at = first + (size_t)blockIdx.x * THREADS + threadIdx.x; at < end;
         at += stride * U) {
        uint4 in[U][N];
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int p = 0; p < N; p++)
                if (p < r.n && at + u * stride < end)
                    in[u][p] = mu_load_vec(a.buffer[p] + at + u * stride);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (at + u * stride >= end)
                break;
            uint4 out = add_all<T, N>(in[u], r.n, a.scale);
#pragma unroll
            for (int d = 0; d < N; d++) {
                int p = r.rank + d >= r.n ? r.rank + d - r.n : r.rank + d;
                if (d < r.n)
                    mu_store_vec(a.buffer[p] + at + u * stride, out);
            }
        }
    }
    if (r.rank == r.n - 1 && blockIdx.x == 0)
        tail<T>(a, total * per);
    if (!barrier(r, epoch + 2))
        return;
    if (threadIdx.x == 0)
        *counter = epoch + 2;
}

typedef void (*pull_fn)(struct pull_args);

template <typename T> static pull_fn pull_of(int n)
{
    return n <= 2 ? pull<T, 2> : n <= 4 ? pull<T, 4> : pull<T, MU_PEERS>;
}

static pull_fn pull_kernel(enum muster_dtype dtype, int n)
{
    return mu_by_float<pull_fn>(dtype, [=](auto x) { return pull_of<decltype(x)>(n); });
}

bool mu_segmented_can(enum muster_dtype dtype, enum muster_op op)
{
    return op == MUSTER_SUM && pull_kernel(dtype, 2) != NULL;
}

cudaError_t mu_pull(const struct mu_reach *reach, void *const *buffer, size_t count,
                    enum muster_dtype dtype, double scale, int blocks,
                    cudaStream_t stream)
{
    pull_fn fn = pull_kernel(dtype, reach->n);
    struct pull_args args = { *reach, { 0 }, count, scale };
    void *argv[] = { &args };

    if (!fn || blocks < 1 || blocks > MU_BLOCKS)
        return cudaErrorInvalidValue;
    for (int p = 0; p < reach->n; p++)
        args.buffer[p] = (uint4 *)buffer[p];
    return cudaLaunchKernel((const void *)fn, dim3(blocks), dim3(THREADS), argv, 0,
                            stream);
}

cudaError_t mu_pull_load(void)
{
    static const int sizes[] = { 2, 4, MU_PEERS };
    cudaFuncAttributes attr;

    for (int t = MUSTER_F32; t <= MUSTER_BF16; t++)
        for (int s = 0; s < 3; s++) {
            cudaError_t rc = cudaFuncGetAttributes(
                &attr, (const void *)pull_kernel((enum muster_dtype)t, sizes[s]));
            if (rc != cudaSuccess)
                return rc;
        }
    return cudaSuccess;
}
