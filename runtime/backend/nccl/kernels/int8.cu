/* SPDX-License-Identifier: BSD-3-Clause */
/* int8.cu - gradients in 8-bit integers: one warp per block of MU_INT8_BLOCK elements
 */
#include "runtime/backend/nccl/kernels/device.cuh"
#include "runtime/backend/nccl/kernels/int8.h"

#define WARPS 8
#define EACH ((size_t)WARPS * MU_INT8_BLOCK) /* elements of a CUDA block */

struct int8_args {
    struct mu_list<struct mu_int8_tensor, MU_INT8_TENSORS> list;
    int ranks;
};

/* The elements of one lane. */
struct lane {
    const struct mu_int8_tensor *t;
    size_t block, from, n;
};

/* False, for a whole warp: the tensor has no such block. */
__device__ inline bool find(const struct int8_args &a, struct lane *l)
{
    uint32_t block;

    l->t = &a.list.of(&block);
    l->block = (size_t)block * WARPS + threadIdx.x / 32;
    l->from = mu_int8_lane(l->t->count, l->block, threadIdx.x % 32, &l->n);
    return l->block * MU_INT8_BLOCK < l->t->count;
}

__global__ void __launch_bounds__(WARPS * 32)
    peaks(const __grid_constant__ struct int8_args a)
{
    struct lane l;
    bool finite;

    if (!find(a, &l))
        return;
    float most = mu_int8_lane_peak(l.t, l.from, l.n, &finite);
    for (int d = 16; d > 0; d /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, most, d);

        most = other > most ? other : most;
    }
    finite = __all_sync(0xffffffffu, finite);
    if (threadIdx.x % 32 == 0)
        l.t->peak[l.block] = finite ? most : __int_as_float(0x7f800000);
}

__global__ void __launch_bounds__(WARPS * 32)
    encode(const __grid_constant__ struct int8_args a)
{
    struct lane l;

    if (find(a, &l))
        mu_int8_lane_encode(l.t, l.from, l.n, l.t->peak[l.block], a.ranks);
}

__global__ void __launch_bounds__(WARPS * 32)
    decode(const __grid_constant__ struct int8_args a)
{
    struct lane l;

    if (find(a, &l))
        mu_int8_lane_decode(l.t, l.from, l.n, l.t->peak[l.block], a.ranks);
}

static const void *kernel(enum mu_int8_stage stage)
{
    return stage == MU_INT8_PEAKS    ? (const void *)peaks
           : stage == MU_INT8_ENCODE ? (const void *)encode
                                     : (const void *)decode;
}

cudaError_t mu_int8_launch(enum mu_int8_stage stage,
                           const struct mu_int8_tensor *tensors, int n, int ranks,
                           cudaStream_t stream)
{
    struct int8_args args;

    args.list.clear();
    args.ranks = ranks;
    for (int i = 0; i < n; i++)
        if (!args.list.add(tensors[i], (tensors[i].count + EACH - 1) / EACH))
            return cudaErrorInvalidValue;
    return mu_launch(kernel(stage), &args, WARPS * 32, stream);
}

cudaError_t mu_int8_load(void)
{
    cudaFuncAttributes attr;
    cudaError_t rc = cudaSuccess;

    for (int s = MU_INT8_PEAKS; s <= MU_INT8_DECODE && rc == cudaSuccess; s++)
        rc = cudaFuncGetAttributes(&attr, kernel((enum mu_int8_stage)s));
    return rc;
}
