/* SPDX-License-Identifier: BSD-3-Clause */
/* coll.c - start and join: all work is enqueued, the host never waits in a step
 *
 * An event makes a collective wait for the caller's stream. It runs on the backend's
 * stream of high priority, and a second event joins it. In a stream capture, the same
 * calls become edges of the graph.
 */
#include <stdlib.h>

#include "runtime/backend/nccl/nccl.h"

static struct mu_nccl_request *request_get(struct mu_nccl_backend *b,
                                           struct mu_err *err)
{
    struct mu_nccl_request *r = b->free_requests;
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
    if (r->ready)
        cudaEventDestroy(r->ready);
    free(r);
    return NULL;
}

static void request_put(struct mu_nccl_backend *b, struct mu_nccl_request *r)
{
    r->next = b->free_requests;
    b->free_requests = r;
}

/* On b->stream. */
static int enqueue_timed(struct mu_nccl_backend *b, struct mu_coll *c,
                         struct mu_err *err)
{
    int rc;

    if (c->times)
        c->times->from = mu_nccl_moment(b, b->stream);
    rc = mu_nccl_enqueue(b, c, err);
    if (c->times)
        c->times->to = mu_nccl_moment(b, b->stream);
    return rc;
}

/* Run a collective on the stream that waits for it, which saves events and the latency
 * of a second stream. Our kernels follow each other in the same order on all ranks, so
 * it must run after all earlier ones: `tail` is a stream behind all of them.
 */
static int start_direct(struct mu_nccl_backend *b, struct mu_coll *c,
                        struct mu_nccl_request *r, struct mu_err *err)
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
    result = enqueue_timed(b, c, err);
    b->stream = own;
    if (result == 0)
        b->tail = stream;
    r->direct = true;
    return result;
}

static int start_aside(struct mu_nccl_backend *b, struct mu_coll *c,
                       struct mu_nccl_request *r, struct mu_err *err)
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
    if (enqueue_timed(b, c, err) < 0)
        return -1;
    b->tail = b->stream;
    r->number = ++b->started;
    r->late = c->batch_join;
    if (r->late)
        return 0;
    rc = cudaEventRecord(r->done, b->stream);
    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "cudaEventRecord");
}

int mu_nccl_start(struct mu_nccl_backend *b, const struct mu_coll *coll,
                  struct mu_nccl_request **out, struct mu_err *err)
{
    struct mu_coll c = *coll;
    struct mu_nccl_request *r;
    int rc;

    if (mu_nccl_aborted(b, err) < 0)
        return -1;
    r = request_get(b, err);
    if (!r)
        return -1;
    r->direct = false;
    b->quiet = false;
    if (c.kind == MU_COLL_BARRIER) { /* a sum of one element whose result is not used */
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

static cudaError_t join_aside(struct mu_nccl_backend *b, struct mu_nccl_request *r,
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
    /* A stream behind the last collective is behind all of them. */
    if (b->joined_upto == b->started && b->tail == b->stream)
        b->tail = stream;
    return rc;
}

int mu_nccl_join(struct mu_nccl_backend *b, struct mu_nccl_request *request,
                 void *stream, struct mu_err *err)
{
    cudaError_t rc = request->direct ? cudaSuccess : join_aside(b, request, stream);

    request_put(b, request);
    if (mu_nccl_aborted(b, err) < 0)
        return -1;
    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "joining a collective");
}

bool mu_nccl_test(const struct mu_nccl_backend *b,
                  const struct mu_nccl_request *request)
{
    return atomic_load(&b->aborted) ||
           cudaEventQuery(request->done) != cudaErrorNotReady;
}

void mu_nccl_close(struct mu_nccl_backend *b)
{
    mu_nccl_moments_close(b);
    while (b->free_requests) {
        struct mu_nccl_request *r = b->free_requests;

        b->free_requests = r->next;
        cudaEventDestroy(r->ready);
        cudaEventDestroy(r->done);
        free(r);
    }
}
