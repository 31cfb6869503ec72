/* SPDX-License-Identifier: BSD-3-Clause */
/* own.cu - collectives of memory that the program allocated: direct or staged
 *
 * Each rank's kernel offers its buffers to the peers as places in allocations, or
 * nothing where a peer has not mapped one. The offers are the first barrier, so all
 * ranks decide alike without waiting for a host thread:
 *
 *   direct  all ranks offer what their peers read or write: as pull, on the mappings
 *   staged  else: every rank copies chunks into an area that its peers have mapped; the
 *           owner of each segment adds there; every rank copies the sums out
 *
 * Both add in rank order, so they give the same bits. The blocks of one index decide
 * for themselves. A captured launch becomes direct as soon as the peers have mapped.
 *
 * SUMS and ALL are the halves of an all-reduce: reduce-scatter lacks ALL, all-gather
 * and broadcast lack SUMS, and of a broadcast the root has the only segment.
 */
#include "runtime/backend/nccl/kernels/segment.cuh"

#define THREADS 1024

struct own_args {
    struct mu_reach reach;
    const struct mu_own_map *map;
    const char *send;
    char *recv;
    struct mu_own_place place[2]; /* of send and of recv */
    size_t count;                 /* elements of the larger buffer */
    size_t segment;               /* its vectors */
    int segments;
    int mine; /* the segment of this rank; -1: none */
    double scale;
    char *stage[MU_PEERS];
    size_t chunk; /* vectors that a block stages of each segment at a time */
    bool counted;
    bool aligned; /* what this rank reads and writes of its own buffers */
};

struct buffers {
    const uint4 *from[MU_PEERS];
    uint4 *to[MU_PEERS];
};

/* By all threads of a block: does this rank offer what its peers use, to all alike? */
template <bool SUMS, bool ALL>
__device__ inline bool is_direct(const struct own_args &a)
{
    const int which = threadIdx.x / MU_OWN_RUN, i = threadIdx.x % MU_OWN_RUN;
    bool direct = a.aligned;

    if ((SUMS && which == 0) || (ALL && which == 1)) {
        const struct mu_own_place &place = a.place[which];
        direct = direct && place.n > 0 &&
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

/* By all threads of a block: the barrier before, and the buffers of all ranks: of a
 * smaller one where this rank's segment of the larger one is. Returns -1: aborted, 0:
 * staged, 1: direct.
 */
template <bool SUMS, bool ALL>
__device__ static int offers(const struct own_args &a, uint32_t epoch,
                             struct buffers *all)
{
    const struct mu_reach &r = a.reach;
    const int p = threadIdx.x;
    const size_t from_shift = SUMS && !ALL ? a.mine * a.segment : 0;
    const size_t to_shift = ALL && !SUMS && a.mine > 0 ? a.mine * a.segment : 0;
    const bool direct = is_direct<SUMS, ALL>(a);
    bool aborted = false, staged = false;

    if (p < r.n) {
        all->from[p] = (const uint4 *)a.send + from_shift;
        all->to[p] = (uint4 *)a.recv + to_shift;
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
                char *there = SUMS ? place_here(a, p, from) : NULL;
                char *back = ALL ? place_here(a, p, to) : NULL;

                staged = staged || (SUMS && !there) || (ALL && !back);
                all->from[p] = (const uint4 *)there + from_shift;
                all->to[p] = (uint4 *)back + to_shift;
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

/* A thread's vectors of segment s, from `at` of the block's part on, which exist. */
template <typename F>
__device__ inline void each_vector(const struct own_args &a, int s, size_t first,
                                   size_t n, F of)
{
    for (size_t i = threadIdx.x; i < n && first + i < a.segment; i += THREADS)
        of(i, s * a.segment + first + i);
}

/* Each block has an even part of every segment, and room for a chunk of each in the
 * staging area of every rank. Returns the counter of the last barrier; *aborted.
 */
template <typename T, int N, bool SUMS, bool ALL>
__device__ static uint32_t staged(const struct own_args &a, uint32_t epoch,
                                  bool *aborted)
{
    const struct mu_reach &r = a.reach;
    const size_t per = 16 / sizeof(T), total = (a.count + per - 1) / per;
    const size_t part = (a.segment + gridDim.x - 1) / gridDim.x;
    const size_t mine = part * blockIdx.x, end = mine + part;
    const size_t room = a.chunk * a.segments * blockIdx.x; /* first vector of ours */
    uint4 *const here = (uint4 *)a.stage[r.rank] + room;
    /* a smaller buffer begins where this rank's segment of the larger one does */
    const size_t less = a.mine > 0 ? a.mine * a.segment : 0;

    for (size_t at = mine; at < end; at += a.chunk) {
        size_t n = end - at < a.chunk ? end - at : a.chunk;

        for (int s = 0; SUMS && s < a.segments; s++)
            each_vector(a, s, at, n, [&](size_t i, size_t v) {
                if (v < total)
                    here[s * a.chunk + i] = any_load<T>(a.send, v, a.count);
            });
        if ((*aborted = !mu_block_barrier(r, ++epoch)))
            return epoch;
        if (a.mine >= 0)
            each_vector(a, a.mine, at, n, [&](size_t i, size_t v) {
                const size_t slot = room + a.mine * a.chunk + i;
                uint4 in[N], out;

                if (v >= total)
                    return;
#pragma unroll
                for (int p = 0; p < N; p++)
                    if (SUMS && p < r.n)
                        in[p] = mu_load_vec((const uint4 *)a.stage[p] + slot);
                out = SUMS ? mu_add_all<T, N>(in, r.n, a.scale)
                           : any_load<T>(a.send, v - less, a.count);
                for (int p = 0; ALL && p < r.n; p++)
                    mu_store_vec((uint4 *)a.stage[p] + slot, out);
                if (!ALL)
                    any_store<T>(a.recv, v - less, a.count, out);
            });
        if ((*aborted = !mu_block_barrier(r, ++epoch)))
            return epoch;
        for (int s = 0; ALL && s < a.segments; s++)
            each_vector(a, s, at, n, [&](size_t i, size_t v) {
                if (v < total)
                    any_store<T>(a.recv, v, a.count,
                                 mu_load_vec(here + s * a.chunk + i));
            });
    }
    return epoch;
}

/* This rank's segment, in the buffers that `offers` has found. */
template <typename T, int N, bool SUMS, bool ALL>
__device__ inline void direct_segment(const struct own_args &a,
                                      const struct buffers &all)
{
    const struct mu_reach &r = a.reach;
    const size_t per = 16 / sizeof(T), total = a.count / per;

    if (SUMS && ALL) {
        mu_sum_segment<T, N>(r, all.from, all.to, total, a.scale);
        if (r.rank == r.n - 1 && blockIdx.x == 0)
            mu_sum_tail<T>(r, all.from, all.to, total * per, a.count, a.scale);
    } else if (a.mine >= 0) {
        mu_store_span<T, N, SUMS, ALL>(r, all.from, all.to, 0, a.segment, a.scale,
                                       all.from[r.rank] != all.to[r.rank]);
    }
}

template <typename T, int N, bool SUMS, bool ALL>
__global__ void __launch_bounds__(THREADS, 1)
    own(const __grid_constant__ struct own_args a)
{
    __shared__ struct buffers all;
    const struct mu_reach &r = a.reach;
    uint32_t *counter = &r.flags[r.rank]->barrier[blockIdx.x];
    uint32_t epoch = *(volatile uint32_t *)counter + 1;
    int direct = offers<SUMS, ALL>(a, epoch, &all);
    bool aborted = direct < 0;

    if (direct > 0) {
        direct_segment<T, N, SUMS, ALL>(a, all);
        aborted = !mu_block_barrier(r, ++epoch);
    } else if (!aborted) {
        epoch = staged<T, N, SUMS, ALL>(a, epoch, &aborted);
    }
    if (!aborted && threadIdx.x == 0) {
        *counter = epoch;
        if (a.counted)
            atomicAdd(&r.flags[r.rank]->own_done, 1);
    }
}

typedef void (*own_fn)(struct own_args);

template <typename T, bool SUMS, bool ALL> static own_fn own_of(int n)
{
    return n <= 2   ? own<T, 2, SUMS, ALL>
           : n <= 4 ? own<T, 4, SUMS, ALL>
                    : own<T, MU_PEERS, SUMS, ALL>;
}

/* What is not added up has no type: bytes. */
static own_fn own_kernel(enum mu_shape shape, enum muster_dtype dtype, int n)
{
    if (!mu_shape_sums(shape))
        return own_of<uint8_t, false, true>(n);
    return mu_by_float<own_fn>(dtype, [=](auto x) {
        return shape == MU_ALLREDUCE ? own_of<decltype(x), true, true>(n)
                                     : own_of<decltype(x), true, false>(n);
    });
}

bool mu_own_can(const struct mu_work *w)
{
    if (mu_shape_sums(w->shape) && !mu_segmented_can(w->dtype, w->op))
        return false;
    return w->shape == MU_ALLREDUCE || w->count * mu_work_element(w) % 16 == 0;
}

static void segments_of(const struct mu_work *w, const struct mu_reach *r,
                        struct own_args *args)
{
    const size_t per = 16 / mu_work_element(w), n = r->n;
    const bool root = w->root == r->rank;

    args->segments = w->shape == MU_BROADCAST ? 1 : r->n;
    args->mine = w->shape != MU_BROADCAST ? r->rank : root ? 0 : -1;
    args->count = w->count;
    args->segment = w->count / per;
    if (w->shape == MU_ALLREDUCE)
        args->segment = ((w->count + per - 1) / per + n - 1) / n;
    else
        args->count *= args->segments;
    args->aligned = (uintptr_t)w->recv % 16 == 0 &&
                    (args->mine < 0 || (uintptr_t)w->send % 16 == 0);
}

cudaError_t mu_own(const struct mu_reach *reach, const struct mu_own_map *map,
                   const struct mu_work *work, const struct mu_own_buffers *buffers,
                   int blocks, cudaStream_t stream)
{
    own_fn fn = own_kernel(work->shape, work->dtype, reach->n);
    struct own_args args = { *reach };
    void *argv[] = { &args };

    if (!fn || !mu_own_can(work) || blocks < 1 || blocks > MU_BLOCKS)
        return cudaErrorInvalidValue;
    args.map = map;
    args.send = (const char *)work->send;
    args.recv = (char *)work->recv;
    args.place[0] = buffers->from;
    args.place[1] = buffers->to;
    args.scale = work->scale;
    segments_of(work, reach, &args);
    for (int p = 0; p < reach->n; p++)
        args.stage[p] = buffers->stage[p];
    args.counted = buffers->counted;
    args.chunk = buffers->stage_bytes / 16 / blocks / args.segments;
    return cudaLaunchKernel((const void *)fn, dim3(blocks), dim3(THREADS), argv, 0,
                            stream);
}

cudaError_t mu_own_load(void)
{
    static const int sizes[] = { 2, 4, MU_PEERS };
    cudaFuncAttributes attr;

    for (int k = MU_ALLREDUCE; k <= MU_BROADCAST; k++)
        for (int t = MUSTER_F32; t <= MUSTER_BF16; t++)
            for (int s = 0; s < 3; s++) {
                cudaError_t rc = cudaFuncGetAttributes(
                    &attr, (const void *)own_kernel((enum mu_shape)k,
                                                    (enum muster_dtype)t, sizes[s]));
                if (rc != cudaSuccess)
                    return rc;
            }
    return cudaSuccess;
}
