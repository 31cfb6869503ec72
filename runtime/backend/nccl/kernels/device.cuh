/* SPDX-License-Identifier: BSD-3-Clause */
/* device.cuh - element types, 16-byte vectors, and how kernels wait for a peer */
#ifndef MU_NCCL_DEVICE_CUH
#define MU_NCCL_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "runtime/backend/nccl/kernels/kernels.h"

/* ---- Elements: 16-bit types are added in fp32 and rounded once ------------------ */

template <typename T> struct mu_acc {
    typedef T type;
    static __device__ T up(T x)
    {
        return x;
    }
    static __device__ T down(T x)
    {
        return x;
    }
};
template <> struct mu_acc<__half> {
    typedef float type;
    static __device__ float up(__half x)
    {
        return __half2float(x);
    }
    static __device__ __half down(float x)
    {
        return __float2half_rn(x);
    }
};
template <> struct mu_acc<__nv_bfloat16> {
    typedef float type;
    static __device__ float up(__nv_bfloat16 x)
    {
        return __bfloat162float(x);
    }
    static __device__ __nv_bfloat16 down(float x)
    {
        return __float2bfloat16_rn(x);
    }
};

/* of(x), where x has the type of dtype; NULL for integers. */
template <typename R, typename F> R mu_by_float(enum muster_dtype dtype, F of)
{
    switch (dtype) {
    case MUSTER_F32:
        return of(float());
    case MUSTER_F64:
        return of(double());
    case MUSTER_F16:
        return of(__half());
    case MUSTER_BF16:
        return of(__nv_bfloat16());
    default:
        return NULL;
    }
}

/* The same, including integers. */
template <typename R, typename F> R mu_by_type(enum muster_dtype dtype, F of)
{
    return dtype == MUSTER_I32   ? of(int32_t())
           : dtype == MUSTER_I64 ? of(int64_t())
                                 : mu_by_float<R>(dtype, of);
}

/* Of a NaN and a number the number, as in NCCL; of -0 and 0 in either order the same.
 */
template <typename A> __device__ inline A mu_least(A a, A b)
{
    return b < a ? b : a;
}
template <> __device__ inline float mu_least<float>(float a, float b)
{
    return fminf(a, b);
}
template <> __device__ inline double mu_least<double>(double a, double b)
{
    return fmin(a, b);
}
template <typename A> __device__ inline A mu_greatest(A a, A b)
{
    return b > a ? b : a;
}
template <> __device__ inline float mu_greatest<float>(float a, float b)
{
    return fmaxf(a, b);
}
template <> __device__ inline double mu_greatest<double>(double a, double b)
{
    return fmax(a, b);
}

template <int OP, typename A> __device__ inline A mu_combine(A a, A b)
{
    return OP == MUSTER_SUM   ? a + b
           : OP == MUSTER_MIN ? mu_least(a, b)
                              : mu_greatest(a, b);
}

template <typename A> __device__ inline A mu_scaled(A x, double scale)
{
    return (A)((double)x * scale);
}
/* As on the host: to nearest, ties to even. */
template <> __device__ inline int32_t mu_scaled<int32_t>(int32_t x, double scale)
{
    return (int32_t)rint((double)x * scale);
}
template <> __device__ inline int64_t mu_scaled<int64_t>(int64_t x, double scale)
{
    return (int64_t)rint((double)x * scale);
}
template <> __device__ inline float mu_scaled<float>(float x, double scale)
{
    return x * (float)scale;
}

template <typename T> union mu_vec {
    uint4 v;
    T e[16 / sizeof(T)];
    __device__ mu_vec()
    {
    }
};

/* ---- One launch for many tensors --------------------------------------------------
 */

/* The whole list is a kernel argument, so that a captured launch keeps it: item i has
 * the blocks first[i] .. first[i + 1] - 1 of the grid.
 */
template <typename T, int MAX> struct mu_list {
    int n;
    uint32_t first[MAX + 1];
    T item[MAX];

    /* Of a block: its item; *block becomes its index within the item. */
    __device__ const T &of(uint32_t *block) const
    {
        int lo = 0, hi = n - 1;

        while (lo < hi) { /* the last item that begins at or before this block */
            int mid = (lo + hi + 1) / 2;
            if (first[mid] <= blockIdx.x)
                lo = mid;
            else
                hi = mid - 1;
        }
        *block = blockIdx.x - first[lo];
        return item[lo];
    }

    /* An item without blocks is skipped. False: the grid or the list is full. */
    bool add(const T &x, size_t blocks)
    {
        if (blocks == 0)
            return true;
        if (n == MAX || first[n] + blocks > 0x7fffffff)
            return false;
        item[n++] = x;
        first[n] = (uint32_t)(first[n - 1] + blocks);
        return true;
    }

    void clear()
    {
        n = 0;
        first[0] = 0;
    }
};

/* args begins with such a list, named `list`. */
template <typename A>
cudaError_t mu_launch(const void *kernel, A *args, int threads, cudaStream_t stream)
{
    void *argv[] = { args };

    if (args->list.n == 0)
        return cudaSuccess;
    return cudaLaunchKernel(kernel, dim3(args->list.first[args->list.n]), dim3(threads),
                            argv, 0, stream);
}

/* ---- Memory that a peer writes or reads ----------------------------------------- */

/* One access of 16 bytes, atomic as a whole (PTX: scalar type .b128). */
#define MU_PACKET_STORE(name, order)                                                   \
    __device__ inline void name(void *p, uint4 w)                                      \
    {                                                                                  \
        uint64_t lo = (uint64_t)w.y << 32 | w.x, hi = (uint64_t)w.w << 32 | w.z;       \
        asm volatile("{ .reg .b128 q; mov.b128 q, {%1, %2};"                           \
                     " st." order ".sys.global.b128 [%0], q; }" ::"l"(p),              \
                     "l"(lo), "l"(hi)                                                  \
                     : "memory");                                                      \
    }
#define MU_PACKET_LOAD(name, order)                                                    \
    __device__ inline uint4 name(const void *p)                                        \
    {                                                                                  \
        uint64_t lo, hi;                                                               \
        asm volatile("{ .reg .b128 q; ld." order ".sys.global.b128 q, [%2];"           \
                     " mov.b128 {%0, %1}, q; }"                                        \
                     : "=l"(lo), "=l"(hi)                                              \
                     : "l"(p)                                                          \
                     : "memory");                                                      \
        return make_uint4((uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi,            \
                          (uint32_t)(hi >> 32));                                       \
    }
MU_PACKET_STORE(mu_store_packet, "relaxed")
MU_PACKET_LOAD(mu_load_packet, "relaxed")
/* The same, behind all that this thread has seen; and before all that it does next. */
MU_PACKET_STORE(mu_store_packet_release, "release")
MU_PACKET_LOAD(mu_load_packet_acquire, "acquire")

__device__ inline void mu_store_release(uint32_t *p, uint32_t v)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

__device__ inline uint32_t mu_load_acquire(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

/* Streaming data bypasses L1, which would hide a later store of another GPU. */
__device__ inline uint4 mu_load_vec(const uint4 *p)
{
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

__device__ inline void mu_store_vec(uint4 *p, uint4 v)
{
    asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* ---- Waiting -------------------------------------------------------------------- */

/* Counts the polls of one wait. Host memory is far: reads by all threads of a GPU would
 * take longer than the wait itself. So few threads read it, about every millisecond,
 * and report to the others by a word in device memory.
 */
struct mu_spin {
    uint32_t polls;
    uint64_t since;
};

/* Read the host's words. True: the job was aborted, leave the kernel. peer: the local
 * rank that this thread waits for.
 */
__device__ inline bool mu_spin_read_host(struct mu_spin *spin,
                                         const struct mu_reach *reach, int peer)
{
    uint64_t now;

    if (reach->words->abort) {
        *(volatile uint32_t *)&reach->flags[reach->rank]->gone = 1;
        return true;
    }
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    reach->words->waiting = (uint32_t)(now >> 10);
    if (spin->since == 0) {
        spin->since = now;
    } else if (now - spin->since > reach->limit_ns) {
        reach->words->stuck = (uint32_t)peer + 1;
        spin->since = now;
    }
    return false;
}

/* After an unsuccessful poll, by any thread. */
__device__ inline bool mu_spin_aborted(struct mu_spin *spin,
                                       const struct mu_reach *reach, int peer)
{
    if (++spin->polls & 1023)
        return false;
    if (*(volatile uint32_t *)&reach->flags[reach->rank]->gone)
        return true;
    if ((threadIdx.x & 31) != __ffs(__activemask()) - 1)
        return false;
    return mu_spin_read_host(spin, reach, peer);
}

/* Wait until the counter is at least `target` (both wrap around). False: aborted. */
__device__ inline bool mu_wait_counter(const uint32_t *counter, uint32_t target,
                                       const struct mu_reach *reach, int peer)
{
    struct mu_spin spin = { 0, 0 };

    while ((int32_t)(mu_load_acquire(counter) - target) < 0)
        if (mu_spin_aborted(&spin, reach, peer))
            return false;
    return true;
}

/* By all threads of a finished block. Every operation, whatever its grid, counts up the
 * epochs of all blocks, so that all blocks of all operations have the same parity.
 */
__device__ inline void mu_epoch_done(struct mu_flags *flags, uint32_t epoch)
{
    size_t b = blockIdx.x + (size_t)threadIdx.x * gridDim.x;

    if (b < MU_BLOCKS)
        flags->epoch[b] = epoch;
}

#endif
