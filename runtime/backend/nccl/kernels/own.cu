/* SPDX-License-Identifier: BSD-3-Clause */
/* own.cu - all-reduce of memory that the program allocated: direct or staged
 *
 * Each rank's kernel offers its buffers to the peers as places in allocations, or
 * nothing where a peer has not mapped one. The offers are the first barrier, so all
 * ranks decide alike without waiting for a host thread:
 *
 *   direct  all ranks offer: as pull, on the mappings
 *   staged  else: every rank copies chunks into an area that its peers have mapped; the
 *           owner of each segment adds there; every rank copies the sums out
 *
 * Both add in rank order, so they give the same bits. The blocks of one index decide
 * for themselves. A captured launch becomes direct as soon as the peers have mapped.
 */
#include "runtime/backend/nccl/kernels/segment.cuh"

#define THREADS 1024

struct own_args {
    struct mu_reach reach;
    const struct mu_own_map *map;
    const char *send;
    char *recv;
    struct mu_own_place place[2]; /* of send and of recv */
    size_t count;
    double scale;
    char *stage[MU_PEERS];
    size_t chunk; /* vectors that a block stages of each segment at a time */
    bool counted;
};

struct buffers {
    const uint4 *from[MU_PEERS];
    uint4 *to[MU_PEERS];
};

/* By all threads of a block: what this rank offers, to all peers alike. */
__device__ inline bool is_direct(const struct own_args &a)
{
    const int i = threadIdx.x % MU_OWN_RUN;
    bool direct = true;

    if (threadIdx.x < 2 * MU_OWN_RUN) {
        const struct mu_own_place &place = a.place[threadIdx.x / MU_OWN_RUN];
        direct = place.n > 0 &&
                 (i >= place.n ||
                  *(const volatile uint32_t *)&a.map->direct[place.piece[i].slot] ==
                      place.piece[i].generation);
    }
    return __syncthreads_and(direct);
}

__device__ inline uint4 place_packet(const struct mu_own_place &place, bool direct,
                                     uint32_t epoch)
{
    return make_uint4(epoch, direct ? (uint32_t)place.piece[0].slot : ~0u,
                      (uint32_t)place.offset, (uint32_t)(place.offset >> 32));
}

/* False: aborted. */
__device__ inline bool packet_wait(const uint4 *at, uint32_t epoch,
                                   const struct mu_reach &r, int peer, uint4 *got)
{
    struct mu_spin spin = { 0, 0 };

    for (;;) {
        *got = mu_load_packet(at);
        if (got->x == epoch)
            return true;
        if (mu_spin_aborted(&spin, &r, peer))
            return false;
    }
}

/* NULL: the peer offers nothing. */
__device__ inline char *place_here(const struct own_args &a, int peer, uint4 packet)
{
    if (packet.y == ~0u)
        return NULL;
    return *(char *const volatile *)&a.map->base[peer][packet.y] +
           ((uint64_t)packet.w << 32 | packet.z);
}

/* By all threads of a block: the barrier before, and the buffers of all ranks. Returns
 * -1: aborted, 0: staged, 1: direct.
 */
__device__ static int offers(const struct own_args &a, uint32_t epoch,
                             struct buffers *all)
{
    const struct mu_reach &r = a.reach;
    const int p = threadIdx.x;
    const bool direct = is_direct(a);
    bool aborted = false, staged = false;

    if (p < r.n) {
        all->from[p] = (const uint4 *)a.send;
        all->to[p] = (uint4 *)a.recv;
        staged = !direct;
        if (p != r.rank) {
            uint4 *out = r.flags[p]->offer[r.rank][blockIdx.x];
            const uint4 *in = r.flags[r.rank]->offer[p][blockIdx.x];
            uint4 from, to;

            __threadfence_system(); /* what was written before is there */
            mu_store_packet(out, place_packet(a.place[0], direct, epoch));
            mu_store_packet(out + 1, place_packet(a.place[1], direct, epoch));
            aborted = !packet_wait(in, epoch, r, p, &from) ||
                      !packet_wait(in + 1, epoch, r, p, &to);
            __threadfence_system();
            if (!aborted) {
                all->from[p] = (const uint4 *)place_here(a, p, from);
                all->to[p] = (uint4 *)place_here(a, p, to);
                staged = staged || !all->from[p] || !all->to[p];
            }
        }
    }
    aborted = __syncthreads_or(aborted);
    staged = __syncthreads_or(staged);
    return aborted ? -1 : !staged;
}

/* A vector of memory with any alignment, of which `left` elements exist. */
template <typename T>
__device__ inline uint4 any_load(const char *base, size_t vector, size_t count)
{
    const size_t E = 16 / sizeof(T), first = vector * E;
    mu_vec<T> x;

    if ((uintptr_t)base % 16 == 0 && first + E <= count)
        return *(const uint4 *)(base + vector * 16);
    x.v = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < (int)E; j++)
        if (first + j < count)
            x.e[j] = ((const T *)base)[first + j];
    return x.v;
}

template <typename T>
__device__ inline void any_store(char *base, size_t vector, size_t count, uint4 v)
{
    const size_t E = 16 / sizeof(T), first = vector * E;
    mu_vec<T> x;

    if ((uintptr_t)base % 16 == 0 && first + E <= count) {
        *(uint4 *)(base + vector * 16) = v;
        return;
    }
    x.v = v;
#pragma unroll
    for (int j = 0; j < (int)E; j++)
        if (first + j < count)
            ((T *)base)[first + j] = x.e[j];
}

/* Each block has an even part of every segment, and room for a chunk of each in the
 * staging area of every rank. Returns the counter of the last barrier; *aborted.
 */
template <typename T, int N>
__device__ static uint32_t staged(const struct own_args &a, uint32_t epoch,
                                  bool *aborted)
{
    const struct mu_reach &r = a.reach;
    const size_t per = 16 / sizeof(T), total = (a.count + per - 1) / per;
    const size_t segment = (total + r.n - 1) / r.n;
    const size_t part = (segment + gridDim.x - 1) / gridDim.x;
    const size_t mine = part * blockIdx.x;
    const size_t room = a.chunk * r.n * blockIdx.x; /* first vector of our room */

    for (size_t at = 0; at < part; at += a.chunk) {
        size_t n = part - at < a.chunk ? part - at : a.chunk;

        for (int s = 0; s < r.n; s++)
            for (size_t i = threadIdx.x; i < n; i += THREADS) {
                size_t v = s * segment + mine + at + i;
                if (mine + at + i < segment && v < total)
                    ((uint4 *)a.stage[r.rank])[room + s * a.chunk + i] =
                        any_load<T>(a.send, v, a.count);
            }
        if ((*aborted = !mu_block_barrier(r, ++epoch)))
            return epoch;
        for (size_t i = threadIdx.x; i < n; i += THREADS) {
            size_t v = room + r.rank * a.chunk + i;
            uint4 in[N], out;
            if (mine + at + i >= segment || r.rank * segment + mine + at + i >= total)
                break;
#pragma unroll
            for (int p = 0; p < N; p++)
                if (p < r.n)
                    in[p] = mu_load_vec((const uint4 *)a.stage[p] + v);
            out = mu_add_all<T, N>(in, r.n, a.scale);
            for (int p = 0; p < r.n; p++)
                mu_store_vec((uint4 *)a.stage[p] + v, out);
        }
        if ((*aborted = !mu_block_barrier(r, ++epoch)))
            return epoch;
        for (int s = 0; s < r.n; s++)
            for (size_t i = threadIdx.x; i < n; i += THREADS) {
                size_t v = s * segment + mine + at + i;
                if (mine + at + i < segment && v < total)
                    any_store<T>(a.recv, v, a.count,
                                 mu_load_vec((const uint4 *)a.stage[r.rank] + room +
                                             s * a.chunk + i));
            }
    }
    return epoch;
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS, 1)
    own(const __grid_constant__ struct own_args a)
{
    __shared__ struct buffers all;
    const struct mu_reach &r = a.reach;
    uint32_t *counter = &r.flags[r.rank]->barrier[blockIdx.x];
    uint32_t epoch = *(volatile uint32_t *)counter + 1;
    const size_t per = 16 / sizeof(T), total = a.count / per;
    int direct = offers(a, epoch, &all);
    bool aborted = direct < 0;

    if (direct > 0) {
        mu_sum_segment<T, N>(r, all.from, all.to, total, a.scale);
        if (r.rank == r.n - 1 && blockIdx.x == 0)
            mu_sum_tail<T>(r, all.from, all.to, total * per, a.count, a.scale);
        aborted = !mu_block_barrier(r, ++epoch);
    } else if (!aborted) {
        epoch = staged<T, N>(a, epoch, &aborted);
    }
    if (!aborted && threadIdx.x == 0) {
        *counter = epoch;
        if (a.counted)
            atomicAdd(&r.flags[r.rank]->own_done, 1);
    }
}

typedef void (*own_fn)(struct own_args);

template <typename T> static own_fn own_of(int n)
{
    return n <= 2 ? own<T, 2> : n <= 4 ? own<T, 4> : own<T, MU_PEERS>;
}

static own_fn own_kernel(enum muster_dtype dtype, int n)
{
    return mu_by_float<own_fn>(dtype, [=](auto x) { return own_of<decltype(x)>(n); });
}

cudaError_t mu_own(const struct mu_reach *reach, const struct mu_own_map *map,
                   const struct mu_own_buffers *buffers, size_t count,
                   enum muster_dtype dtype, double scale, int blocks,
                   cudaStream_t stream)
{
    own_fn fn = own_kernel(dtype, reach->n);
    struct own_args args = { *reach,
                             map,
                             (const char *)buffers->send,
                             (char *)buffers->recv,
                             { buffers->from, buffers->to },
                             count,
                             scale };
    void *argv[] = { &args };

    if (!fn || blocks < 1 || blocks > MU_BLOCKS)
        return cudaErrorInvalidValue;
    for (int p = 0; p < reach->n; p++)
        args.stage[p] = buffers->stage[p];
    args.counted = buffers->counted;
    args.chunk = buffers->stage_bytes / 16 / blocks / reach->n;
    return cudaLaunchKernel((const void *)fn, dim3(blocks), dim3(THREADS), argv, 0,
                            stream);
}

cudaError_t mu_own_load(void)
{
    static const int sizes[] = { 2, 4, MU_PEERS };
    cudaFuncAttributes attr;

    for (int t = MUSTER_F32; t <= MUSTER_BF16; t++)
        for (int s = 0; s < 3; s++) {
            cudaError_t rc = cudaFuncGetAttributes(
                &attr, (const void *)own_kernel((enum muster_dtype)t, sizes[s]));
            if (rc != cudaSuccess)
                return rc;
        }
    return cudaSuccess;
}
