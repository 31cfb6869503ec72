/* SPDX-License-Identifier: BSD-3-Clause */
/* coll.c - start, join, drain: everything is enqueued, the host never waits in a step
 *
 * A collective waits for the caller's stream by an event, runs on the backend's own
 * stream of high priority, and is joined by a second event. Inside a stream capture the
 * same calls become edges of the graph.
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/core/dtype.h"

/* At most this many SMs are taken from the computation beside; twice as many where the
 * stream waits and there is none.
 */
#define BLOCKS 16
/* The sum between copies: it has time, and a matrix product that loses a few SMs more
 * can take a whole wave longer.
 */
#define ADD_BLOCKS 8
/* From this size on, half of them reach the same rate with less contention. */
#define PULL_FEW ((size_t)12 << 20)
#define PULL_MANY ((size_t)20 << 20) /* the same without computation beside */
/* Below it the barriers of the copy path take longer than the transfer. */
#define HIDDEN_LEAST ((size_t)4 << 20)
#define ABORT_PATIENCE 5.0 /* seconds until kernels must have ended after an abort */

int mu_nccl_aborted(struct mu_backend *b, struct mu_err *err)
{
    if (!atomic_load(&b->aborted))
        return 0;
    return mu_err_set(err, b->abort_status, "%s", b->why);
}

ncclDataType_t mu_nccl_type(enum muster_dtype dtype)
{
    static const ncclDataType_t types[] = {
        [MUSTER_F32] = ncclFloat32, [MUSTER_F64] = ncclFloat64,
        [MUSTER_F16] = ncclFloat16, [MUSTER_BF16] = ncclBfloat16,
        [MUSTER_I32] = ncclInt32,   [MUSTER_I64] = ncclInt64,
    };

    return types[dtype];
}

unsigned mu_nccl_usable(const struct mu_backend *b, const struct mu_coll *coll,
                        void **buffer)
{
    size_t element = mu_dtype_size(coll->dtype), bytes = coll->count * element;
    unsigned usable = 1u << MU_PATH_NCCL;

    if (!b->own || coll->kind != MU_COLL_ALLREDUCE)
        return usable;
    if (bytes <= mu_one_shot_limit(&b->reach, element))
        usable |= 1u << MU_PATH_ONE_SHOT;
    if (((uintptr_t)coll->send | (uintptr_t)coll->recv) % 16 != 0 ||
        !mu_segmented_can(coll->dtype, coll->op))
        return usable;
    if (mu_relay_fits(&b->reach, bytes))
        usable |= 1u << MU_PATH_RELAY;
    if (coll->send == coll->recv && bytes >= (size_t)16 * b->reach.n &&
        mu_arena_peers(b, coll->recv, bytes, buffer))
        usable |= 1u << MU_PATH_PULL | (bytes % 16 == 0 ? 1u << MU_PATH_COPY : 0);
    return usable;
}

/* ---- NCCL ----------------------------------------------------------------------- */

static ncclResult_t nccl_enqueue(struct mu_backend *b, const struct mu_coll *c,
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
    case MU_COLL_BARRIER:
        break;
    }
    return ncclInvalidArgument;
}

static bool capturing(const struct mu_backend *b)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

    cudaStreamIsCapturing(b->stream, &status);
    return status == cudaStreamCaptureStatusActive;
}

static int launch_nccl(struct mu_backend *b, const struct mu_coll *c,
                       struct mu_err *err)
{
    bool reduces = c->kind == MU_COLL_ALLREDUCE || c->kind == MU_COLL_REDUCE_SCATTER;
    bool floats = c->dtype <= MUSTER_BF16;
    /* ncclAvg costs no pass of its own; any other factor is a kernel behind. */
    bool average = reduces && floats && c->op == MUSTER_SUM &&
                   c->scale * b->env.size == 1.0 && c->scale != 1.0;
    bool graph = capturing(b);
    ncclResult_t rc;
    cudaError_t crc = cudaSuccess;

    if (graph)
        crc = mu_mark(&b->reach.words->mark_begin, b->stream);
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
    if (reduces && c->scale != 1.0 && !average && crc == cudaSuccess)
        crc = mu_scale(c->recv, c->count, c->dtype, c->scale, b->stream);
    if (graph && crc == cudaSuccess)
        crc = mu_mark(&b->reach.words->mark_end, b->stream);
    if (crc != cudaSuccess)
        return mu_cuda_err(err, crc, c->what ? c->what : "a collective");
    if (!graph)
        mu_watch_add(b, c->what);
    return 0;
}

/* ---- Paths ---------------------------------------------------------------------- */

static int ceil_div(size_t a, size_t d, int most)
{
    size_t n = (a + d - 1) / d;

    return n > (size_t)most ? most : n < 1 ? 1 : (int)n;
}

/* One rank: the sum is the data. */
static cudaError_t launch_alone(struct mu_backend *b, const struct mu_coll *c)
{
    size_t bytes = c->count * mu_dtype_size(c->dtype);
    cudaError_t rc = cudaSuccess;

    if (c->send != c->recv)
        rc = cudaMemcpyAsync(c->recv, c->send, bytes, cudaMemcpyDeviceToDevice,
                             b->stream);
    if (rc == cudaSuccess && c->scale != 1.0 &&
        (c->kind == MU_COLL_ALLREDUCE || c->kind == MU_COLL_REDUCE_SCATTER))
        rc = mu_scale(c->recv, c->count, c->dtype, c->scale, b->stream);
    return rc;
}

/* Rounds of what the parts' area holds: meet, fetch the parts of my segment, add, hand
 * the sum out, meet. cudaMemcpyDefault costs the host 3.6 us between GPUs,
 * cudaMemcpyDeviceToDevice 5.2 (H200, driver 580).
 */
static cudaError_t launch_copy(struct mu_backend *b, const struct mu_coll *c,
                               void *const *buffer)
{
    const struct mu_reach *r = &b->reach;
    size_t bytes = c->count * mu_dtype_size(c->dtype);
    size_t most = MU_PARTS_BYTES / (r->n - 1) / 4096 * 4096 * r->n;
    cudaError_t rc = cudaSuccess;

    for (size_t at = 0; at < bytes && rc == cudaSuccess; at += most) {
        size_t round = bytes - at < most ? bytes - at : most;
        size_t segment = (round / 16 + r->n - 1) / r->n * 16;
        size_t first = segment * r->rank;
        size_t length = first >= round            ? 0
                        : first + segment > round ? round - first
                                                  : segment;
        char *own = (char *)buffer[r->rank] + at + first;

        rc = mu_meet(r, b->stream);
        for (int d = 1, p; length && d < r->n && rc == cudaSuccess; d++) {
            p = (r->rank + d) % r->n;
            rc = cudaMemcpyAsync(b->parts + (p > r->rank ? p - 1 : p) * length,
                                 (char *)buffer[p] + at + first, length,
                                 cudaMemcpyDefault, b->stream);
        }
        if (rc == cudaSuccess && length)
            rc = mu_add_parts(r, own, b->parts, length, c->dtype, c->scale,
                              ceil_div(length, 65536, ADD_BLOCKS), b->stream);
        for (int d = 1, p; length && d < r->n && rc == cudaSuccess; d++) {
            p = (r->rank + d) % r->n;
            rc = cudaMemcpyAsync((char *)buffer[p] + at + first, own, length,
                                 cudaMemcpyDefault, b->stream);
        }
        if (rc == cudaSuccess)
            rc = mu_meet(r, b->stream);
    }
    return rc;
}

int mu_nccl_launch(struct mu_backend *b, const struct mu_coll *coll, enum mu_path path,
                   void *const *buffer, struct mu_err *err)
{
    size_t element = mu_dtype_size(coll->dtype), bytes = coll->count * element;
    size_t packets = bytes / (element == 8 ? 8 : 12) + 1;
    int threads = packets > BLOCKS * 512 ? 1024 : 512;
    int most = coll->direct ? 2 * BLOCKS : BLOCKS;
    cudaError_t rc = cudaSuccess;

    switch (path) {
    case MU_PATH_ONE_SHOT:
        rc = mu_one_shot(&b->reach, coll->send, coll->recv, coll->count, coll->dtype,
                         coll->op, coll->scale, ceil_div(packets, threads, most),
                         threads, b->stream);
        break;
    case MU_PATH_PULL:
        rc = mu_pull(&b->reach, buffer, coll->count, coll->dtype, coll->scale,
                     bytes >= PULL_FEW && (!coll->direct || bytes >= PULL_MANY)
                         ? BLOCKS / 2
                         : ceil_div(bytes / b->reach.n, 16384, most),
                     b->stream);
        break;
    case MU_PATH_RELAY:
        rc = mu_relay(&b->reach, coll->send, coll->recv, coll->count, coll->dtype,
                      coll->scale, ceil_div(bytes / b->reach.n, 8192, most), b->stream);
        break;
    case MU_PATH_COPY:
        rc = launch_copy(b, coll, buffer);
        break;
    default:
        return launch_nccl(b, coll, err);
    }
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, coll->what ? coll->what : "a collective");
    return 0;
}

static int launch(struct mu_backend *b, const struct mu_coll *coll, struct mu_err *err)
{
    size_t bytes = coll->count * mu_dtype_size(coll->dtype);
    void *buffer[MU_PEERS];
    bool captured = capturing(b);
    unsigned usable;
    enum mu_path path;

    if (coll->count == 0)
        return 0;
    if (b->env.size == 1) {
        cudaError_t rc = launch_alone(b, coll);

        return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "a collective of one rank");
    }
    usable = mu_nccl_usable(b, coll, buffer);
    path = mu_path_choose(&b->table, bytes, usable, captured);
    if (coll->hidden && bytes >= HIDDEN_LEAST && (usable & 1u << MU_PATH_COPY))
        path = MU_PATH_COPY;
    if (b->forced >= 0 && (usable & 1u << b->forced))
        path = (enum mu_path)b->forced;
    if (path == MU_PATH_COPY && captured) {
        /* Copies behind waiting kernels of one graph can hang. */
        path = b->forced == MU_PATH_COPY
                   ? MU_PATH_PULL
                   : mu_path_choose(&b->table, bytes, usable, true);
    }
    return mu_nccl_launch(b, coll, path, buffer, err);
}

/* ---- Requests ------------------------------------------------------------------- */

static struct mu_request *request_get(struct mu_backend *b, struct mu_err *err)
{
    struct mu_request *r = b->free_requests;
    cudaError_t rc;

    if (r) {
        b->free_requests = r->next;
        return r;
    }
    r = calloc(1, sizeof(*r));
    if (!r) {
        mu_err_set(err, MUSTER_EMEMORY, "no memory for a request");
        return NULL;
    }
    rc = cudaEventCreateWithFlags(&r->ready, cudaEventDisableTiming);
    if (rc == cudaSuccess)
        rc = cudaEventCreateWithFlags(&r->done, cudaEventDisableTiming);
    if (rc == cudaSuccess)
        return r;
    mu_cuda_err(err, rc, "cudaEventCreate");
    free(r);
    return NULL;
}

static void request_put(struct mu_backend *b, struct mu_request *r)
{
    r->next = b->free_requests;
    b->free_requests = r;
}

/* Run a collective that its stream waits for anyway on that stream itself: no events
 * and no other stream's latency. Our kernels follow each other in one order on all
 * ranks, so it must come behind whatever ran before: `tail` is a stream that is behind
 * all of it.
 */
static int start_direct(struct mu_backend *b, struct mu_coll *c, struct mu_request *r,
                        struct mu_err *err)
{
    cudaStream_t own = b->stream, stream = c->stream;
    cudaError_t rc = cudaSuccess;
    int result;

    if (b->tail != stream) {
        rc = cudaEventRecord(r->ready, b->tail);
        if (rc == cudaSuccess)
            rc = cudaStreamWaitEvent(stream, r->ready, 0);
        if (rc != cudaSuccess)
            return mu_cuda_err(err, rc, "ordering a collective behind the one before");
    }
    b->stream = stream;
    result = launch(b, c, err);
    b->stream = own;
    if (result == 0)
        b->tail = stream;
    r->direct = true;
    return result;
}

static int start_aside(struct mu_backend *b, struct mu_coll *c, struct mu_request *r,
                       struct mu_err *err)
{
    cudaError_t rc = cudaSuccess;

    if (b->tail != b->stream && b->tail != c->stream) {
        rc = cudaEventRecord(r->ready, b->tail);
        if (rc == cudaSuccess)
            rc = cudaStreamWaitEvent(b->stream, r->ready, 0);
    }
    if (rc == cudaSuccess)
        rc = cudaEventRecord(r->ready, c->stream);
    if (rc == cudaSuccess)
        rc = cudaStreamWaitEvent(b->stream, r->ready, 0);
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, "ordering a collective behind its stream");
    if (launch(b, c, err) < 0)
        return -1;
    b->tail = b->stream;
    r->number = ++b->started;
    r->late = c->together;
    if (r->late)
        return 0;
    rc = cudaEventRecord(r->done, b->stream);
    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "cudaEventRecord");
}

int mu_nccl_start(struct mu_backend *b, const struct mu_coll *coll,
                  struct mu_request **out, struct mu_err *err)
{
    struct mu_coll c = *coll;
    struct mu_request *r;
    int rc;

    if (mu_nccl_aborted(b, err) < 0)
        return -1;
    r = request_get(b, err);
    if (!r)
        return -1;
    r->direct = false;
    if (c.kind == MU_COLL_BARRIER) { /* a sum of one element that nobody reads */
        c.kind = MU_COLL_ALLREDUCE;
        c.dtype = MUSTER_I32;
        c.op = MUSTER_SUM;
        c.count = 1;
        c.scale = 1.0;
        c.send = c.recv = b->scratch;
    }
    rc = c.direct && (b->own || b->env.size == 1) && c.kind == MU_COLL_ALLREDUCE
             ? start_direct(b, &c, r, err)
             : start_aside(b, &c, r, err);
    if (rc < 0) {
        request_put(b, r);
        return -1;
    }
    *out = r;
    return 0;
}

static cudaError_t join_aside(struct mu_backend *b, struct mu_request *r,
                              cudaStream_t stream)
{
    cudaError_t rc = cudaSuccess;

    if (r->number <= b->joined_upto && b->joined == stream)
        return rc;
    if (r->late)
        rc = cudaEventRecord(r->done, b->stream);
    if (rc == cudaSuccess)
        rc = cudaStreamWaitEvent(stream, r->done, 0);
    if (rc != cudaSuccess)
        return rc;
    b->joined = stream;
    b->joined_upto = r->late ? b->started : r->number;
    /* Behind the last one, a stream is behind all. */
    if (b->joined_upto == b->started && b->tail == b->stream)
        b->tail = stream;
    return rc;
}

int mu_nccl_join(struct mu_backend *b, struct mu_request *request, void *stream,
                 struct mu_err *err)
{
    cudaError_t rc = request->direct ? cudaSuccess : join_aside(b, request, stream);

    request_put(b, request);
    if (mu_nccl_aborted(b, err) < 0)
        return -1;
    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "joining a collective");
}

/* Poll rather than cudaStreamSynchronize, which would not come back from a kernel that
 * hangs in spite of an abort.
 */
static int idle(struct mu_backend *b, cudaStream_t stream, double end,
                struct mu_err *err)
{
    double aborted_at = 0;

    for (unsigned polls = 0;; polls++) {
        cudaError_t rc = cudaStreamQuery(stream);

        if (rc == cudaSuccess)
            return 0;
        if (rc != cudaErrorNotReady)
            return mu_cuda_err(err, rc, "the GPU failed");
        if (atomic_load(&b->aborted)) {
            if (aborted_at == 0)
                aborted_at = mu_now();
            if (mu_now() - aborted_at > ABORT_PATIENCE)
                return mu_nccl_aborted(b, err);
        }
        if (end < HUGE_VAL && b->env.lost && atomic_load(b->env.lost))
            return mu_err_set(err, MUSTER_EPEER, "a rank was lost");
        if (mu_now() > end)
            return mu_err_set(err, MUSTER_ETIMEOUT, "rank %d did not take part in time",
                              b->words->stuck ? b->local_ranks[b->words->stuck - 1]
                                              : -1);
        if (polls > 2000)
            nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
        else
            sched_yield();
    }
}

int mu_nccl_drain(struct mu_backend *b, void *stream, struct mu_err *err)
{
    if (idle(b, stream, HUGE_VAL, err) < 0 || idle(b, b->stream, HUGE_VAL, err) < 0)
        return -1;
    return mu_nccl_aborted(b, err);
}

int mu_nccl_wait(struct mu_backend *b, double timeout, struct mu_err *err)
{
    return idle(b, b->stream, mu_now() + timeout, err);
}

void mu_nccl_close(struct mu_backend *b)
{
    while (b->free_requests) {
        struct mu_request *r = b->free_requests;

        b->free_requests = r->next;
        cudaEventDestroy(r->ready);
        cudaEventDestroy(r->done);
        free(r);
    }
}
