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

ncclDataType_t mu_nccl_type(enum muster_dtype dtype)
{
    static const ncclDataType_t types[] = {
        [MUSTER_F32] = ncclFloat32, [MUSTER_F64] = ncclFloat64,
        [MUSTER_F16] = ncclFloat16, [MUSTER_BF16] = ncclBfloat16,
        [MUSTER_I32] = ncclInt32,   [MUSTER_I64] = ncclInt64,
        [MUSTER_BYTE] = ncclUint8,
    };

    return types[dtype];
}

unsigned mu_nccl_usable(const struct mu_nccl_backend *b, const struct mu_coll *coll,
                        void **buffer)
{
    size_t element = mu_dtype_size(coll->dtype), bytes = coll->count * element;
    unsigned usable = 1u << MU_ALGO_NCCL;
    bool arena;

    if (!b->own || coll->kind != MU_COLL_ALLREDUCE)
        return usable;
    if (bytes <= mu_one_shot_limit(&b->reach, element))
        usable |= 1u << MU_ALGO_ONE_SHOT;
    arena =
        coll->send == coll->recv && mu_nccl_arena_peers(b, coll->recv, bytes, buffer);
    /* Its kernel takes any alignment, which can differ among the ranks. */
    if (b->ours.open && !arena && bytes >= (size_t)16 * b->reach.n &&
        mu_segmented_can(coll->dtype, coll->op))
        usable |= 1u << MU_ALGO_OWN;
    if (((uintptr_t)coll->send | (uintptr_t)coll->recv) % 16 != 0 ||
        !mu_segmented_can(coll->dtype, coll->op))
        return usable;
    if (mu_relay_fits(&b->reach, bytes))
        usable |= 1u << MU_ALGO_RELAY;
    if (arena && bytes >= (size_t)16 * b->reach.n)
        usable |= 1u << MU_ALGO_PULL | (bytes % 16 == 0 ? 1u << MU_ALGO_COPY : 0);
    return usable;
}

/* ---- NCCL ----------------------------------------------------------------------- */

/* A part to and from each other rank, in one launch. */
static ncclResult_t exchange(struct mu_nccl_backend *b, const struct mu_coll *c,
                             ncclDataType_t type)
{
    size_t element = mu_dtype_size(c->dtype);
    ncclResult_t rc = ncclGroupStart(), end;

    for (int r = 0; r < b->env.size; r++) {
        const struct mu_part *out = &c->sends[r], *in = &c->recvs[r];
        const char *from = (const char *)c->send + out->at * element;
        char *to = (char *)c->recv + in->at * element;

        if (r == b->env.rank)
            continue;
        if (rc == ncclSuccess && out->count > 0)
            rc = ncclSend(from, out->count, type, r, b->comm, b->stream);
        if (rc == ncclSuccess && in->count > 0)
            rc = ncclRecv(to, in->count, type, r, b->comm, b->stream);
    }
    end = ncclGroupEnd();
    return rc == ncclSuccess ? end : rc;
}

static ncclResult_t pair(struct mu_nccl_backend *b, const struct mu_coll *c,
                         ncclDataType_t type)
{
    ncclResult_t rc = ncclGroupStart(), end;

    if (rc == ncclSuccess && c->to >= 0 && c->count > 0)
        rc = ncclSend(c->send, c->count, type, c->to, b->comm, b->stream);
    if (rc == ncclSuccess && c->from >= 0 && c->recv_count > 0)
        rc = ncclRecv(c->recv, c->recv_count, type, c->from, b->comm, b->stream);
    end = ncclGroupEnd();
    return rc == ncclSuccess ? end : rc;
}

static cudaError_t copy_own_part(struct mu_nccl_backend *b, const struct mu_coll *c)
{
    size_t element = mu_dtype_size(c->dtype);
    const struct mu_part *out = &c->sends[b->env.rank], *in = &c->recvs[b->env.rank];
    const char *from = (const char *)c->send + out->at * element;
    char *to = (char *)c->recv + in->at * element;

    if (in->count == 0 || to == from)
        return cudaSuccess;
    return cudaMemcpyAsync(to, from, in->count * element, cudaMemcpyDeviceToDevice,
                           b->stream);
}

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
        return exchange(b, c, type);
    case MU_COLL_PAIR:
        return pair(b, c, type);
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
    ncclResult_t rc;
    cudaError_t crc = cudaSuccess;

    if (graph)
        crc = mu_mark(&b->reach.words->mark_begin, b->stream);
    if (c->kind == MU_COLL_EXCHANGE && crc == cudaSuccess)
        crc = copy_own_part(b, c);
    rc = nccl_enqueue(b, c, average);
    if (rc == ncclInProgress)
        rc =
            mu_comm_wait(b, b->env.timeout, c->what ? c->what : "a collective", err) < 0
                ? ncclInProgress
                : ncclSuccess;
    if (rc == ncclInProgress)
        return -1;
    if (rc != ncclSuccess)
        return mu_nccl_err(err, b, rc, c->what ? c->what : "a collective");
    if (reduces && c->scale != 1.0 && !average && crc == cudaSuccess &&
        (!to_root || c->root == b->env.rank))
        crc = mu_scale(c->recv, c->count, c->dtype, c->scale, b->stream);
    if (graph && crc == cudaSuccess)
        crc = mu_mark(&b->reach.words->mark_end, b->stream);
    if (crc != cudaSuccess)
        return mu_cuda_err(err, crc, c->what ? c->what : "a collective");
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

    if (c->kind == MU_COLL_EXCHANGE)
        return copy_own_part(b, c);
    if (c->send != c->recv)
        rc = cudaMemcpyAsync(c->recv, c->send, bytes, cudaMemcpyDeviceToDevice,
                             b->stream);
    if (rc == cudaSuccess && c->scale != 1.0 &&
        (c->kind == MU_COLL_ALLREDUCE || c->kind == MU_COLL_REDUCE_SCATTER ||
         c->kind == MU_COLL_REDUCE))
        rc = mu_scale(c->recv, c->count, c->dtype, c->scale, b->stream);
    return rc;
}

/* The segment of rank p in a round of n ranks: returns its bytes; *first is its start.
 */
static size_t segment_of(size_t round, int n, int p, size_t *first)
{
    size_t segment = (round / 16 + n - 1) / n * 16;

    *first = segment * p;
    return *first >= round ? 0 : *first + segment > round ? round - *first : segment;
}

static cudaError_t push(struct mu_nccl_backend *b, char *to, const char *from,
                        size_t bytes)
{
    /* cudaMemcpyDefault costs the host 3.6 us, DeviceToDevice 5.2 (H200, driver 580).
     */
    return bytes ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, b->stream)
                 : cudaSuccess;
}

/* Rounds of what the parts' area holds: push our part of each segment to its rank,
 * barrier, add up our own segment, push the sum, barrier. Engines that write to several
 * GPUs at once move more than twice the data of engines that read (4 x H200: 188 and 78
 * GB/s at 10 MiB).
 */
static cudaError_t launch_copy(struct mu_nccl_backend *b, const struct mu_coll *c,
                               void *const *buffer)
{
    const struct mu_reach *r = &b->reach;
    size_t bytes = c->count * mu_dtype_size(c->dtype);
    size_t most = MU_PARTS_BYTES / (r->n - 1) / 4096 * 4096 * r->n;
    cudaError_t rc = cudaSuccess;

    for (size_t at = 0; at < bytes && rc == cudaSuccess; at += most) {
        size_t round = bytes - at < most ? bytes - at : most, first;
        char *mine = (char *)buffer[r->rank] + at;

        for (int d = 1; d < r->n && rc == cudaSuccess; d++) {
            int p = (r->rank + d) % r->n, slot = r->rank > p ? r->rank - 1 : r->rank;
            size_t length = segment_of(round, r->n, p, &first);

            rc = push(b, mu_parts_of(b, p) + slot * length, mine + first, length);
        }
        if (rc == cudaSuccess)
            rc = mu_peer_barrier(r, b->stream);
        size_t length = segment_of(round, r->n, r->rank, &first);
        if (rc == cudaSuccess)
            rc = mu_add_parts(r, mine + first, mu_parts_of(b, r->rank), length,
                              c->dtype, c->scale, b->stream);
        for (int d = 1; d < r->n && rc == cudaSuccess; d++) {
            int p = (r->rank + d) % r->n;

            rc = push(b, (char *)buffer[p] + at + first, mine + first, length);
        }
        if (rc == cudaSuccess)
            rc = mu_peer_barrier(r, b->stream);
    }
    return rc;
}

int mu_nccl_launch(struct mu_nccl_backend *b, const struct mu_coll *coll,
                   enum mu_algo algo, void *const *buffer, struct mu_err *err)
{
    size_t element = mu_dtype_size(coll->dtype), bytes = coll->count * element;
    size_t packets = bytes / (element == 8 ? 8 : 12) + 1;
    int threads = packets > BLOCKS * 512 ? 1024 : 512;
    int most = coll->direct ? 2 * BLOCKS : BLOCKS;
    cudaError_t rc = cudaSuccess;

    switch (algo) {
    case MU_ALGO_ONE_SHOT:
        rc = mu_one_shot(&b->reach, coll->send, coll->recv, coll->count, coll->dtype,
                         coll->op, coll->scale, ceil_div(packets, threads, most),
                         threads, b->stream);
        break;
    case MU_ALGO_PULL:
        rc = mu_pull(&b->reach, buffer, coll->count, coll->dtype, coll->scale,
                     bytes >= PULL_FEW && (!coll->direct || bytes >= PULL_MANY)
                         ? BLOCKS / 2
                         : ceil_div(bytes / b->reach.n, 16384, most),
                     b->stream);
        break;
    case MU_ALGO_RELAY:
        rc = mu_relay(&b->reach, coll->send, coll->recv, coll->count, coll->dtype,
                      coll->scale, ceil_div(bytes / b->reach.n, 8192, most), b->stream);
        break;
    case MU_ALGO_OWN:
        rc = mu_own_launch(b, coll, ceil_div(bytes / b->reach.n, 16384, most),
                           capturing(b));
        break;
    case MU_ALGO_COPY:
        rc = launch_copy(b, coll, buffer);
        break;
    default:
        return launch_nccl(b, coll, err);
    }
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, coll->what ? coll->what : "a collective");
    return 0;
}

int mu_nccl_enqueue(struct mu_nccl_backend *b, const struct mu_coll *coll,
                    struct mu_err *err)
{
    size_t bytes = coll->count * mu_dtype_size(coll->dtype);
    void *buffer[MU_PEERS];
    bool captured = capturing(b);
    unsigned usable;
    enum mu_algo algo;

    if (coll->count == 0 && coll->recv_count == 0 && coll->kind != MU_COLL_EXCHANGE)
        return 0;
    if (b->env.size == 1) {
        cudaError_t rc = launch_alone(b, coll);

        return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "a collective of one rank");
    }
    usable = mu_nccl_usable(b, coll, buffer);
    algo = mu_algo_choose(&b->table, bytes, usable, captured);
    if (coll->hidden && bytes >= HIDDEN_LEAST && (usable & 1u << MU_ALGO_COPY))
        algo = MU_ALGO_COPY;
    if (b->forced >= 0 && (usable & 1u << b->forced))
        algo = (enum mu_algo)b->forced;
    if (algo == MU_ALGO_COPY && captured) {
        /* Copies behind waiting kernels of the same graph can hang. */
        algo = b->forced == MU_ALGO_COPY
                   ? MU_ALGO_PULL
                   : mu_algo_choose(&b->table, bytes, usable, true);
    }
    return mu_nccl_launch(b, coll, algo, buffer, err);
}
