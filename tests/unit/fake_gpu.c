/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_gpu.c - CUDA, NCCL and Muster's kernels for several ranks in one process */
#include "tests/unit/fake_gpu.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/kernels/kernels.h"

#define STREAMS 16
#define EVENTS 64
#define OPS 256
#define RECORDS 1024
#define PARTS 64

enum work { RECORD, AWAIT, COPY, READ, FILL, ADD_PARTS, SCALE, MARK, COLLECTIVE };
enum collective { BARRIER, SUM, BROADCAST, GATHER, SCATTER, REDUCE, EXCHANGE };

/* A call of ncclSend or ncclRecv. */
struct part {
    bool send;
    int rank, peer;
    char *at;
    size_t count;
};

struct event {
    int record; /* the latest of it, 0: none */
};

struct op {
    enum work work;
    enum collective collective;
    const char *name; /* of a collective: the same on all ranks */
    int record;       /* made, or waited for */
    const void *from;
    void *to;
    size_t count; /* elements */
    double scale;
    int root;
    bool captured, arrived;
};

struct queue {
    int rank, head, n;
    unsigned long long id;
    struct op op[OPS];
};

int fake_device;
static unsigned long long last_id; /* of a stream */
static struct queue queues[STREAMS];
static struct event events[EVENTS];
static struct fake_calls calls[FAKE_RANKS];
static bool recorded[RECORDS];
static struct part parts[PARTS];
static cudaStream_t group_stream; /* of the group that is open, once it has a call */
static int nstreams, nevents, nrecords, nparts, nranks, fail_in;
static bool capture;
static char complaint[160];

void fake_reset(int ranks)
{
    memset(queues, 0, sizeof queues);
    memset(events, 0, sizeof events);
    memset(calls, 0, sizeof calls);
    memset(recorded, 0, sizeof recorded);
    recorded[0] = true;
    nstreams = nevents = nrecords = nparts = fail_in = 0;
    nranks = ranks;
    capture = false;
    complaint[0] = '\0';
}

cudaStream_t fake_stream(int rank)
{
    queues[nstreams].rank = rank;
    queues[nstreams].id = ++last_id;
    return (cudaStream_t)&queues[nstreams++];
}

void fake_stream_again(cudaStream_t stream)
{
    ((struct queue *)stream)->id = ++last_id;
}

void fake_capture(bool on)
{
    capture = on;
}

struct fake_calls fake_calls_of(int rank)
{
    return calls[rank];
}

void fake_fail(int n)
{
    fail_in = n;
}

static bool fails(void)
{
    return fail_in > 0 && --fail_in == 0;
}

static struct fake_calls *count_for(cudaStream_t stream)
{
    return &calls[((struct queue *)stream)->rank];
}

static cudaError_t enqueue(cudaStream_t stream, struct op op)
{
    struct queue *q = (struct queue *)stream;

    if (fails())
        return cudaErrorLaunchFailure;
    if (q->n == OPS)
        return cudaErrorMemoryAllocation;
    op.captured = capture;
    q->op[q->n++] = op;
    return cudaSuccess;
}

void fake_fill(cudaStream_t stream, float *p, size_t n, float value)
{
    enqueue(stream, (struct op){ .work = FILL, .to = p, .count = n, .scale = value });
}

void fake_read(cudaStream_t stream, float *into, const float *from, size_t n)
{
    enqueue(stream, (struct op){ .work = READ, .to = into, .from = from, .count = n });
}

/* ---- What runs ------------------------------------------------------------------ */

static void add_parts(const struct op *op)
{
    float *own = op->to;
    const float *parts = op->from;

    for (size_t i = 0; i < op->count; i++) {
        for (int p = 0; p < nranks - 1; p++)
            own[i] += parts[(size_t)p * op->count + i];
        own[i] = (float)(own[i] * op->scale);
    }
}

static void work(struct op *op)
{
    float *to = op->to;

    switch (op->work) {
    case RECORD:
        recorded[op->record] = true;
        break;
    case COPY:
    case READ:
        memmove(to, op->from, op->count * sizeof *to);
        break;
    case FILL:
    case SCALE:
        for (size_t i = 0; i < op->count; i++)
            to[i] = op->work == FILL ? (float)op->scale : (float)(to[i] * op->scale);
        break;
    case ADD_PARTS:
        add_parts(op);
        break;
    case MARK:
        ++*(uint32_t *)op->to;
        break;
    case AWAIT:
    case COLLECTIVE:
        break;
    }
}

static float sum_at(struct op *const *op, size_t i)
{
    float sum = 0;

    for (int r = 0; r < nranks; r++)
        sum += ((const float *)op[r]->from)[i];
    return (float)(sum * op[0]->scale);
}

/* All sends to their receives, which are as long. */
static void exchange_parts(void)
{
    for (struct part *in = parts; in < parts + nparts; in++) {
        const struct part *out = parts;

        while (out < parts + nparts &&
               (in->send || !out->send || out->rank != in->peer ||
                out->peer != in->rank || out->count != in->count))
            out++;
        if (out < parts + nparts)
            memmove(in->at, out->at, in->count * sizeof(float));
        else if (!in->send)
            snprintf(complaint, sizeof complaint, "rank %d sends no %zu elements to %d",
                     in->peer, in->count, in->rank);
    }
    nparts = 0;
}

/* One collective of all ranks. */
static void carry_out(struct op *const *op)
{
    size_t count = op[0]->count, bytes = count * sizeof(float);

    switch (op[0]->collective) {
    case BARRIER:
        break;
    case SUM:
        for (size_t i = 0; i < count; i++) {
            float sum = sum_at(op, i);

            for (int r = 0; r < nranks; r++)
                ((float *)op[r]->to)[i] = sum;
        }
        break;
    case BROADCAST:
        for (int r = 0; r < nranks; r++)
            memmove(op[r]->to, op[op[0]->root]->from, bytes);
        break;
    case GATHER:
        for (int r = 0; r < nranks; r++)
            for (int p = 0; p < nranks; p++)
                memmove((char *)op[r]->to + (size_t)p * bytes, op[p]->from, bytes);
        break;
    case SCATTER:
        for (int r = 0; r < nranks; r++)
            for (size_t i = 0; i < count; i++)
                ((float *)op[r]->to)[i] = sum_at(op, (size_t)r * count + i);
        break;
    case REDUCE:
        for (size_t i = 0; i < count; i++)
            ((float *)op[op[0]->root]->to)[i] = sum_at(op, i);
        break;
    case EXCHANGE:
        exchange_parts();
        break;
    }
}

/* Copies behind a waiting kernel of the same graph can hang: here they do. */
static bool behind_barrier(const struct queue *q)
{
    for (int i = 0; q->op[q->head].captured && i < q->head; i++)
        if (q->op[i].captured && q->op[i].work == COLLECTIVE)
            return true;
    return false;
}

/* Run the head of q if it can. A collective arrives, and stays until all ranks have. */
static bool advance(struct queue *q)
{
    struct op *op = &q->op[q->head];

    if (q->head == q->n || op->arrived ||
        (op->work == AWAIT && !recorded[op->record]) ||
        (op->work == COPY && behind_barrier(q)))
        return false;
    if (op->work == COLLECTIVE) {
        /* a rank's kernels share their flags: one at a time */
        for (int s = 0; s < nstreams; s++)
            if (queues[s].rank == q->rank && queues[s].head < queues[s].n &&
                queues[s].op[queues[s].head].arrived)
                return false;
        op->arrived = true;
        return true;
    }
    work(op);
    q->head++;
    return true;
}

static bool meet(void)
{
    struct op *op[FAKE_RANKS] = { NULL };
    struct queue *of[FAKE_RANKS];

    for (int s = 0; s < nstreams; s++)
        if (queues[s].head < queues[s].n && queues[s].op[queues[s].head].arrived) {
            of[queues[s].rank] = &queues[s];
            op[queues[s].rank] = &queues[s].op[queues[s].head];
        }
    for (int r = 0; r < nranks; r++)
        if (!op[r])
            return false;
    for (int r = 1; r < nranks; r++)
        if (strcmp(op[r]->name, op[0]->name) != 0 || op[r]->count != op[0]->count)
            snprintf(complaint, sizeof complaint,
                     "%s of %zu elements on rank 0 meets %s of %zu on rank %d",
                     op[0]->name, op[0]->count, op[r]->name, op[r]->count, r);
    carry_out(op);
    for (int r = 0; r < nranks; r++)
        of[r]->head++;
    return true;
}

const char *fake_run(unsigned seed)
{
    bool moves = true;

    complaint[0] = '\0';
    srand(seed);
    while (moves && !complaint[0]) {
        int first = rand() % nstreams;

        moves = false;
        for (int s = 0; s < nstreams && !moves; s++)
            moves = advance(&queues[(first + s) % nstreams]);
        moves = meet() || moves;
    }
    for (int s = 0; s < nstreams && !complaint[0]; s++)
        if (queues[s].head < queues[s].n)
            snprintf(complaint, sizeof complaint,
                     "work %d of stream %d, rank %d, hangs", queues[s].head, s,
                     queues[s].rank);
    for (int s = 0; s < nstreams && !complaint[0]; s++)
        queues[s].head = queues[s].n = 0;
    return complaint[0] ? complaint : NULL;
}

/* ---- CUDA ------------------------------------------------------------------------ */

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
    ((struct event *)e)->record = ++nrecords;
    return enqueue(s, (struct op){ .work = RECORD, .record = nrecords });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    count_for(s)->events++;
    return enqueue(s,
                   (struct op){ .work = AWAIT, .record = ((struct event *)e)->record });
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    count_for(s)->copies++;
    return enqueue(
        s, (struct op){
               .work = COPY, .to = dst, .from = src, .count = bytes / sizeof(float) });
}

/* ---- Muster's kernels ------------------------------------------------------------ */

static cudaError_t kernel(cudaStream_t s, struct op op)
{
    count_for(s)->kernels++;
    return enqueue(s, op);
}

static cudaError_t sum_kernel(const char *name, const void *send, void *recv,
                              size_t count, double scale, cudaStream_t s)
{
    return kernel(s, (struct op){ .work = COLLECTIVE,
                                  .collective = SUM,
                                  .name = name,
                                  .from = send,
                                  .to = recv,
                                  .count = count,
                                  .scale = scale });
}

size_t mu_one_shot_limit(const struct mu_reach *reach, size_t element)
{
    return 1 << 20;
}

cudaError_t mu_one_shot(const struct mu_reach *r, const void *send, void *recv,
                        size_t count, enum muster_dtype dtype, enum muster_op op,
                        double scale, int blocks, int threads, cudaStream_t s)
{
    return sum_kernel("one-shot", send, recv, count, scale, s);
}

bool mu_segmented_can(enum muster_dtype dtype, enum muster_op op)
{
    return true;
}

cudaError_t mu_pull(const struct mu_reach *r, void *const *buffer, size_t count,
                    enum muster_dtype dtype, double scale, int blocks, cudaStream_t s)
{
    return sum_kernel("pull", buffer[r->rank], buffer[r->rank], count, scale, s);
}

cudaError_t mu_own(const struct mu_reach *r, const struct mu_own_map *map,
                   const struct mu_own_buffers *buffers, size_t count,
                   enum muster_dtype dtype, double scale, int blocks, cudaStream_t s)
{
    return sum_kernel("own", buffers->send, buffers->recv, count, scale, s);
}

bool mu_relay_fits(const struct mu_reach *reach, size_t bytes)
{
    return bytes <= 1 << 20;
}

cudaError_t mu_relay(const struct mu_reach *r, const void *send, void *recv,
                     size_t count, enum muster_dtype dtype, double scale, int blocks,
                     cudaStream_t s)
{
    return sum_kernel("relay", send, recv, count, scale, s);
}

cudaError_t mu_peer_barrier(const struct mu_reach *r, cudaStream_t s)
{
    return kernel(
        s, (struct op){ .work = COLLECTIVE, .collective = BARRIER, .name = "barrier" });
}

cudaError_t mu_add_parts(const struct mu_reach *r, void *own, const void *parts,
                         size_t bytes, enum muster_dtype dtype, double scale,
                         cudaStream_t s)
{
    return kernel(s, (struct op){ .work = ADD_PARTS,
                                  .to = own,
                                  .from = parts,
                                  .count = bytes / sizeof(float),
                                  .scale = scale });
}

cudaError_t mu_scale(void *buffer, size_t count, enum muster_dtype dtype, double scale,
                     cudaStream_t s)
{
    return kernel(
        s, (struct op){ .work = SCALE, .to = buffer, .count = count, .scale = scale });
}

cudaError_t mu_mark(volatile uint32_t *word, cudaStream_t s)
{
    return kernel(s, (struct op){ .work = MARK, .to = (void *)(uintptr_t)word });
}

/* ---- NCCL ------------------------------------------------------------------------ */

static ncclResult_t nccl(cudaStream_t s, struct op op)
{
    count_for(s)->nccl++;
    op.work = COLLECTIVE;
    return enqueue(s, op) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

static double scale_of(ncclRedOp_t op)
{
    return op == ncclAvg ? 1.0 / nranks : 1.0;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t s)
{
    return nccl(s, (struct op){ .collective = SUM,
                                .name = "ncclAllReduce",
                                .from = send,
                                .to = recv,
                                .count = count,
                                .scale = scale_of(op) });
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t s)
{
    return nccl(s, (struct op){ .collective = BROADCAST,
                                .name = "ncclBroadcast",
                                .from = send,
                                .to = recv,
                                .count = count,
                                .root = root });
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t s)
{
    return nccl(s, (struct op){ .collective = GATHER,
                                .name = "ncclAllGather",
                                .from = send,
                                .to = recv,
                                .count = count });
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t s)
{
    return nccl(s, (struct op){ .collective = SCATTER,
                                .name = "ncclReduceScatter",
                                .from = send,
                                .to = recv,
                                .count = count,
                                .scale = scale_of(op) });
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t s)
{
    return nccl(s, (struct op){ .collective = REDUCE,
                                .name = "ncclReduce",
                                .from = send,
                                .to = recv,
                                .count = count,
                                .root = root,
                                .scale = scale_of(op) });
}

static ncclResult_t add_part(struct part part, cudaStream_t s)
{
    if (nparts == PARTS)
        return ncclInvalidUsage;
    part.rank = ((struct queue *)s)->rank;
    parts[nparts++] = part;
    group_stream = s;
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t s)
{
    return add_part((struct part){ true, -1, peer, (char *)(uintptr_t)from, count }, s);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t s)
{
    return add_part((struct part){ false, -1, peer, to, count }, s);
}

/* nccl.h declares both without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    group_stream = NULL;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!group_stream)
        return ncclSuccess;
    return nccl(group_stream, (struct op){ .collective = EXCHANGE, .name = "a group" });
}
