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
#include "runtime/base/clock.h"

#define ABORT_PATIENCE 5.0 /* seconds until kernels must have ended after an abort */

int mu_nccl_aborted(struct mu_backend *b, struct mu_err *err)
{
    if (!atomic_load(&b->aborted))
        return 0;
    return mu_err_set(err, b->abort_status, "%s", b->why);
}

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
    result = mu_nccl_enqueue(b, c, err);
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
    if (mu_nccl_enqueue(b, c, err) < 0)
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
                aborted_at = mu_clock_s();
            if (mu_clock_s() - aborted_at > ABORT_PATIENCE)
                return mu_nccl_aborted(b, err);
        }
        if (end < HUGE_VAL && b->env.lost && atomic_load(b->env.lost))
            return mu_err_set(err, MUSTER_EPEER, "a rank was lost");
        if (mu_clock_s() > end)
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
    return idle(b, b->stream, mu_clock_s() + timeout, err);
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
