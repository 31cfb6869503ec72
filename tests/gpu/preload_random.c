/* SPDX-License-Identifier: BSD-3-Clause */
/* preload_random.c - random calls of four functions on 3 communicators and 4 streams,
 * every result right
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/preload_program.h"

#define COMMS 3
#define STREAMS 4
#define SLOTS 32
#define SLOT_BYTES ((size_t)2 << 20)
#define ROOM (SLOT_BYTES + 256) /* a buffer may begin anywhere in the first 256 */

static const ncclRedOp_t ops[] = { ncclSum, ncclSum, ncclAvg, ncclMax, ncclMin };

enum kind { REDUCE, SCATTER, GATHER, BROADCAST, KINDS };

struct call {
    enum kind kind;
    int type, op, comm, stream, root;
    size_t count;    /* as NCCL has it */
    size_t from, to; /* bytes at which the buffers begin */
    bool in_place, grouped, captured;
    bool spoilt; /* some data are NaN */
};

/* The same on all ranks, but where buffers begin and whether they are two. */
static struct call draw(unsigned *common, unsigned *own)
{
    struct call c = { .kind = (enum kind)(rand_r(common) % KINDS),
                      .type = rand_r(common) % TYPES,
                      .op = rand_r(common) % (int)(sizeof ops / sizeof ops[0]),
                      .comm = rand_r(common) % COMMS,
                      .stream = rand_r(common) % STREAMS,
                      .root = rand_r(common) % ranks };
    bool parts = c.kind == SCATTER || c.kind == GATHER;
    size_t most =
        SLOT_BYTES / (size_t)types[c.type].bytes / (size_t)(parts ? ranks : 1);
    int size = rand_r(common) % 16;

    /* mostly small; now and then nothing, the limit of a path, or all */
    c.count = size == 0   ? 0
              : size == 1 ? most
              : size == 2 ? most / 2
              : size == 3 ? most / 2 + 1
                          : (size_t)rand_r(common) % (most >> (size % 12));
    c.grouped = rand_r(common) % 8 == 0;
    c.captured = rand_r(common) % 16 == 0;
    if (rand_r(common) % 4) /* parts of whole vectors */
        c.count = c.count / 16 * 16;
    c.spoilt = rand_r(common) % 2 && types[c.type].is_float && c.kind <= SCATTER &&
               (ops[c.op] == ncclMax || ops[c.op] == ncclMin);
    c.in_place = rand_r(own) % 2;
    c.from = (size_t)(rand_r(own) % 3 ? 0 : rand_r(own) % 16) * 8;
    c.to = (size_t)(rand_r(own) % 3 ? 0 : rand_r(own) % 16) * 8;
    return c;
}

static char *pattern[2][TYPES], *send_room[SLOTS], *recv_room[SLOTS];
static char *host;

static void patterns_make(void)
{
    host = malloc(SLOT_BYTES);
    for (size_t k = 0; k < 2 * TYPES; k++) {
        bool spoilt = k >= TYPES;
        size_t t = k % TYPES, n = SLOT_BYTES / (size_t)types[t].bytes;
        char **at = &pattern[spoilt][t];

        if (spoilt && !types[t].is_float)
            continue;
        for (size_t i = 0; i < n; i++)
            put(types[t].type, host, i,
                spoilt ? spoilt_element(rank, i) : element(rank, i));
        cuda(cudaMalloc((void **)at, SLOT_BYTES), "cudaMalloc");
        cuda(cudaMemcpy(*at, host, SLOT_BYTES, cudaMemcpyHostToDevice), "copy");
    }
}

/* Addresses that were another allocation's a moment ago. */
static void rooms_renew(unsigned *own)
{
    for (int i = 0; i < SLOTS; i++) {
        int k = rand_r(own) % SLOTS;

        if (send_room[k])
            memory_free(send_room[k]);
        send_room[k] = memory_new(ROOM);
        if (!send_room[i])
            send_room[i] = memory_new(ROOM);
        if (!recv_room[i])
            recv_room[i] = memory_new(ROOM);
    }
}

/* In place as NCCL has it: the smaller buffer is this rank's part of the larger one. */
static char *send_of(const struct call *c, int slot)
{
    size_t part = c->count * (size_t)types[c->type].bytes * (size_t)rank;

    return send_room[slot] + c->from + (c->in_place && c->kind == GATHER ? part : 0);
}

static char *recv_of(const struct call *c, int slot)
{
    size_t part = c->count * (size_t)types[c->type].bytes * (size_t)rank;

    if (!c->in_place)
        return recv_room[slot] + c->to;
    return send_room[slot] + c->from + (c->kind == SCATTER ? part : 0);
}

static ncclResult_t start(const struct call *c, int slot, ncclComm_t comm,
                          cudaStream_t s)
{
    char *from = send_of(c, slot), *to = recv_of(c, slot);
    ncclDataType_t type = types[c->type].type;

    switch (c->kind) {
    case SCATTER:
        return ncclReduceScatter(from, to, c->count, type, ops[c->op], comm, s);
    case GATHER:
        return ncclAllGather(from, to, c->count, type, comm, s);
    case BROADCAST:
        if (c->in_place)
            return ncclBcast(to, c->count, type, c->root, comm, s);
        return ncclBroadcast(rank == c->root ? from : NULL, to, c->count, type, c->root,
                             comm, s);
    default:
        return ncclAllReduce(from, to, c->count, type, ops[c->op], comm, s);
    }
}

static void enqueue(const struct call *c, int slot, ncclComm_t comm, cudaStream_t s)
{
    size_t bytes = c->count * (size_t)types[c->type].bytes *
                   (size_t)(c->kind == SCATTER ? ranks : 1);
    char *from = send_of(c, slot);
    cudaGraph_t graph;
    cudaGraphExec_t run;

    cuda(cudaMemcpyAsync(from, pattern[c->spoilt][c->type], bytes,
                         cudaMemcpyDeviceToDevice, s),
         "filling");
    if (c->captured)
        cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "capture");
    if (c->grouped)
        nccl(ncclGroupStart(), "ncclGroupStart");
    nccl(start(c, slot, comm, s), "a collective");
    if (c->grouped)
        nccl(ncclGroupEnd(), "ncclGroupEnd");
    if (!c->captured)
        return;
    cuda(cudaStreamEndCapture(s, &graph), "end of capture");
    cuda(cudaGraphInstantiate(&run, graph, 0), "graph");
    cuda(cudaGraphLaunch(run, s), "launch of the graph");
    cuda(cudaStreamSynchronize(s), "graph");
    cuda(cudaGraphExecDestroy(run), "graph");
    cuda(cudaGraphDestroy(graph), "graph");
}

/* Element i of the result of this rank. */
static double value_of(const struct call *c, size_t i)
{
    if (c->kind == GATHER)
        return element((int)(i / c->count), i % c->count);
    if (c->kind == BROADCAST)
        return element(c->root, i);
    if (c->kind == SCATTER)
        i += c->count * (size_t)rank;
    return c->spoilt ? spoilt_expected(ops[c->op], i) : expected(ops[c->op], i);
}

static void check(const struct call *c, int slot, int number)
{
    static const char *const names[] = { "all-reduce", "reduce-scatter", "all-gather",
                                         "broadcast" };
    size_t size = (size_t)types[c->type].bytes;
    size_t n = c->count * (size_t)(c->kind == GATHER ? ranks : 1);
    char want[8];

    cuda(cudaMemcpy(host, recv_of(c, slot), n * size, cudaMemcpyDeviceToHost),
         "reading");
    for (size_t i = 0; i < n; i++) {
        double value = value_of(c, i);

        put(types[c->type].type, want, 0, value);
        if (isnan(value) ? is_nan(types[c->type].type, host + i * size)
                         : memcmp(want, host + i * size, size) == 0)
            continue;
        fprintf(stderr,
                "rank %d: call %d, %s, element %zu of %zu, type %d, op %d%s%s%s%s: "
                "wrong\n",
                rank, number, names[c->kind], i, n, (int)types[c->type].type,
                (int)ops[c->op], c->spoilt ? ", of NaN too" : "",
                c->in_place ? ", in place" : "", c->grouped ? ", grouped" : "",
                c->captured ? ", captured" : "");
        exit(1);
    }
}

void random_calls(int calls)
{
    unsigned common = 7, own = 100u + (unsigned)rank;
    ncclComm_t comm[COMMS];
    cudaStream_t stream[STREAMS];
    struct call wave[SLOTS];

    for (int i = 0; i < COMMS; i++)
        comm[i] = communicator(i);
    for (int i = 0; i < STREAMS; i++)
        stream[i] = stream_new();
    patterns_make();
    for (int done = 0; done < calls; done += SLOTS) {
        if (done / SLOTS % 8 == 0)
            rooms_renew(&own);
        /* a stream ends, and its handle may come again */
        cuda(cudaStreamDestroy(stream[done / SLOTS % STREAMS]), "stream");
        stream[done / SLOTS % STREAMS] = stream_new();
        progress_phase(CALLING);
        for (int k = 0; k < SLOTS; k++) {
            wave[k] = draw(&common, &own);
            enqueue(&wave[k], k, comm[wave[k].comm], stream[wave[k].stream]);
        }
        progress_phase(WAITING);
        cuda(cudaDeviceSynchronize(), "the calls");
        progress_phase(CHECKING);
        for (int k = 0; k < SLOTS; k++)
            check(&wave[k], k, done + k);
        progress_calls(SLOTS, rank == 0);
    }
    for (int i = 0; i < COMMS; i++)
        nccl(ncclCommDestroy(comm[i]), "ncclCommDestroy");
}
