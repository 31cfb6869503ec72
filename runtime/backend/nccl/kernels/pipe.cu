/* SPDX-License-Identifier: BSD-3-Clause */
/* pipe.cu - large messages between pairs of ranks, through the receiver's pipe
 *
 * The pipe is an area of the receiver for each sender, in slots for each block. A block
 * of the sender stores chunks into its slots, the block of the same index at the
 * receiver copies them out. Any memory can be sent and received: no rank maps the
 * memory of another one's call. Counters are in device memory, so captured launches can
 * be replayed.
 */
#include "runtime/backend/nccl/kernels/device.cuh"

#define THREADS 512
#define LEAST 4096        /* bytes that a block is worth */
#define SLOTS 4           /* of each block */
#define CHUNK_LEAST 16384 /* bytes: below, counters take longer than the data */
#define CHUNK_MOST 65536
#define U 4 /* vectors in flight of a thread */

enum way { SENDS, RECEIVES };

struct run {
    char *data;
    size_t bytes;
    uint32_t chunk; /* bytes that a block has at a time */
    int peer, blocks;
    enum way way;
};

struct pipe_args {
    mu_list<struct run, 2 * MU_PEERS> list;
    struct mu_reach reach;
};

/* Where `from` stores its data at rank `at`. */
__device__ static char *pipe_of(const struct mu_reach &r, int at, int from)
{
    return r.pipe[at] + (size_t)(from < at ? from : from - 1) * r.pipe_room;
}

__device__ static char *slot_of(const struct mu_reach &r, int at, int from,
                                uint32_t block, uint32_t number)
{
    return pipe_of(r, at, from) +
           (block * SLOTS + number % SLOTS) * (r.pipe_room / MU_BLOCKS / SLOTS);
}

__device__ inline uint4 load(const uint4 *p)
{
    return mu_load_vec(p);
}

template <typename V> __device__ inline V load(const V *p)
{
    return *(const volatile V *)p;
}

/* Returns the bytes that fill no V. */
template <typename V>
__device__ static size_t move_as(char *to, const char *from, size_t bytes)
{
    const size_t n = bytes / sizeof(V);
    V v[U];

    for (size_t at = threadIdx.x; at < n; at += THREADS * U) {
#pragma unroll
        for (int u = 0; u < U; u++)
            if (at + u * THREADS < n)
                v[u] = load((const V *)from + at + u * THREADS);
#pragma unroll
        for (int u = 0; u < U; u++)
            if (at + u * THREADS < n)
                ((V *)to)[at + u * THREADS] = v[u];
    }
    return bytes % sizeof(V);
}

/* By all threads of a block. */
__device__ static void move(char *to, const char *from, size_t bytes)
{
    const uintptr_t both = (uintptr_t)to | (uintptr_t)from;
    size_t left = both % 16 == 0  ? move_as<uint4>(to, from, bytes)
                  : both % 8 == 0 ? move_as<uint64_t>(to, from, bytes)
                  : both % 4 == 0 ? move_as<uint32_t>(to, from, bytes)
                  : both % 2 == 0 ? move_as<uint16_t>(to, from, bytes)
                                  : move_as<uint8_t>(to, from, bytes);

    if (threadIdx.x < left)
        to[bytes - left + threadIdx.x] =
            *(const volatile char *)(from + bytes - left + threadIdx.x);
}

__device__ inline size_t bytes_from(const struct run &x, size_t at)
{
    return at >= x.bytes ? 0 : x.bytes - at < x.chunk ? x.bytes - at : x.chunk;
}

/* A warp waits for room for the next chunk while another one publishes this one. */
__device__ static void send(const struct mu_reach &r, const struct run &x, uint32_t b)
{
    struct mu_flags *mine = r.flags[r.rank];
    uint32_t number = *(volatile uint32_t *)&mine->slots_sent[x.peer][b];
    const uint32_t *taken = &mine->slots_taken[x.peer][b];
    const size_t stride = (size_t)x.blocks * x.chunk;
    bool aborted = false;
    size_t n;

    if (threadIdx.x == 32)
        aborted = !mu_wait_counter(taken, number + 1 - SLOTS, &r, x.peer);
    if (__syncthreads_or(aborted))
        return;
    for (size_t at = (size_t)b * x.chunk; (n = bytes_from(x, at)) > 0; at += stride) {
        number++;
        move(slot_of(r, x.peer, r.rank, b, number), x.data + at, n);
        if (threadIdx.x == 32 && bytes_from(x, at + stride) > 0)
            aborted = !mu_wait_counter(taken, number + 1 - SLOTS, &r, x.peer);
        if (__syncthreads_or(aborted))
            return;
        if (threadIdx.x == 0)
            mu_store_release(&r.flags[x.peer]->slots_filled[r.rank][b], number);
    }
    if (threadIdx.x == 0)
        mine->slots_sent[x.peer][b] = number;
}

__device__ static void receive(const struct mu_reach &r, const struct run &x,
                               uint32_t b)
{
    struct mu_flags *mine = r.flags[r.rank];
    uint32_t number = *(volatile uint32_t *)&mine->slots_received[x.peer][b];
    size_t n;

    for (size_t at = (size_t)b * x.chunk; (n = bytes_from(x, at)) > 0;
         at += (size_t)x.blocks * x.chunk) {
        bool aborted = false;

        number++;
        if (threadIdx.x == 0)
            aborted =
                !mu_wait_counter(&mine->slots_filled[x.peer][b], number, &r, x.peer);
        if (__syncthreads_or(aborted))
            return;
        move(x.data + at, slot_of(r, r.rank, x.peer, b, number), n);
        __syncthreads();
        if (threadIdx.x == 0)
            mu_store_release(&r.flags[x.peer]->slots_taken[r.rank][b], number);
    }
    if (threadIdx.x == 0)
        mine->slots_received[x.peer][b] = number;
}

__global__ void __launch_bounds__(THREADS, 2)
    pipe(const __grid_constant__ struct pipe_args a)
{
    uint32_t b;
    const struct run &x = a.list.of(&b);

    if (x.way == SENDS)
        send(a.reach, x, b);
    else
        receive(a.reach, x, b);
}

/* Equal on both ranks of a message. */
static int blocks_of(size_t bytes, int most)
{
    size_t n = (bytes + LEAST - 1) / LEAST;

    return n > (size_t)most ? most : (int)n;
}

/* A quarter of a block's part, so that filling and taking overlap. */
static uint32_t chunk_of(const struct mu_reach *r, size_t bytes, int blocks)
{
    const size_t slot = r->pipe_room / MU_BLOCKS / SLOTS;
    const size_t most = slot < CHUNK_MOST ? slot : CHUNK_MOST;
    size_t part = (bytes + blocks - 1) / blocks;

    if (part > CHUNK_LEAST)
        part = part / SLOTS > CHUNK_LEAST ? part / SLOTS : CHUNK_LEAST;
    part = (part + 15) / 16 * 16;
    return (uint32_t)(part < most ? part : most);
}

static bool add(struct pipe_args *a, struct run x, int most)
{
    if (x.bytes == 0)
        return true;
    x.blocks = blocks_of(x.bytes, most);
    x.chunk = chunk_of(&a->reach, x.bytes, x.blocks);
    return a->list.add(x, x.blocks);
}

cudaError_t mu_pipe(const struct mu_reach *reach, const struct mu_pipe *p,
                    cudaStream_t stream)
{
    struct pipe_args args;
    bool ok = p->blocks >= 1 && p->blocks <= MU_BLOCKS;

    args.list.clear();
    args.reach = *reach;
    for (int d = 1; d < reach->n && ok; d++) { /* each rank starts with another one */
        const int to = (reach->rank + d) % reach->n,
                  from = (reach->rank - d + reach->n) % reach->n;
        const struct run out = {
            (char *)(uintptr_t)p->out[to], p->out_bytes[to], 0, to, 0, SENDS
        };
        const struct run in = {
            (char *)p->in[from], p->in_bytes[from], 0, from, 0, RECEIVES
        };

        ok = add(&args, out, p->blocks) && add(&args, in, p->blocks);
    }
    return ok ? mu_launch((const void *)pipe, &args, THREADS, stream)
              : cudaErrorInvalidValue;
}

cudaError_t mu_pipe_load(void)
{
    cudaFuncAttributes attr;

    return cudaFuncGetAttributes(&attr, (const void *)pipe);
}
