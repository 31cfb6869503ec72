/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_gpu.c - streams of fake GPUs, and how their work is carried out */
#include "tests/unit/fake_work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Messages of mu_mail from one rank to another: two may be under way. */
struct mailbox {
    unsigned sent, taken;
    char slot[2][MU_MAIL_MOST];
};

int fake_device;
struct queue queues[STREAMS];
int nstreams, nranks;
struct fake_calls calls[FAKE_RANKS];
bool recorded[RECORDS];
struct part parts[PARTS];
int nparts;
bool capture;
unsigned long long captures;
static unsigned long long last_id;                       /* of a stream */
static struct mailbox mailboxes[FAKE_RANKS][FAKE_RANKS]; /* from, to */
static int fail_in;
static char complaint[160];

void fake_reset(int ranks)
{
    memset(queues, 0, sizeof queues);
    memset(calls, 0, sizeof calls);
    memset(mailboxes, 0, sizeof mailboxes);
    memset(recorded, 0, sizeof recorded);
    recorded[0] = true;
    nstreams = nparts = fail_in = 0;
    nranks = ranks;
    capture = false;
    fake_cuda_reset();
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
    captures += on;
}

struct fake_calls fake_calls_of(int rank)
{
    return calls[rank];
}

void fake_fail(int n)
{
    fail_in = n;
}

bool fails(void)
{
    return fail_in > 0 && --fail_in == 0;
}

struct fake_calls *count_for(cudaStream_t stream)
{
    return &calls[((struct queue *)stream)->rank];
}

cudaError_t enqueue(cudaStream_t stream, struct op op)
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

static struct mailbox *mailbox_of(const struct op *op)
{
    return op->work == SEND ? &mailboxes[op->rank][op->peer]
                            : &mailboxes[op->peer][op->rank];
}

static bool can_pass(const struct op *op)
{
    const struct mailbox *m = mailbox_of(op);

    return op->work == SEND ? m->sent - m->taken < 2 : m->sent != m->taken;
}

static void pass(const struct op *op)
{
    struct mailbox *m = mailbox_of(op);

    if (op->work == SEND)
        memcpy(m->slot[m->sent++ % 2], op->from, op->count);
    else
        memcpy(op->to, m->slot[m->taken++ % 2], op->count);
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
    case SEND:
    case RECEIVE:
        pass(op);
        break;
    case AWAIT:
    case AFTER:
    case MOVED:
    case PIPE:
    case COLLECTIVE:
        break;
    }
    op->done = true;
}

/* ---- Pipes ---- */

/* The rank's kernel that is receiving a message of the sender. */
static struct op *receiver_of(int from, int to)
{
    for (int s = 0; s < nstreams; s++) {
        struct queue *q = &queues[s];
        struct op *op = &q->op[q->head];

        if (q->rank == to && q->head < q->n && op->work == PIPE &&
            op->pipe.in_bytes[from] > 0)
            return op;
    }
    return NULL;
}

/* All of it at once: the kernel has fewer slots than any message here has chunks. */
static bool pass_through(struct op *op, int to)
{
    struct op *in = receiver_of(op->rank, to);
    size_t bytes = op->pipe.out_bytes[to];

    if (bytes == 0 || !in)
        return false;
    if (in->pipe.in_bytes[op->rank] != bytes)
        snprintf(complaint, sizeof complaint, "%zu bytes of rank %d for %zu of rank %d",
                 bytes, op->rank, in->pipe.in_bytes[op->rank], to);
    else
        memcpy(in->pipe.in[op->rank], op->pipe.out[to], bytes);
    op->pipe.out_bytes[to] = in->pipe.in_bytes[op->rank] = 0;
    return true;
}

/* Returns whether anything moved; *done: nothing is left. */
static bool run_pipe(struct op *op, bool *done)
{
    bool moved = false;

    *done = true;
    for (int p = 0; p < nranks; p++)
        moved = pass_through(op, p) || moved;
    for (int p = 0; p < nranks; p++)
        *done = *done && op->pipe.out_bytes[p] == 0 && op->pipe.in_bytes[p] == 0;
    return moved;
}

static float sum_at(struct op *const *op, size_t i)
{
    float sum = 0;

    for (int r = 0; r < nranks; r++)
        sum += ((const float *)op[r]->from)[i];
    return (float)(sum * op[0]->scale);
}

/* Each rank adds up its segment of all buffers, where each peer has its own one, and
 * stores the sum there.
 */
static void pull(struct op *const *op, size_t count)
{
    size_t segment = (count + (size_t)nranks - 1) / (size_t)nranks;

    for (size_t i = 0; i < count; i++) {
        size_t owner = i / segment;
        float sum = 0;

        for (int p = 0; p < nranks; p++)
            sum += ((float *)op[p]->at[owner])[i];
        for (int p = 0; p < nranks; p++)
            ((float *)op[p]->at[owner])[i] = (float)(sum * op[0]->scale);
    }
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
    case PULLED:
        pull(op, count);
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
        (op->work == AFTER && !op->after->done) ||
        ((op->work == SEND || op->work == RECEIVE) && !can_pass(op)) ||
        (op->work == COPY && behind_barrier(q)))
        return false;
    if (op->work == PIPE) {
        bool done, moved = run_pipe(op, &done);

        if (!done)
            return moved;
    }
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
    for (int r = 0; r < nranks; r++) {
        op[r]->done = true;
        of[r]->head++;
    }
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
