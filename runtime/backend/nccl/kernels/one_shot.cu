/* SPDX-License-Identifier: BSD-3-Clause */
/* one_shot.cu - all-reduce for small buckets: all data to all ranks, no barrier
 *
 * A packet is 12 bytes of data (8 for 8-byte elements) and the epoch, in one 16-byte
 * store. A receiver polls the packet. The receive area is double-buffered by the parity
 * of the epoch: a rank that stores packets of epoch e has finished e-1. So it has seen
 * every peer's packets of e-1, and every peer has finished reading e-2.
 */
#include "runtime/backend/nccl/kernels/device.cuh"

#define UNROLL 4

struct one_shot_args {
    struct mu_reach reach;
    const void *send;
    void *recv;
    size_t count;
    double scale;
};

template <typename T> struct packet {
    static const int elements = sizeof(T) == 8 ? 1 : 12 / sizeof(T);
    union {
        uint32_t w[4];
        T e[16 / sizeof(T)];
    };
    __device__ packet()
    {
    }
};

template <typename T>
__device__ inline packet<T> packet_read(const T *src, size_t count, size_t i)
{
    const int k = packet<T>::elements;
    packet<T> p;
    p.w[0] = p.w[1] = p.w[2] = p.w[3] = 0;
#pragma unroll
    for (int j = 0; j < k; j++)
        if (i * k + j < count)
            p.e[j] = src[i * k + j];
    return p;
}

/* The packets of all ranks at slot position i; `mine` holds our data. False: aborted.
 */
template <typename T, int N>
__device__ inline bool packets_wait(const struct mu_reach &r, const char *base,
                                    size_t i, uint32_t epoch, const packet<T> &mine,
                                    packet<T> *all)
{
    struct mu_spin spin = { 0, 0 };

    for (;;) {
        bool there = true;
        int missing = 0;
#pragma unroll
        for (int p = 0; p < N; p++) {
            if (p == r.rank || p >= r.n) {
                all[p] = mine;
                continue;
            }
            uint4 v = mu_load_packet(base + p * r.packet_slot + i * 16);
            all[p].w[0] = v.x;
            all[p].w[1] = v.y;
            all[p].w[2] = v.z;
            if (v.w != epoch) {
                there = false;
                missing = p;
            }
        }
        if (there)
            return true;
        if (mu_spin_aborted(&spin, &r, missing))
            return false;
    }
}

template <typename T, int OP, int N>
__device__ inline void packets_combine(const packet<T> *all, int n, double scale,
                                       T *dst, size_t count, size_t i)
{
    typedef mu_acc<T> A;
    const int k = packet<T>::elements;
#pragma unroll
    for (int j = 0; j < k; j++) {
        typename A::type sum = A::up(all[0].e[j]);
#pragma unroll
        for (int p = 1; p < N; p++)
            if (p < n)
                sum = mu_combine<OP>(sum, A::up(all[p].e[j]));
        if (scale != 1.0)
            sum = mu_scaled(sum, scale);
        if (i * k + j < count)
            dst[i * k + j] = A::down(sum);
    }
}

template <typename T, int OP, int N>
__global__ void __launch_bounds__(1024, 1)
    one_shot(const __grid_constant__ struct one_shot_args a)
{
    const struct mu_reach &r = a.reach;
    struct mu_flags *flags = r.flags[r.rank];
    const size_t npackets = (a.count + packet<T>::elements - 1) / packet<T>::elements;
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    const uint32_t epoch = *(volatile uint32_t *)&flags->epoch[blockIdx.x] + 1;
    const size_t parity = (size_t)(epoch & 1) * r.n * r.packet_slot;
    const char *inbox = r.packets[r.rank] + parity;
    const size_t outbox = parity + r.rank * r.packet_slot;

    for (size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x; at < npackets;
         at += stride * UNROLL) {
        packet<T> mine[UNROLL], all[N];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            size_t i = at + u * stride;
            if (i >= npackets)
                break;
            mine[u] = packet_read<T>((const T *)a.send, a.count, i);
            uint4 v = make_uint4(mine[u].w[0], mine[u].w[1], mine[u].w[2], epoch);
#pragma unroll
            for (int d = 1; d < N; d++) {
                /* start with the next rank, to spread the load over the links */
                int p = r.rank + d;
                p = p >= r.n ? p - r.n : p;
                if (d < r.n)
                    mu_store_packet(r.packets[p] + outbox + i * 16, v);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            size_t i = at + u * stride;
            if (i >= npackets)
                break;
            if (!packets_wait<T, N>(r, inbox, i, epoch, mine[u], all))
                return;
            packets_combine<T, OP, N>(all, r.n, a.scale, (T *)a.recv, a.count, i);
        }
    }
    __syncthreads();
    mu_epoch_done(flags, epoch);
}

typedef void (*one_shot_fn)(struct one_shot_args);

/* Sums for 2, 4 and up to 8 ranks; minimum and maximum for 2 and up to 8. */
template <typename T> static one_shot_fn one_shot_of(enum muster_op op, int n)
{
    switch (op) {
    case MUSTER_MIN:
        return n <= 2 ? one_shot<T, MUSTER_MIN, 2> : one_shot<T, MUSTER_MIN, MU_PEERS>;
    case MUSTER_MAX:
        return n <= 2 ? one_shot<T, MUSTER_MAX, 2> : one_shot<T, MUSTER_MAX, MU_PEERS>;
    default:
        return n <= 2   ? one_shot<T, MUSTER_SUM, 2>
               : n <= 4 ? one_shot<T, MUSTER_SUM, 4>
                        : one_shot<T, MUSTER_SUM, MU_PEERS>;
    }
}

static one_shot_fn one_shot_kernel(enum muster_dtype dtype, enum muster_op op, int n)
{
    return mu_by_type<one_shot_fn>(
        dtype, [=](auto x) { return one_shot_of<decltype(x)>(op, n); });
}

size_t mu_one_shot_limit(const struct mu_reach *reach, size_t element)
{
    return reach->packet_slot / 16 * (element == 8 ? 8 : 12);
}

cudaError_t mu_one_shot(const struct mu_reach *reach, const void *send, void *recv,
                        size_t count, enum muster_dtype dtype, enum muster_op op,
                        double scale, int blocks, int threads, cudaStream_t stream)
{
    one_shot_fn fn = one_shot_kernel(dtype, op, reach->n);
    struct one_shot_args args = { *reach, send, recv, count, scale };
    void *argv[] = { &args };

    if (!fn || blocks < 1 || blocks > MU_BLOCKS || threads < MU_BLOCKS)
        return cudaErrorInvalidValue;
    return cudaLaunchKernel((const void *)fn, dim3(blocks), dim3(threads), argv, 0,
                            stream);
}

cudaError_t mu_one_shot_load(void)
{
    static const int sizes[] = { 2, 4, MU_PEERS };
    cudaFuncAttributes attr;

    for (int t = MUSTER_F32; t <= MUSTER_I64; t++)
        for (int op = MUSTER_SUM; op <= MUSTER_MAX; op++)
            for (int s = 0; s < 3; s++) {
                cudaError_t rc = cudaFuncGetAttributes(
                    &attr, (const void *)one_shot_kernel((enum muster_dtype)t,
                                                         (enum muster_op)op, sizes[s]));
                if (rc != cudaSuccess)
                    return rc;
            }
    return cudaSuccess;
}
