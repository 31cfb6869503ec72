/* SPDX-License-Identifier: BSD-3-Clause */
/* pull.cu - all-reduce in place: read the parts of our segment, add, write to all ranks
 *
 * Each block has a barrier before (a peer's data is complete when its kernel runs) and
 * after (no rank reads from or writes to our buffer any more). The first one carries
 * the address of each rank's buffer: places and alignments may differ among the ranks,
 * and no rank has to see that before it launches.
 */
#include "runtime/backend/nccl/kernels/segment.cuh"

#define THREADS 1024

struct pull_args {
    struct mu_reach reach;
    struct mu_places at;
    size_t count;
    double scale;
};

struct given {
    char *at[MU_PEERS]; /* by rank, as the peers gave them; NULL: aborted */
    uint32_t epoch;     /* here, and not in a register of each thread */
};

/* False: aborted. */
__device__ inline bool address_wait(const uint4 *from, uint32_t epoch,
                                    const struct mu_reach &r, int peer, char **at)
{
    struct mu_spin spin = { 0, 0 };

    for (;;) {
        uint4 got = mu_load_packet_acquire(from);

        if (got.x == epoch) {
            *at = (char *)((uint64_t)got.w << 32 | got.z);
            return true;
        }
        if (mu_spin_aborted(&spin, &r, peer))
            return false;
    }
}

/* The barrier before. True: the places are the same, and aligned. Else *given, for all
 * threads of the block.
 */
__device__ static bool are_same(const struct pull_args &a, uint32_t epoch,
                                struct given *given)
{
    const struct mu_reach &r = a.reach;
    const int p = threadIdx.x;
    bool other = (uintptr_t)a.at.peer[r.rank] % 16 != 0;

    if (p < r.n) {
        char *at = a.at.peer[r.rank];

        if (p != r.rank) {
            uint64_t there = (uint64_t)a.at.there[p];

            mu_store_packet_release(
                &r.flags[p]->offer[r.rank][blockIdx.x][0],
                make_uint4(epoch, 0, (uint32_t)there, (uint32_t)(there >> 32)));
            if (!address_wait(&r.flags[r.rank]->offer[p][blockIdx.x][0], epoch, r, p,
                              &at))
                at = NULL;
            other = other || at != a.at.peer[p];
        }
        given->at[p] = at;
        given->epoch = epoch;
    }
    return !__syncthreads_or(other);
}

/* The bytes before the first vector, if the same on all ranks; else -1. */
__device__ static int head_bytes(const struct given &given, int n)
{
    const int over = (uintptr_t)given.at[0] % 16;

    for (int p = 1; p < n; p++)
        if ((uintptr_t)given.at[p] % 16 != over)
            return -1;
    return (16 - over) % 16;
}

/* ---- Different places ------------------------------------------------------------
 */

/* This thread's share of the work. */
struct share {
    int n, rank;              /* of the ranks */
    unsigned thread, threads; /* of all blocks */
};

/* The compiler cannot see that these are what the loop for equal places uses too, so
 * that loop keeps its registers. No loop over the ranks is unrolled, for the same
 * reason.
 */
__device__ inline struct share share_of(const struct mu_reach &r, size_t *count,
                                        double *scale)
{
    struct share s = { r.n, r.rank, blockIdx.x * THREADS + threadIdx.x,
                       gridDim.x * THREADS };

    asm volatile(""
                 : "+r"(s.n), "+r"(s.rank), "+r"(s.thread), "+r"(s.threads),
                   "+l"(*count), "+d"(*scale));
    return s;
}

/* Elements first .. end - 1. */
template <typename T>
__device__ static void sum_elements(const struct share &s, const struct given &given,
                                    size_t first, size_t end, double scale)
{
    typedef mu_acc<T> A;
    const int U = 4;
    const size_t stride = s.threads;

    for (size_t i = first + s.thread; i < end; i += stride * U) {
        typename A::type sum[U];

#pragma unroll 1
        for (int p = 0; p < s.n; p++) {
            const volatile T *from = (const volatile T *)given.at[p] + i;
#pragma unroll
            for (int u = 0; u < U; u++)
                if (i + u * stride < end) {
                    typename A::type x = A::up(from[u * stride]);
                    sum[u] = p == 0 ? x : sum[u] + x;
                }
        }
#pragma unroll
        for (int u = 0; u < U; u++)
            if (scale != 1.0)
                sum[u] = mu_scaled(sum[u], scale);
#pragma unroll 1
        for (int p = 0; p < s.n; p++) {
            T *to = (T *)given.at[p] + i;
#pragma unroll
            for (int u = 0; u < U; u++)
                if (i + u * stride < end)
                    to[u * stride] = A::down(sum[u]);
        }
    }
}

/* Vectors first .. end - 1, which begin `head` bytes behind the buffers' start. */
template <typename T>
__device__ static void sum_vectors(const struct share &s, const struct given &given,
                                   int head, size_t first, size_t end, double scale)
{
    typedef mu_acc<T> A;
    const int U = 2, E = 16 / sizeof(T);
    const size_t stride = s.threads;

    for (size_t i = first + s.thread; i < end; i += stride * U) {
        typename A::type sum[U][E];
        mu_vec<T> x[U];

#pragma unroll 1
        for (int p = 0; p < s.n; p++) {
            const uint4 *from = (const uint4 *)(given.at[p] + head) + i;
#pragma unroll
            for (int u = 0; u < U; u++)
                if (i + u * stride < end)
                    x[u].v = mu_load_vec(from + u * stride);
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int j = 0; j < E; j++)
                    sum[u][j] =
                        p == 0 ? A::up(x[u].e[j]) : sum[u][j] + A::up(x[u].e[j]);
        }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int j = 0; j < E; j++)
                x[u].e[j] =
                    A::down(scale == 1.0 ? sum[u][j] : mu_scaled(sum[u][j], scale));
#pragma unroll 1
        for (int p = 0; p < s.n; p++) {
            uint4 *to = (uint4 *)(given.at[p] + head) + i;
#pragma unroll
            for (int u = 0; u < U; u++)
                if (i + u * stride < end)
                    mu_store_vec(to + u * stride, x[u].v);
        }
    }
}

/* This rank's segment: vectors where they are aligned on all ranks, and the last rank
 * has the elements beside them; else elements. False: aborted.
 */
template <typename T>
__device__ static bool sum_places(const struct mu_reach &r, const struct given &given,
                                  size_t count, double scale)
{
    const size_t per = 16 / sizeof(T);
    const struct share s = share_of(r, &count, &scale);
    size_t head, vectors, total, segment, first, end;
    int bytes;

    for (int p = 0; p < s.n; p++)
        if (!given.at[p])
            return false;
    bytes = head_bytes(given, s.n);
    head = bytes > 0 ? bytes / sizeof(T) : 0;
    head = head < count ? head : count;
    vectors = (count - head) / per;
    total = bytes < 0 ? count : vectors;
    segment = (total + s.n - 1) / s.n;
    first = segment * s.rank;
    end = first + segment < total ? first + segment : total;
    if (bytes < 0) {
        sum_elements<T>(s, given, first, end, scale);
        return true;
    }
    sum_vectors<T>(s, given, bytes, first, end, scale);
    if (s.rank == s.n - 1) {
        sum_elements<T>(s, given, 0, head, scale);
        sum_elements<T>(s, given, head + vectors * per, count, scale);
    }
    return true;
}

/* ---- Equal places ---------------------------------------------------------------- */

template <typename T, int N> __device__ inline void sum_same(const struct pull_args &a)
{
    const struct mu_reach &r = a.reach;
    const size_t per = 16 / sizeof(T), total = a.count / per;

    mu_sum_segment<T, N>(r, a.at.peer, a.at.peer, total, a.scale);
    if (r.rank == r.n - 1 && blockIdx.x == 0)
        mu_sum_tail<T>(r, a.at.peer, a.at.peer, total * per, a.count, a.scale);
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS, 1)
    pull(const __grid_constant__ struct pull_args a)
{
    __shared__ struct given given;
    const struct mu_reach &r = a.reach;
    uint32_t *counter = &r.flags[r.rank]->barrier[blockIdx.x];

    if (are_same(a, *(volatile uint32_t *)counter + 1, &given))
        sum_same<T, N>(a);
    else if (!sum_places<T>(r, given, a.count, a.scale))
        return;
    if (!mu_block_barrier(r, given.epoch + 1))
        return;
    if (threadIdx.x == 0)
        *counter = given.epoch + 1;
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

cudaError_t mu_pull(const struct mu_reach *reach, const struct mu_places *places,
                    size_t count, enum muster_dtype dtype, double scale, int blocks,
                    cudaStream_t stream)
{
    pull_fn fn = pull_kernel(dtype, reach->n);
    struct pull_args args = { *reach, *places, count, scale };
    void *argv[] = { &args };

    if (!fn || blocks < 1 || blocks > MU_BLOCKS)
        return cudaErrorInvalidValue;
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
