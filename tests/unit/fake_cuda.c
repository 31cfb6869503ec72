/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_cuda.c - calls of CUDA on fake GPUs */
#include "tests/unit/fake_work.h"

#include <stddef.h>
#include <string.h>

#define EVENTS 64

struct event {
    int record; /* the latest of it, 0: none */
    unsigned long long capture;
};

static struct event events[EVENTS];
static int nevents, nrecords;
static cudaGraphNode_t tip; /* what cudaStreamGetCaptureInfo points to */

void fake_cuda_reset(void)
{
    memset(events, 0, sizeof events);
    nevents = nrecords = 0;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
    *status = capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long *id)
{
    *id = ((struct queue *)s)->id;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = fake_device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    fake_device = device;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return recorded[((struct event *)e)->record] ? cudaSuccess : cudaErrorNotReady;
}

/* Nothing here has a time. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    return cudaErrorInvalidValue;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    if (fails() || nevents == EVENTS)
        return cudaErrorMemoryAllocation;
    *e = (cudaEvent_t)&events[nevents++];
    calls[0].created++; /* an event belongs to no stream yet */
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    calls[0].created--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    count_for(s)->events++;
    if (nrecords + 1 == RECORDS)
        return cudaErrorMemoryAllocation;
    *(struct event *)e = (struct event){ ++nrecords, capture ? captures : 0 };
    return enqueue(s, (struct op){ .work = RECORD, .record = nrecords });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    const struct event *event = (struct event *)e;

    count_for(s)->events++;
    if (capture && event->capture != captures && !(flags & cudaEventWaitExternal))
        return cudaErrorStreamCaptureIsolation;
    return enqueue(s, (struct op){ .work = AWAIT, .record = event->record });
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    count_for(s)->copies++;
    return enqueue(
        s, (struct op){
               .work = COPY, .to = dst, .from = src, .count = bytes / sizeof(float) });
}

/* ---- Graphs: a node is its work, which runs in the order of its stream ----------- */

static struct queue *queue_of(const struct op *op)
{
    for (int s = 0; s < nstreams; s++)
        if (op >= queues[s].op && op < queues[s].op + OPS)
            return &queues[s];
    return NULL;
}

static cudaError_t info(cudaStream_t s, enum cudaStreamCaptureStatus *status,
                        unsigned long long *id, cudaGraph_t *graph,
                        const cudaGraphNode_t **nodes, size_t *n)
{
    struct queue *q = (struct queue *)s;

    *status = capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    *id = captures;
    *graph = NULL;
    *nodes = &tip;
    *n = 0;
    for (int i = 0; i < q->n; i++)
        if (q->op[i].captured && !q->op[i].branch) {
            tip = (cudaGraphNode_t)&q->op[i];
            *n = 1;
        }
    return cudaSuccess;
}

static cudaError_t depend(cudaStream_t s, const cudaGraphNode_t *node)
{
    count_for(s)->events++;
    return enqueue(s, (struct op){ .work = AFTER, .after = (struct op *)*node });
}

/* The edge of a record moves, and the record with it. */
static cudaError_t edge(const cudaGraphNode_t *from, const cudaGraphNode_t *to)
{
    struct queue *q = queue_of((const struct op *)*from);
    struct op *record = (struct op *)*to, moved;
    cudaError_t rc;

    while (record->work == MOVED)
        record = record->after;
    moved = *record;
    rc = enqueue((cudaStream_t)q, moved);
    record->work = MOVED;
    record->after = &q->op[q->n - 1];
    return rc;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s,
                                     enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *n)
{
    return info(s, status, id, graph, nodes, n);
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t *node,
                                                const cudaGraphEdgeData *edges,
                                                size_t n, unsigned flags)
{
    return depend(s, node);
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to,
                                     const cudaGraphEdgeData *edges, size_t n)
{
    return edge(from, to);
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to,
                                        const cudaGraphEdgeData *edges, size_t n)
{
    return cudaSuccess;
}
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t s,
                                        enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph,
                                        const cudaGraphNode_t **nodes, size_t *n)
{
    return info(s, status, id, graph, nodes, n);
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t *node,
                                                size_t n, unsigned flags)
{
    return depend(s, node);
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, size_t n)
{
    return edge(from, to);
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to, size_t n)
{
    return cudaSuccess;
}
#endif

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                        const cudaGraphNode_t *after, size_t n,
                                        cudaEvent_t event)
{
    struct queue *q = queue_of((const struct op *)after[0]);
    cudaError_t rc = cudaEventRecord(event, (cudaStream_t)q);

    q->op[q->n - 1].branch = true;
    *node = (cudaGraphNode_t)&q->op[q->n - 1];
    return rc;
}
