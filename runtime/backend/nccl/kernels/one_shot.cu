/* SPDX-License-Identifier: BSD-3-Clause */
/* one_shot.cu - collectives of few data: from each rank to all others, no barrier
 *
 *   all-reduce      a rank sends its data to all, and adds up what it gets
 *   reduce-scatter  to each the data of its part
 *   all-gather      as all-reduce, without the sum
 *   broadcast       the others send the root one packet, which has no data
 *
 * A packet is 12 bytes of data (8 for 8-byte elements) and the epoch, in one 16-byte
 * store. A receiver polls the packet. The receive area is double-buffered by the parity
 * of the epoch: a rank that stores packets of epoch e has finished e-1. So it has seen
 * every peer's packets of e-1, and every peer has finished reading e-2. For that every
 * rank sends each other at least one packet, whatever the collective.
 */
#include "runtime/backend/nccl/kernels/device.cuh"

#define UNROLL 4

struct one_shot_args {
    struct mu_reach reach;
    const void *send;
    void *recv;
    size_t count; /* from one rank to another */
    double scale;
    int root;
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

/* Does that rank send packet i? */
template <enum mu_shape S>
__device__ inline bool packet_is_sent(int rank, int root, size_t i)
{
    return S != MU_BROADCAST || rank == root || i == 0;
}

/* The packets of all ranks at slot position i; `mine` holds our data. False: aborted.
 */
template <typename T, int N, enum mu_shape S>
__device__ inline bool packets_wait(const struct mu_reach &r, int root,
                                    const char *base, size_t i, uint32_t epoch,
                                    const packet<T> &mine, packet<T> *all)
{
    struct mu_spin spin = { 0, 0 };

    for (;;) {
        bool there = true;
        int missing = 0;
#pragma unroll
        for (int p = 0; p < N; p++) {
            if (p == r.rank || p >= r.n || !packet_is_sent<S>(p, root, i)) {
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

template <typename T>
__device__ inline void packet_write(const packet<T> &p, T *dst, size_t count, size_t i)
{
    const int k = packet<T>::elements;
#pragma unroll
    for (int j = 0; j < k; j++)
        if (i * k + j < count)
            dst[i * k + j] = p.e[j];
}

/* What the collective makes of the packets of all ranks. */
template <typename T, int OP, int N, enum mu_shape S>
__device__ inline void packets_finish(const struct one_shot_args &a,
                                      const packet<T> *all, size_t i)
{
    const int n = a.reach.n;

    if constexpr (S == MU_ALLREDUCE || S == MU_REDUCE_SCATTER) {
        packets_combine<T, OP, N>(all, n, a.scale, (T *)a.recv, a.count, i);
    } else {
#pragma unroll
        for (int p = 0; p < N; p++)
            if (S == MU_ALLGATHER ? p < n : p == a.root)
                packet_write(all[p],
                             (T *)a.recv + (S == MU_ALLGATHER ? p * a.count : 0),
                             a.count, i);
    }
}

template <typename T, int OP, int N, enum mu_shape S>
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
    const size_t apart = S == MU_REDUCE_SCATTER ? a.count : 0;
    const T *send = (const T *)a.send;

    for (size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x; at < npackets;
         at += stride * UNROLL) {
        packet<T> mine[UNROLL], all[N];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            size_t i = at + u * stride;
            if (i >= npackets)
                break;
            /* Only the root of a broadcast has data. */
            mine[u] =
                packet_read<T>(send + r.rank * apart,
                               S == MU_BROADCAST && r.rank != a.root ? 0 : a.count, i);
            uint4 v = make_uint4(mine[u].w[0], mine[u].w[1], mine[u].w[2], epoch);
#pragma unroll
            for (int d = 1; d < N; d++) {
                /* start with the next rank, to spread the load over the links */
                int p = r.rank + d;
                p = p >= r.n ? p - r.n : p;
                if (d >= r.n || !packet_is_sent<S>(r.rank, a.root, i))
                    continue;
                if (S == MU_REDUCE_SCATTER) {
                    packet<T> its = packet_read<T>(send + p * apart, a.count, i);
                    v = make_uint4(its.w[0], its.w[1], its.w[2], epoch);
                }
                mu_store_packet(r.packets[p] + outbox + i * 16, v);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            size_t i = at + u * stride;
            if (i >= npackets)
                break;
            if (!packets_wait<T, N, S>(r, a.root, inbox, i, epoch, mine[u], all))
                return;
            packets_finish<T, OP, N, S>(a, all, i);
        }
    }
    __syncthreads();
    mu_epoch_done(flags, epoch);
}

typedef void (*one_shot_fn)(struct one_shot_args);

/* For 2, 4 and up to 8 ranks. */
template <typename T, enum mu_shape S> static one_shot_fn one_shot_of(int n)
{
    return n <= 2   ? one_shot<T, MUSTER_SUM, 2, S>
           : n <= 4 ? one_shot<T, MUSTER_SUM, 4, S>
                    : one_shot<T, MUSTER_SUM, MU_PEERS, S>;
}

/* The same of minimum and maximum: for 2 and up to 8. */
template <typename T, int OP, enum mu_shape S> static one_shot_fn extreme_of(int n)
{
    return n <= 2 ? one_shot<T, OP, 2, S> : one_shot<T, OP, MU_PEERS, S>;
}

template <typename T, enum mu_shape S>
static one_shot_fn adding_of(enum muster_op op, int n)
{
    return op == MUSTER_MIN   ? extreme_of<T, MUSTER_MIN, S>(n)
           : op == MUSTER_MAX ? extreme_of<T, MUSTER_MAX, S>(n)
                              : one_shot_of<T, S>(n);
}

/* Data that are not added up, in words where a rank's buffers allow it: a packet has
 * the same bytes either way.
 */
static one_shot_fn moving_kernel(enum mu_shape shape, bool in_words, int n)
{
    if (shape == MU_ALLGATHER)
        return in_words ? one_shot_of<uint32_t, MU_ALLGATHER>(n)
                        : one_shot_of<uint8_t, MU_ALLGATHER>(n);
    return in_words ? one_shot_of<uint32_t, MU_BROADCAST>(n)
                    : one_shot_of<uint8_t, MU_BROADCAST>(n);
}

static one_shot_fn adding_kernel(enum mu_shape shape, enum muster_dtype dtype,
                                 enum muster_op op, int n)
{
    return mu_by_type<one_shot_fn>(dtype, [=](auto x) {
        return shape == MU_ALLREDUCE ? adding_of<decltype(x), MU_ALLREDUCE>(op, n)
                                     : adding_of<decltype(x), MU_REDUCE_SCATTER>(op, n);
    });
}

size_t mu_one_shot_limit(const struct mu_reach *reach, size_t element)
{
    return reach->packet_slot / 16 * (element == 8 ? 8 : 12);
}

cudaError_t mu_one_shot(const struct mu_reach *reach, const struct mu_work *work,
                        int blocks, int threads, cudaStream_t stream)
{
    const bool sums = mu_shape_sums(work->shape);
    const bool in_words =
        !sums && ((uintptr_t)work->recv | (uintptr_t)work->send | work->count) % 4 == 0;
    one_shot_fn fn = sums ? adding_kernel(work->shape, work->dtype, work->op, reach->n)
                          : moving_kernel(work->shape, in_words, reach->n);
    struct one_shot_args args = { *reach,      work->send,
                                  work->recv,  in_words ? work->count / 4 : work->count,
                                  work->scale, work->root };
    void *argv[] = { &args };

    if (!fn || blocks < 1 || blocks > MU_BLOCKS || threads < MU_BLOCKS)
        return cudaErrorInvalidValue;
    return cudaLaunchKernel((const void *)fn, dim3(blocks), dim3(threads), argv, 0,
                            stream);
}

static cudaError_t load(one_shot_fn fn)
{
    cudaFuncAttributes attr;

    return cudaFuncGetAttributes(&attr, (const void *)fn);
}

static cudaError_t load_adding(enum mu_shape shape, int n)
{
    cudaError_t rc = cudaSuccess;

    for (int t = MUSTER_F32; t <= MUSTER_I64; t++)
        for (int op = MUSTER_SUM; op <= MUSTER_MAX && rc == cudaSuccess; op++)
            rc =
                load(adding_kernel(shape, (enum muster_dtype)t, (enum muster_op)op, n));
    return rc;
}

static cudaError_t load_moving(enum mu_shape shape, int n)
{
    cudaError_t rc = load(moving_kernel(shape, true, n));

    return rc == cudaSuccess ? load(moving_kernel(shape, false, n)) : rc;
}

cudaError_t mu_one_shot_load(void)
{
    static const int sizes[] = { 2, 4, MU_PEERS };

    for (int k = MU_ALLREDUCE; k <= MU_BROADCAST; k++)
        for (int s = 0; s < 3; s++) {
            enum mu_shape shape = (enum mu_shape)k;
            cudaError_t rc = mu_shape_sums(shape) ? load_adding(shape, sizes[s])
                                                  : load_moving(shape, sizes[s]);

            if (rc != cudaSuccess)
                return rc;
        }
    return cudaSuccess;
}
