/* SPDX-License-Identifier: BSD-3-Clause */
/* pull.cu - all-reduce in place: read the parts of our segment, add, write to all ranks
 *
 * Each block has a barrier before (a peer's data is complete when its kernel runs) and
 * after (no rank reads from or writes to our buffer any more).
 */
#include "runtime/backend/nccl/kernels/segment.cuh"

#define THREADS 1024

struct pull_args {
    struct mu_reach reach;
    uint4 *buffer[MU_PEERS];
    size_t count;
    double scale;
};

template <typename T, int N>
__global__ void __launch_bounds__(THREADS, 1)
    pull(const __grid_constant__ struct pull_args a)
{
    const struct mu_reach &r = a.reach;
    uint32_t *counter = &r.flags[r.rank]->barrier[blockIdx.x];
    const uint32_t epoch = *(volatile uint32_t *)counter;
    const size_t per = 16 / sizeof(T), total = a.count / per;

    if (!mu_block_barrier(r, epoch + 1))
        return;
    mu_sum_segment<T, N>(r, a.buffer, a.buffer, total, a.scale);
    if (r.rank == r.n - 1 && blockIdx.x == 0)
        mu_sum_tail<T>(r, a.buffer, a.buffer, total * per, a.count, a.scale);
    if (!mu_block_barrier(r, epoch + 2))
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
