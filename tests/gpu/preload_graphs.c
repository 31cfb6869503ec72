/* SPDX-License-Identifier: BSD-3-Clause */
/* preload_graphs.c - two captured graphs, replayed on streams of their own beside calls
 * that are not captured, without an order among the streams but the host's
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/gpu/preload_program.h"

#define COMMS 2
#define CALLS 6                /* of a graph */
#define MOST ((size_t)4 << 20) /* bytes */
#define KEPT 4                 /* rounds with the same graphs */

struct call {
    const struct type *t;
    ncclRedOp_t op;
    size_t count;
    ncclComm_t comm;
    char *from, *to;
    size_t shift; /* of the data now */
};

struct graph {
    struct call call[CALLS];
    cudaStream_t stream, side;
    cudaGraphExec_t run;
};

static ncclComm_t comm[COMMS];
static char *pattern[TYPES];

/* The same on all ranks but the buffers. */
static void draw(struct call *c, unsigned *common)
{
    static const ncclRedOp_t ops[] = { ncclSum, ncclAvg, ncclSum, ncclMax };
    size_t most;

    if (c->from)
        memory_free(c->from);
    if (c->to != c->from)
        memory_free(c->to);
    c->t = &types[rand_r(common) % TYPES];
    c->op = ops[rand_r(common) % 4];
    c->comm = comm[rand_r(common) % COMMS];
    most = MOST / (size_t)c->t->bytes;
    c->count = (size_t)rand_r(common) % (most >> rand_r(common) % 12) + 1;
    c->from = memory_new(MOST);
    c->to = c->from;
    if (rand_r(common) % 2)
        c->to = memory_new(MOST);
}

static void fill(struct call *c, size_t shift, cudaStream_t s)
{
    c->shift = shift % 7;
    cuda(cudaMemcpyAsync(c->from,
                         pattern[c->t - types] + c->shift * (size_t)c->t->bytes,
                         c->count * (size_t)c->t->bytes, cudaMemcpyDeviceToDevice, s),
         "the data");
}

static void sum(const struct call *c, cudaStream_t s)
{
    nccl(ncclAllReduce(c->from, c->to, c->count, c->t->type, c->op, c->comm, s),
         "ncclAllReduce");
}

/* Every third call is on a stream beside, which joins behind it. */
static void build(struct graph *g, unsigned *common)
{
    cudaEvent_t fork_, join;
    cudaGraph_t graph;

    if (g->run)
        cuda(cudaGraphExecDestroy(g->run), "graph");
    cuda(cudaEventCreate(&fork_), "event");
    cuda(cudaEventCreate(&join), "event");
    for (int i = 0; i < CALLS; i++)
        draw(&g->call[i], common);
    cuda(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal),
         "capture");
    for (int i = 0; i < CALLS; i++) {
        if (i % 3 != 2) {
            sum(&g->call[i], g->stream);
            continue;
        }
        cuda(cudaEventRecord(fork_, g->stream), "event");
        cuda(cudaStreamWaitEvent(g->side, fork_, 0), "event");
        sum(&g->call[i], g->side);
        cuda(cudaEventRecord(join, g->side), "event");
        cuda(cudaStreamWaitEvent(g->stream, join, 0), "event");
    }
    cuda(cudaStreamEndCapture(g->stream, &graph), "end of capture");
    cuda(cudaGraphInstantiate(&g->run, graph, 0), "graph");
    cuda(cudaGraphDestroy(graph), "graph");
    cuda(cudaEventDestroy(fork_), "event");
    cuda(cudaEventDestroy(join), "event");
}

static void replay(struct graph *g, size_t shift)
{
    for (int i = 0; i < CALLS; i++)
        fill(&g->call[i], shift, g->stream);
    cuda(cudaGraphLaunch(g->run, g->stream), "launch of a graph");
}

static void check_call(const struct call *c, int round, const char *which)
{
    char what[80];

    snprintf(what, sizeof what, "round %d, %s%s", round, which,
             c->to == c->from ? ", in place" : "");
    check_result(c->t, c->op, c->to, c->count, c->shift, what);
}

void graphs(int rounds)
{
    unsigned common = 11;
    struct graph g[2] = { { .run = NULL }, { .run = NULL } };
    struct call beside = { .from = NULL };
    cudaStream_t s = stream_new();

    for (int i = 0; i < COMMS; i++)
        comm[i] = communicator(i);
    for (int t = 0; t < TYPES; t++)
        pattern[t] = pattern_new(&types[t], MOST / (size_t)types[t].bytes);
    for (int i = 0; i < 2; i++) {
        g[i].stream = stream_new();
        g[i].side = stream_new();
    }
    for (int round = 0; round < rounds; round++) {
        size_t shift = (size_t)round;

        for (int i = 0; i < 2 && round % KEPT == 0; i++)
            build(&g[i], &common);
        if (round % KEPT == 2)
            usleep(20000); /* the peers have mapped the buffers of the graphs */
        draw(&beside, &common);
        progress_phase(CALLING);
        replay(&g[0], shift);
        fill(&beside, shift, s);
        sum(&beside, s);
        replay(&g[1], shift + 1);
        replay(&g[0], shift + 2);
        fill(&beside, shift + 3, s);
        sum(&beside, s);
        progress_phase(WAITING);
        cuda(cudaDeviceSynchronize(), "a round");
        progress_calls(3 * CALLS + 2, rank == 0);
        for (int i = 0; i < CALLS; i++) {
            check_call(&g[0].call[i], round, "first graph");
            check_call(&g[1].call[i], round, "second graph");
        }
        check_call(&beside, round, "beside the graphs");
    }
    for (int i = 0; i < 2; i++)
        cuda(cudaGraphExecDestroy(g[i].run), "graph");
    for (int i = 0; i < COMMS; i++)
        nccl(ncclCommDestroy(comm[i]), "ncclCommDestroy");
}
