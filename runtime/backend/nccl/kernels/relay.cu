/* SPDX-License-Identifier: BSD-3-Clause */
/* relay.cu - all-reduce in place by stores only: push parts, owner adds, push sums
 *
 * A peer store needs less of a link than a peer load (no request against the traffic),
 * so nothing is read from a peer here. One half of each block pushes my part of the
 * others' segments into their staging rings, the other half adds what arrived for my
 * segment and pushes the sum into everybody's buffer, chunk by chunk:
 *
 *   push half   wait until the ring slot is free   (result of chunk q-slots arrived)
 *               copy, count up pushed[me] at the peer
 *   add half    wait for pushed[all] > q, add in rank order, store the sum everywhere,
 *               count up result[me] at the peers
 *
 * No barrier is needed: the owner overwrites a peer's part only after that peer pushed
 * it, and a block ends when the sums of all owners arrived.
 */
#include "runtime/backend/nccl/kernels/device.cuh"

extern "C" {
#include "runtime/core/dtype.h"
}

#define HALF 512
#define THREADS (2 * HALF)

struct relay_args {
    struct mu_reach reach;
    uint4 *buffer[MU_PEERS];
    size_t count;
    double scale;
    uint32_t chunk;  /* vectors */
    uint32_t slots;  /* of the ring, for each source */
    uint32_t chunks; /* of each block, equal on all ranks */
};

/* Barrier of one half; true when any of its threads says so. */
__device__ inline bool half_any(int half, bool mine)
{
    int any;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0;"
                 " barrier.cta.red.or.pred q, %2, %3, p; selp.s32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"((int)mine), "r"(half + 1), "n"(HALF)
                 : "memory");
    return any != 0;
}

/* Where chunk c of this block lies in a segment: [at, at + length) vectors from the
 * segment's start, cut at the segment's own length.
 */
struct span {
    size_t at;
    uint32_t length;
};

__device__ inline struct span chunk_span(const struct relay_args &a, uint32_t c,
                                         size_t segment, size_t length)
{
    size_t per = (segment + gridDim.x - 1) / gridDim.x;
    size_t from = per * blockIdx.x + (size_t)c * a.chunk;
    size_t to = from + a.chunk;
    size_t limit = per * (blockIdx.x + 1);
    struct span s;

    limit = limit < length ? limit : length;
    to = to < limit ? to : limit;
    s.at = from;
    s.length = from < to ? (uint32_t)(to - from) : 0;
    return s;
}

__device__ inline size_t segment_length(size_t total, size_t segment, int p)
{
    size_t from = segment * p;
    return from >= total ? 0 : from + segment > total ? total - from : segment;
}

__device__ inline uint4 *slot(const struct relay_args &a, int at_rank, int source,
                              uint32_t q)
{
    const struct mu_reach &r = a.reach;
    /* Sources are numbered without the owner of the ring. */
    int index = source > at_rank ? source - 1 : source;
    return (uint4 *)(r.staging[at_rank] + blockIdx.x * r.staging_block) +
           ((size_t)(q % a.slots) * (r.n - 1) + index) * a.chunk;
}

template <int U>
__device__ inline void copy_span(uint4 *dst, const uint4 *src, uint32_t length,
                                 uint32_t t)
{
    for (uint32_t i = t; i < length; i += HALF * U) {
        uint4 v[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            if (i + u * HALF < length)
                v[u] = mu_load_vec(src + i + u * HALF);
#pragma unroll
        for (int u = 0; u < U; u++)
            if (i + u * HALF < length)
                mu_store_vec(dst + i + u * HALF, v[u]);
    }
}

/* Tell every peer: my counter there is now `value`. Called by one thread a peer after
 * the half's barrier; the release orders what the whole half stored.
 */
__device__ inline void tell(const struct mu_reach &r, bool result, int t,
                            uint32_t value)
{
    if (t >= r.n || t == r.rank)
        return;
    struct mu_flags *f = r.flags[t];
    mu_store_release(result ? &f->result[r.rank][blockIdx.x]
                            : &f->pushed[r.rank][blockIdx.x],
                     value);
}

__device__ inline bool all_at_least(const struct mu_reach &r, bool result, int t,
                                    uint32_t value)
{
    if (t >= r.n || t == r.rank)
        return true;
    struct mu_flags *f = r.flags[r.rank];
    return mu_wait_counter(
        result ? &f->result[t][blockIdx.x] : &f->pushed[t][blockIdx.x], value, &r, t);
}

__device__ static bool push(const struct relay_args &a, uint32_t q0, size_t total,
                            size_t segment)
{
    const struct mu_reach &r = a.reach;
    const int t = threadIdx.x;

    for (uint32_t c = 0; c < a.chunks; c++) {
        uint32_t q = q0 + c;
        /* Chunk q - slots of mine has been added when its sum came back. */
        if (half_any(0, !all_at_least(r, true, t, q + 1 - a.slots)))
            return false;
        for (int d = 1; d < r.n; d++) {
            int p = r.rank + d >= r.n ? r.rank + d - r.n : r.rank + d;
            struct span s =
                chunk_span(a, c, segment, segment_length(total, segment, p));
            copy_span<4>(slot(a, p, r.rank, q), a.buffer[r.rank] + segment * p + s.at,
                         s.length, t);
        }
        half_any(0, false);
        tell(r, false, t, q + 1);
    }
    return true;
}

template <typename T, int N>
__device__ static void add_span(const struct relay_args &a, uint32_t q, size_t offset,
                                uint32_t length, uint32_t t)
{
    typedef mu_acc<T> A;
    const int U = N == 2 ? 4 : N == 4 ? 2 : 1;
    const struct mu_reach &r = a.reach;

    for (uint32_t i = t; i < length; i += HALF * U) {
        uint4 in[U][N];
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int p = 0; p < N; p++)
                if (p < r.n && i + u * HALF < length)
                    in[u][p] = mu_load_vec(
                        (p == r.rank ? a.buffer[p] + offset : slot(a, r.rank, p, q)) +
                        i + u * HALF);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (i + u * HALF >= length)
                break;
            mu_vec<T> x, out;
#pragma unroll
            for (int j = 0; j < (int)(16 / sizeof(T)); j++) {
                x.v = in[u][0];
                typename A::type sum = A::up(x.e[j]);
#pragma unroll
                for (int p = 1; p < N; p++) {
                    x.v = in[u][p];
                    if (p < r.n)
                        sum += A::up(x.e[j]);
                }
                if (a.scale != 1.0)
                    sum = mu_scaled(sum, a.scale);
                out.e[j] = A::down(sum);
            }
#pragma unroll
            for (int d = 0; d < N; d++) {
                int p = r.rank + d >= r.n ? r.rank + d - r.n : r.rank + d;
                if (d < r.n)
                    mu_store_vec(a.buffer[p] + offset + i + u * HALF, out.v);
            }
        }
    }
}

template <typename T, int N>
__device__ static bool add(const struct relay_args &a, uint32_t q0, size_t total,
                           size_t segment)
{
    const struct mu_reach &r = a.reach;
    const int t = threadIdx.x - HALF;
    const size_t length = segment_length(total, segment, r.rank);

    for (uint32_t c = 0; c < a.chunks; c++) {
        uint32_t q = q0 + c;
        if (half_any(1, !all_at_least(r, false, t, q + 1)))
            return false;
        struct span s = chunk_span(a, c, segment, length);
        add_span<T, N>(a, q, segment * r.rank + s.at, s.length, t);
        half_any(1, false);
        tell(r, true, t, q + 1);
    }
    return !half_any(1, !all_at_least(r, true, t, q0 + a.chunks));
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS, 1)
    relay(const __grid_constant__ struct relay_args a)
{
    const struct mu_reach &r = a.reach;
    uint32_t *counter = &r.flags[r.rank]->chunk[blockIdx.x];
    const uint32_t q0 = *(volatile uint32_t *)counter;
    const size_t total = a.count / (16 / sizeof(T));
    const size_t segment = (total + r.n - 1) / r.n;
    bool aborted = threadIdx.x < HALF ? !push(a, q0, total, segment)
                                      : !add<T, N>(a, q0, total, segment);

    if (!__syncthreads_or(aborted) && threadIdx.x == 0)
        *counter = q0 + a.chunks;
}

typedef void (*relay_fn)(struct relay_args);

template <typename T> static relay_fn relay_of(int n)
{
    return n <= 2 ? relay<T, 2> : n <= 4 ? relay<T, 4> : relay<T, MU_PEERS>;
}

static relay_fn relay_kernel(enum muster_dtype dtype, int n)
{
    switch (dtype) {
    case MUSTER_F32:
        return relay_of<float>(n);
    case MUSTER_F64:
        return relay_of<double>(n);
    case MUSTER_F16:
        return relay_of<__half>(n);
    case MUSTER_BF16:
        return relay_of<__nv_bfloat16>(n);
    default:
        return NULL;
    }
}

cudaError_t mu_relay(const struct mu_reach *reach, void *const *buffer, size_t count,
                     enum muster_dtype dtype, double scale, int blocks, size_t chunk,
                     cudaStream_t stream)
{
    relay_fn fn = relay_kernel(dtype, reach->n);
    size_t bytes = count * mu_dtype_size(dtype);
    size_t ring = reach->staging_block / (reach->n - 1), per;
    struct relay_args args = { *reach, { 0 }, count, scale, 0, 0, 0 };
    void *argv[] = { &args };

    if (!fn || blocks < 1 || blocks > MU_BLOCKS || bytes % 16)
        return cudaErrorInvalidValue;
    per = ((bytes / 16 + reach->n - 1) / reach->n + blocks - 1) / blocks; /* vectors */
    if (chunk == 0)
        chunk = per * 16 / 4 < 8192 ? 8192 : 32768;
    if (chunk > ring / 2)
        chunk = ring / 2 / 16 * 16;
    args.chunk = (uint32_t)(chunk / 16);
    args.slots = (uint32_t)(ring / chunk);
    args.chunks = (uint32_t)((per + args.chunk - 1) / args.chunk);
    for (int p = 0; p < reach->n; p++)
        args.buffer[p] = (uint4 *)buffer[p];
    return cudaLaunchKernel((const void *)fn, dim3(blocks), dim3(THREADS), argv, 0,
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
