/* SPDX-License-Identifier: BSD-3-Clause */
/* limits.cu - speed of plain kernels that move bytes to a peer: the limit of the
 * algorithms
 */
#include "tests/gpu/limits.h"

#include "runtime/backend/nccl/kernels/device.cuh"

#define THREADS 1024
#define U 4

__global__ void __launch_bounds__(THREADS, 1)
    copy(uint4 *dst, const uint4 *src, size_t vectors)
{
    size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x; at < vectors;
         at += stride * U) {
        uint4 v[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            if (at + u * stride < vectors)
                v[u] = mu_load_vec(src + at + u * stride);
#pragma unroll
        for (int u = 0; u < U; u++)
            if (at + u * stride < vectors)
                mu_store_vec(dst + at + u * stride, v[u]);
    }
}

#define STAGES 8
#define STAGE 16384

#if __CUDA_ARCH__ >= 900
__device__ inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
#endif

__global__ void bulk(char *dst, const char *src, size_t pieces)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char stage[];
    __shared__ uint64_t full[STAGES];

    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < STAGES; i++)
        asm volatile(
            "mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&full[i])));
    asm volatile("fence.mbarrier_init.release.cluster;");
    size_t mine = blockIdx.x < pieces ? (pieces - blockIdx.x - 1) / gridDim.x + 1 : 0;
    for (size_t k = 0; k < mine + STAGES / 2; k++) {
        if (k < mine) {
            int s = k % STAGES;
            /* The store that last used this stage has read it. */
            asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(STAGES / 2 - 1));
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(
                             shared_address(&full[s])),
                         "r"(STAGE));
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                " [%0], [%1], %2, [%3];" ::"r"(shared_address(stage + s * STAGE)),
                "l"(src + (blockIdx.x + k * gridDim.x) * STAGE), "r"(STAGE),
                "r"(shared_address(&full[s]))
                : "memory");
        }
        if (k >= STAGES / 2) {
            size_t j = k - STAGES / 2;
            int s = j % STAGES;
            uint32_t done = 0, phase = (j / STAGES) & 1;
            while (!done)
                asm volatile(
                    "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2;"
                    " selp.u32 %0, 1, 0, p; }"
                    : "=r"(done)
                    : "r"(shared_address(&full[s])), "r"(phase)
                    : "memory");
            asm volatile(
                "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                    dst + (blockIdx.x + j * gridDim.x) * STAGE),
                "r"(shared_address(stage + s * STAGE)), "r"(STAGE)
                : "memory");
            asm volatile("cp.async.bulk.commit_group;");
        }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

cudaError_t limits_copy(void *dst, const void *src, size_t bytes, int blocks,
                        cudaStream_t stream)
{
    copy<<<blocks, THREADS, 0, stream>>>((uint4 *)dst, (const uint4 *)src, bytes / 16);
    return cudaGetLastError();
}

cudaError_t limits_bulk(void *dst, const void *src, size_t bytes, int blocks,
                        cudaStream_t stream)
{
    bulk<<<blocks, 32, STAGES * STAGE, stream>>>((char *)dst, (const char *)src,
                                                 bytes / STAGE);
    return cudaGetLastError();
}

cudaError_t limits_load(void)
{
    cudaFuncAttributes attr;
    cudaError_t rc = cudaFuncSetAttribute(
        bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * STAGE);

    if (rc == cudaSuccess)
        rc = cudaFuncGetAttributes(&attr, copy);
    return rc;
}
