/* SPDX-License-Identifier: BSD-3-Clause */
/* relay.cu - all-reduce by stores only: push parts; their owner adds and pushes the sum
 *
 * Each rank owns a segment. Data is sent in lines of 128 bytes: 120 of data, then the
 * epoch. Eight adjacent threads store and load a line in one instruction, which the GPU
 * and NVLink (sm_70 and newer) transfer as a whole. A reader that sees the epoch has
 * the data, without barrier, fence or read over the link:
 *
 *   push warps   my parts of the others' segments -> their owners' areas
 *   add warps    wait for the parts of my segment, add in rank order, store the sum
 *                here and push it to all ranks
 *   copy warps   wait for the sums of the others' segments, store them here
 *
 * Areas are double-buffered by the parity of the epoch: a rank in epoch e has finished
 * e-1, so every owner began e-1, and every rank has finished reading e-2. In-place use
 * is safe: only the sum overwrites a part, after the part was pushed.
 */
#include "runtime/backend/nccl/kernels/device.cuh"

extern "C" {
#include "runtime/core/dtype.h"
}

#define WARPS 32
#define PUSH_WARPS 8
#define ADD_WARPS 16
#define COPY_WARPS (WARPS - PUSH_WARPS - ADD_WARPS)
#define ALL 0xffffffffu
#define LINE 128
#define LINE_DATA 120
#define QUAD (4 * LINE) /* bytes that a warp moves at a time */

struct relay_args {
    struct mu_reach reach;
    const char *send;
    char *recv;
    size_t bytes;
    double scale;
    size_t quads; /* quads of a segment, equal on all ranks */
    /* Bytes whose whole quads are loaded and stored as vectors: all, or 0 where that
     * memory is not 16-byte aligned. Only this rank accesses it, so the others may have
     * another alignment.
     */
    size_t load_vectors, store_vectors;
};

/* Two lines hold 15 vectors of 16 bytes: seven in each, and the two halves of the last
 * beside the epochs. Returns the byte of this thread's vector in the message.
 */
__device__ inline size_t vector_byte(size_t quad, int lane)
{
    int second = lane / 8 & 1, j = lane & 7;

    return (2 * quad + lane / 16) * (2 * LINE_DATA) + (j < 7 ? second * 8 + j : 7) * 16;
}

__device__ inline bool has_epoch(int lane)
{
    return (lane & 7) == 7;
}

/* This thread's elements of the message; the rest of the vector is undefined. Threads
 * that carry an epoch have half a vector, as its first half.
 */
template <typename T>
__device__ inline uint4 part_load(const struct relay_args &a, size_t quad, int lane)
{
    size_t at = vector_byte(quad, lane);
    uint4 v = make_uint4(0, 0, 0, 0);

    /* The same for the whole warp. */
    if ((quad + 1) * (4 * LINE_DATA) <= a.load_vectors) {
        v = *(const uint4 *)(a.send + at);
    } else {
        mu_vec<T> e;
        e.v = v;
#pragma unroll
        for (int j = 0; j < (int)(16 / sizeof(T)); j++)
            if (at + (j + 1) * sizeof(T) <= a.bytes)
                e.e[j] = ((const T *)(a.send + at))[j];
        v = e.v;
    }
    if (has_epoch(lane) && (lane & 8)) {
        v.x = v.z;
        v.y = v.w;
    }
    return v;
}

template <typename T>
__device__ inline void part_store(const struct relay_args &a, size_t quad, int lane,
                                  uint4 w)
{
    size_t at = vector_byte(quad, lane) + (has_epoch(lane) ? lane & 8 : 0);

    if ((quad + 1) * (4 * LINE_DATA) <= a.store_vectors) {
        if (has_epoch(lane))
            *(uint2 *)(a.recv + at) = make_uint2(w.x, w.y);
        else
            *(uint4 *)(a.recv + at) = w;
        return;
    }
    mu_vec<T> v;
    v.v = w;
#pragma unroll
    for (int j = 0; j < (int)(16 / sizeof(T)); j++)
        if ((!has_epoch(lane) || j < (int)(8 / sizeof(T))) &&
            at + (j + 1) * sizeof(T) <= a.bytes)
            ((T *)(a.recv + at))[j] = v.e[j];
}

/* Address of this thread's 16 bytes of a quad in rank `at`'s area. Parts (sums: 1) from
 * `source`, numbered without the area's own rank.
 */
__device__ inline char *place(const struct relay_args &a, uint32_t epoch, int at,
                              int sums, int source, size_t quad, int lane)
{
    const struct mu_reach &r = a.reach;
    size_t slot = sums * (r.n - 1) + (source > at ? source - 1 : source);

    return r.lines[at] + (epoch & 1) * r.lines_half + (slot * a.quads + quad) * QUAD +
           lane * 16;
}

__device__ inline uint4 with_epoch(uint4 v, uint32_t epoch, int lane)
{
    if (has_epoch(lane)) {
        v.z = epoch;
        v.w = ~epoch;
    }
    return v;
}

__device__ inline bool lacks_epoch(uint4 v, uint32_t epoch, int lane)
{
    return has_epoch(lane) && (v.z != epoch || v.w != ~epoch);
}

/* After an unsuccessful poll of a warp: true for all its threads if the job was
 * aborted.
 */
__device__ inline bool warp_aborted(struct mu_spin *spin, const struct mu_reach &r,
                                    int peer, int lane)
{
    bool aborted = false;

    if (++spin->polls & 1023)
        return false;
    if (lane == 0)
        aborted = mu_spin_read_host(spin, &r, peer);
    return __shfl_sync(ALL, aborted, 0);
}

template <typename T>
__device__ static void push(const struct relay_args &a, uint32_t epoch, int warp,
                            int lane)
{
    const int U = 4;
    const struct mu_reach &r = a.reach;
    const size_t stride = (size_t)gridDim.x * PUSH_WARPS;

    for (size_t q = (size_t)blockIdx.x * PUSH_WARPS + warp; q < a.quads;
         q += stride * U)
        for (int d = 1; d < r.n; d++) {
            int p = r.rank + d >= r.n ? r.rank + d - r.n : r.rank + d;
            uint4 v[U];
#pragma unroll
            for (int u = 0; u < U; u++)
                if (q + u * stride < a.quads)
                    v[u] = part_load<T>(a, p * a.quads + q + u * stride, lane);
#pragma unroll
            for (int u = 0; u < U; u++)
                if (q + u * stride < a.quads)
                    mu_store_packet(place(a, epoch, p, 0, r.rank, q + u * stride, lane),
                                    with_epoch(v[u], epoch, lane));
        }
}

/* `own` has its rank's place in the order, so that all owners add alike. */
template <typename T, int N>
__device__ inline uint4 sum_parts(uint4 own, const uint4 *in, const struct mu_reach &r,
                                  double scale)
{
    typedef mu_acc<T> A;
    mu_vec<T> x, out;
#pragma unroll
    for (int j = 0; j < (int)(16 / sizeof(T)); j++) {
        x.v = r.rank == 0 ? own : in[0];
        typename A::type sum = A::up(x.e[j]);
#pragma unroll
        for (int p = 1; p < N; p++) {
            x.v = r.rank == p ? own : in[p];
            if (p < r.n)
                sum += A::up(x.e[j]);
        }
        if (scale != 1.0)
            sum = mu_scaled(sum, scale);
        out.e[j] = A::down(sum);
    }
    return out.v;
}

/* The parts of U quads from all peers. Returns a missing rank, or -1. */
template <int U, int N>
__device__ inline int parts_poll(const struct relay_args &a, uint32_t epoch, size_t q,
                                 size_t stride, int lane, uint4 (*in)[N])
{
    const struct mu_reach &r = a.reach;
    int missing = -1;
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int p = 0; p < N; p++) {
            if (p == r.rank || p >= r.n || q + u * stride >= a.quads)
                continue;
            in[u][p] =
                mu_load_packet(place(a, epoch, r.rank, 0, p, q + u * stride, lane));
            if (lacks_epoch(in[u][p], epoch, lane))
                missing = p;
        }
    return __reduce_max_sync(ALL, missing);
}

template <typename T, int N>
__device__ static bool add(const struct relay_args &a, uint32_t epoch, int warp,
                           int lane)
{
    const int U = N == 2 ? 2 : 1;
    const struct mu_reach &r = a.reach;
    const size_t stride = (size_t)gridDim.x * ADD_WARPS, first = r.rank * a.quads;
    struct mu_spin spin = { 0, 0 };

    for (size_t q = (size_t)blockIdx.x * ADD_WARPS + warp; q < a.quads;
         q += stride * U) {
        uint4 own[U], in[U][N];
        int missing;
#pragma unroll
        for (int u = 0; u < U; u++)
            if (q + u * stride < a.quads)
                own[u] = part_load<T>(a, first + q + u * stride, lane);
        while ((missing = parts_poll<U, N>(a, epoch, q, stride, lane, in)) >= 0)
            if (warp_aborted(&spin, r, missing, lane))
                return false;
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (q + u * stride >= a.quads)
                break;
            uint4 out = sum_parts<T, N>(own[u], in[u], r, a.scale);
            uint4 line = with_epoch(out, epoch, lane);
            for (int d = 1; d < r.n; d++) {
                int p = r.rank + d >= r.n ? r.rank + d - r.n : r.rank + d;
                mu_store_packet(place(a, epoch, p, 1, r.rank, q + u * stride, lane),
                                line);
            }
            part_store<T>(a, first + q + u * stride, lane, out);
        }
    }
    return true;
}

template <typename T>
__device__ static bool copy(const struct relay_args &a, uint32_t epoch, int warp,
                            int lane)
{
    const int U = 4;
    const struct mu_reach &r = a.reach;
    const size_t stride = (size_t)gridDim.x * COPY_WARPS;
    struct mu_spin spin = { 0, 0 };

    for (size_t q = (size_t)blockIdx.x * COPY_WARPS + warp; q < a.quads;
         q += stride * U)
        for (int d = 1; d < r.n; d++) {
            int p = r.rank + d >= r.n ? r.rank + d - r.n : r.rank + d;
            uint4 v[U];
            for (;;) {
                bool missing = false;
#pragma unroll
                for (int u = 0; u < U; u++)
                    if (q + u * stride < a.quads) {
                        v[u] = mu_load_packet(
                            place(a, epoch, r.rank, 1, p, q + u * stride, lane));
                        missing = missing || lacks_epoch(v[u], epoch, lane);
                    }
                if (!__any_sync(ALL, missing))
                    break;
                if (warp_aborted(&spin, r, p, lane))
                    return false;
            }
#pragma unroll
            for (int u = 0; u < U; u++)
                if (q + u * stride < a.quads)
                    part_store<T>(a, p * a.quads + q + u * stride, lane, v[u]);
        }
    return true;
}

template <typename T, int N>
__global__ void __launch_bounds__(WARPS * 32, 1)
    relay(const __grid_constant__ struct relay_args a)
{
    struct mu_flags *flags = a.reach.flags[a.reach.rank];
    const uint32_t epoch = *(volatile uint32_t *)&flags->epoch[blockIdx.x] + 1;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    bool aborted = false;

    if (warp < PUSH_WARPS)
        push<T>(a, epoch, warp, lane);
    else if (warp < PUSH_WARPS + ADD_WARPS)
        aborted = !add<T, N>(a, epoch, warp - PUSH_WARPS, lane);
    else
        aborted = !copy<T>(a, epoch, warp - PUSH_WARPS - ADD_WARPS, lane);
    if (!__syncthreads_or(aborted))
        mu_epoch_done(flags, epoch);
}

typedef void (*relay_fn)(struct relay_args);

template <typename T> static relay_fn relay_of(int n)
{
    return n <= 2 ? relay<T, 2> : n <= 4 ? relay<T, 4> : relay<T, MU_PEERS>;
}

static relay_fn relay_kernel(enum muster_dtype dtype, int n)
{
    return mu_by_float<relay_fn>(dtype,
                                 [=](auto x) { return relay_of<decltype(x)>(n); });
}

static size_t quads_for(const struct mu_reach *reach, size_t bytes)
{
    size_t lines = (bytes + LINE_DATA - 1) / LINE_DATA;
    size_t segment = (lines + reach->n - 1) / reach->n;

    return (segment + 3) / 4;
}

static size_t vectors(const void *p, size_t bytes)
{
    return (uintptr_t)p % 16 ? 0 : bytes;
}

bool mu_relay_fits(const struct mu_reach *reach, size_t bytes)
{
    return quads_for(reach, bytes) * QUAD * 2 * (reach->n - 1) <= reach->lines_half;
}

cudaError_t mu_relay(const struct mu_reach *reach, const void *send, void *recv,
                     size_t count, enum muster_dtype dtype, double scale, int blocks,
                     cudaStream_t stream)
{
    relay_fn fn = relay_kernel(dtype, reach->n);
    size_t bytes = count * mu_dtype_size(dtype);
    struct relay_args args = {
        *reach, (const char *)send,      (char *)recv,         bytes,
        scale,  quads_for(reach, bytes), vectors(send, bytes), vectors(recv, bytes)
    };
    void *argv[] = { &args };

    if (!fn || blocks < 1 || blocks > MU_BLOCKS || !mu_relay_fits(reach, bytes))
        return cudaErrorInvalidValue;
    return cudaLaunchKernel((const void *)fn, dim3(blocks), dim3(WARPS * 32), argv, 0,
                            stream);
}

cudaError_t mu_relay_load(void)
{
    static const int sizes[] = { 2, 4, MU_PEERS };
    cudaFuncAttributes attr;

    for (int t = MUSTER_F32; t <= MUSTER_BF16; t++)
        for (int s = 0; s < 3; s++) {
            cudaError_t rc = cudaFuncGetAttributes(
                &attr, (const void *)relay_kernel((enum muster_dtype)t, sizes[s]));
            if (rc != cudaSuccess)
                return rc;
        }
    return cudaSuccess;
}
