/* SPDX-License-Identifier: BSD-3-Clause */
/* launch.c - choose the algorithm of a collective and enqueue its work on b->stream */
#include <stdint.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/core/dtype.h"

/* A collective takes at most this many SMs from the computation beside it, or twice as
 * many if the stream waits and nothing computes. (The sum between copies uses all SMs,
 * for a moment.)
 */
#define BLOCKS 16
/* From this size on, half as many blocks reach the same rate with less contention. */
#define PULL_FEW ((size_t)12 << 20)
#define PULL_MANY ((size_t)20 << 20) /* the same without computation */
/* Below this size, the barriers of the copy algorithm take longer than the transfer. */
#define HIDDEN_LEAST ((size_t)4 << 20)
/* Below this size any memory takes one way: barriers cost more than they save. */
#define WAY_LEAST ((size_t)64 << 10)

static size_t bytes_of(const struct mu_coll *coll)
{
    return coll->count * mu_dtype_size(coll->dtype);
}

/* Of a collective that our kernels may carry out. arena: in place in memory from alloc.
 */
static unsigned usable_on(const struct mu_nccl_backend *b, const struct mu_coll *coll,
                          bool arena)
{
    size_t element = mu_dtype_size(coll->dtype), bytes = bytes_of(coll);
    unsigned usable = 1u << MU_ALGO_NCCL;

    if (bytes <= mu_one_shot_limit(&b->reach, element))
        usable |= 1u << MU_ALGO_ONE_SHOT;
    if (!mu_segmented_can(coll->dtype, coll->op))
        return usable;
    if (mu_relay_fits(&b->reach, bytes))
        usable |= 1u << MU_ALGO_RELAY;
    if (bytes < (size_t)16 * b->reach.n)
        return usable;
    if (arena)
        usable |= 1u << MU_ALGO_PULL;
    else if (b->ours.open)
        usable |= 1u << MU_ALGO_OWN;
    /* A copy is enqueued with the peer's address, so all ranks must give one place. */
    if (arena && coll->same_place && ((uintptr_t)coll->recv | bytes) % 16 == 0)
        usable |= 1u << MU_ALGO_COPY;
    return usable;
}

static bool in_arena(const struct mu_nccl_backend *b, const struct mu_coll *coll,
                     struct mu_places *places)
{
    return coll->send == coll->recv &&
           mu_nccl_arena_peers(b, coll->recv, bytes_of(coll), places);
}

unsigned mu_nccl_usable(const struct mu_nccl_backend *b, const struct mu_coll *coll,
                        struct mu_places *places)
{
    return b->own && coll->kind == MU_COLL_ALLREDUCE
               ? usable_on(b, coll, in_arena(b, coll, places))
               : 1u << MU_ALGO_NCCL;
}

static enum mu_algo choose(const struct mu_nccl_backend *b, const struct mu_coll *coll,
                           unsigned usable, bool captured)
{
    size_t bytes = bytes_of(coll);
    enum mu_algo algo = mu_algo_choose(&b->table, bytes, usable, captured);

    if (coll->hidden && bytes >= HIDDEN_LEAST && (usable & 1u << MU_ALGO_COPY))
        algo = MU_ALGO_COPY;
    if (b->forced >= 0 && (usable & 1u << b->forced))
        algo = (enum mu_algo)b->forced;
    /* Copies behind waiting kernels of the same graph can hang. */
    if (algo == MU_ALGO_COPY && captured)
        algo = b->forced == MU_ALGO_COPY
                   ? MU_ALGO_PULL
                   : mu_algo_choose(&b->table, bytes, usable, true);
    return algo;
}

/* A kernel whose blocks wait for those of the peers: as many on all ranks. */
static bool pairs_blocks(enum mu_algo algo)
{
    return algo == MU_ALGO_PULL || algo == MU_ALGO_OWN;
}

unsigned mu_nccl_way(const struct mu_nccl_backend *b, const struct mu_coll *coll)
{
    struct mu_places places;
    enum mu_algo there, elsewhere;
    unsigned way;
    bool arena;

    if (!b->own || coll->kind != MU_COLL_ALLREDUCE || bytes_of(coll) < WAY_LEAST)
        return 0;
    there = choose(b, coll, usable_on(b, coll, true), false);
    elsewhere = choose(b, coll, usable_on(b, coll, false), false);
    if (there == elsewhere)
        return 0;
    arena = in_arena(b, coll, &places);
    way = arena ? MU_WAY_ALLOCATED : MU_WAY_OTHER;
    if (pairs_blocks(arena ? there : elsewhere) && !coll->direct)
        way |= MU_WAY_ASIDE;
    return way;
}

/* ---- NCCL ----------------------------------------------------------------------- */

static ncclResult_t nccl_enqueue(struct mu_nccl_backend *b, const struct mu_coll *c,
                                 bool average)
{
    static const ncclRedOp_t ops[] = {
        [MUSTER_SUM] = ncclSum, [MUSTER_MIN] = ncclMin, [MUSTER_MAX] = ncclMax
    };
    ncclDataType_t type = mu_nccl_type(c->dtype);
    ncclRedOp_t op = average ? ncclAvg : ops[c->op];

    switch (c->kind) {
    case MU_COLL_ALLREDUCE:
        return ncclAllReduce(c->send, c->recv, c->count, type, op, b->comm, b->stream);
    case MU_COLL_BROADCAST:
        return ncclBroadcast(c->send, c->recv, c->count, type, c->root, b->comm,
                             b->stream);
    case MU_COLL_ALLGATHER:
        return ncclAllGather(c->send, c->recv, c->count, type, b->comm, b->stream);
    case MU_COLL_REDUCE_SCATTER:
        return ncclReduceScatter(c->send, c->recv, c->count, type, op, b->comm,
                                 b->stream);
    case MU_COLL_REDUCE:
        return ncclReduce(c->send, c->recv, c->count, type, op, c->root, b->comm,
                          b->stream);
    case MU_COLL_EXCHANGE:
    case MU_COLL_PAIR:
        return mu_exchange_rest(b, c);
    case MU_COLL_BARRIER:
        break;
    }
    return ncclInvalidArgument;
}

static bool capturing(const struct mu_nccl_backend *b)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

    cudaStreamIsCapturing(b->stream, &status);
    return status == cudaStreamCaptureStatusActive;
}

static bool has_parts(const struct mu_coll *c)
{
    return c->kind == MU_COLL_EXCHANGE || c->kind == MU_COLL_PAIR;
}

static int launch_nccl(struct mu_nccl_backend *b, const struct mu_coll *c,
                       struct mu_err *err)
{
    bool to_root = c->kind == MU_COLL_REDUCE;
    bool reduces =
        c->kind == MU_COLL_ALLREDUCE || c->kind == MU_COLL_REDUCE_SCATTER || to_root;
    bool floats = c->dtype <= MUSTER_BF16;
    /* ncclAvg needs no extra pass; any other factor needs a kernel after the sum. */
    bool average = reduces && floats && c->op == MUSTER_SUM &&
                   c->scale * b->env.size == 1.0 && c->scale != 1.0;
    bool graph = capturing(b);
    const char *what = c->what ? c->what : "a collective";
    cudaError_t crc = cudaSuccess;

    if (graph)
        crc = mu_mark(&b->reach.words->mark_begin, b->stream);
    mu_comm_calls(b);
    if (mu_comm_called(b, nccl_enqueue(b, c, average), what, err) < 0)
        return -1;
    if (reduces && c->scale != 1.0 && !average && crc == cudaSuccess &&
        (!to_root || c->root == b->env.rank))
        crc = mu_scale(c->recv, c->count, c->dtype, c->scale, b->stream);
    if (graph && crc == cudaSuccess)
        crc = mu_mark(&b->reach.words->mark_end, b->stream);
    if (crc != cudaSuccess)
        return mu_cuda_err(err, crc, what);
    if (!graph)
        mu_watch_add(b, c->what);
    return 0;
}

/* ---- Algorithms ------------------------------------------------------------------ */

static int ceil_div(size_t a, size_t d, int most)
{
    size_t n = (a + d - 1) / d;

    return n > (size_t)most ? most : n < 1 ? 1 : (int)n;
}

/* One rank: the sum is the data. */
static cudaError_t launch_alone(struct mu_nccl_backend *b, const struct mu_coll *c)
{
    size_t bytes = c->count * mu_dtype_size(c->dtype);
    cudaError_t rc = cudaSuccess;

    if (has_parts(c))
        return mu_exchange_own_part(b, c);
    if (c->send != c->recv)
        rc = cudaMemcpyAsync(c->recv, c->send, bytes, cudaMemcpyDeviceToDevice,
                             b->stream);
    if (rc == cudaSuccess && c->scale != 1.0 &&
        (c->kind == MU_COLL_ALLREDUCE || c->kind == MU_COLL_REDUCE_SCATTER ||
         c->kind == MU_COLL_REDUCE))
        rc = mu_scale(c->recv, c->count, c->dtype, c->scale, b->stream);
    return rc;
}

/* Of a kernel whose ranks have segments: pull, and own where it is direct. */
static int segment_blocks(const struct mu_nccl_backend *b, const struct mu_coll *coll,
                          size_t bytes, int most)
{
    if (bytes >= PULL_FEW && (!coll->direct || bytes >= PULL_MANY))
        return BLOCKS / 2;
    return ceil_div(bytes / b->reach.n, 16384, most);
}

struct mu_work mu_nccl_work(const struct mu_coll *c)
{
    return (struct mu_work){ .shape = c->kind == MU_COLL_BROADCAST   ? MU_BROADCAST
                                      : c->kind == MU_COLL_ALLGATHER ? MU_ALLGATHER
                                      : c->kind == MU_COLL_REDUCE_SCATTER
                                          ? MU_REDUCE_SCATTER
                                          : MU_ALLREDUCE,
                             .root = c->root,
                             .send = c->send,
                             .recv = c->recv,
                             .count = c->count,
                             .dtype = c->dtype,
                             .op = c->op,
                             .scale = c->scale };
}

static cudaError_t launch_one_shot(struct mu_nccl_backend *b,
                                   const struct mu_coll *coll, int most)
{
    const struct mu_work w = mu_nccl_work(coll);
    size_t element = mu_work_element(&w);
    size_t packets = w.count * element / (element == 8 ? 8 : 12) + 1;
    int threads = packets > BLOCKS * 512 ? 1024 : 512;

    return mu_one_shot(&b->reach, &w, ceil_div(packets, threads, most), threads,
                       b->stream);
}

/* Of a broadcast the root alone works, on the only segment. */
static cudaError_t launch_own(struct mu_nccl_backend *b, const struct mu_coll *coll,
                              int most)
{
    const struct mu_work w = mu_nccl_work(coll);
    size_t bytes = w.count * mu_work_element(&w);
    bool scattered = w.shape == MU_REDUCE_SCATTER || w.shape == MU_ALLGATHER;
    int blocks =
        w.shape == MU_BROADCAST
            ? ceil_div(bytes, 16384, most)
            : segment_blocks(b, coll, scattered ? bytes * b->reach.n : bytes, most);

    return mu_own_launch(b, &w, blocks, capturing(b));
}

int mu_nccl_launch(struct mu_nccl_backend *b, const struct mu_coll *coll,
                   enum mu_algo algo, const struct mu_places *places,
                   struct mu_err *err)
{
    size_t bytes = bytes_of(coll);
    int most = coll->direct ? 2 * BLOCKS : BLOCKS;
    cudaError_t rc = cudaSuccess;

    switch (algo) {
    case MU_ALGO_ONE_SHOT:
        rc = launch_one_shot(b, coll, most);
        break;
    case MU_ALGO_PULL:
        rc = mu_pull(&b->reach, places, coll->count, coll->dtype, coll->scale,
                     segment_blocks(b, coll, bytes, most), b->stream);
        break;
    case MU_ALGO_RELAY:
        rc = mu_relay(&b->reach, coll->send, coll->recv, coll->count, coll->dtype,
                      coll->scale, ceil_div(bytes / b->reach.n, 8192, most), b->stream);
        break;
    case MU_ALGO_OWN:
        rc = launch_own(b, coll, most);
        break;
    case MU_ALGO_COPY:
        rc = mu_copy_launch(b, coll, places);
        break;
    default:
        return launch_nccl(b, coll, err);
    }
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, coll->what ? coll->what : "a collective");
    return 0;
}

/* Large parts lie between the small ones that are sent and those that are waited for:
 * no rank waits for a message whose sender waits for it.
 */
static int launch_parts(struct mu_nccl_backend *b, const struct mu_coll *c,
                        struct mu_err *err)
{
    const struct mu_parts parts = mu_parts_split(b, c);
    cudaError_t rc = mu_exchange_own_part(b, c);

    if (rc == cudaSuccess && parts.rest)
        return launch_nccl(b, c, err);
    if (rc == cudaSuccess && (parts.sends || (parts.receives && !parts.piped)))
        rc = mu_mail(&b->reach, &parts.mail, true, !parts.piped, b->stream);
    if (rc == cudaSuccess && parts.piped)
        rc = mu_pipe(&b->reach, &parts.pipe, b->stream);
    if (rc == cudaSuccess && parts.receives && parts.piped)
        rc = mu_mail(&b->reach, &parts.mail, false, true, b->stream);
    return rc == cudaSuccess ? 0
                             : mu_cuda_err(err, rc, c->what ? c->what : "a message");
}

int mu_nccl_enqueue(struct mu_nccl_backend *b, const struct mu_coll *coll,
                    struct mu_err *err)
{
    struct mu_places places;
    bool captured = capturing(b);
    unsigned usable;
    enum mu_algo algo;

    if (coll->count == 0 && coll->recv_count == 0 && coll->kind != MU_COLL_EXCHANGE)
        return 0;
    if (b->env.size == 1) {
        cudaError_t rc = launch_alone(b, coll);

        return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "a collective of one rank");
    }
    if (has_parts(coll))
        return launch_parts(b, coll, err);
    usable = mu_nccl_usable(b, coll, &places);
    algo = choose(b, coll, usable, captured);
    return mu_nccl_launch(b, coll, algo, &places, err);
}
