/* SPDX-License-Identifier: BSD-3-Clause */
/* check_preload.c - a program of NCCL alone, as users write it, to run under
 * libmuster-nccl
 *
 *   check_preload RANKS random [CALLS]   3 communicators, 4 streams, every result right
 *   check_preload RANKS late             a rank that comes 3 s later
 *   check_preload RANKS killed           a rank dies in a call; the others abort
 *   check_preload RANKS abort            a call without its peers, abort, begin anew
 *   check_preload RANKS fork             a child of a rank outlives the communicator
 *   check_preload RANKS time             us of an all-reduce on a stream and in a graph
 *
 * Each rank is a process with a GPU of its own. Exit status 0: all ranks are content.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMMS 3
#define STREAMS 4
#define SLOTS 32
#define SLOT_BYTES ((size_t)2 << 20)
#define ROOM (SLOT_BYTES + 256) /* a buffer may begin anywhere in the first 256 */

static struct shared {
    ncclUniqueId id[16];
    atomic_int arrived, waves;
} * shared;
static int rank, ranks;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, why);
    exit(1);
}

static void cuda(cudaError_t rc, const char *what)
{
    if (rc != cudaSuccess)
        die(what, cudaGetErrorString(rc));
}

static void nccl(ncclResult_t rc, const char *what)
{
    if (rc != ncclSuccess)
        die(what, ncclGetErrorString(rc));
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* All ranks that live meet here. */
static void meet(int of)
{
    int wave = atomic_load(&shared->waves);

    if (atomic_fetch_add(&shared->arrived, 1) + 1 == of) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->waves, 1);
        return;
    }
    while (atomic_load(&shared->waves) == wave)
        usleep(50);
}

static ncclComm_t communicator(int which)
{
    ncclComm_t comm;

    if (rank == 0)
        nccl(ncclGetUniqueId(&shared->id[which]), "ncclGetUniqueId");
    meet(ranks);
    nccl(ncclCommInitRank(&comm, ranks, shared->id[which], rank), "ncclCommInitRank");
    return comm;
}

/* ---- Random calls --------------------------------------------------------------- */

static const struct type {
    ncclDataType_t type;
    int bytes;
} types[] = {
    { ncclFloat32, 4 }, { ncclFloat16, 2 }, { ncclBfloat16, 2 }, { ncclFloat64, 8 },
    { ncclInt32, 4 },   { ncclInt64, 8 },   { ncclFloat32, 4 },
};
static const ncclRedOp_t ops[] = { ncclSum, ncclSum, ncclAvg, ncclMax, ncclMin };

struct call {
    int type, op, comm, stream;
    size_t count, from, to; /* from, to: bytes at which the buffers begin */
    bool in_place, grouped, captured;
};

/* Small whole numbers have no rounding in any type. */
static double element(int r, size_t i)
{
    return (double)((i % 7 + 1) * 2 * (size_t)(r + 1));
}

static double expected(ncclRedOp_t op, size_t i)
{
    double sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += element(r, i);
    return op == ncclAvg   ? sum / ranks
           : op == ncclMax ? element(ranks - 1, i)
           : op == ncclMin ? element(0, i)
                           : sum;
}

static void put(ncclDataType_t type, void *base, size_t i, double v)
{
    float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    switch (type) {
    case ncclFloat32:
        ((float *)base)[i] = f;
        break;
    case ncclFloat64:
        ((double *)base)[i] = v;
        break;
    case ncclInt32:
        ((int32_t *)base)[i] = (int32_t)v;
        break;
    case ncclInt64:
        ((int64_t *)base)[i] = (int64_t)v;
        break;
    case ncclBfloat16:
        ((uint16_t *)base)[i] = (uint16_t)(bits >> 16);
        break;
    default: /* float16, of numbers that have no rest */
        ((uint16_t *)base)[i] =
            v == 0 ? 0 : (uint16_t)(((bits >> 23) - 112) << 10 | (bits >> 13 & 0x3ff));
    }
}

/* The same on all ranks, but where buffers begin and whether they are two. */
static struct call draw(unsigned *common, unsigned *own)
{
    struct call c = { .type = rand_r(common) % (int)(sizeof types / sizeof types[0]),
                      .op = rand_r(common) % (int)(sizeof ops / sizeof ops[0]),
                      .comm = rand_r(common) % COMMS,
                      .stream = rand_r(common) % STREAMS };
    size_t most = SLOT_BYTES / (size_t)types[c.type].bytes;
    int size = rand_r(common) % 16;

    /* mostly small; now and then nothing, the limit of a path, or all */
    c.count = size == 0   ? 0
              : size == 1 ? most
              : size == 2 ? most / 2
              : size == 3 ? most / 2 + 1
                          : (size_t)rand_r(common) % (most >> (size % 12));
    c.grouped = rand_r(common) % 8 == 0;
    c.captured = rand_r(common) % 16 == 0;
    c.in_place = rand_r(own) % 2;
    c.from = (size_t)(rand_r(own) % 3 ? 0 : rand_r(own) % 16) * 8;
    c.to = (size_t)(rand_r(own) % 3 ? 0 : rand_r(own) % 16) * 8;
    return c;
}

static char *pattern[sizeof types / sizeof types[0]], *send_room[SLOTS],
    *recv_room[SLOTS];
static char *host;

static void patterns_make(void)
{
    host = malloc(SLOT_BYTES);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        size_t n = SLOT_BYTES / (size_t)types[t].bytes;

        for (size_t i = 0; i < n; i++)
            put(types[t].type, host, i, element(rank, i));
        cuda(cudaMalloc((void **)&pattern[t], SLOT_BYTES), "cudaMalloc");
        cuda(cudaMemcpy(pattern[t], host, SLOT_BYTES, cudaMemcpyHostToDevice), "copy");
    }
}

/* Addresses that were another allocation's a moment ago. */
static void rooms_renew(unsigned *own)
{
    for (int i = 0; i < SLOTS; i++) {
        int k = rand_r(own) % SLOTS;

        if (send_room[k])
            cuda(cudaFree(send_room[k]), "cudaFree");
        cuda(cudaMalloc((void **)&send_room[k], ROOM), "cudaMalloc");
        if (!send_room[i])
            cuda(cudaMalloc((void **)&send_room[i], ROOM), "cudaMalloc");
        if (!recv_room[i])
            cuda(cudaMalloc((void **)&recv_room[i], ROOM), "cudaMalloc");
    }
}

static void enqueue(const struct call *c, int slot, ncclComm_t comm, cudaStream_t s)
{
    size_t bytes = c->count * (size_t)types[c->type].bytes;
    char *from = send_room[slot] + c->from;
    char *to = c->in_place ? from : recv_room[slot] + c->to;
    cudaGraph_t graph;
    cudaGraphExec_t run;

    cuda(cudaMemcpyAsync(from, pattern[c->type], bytes, cudaMemcpyDeviceToDevice, s),
         "filling");
    if (c->captured)
        cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "capture");
    if (c->grouped)
        nccl(ncclGroupStart(), "ncclGroupStart");
    nccl(ncclAllReduce(from, to, c->count, types[c->type].type, ops[c->op], comm, s),
         "ncclAllReduce");
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

static void check(const struct call *c, int slot, int number)
{
    size_t size = (size_t)types[c->type].bytes;
    const char *at = c->in_place ? send_room[slot] + c->from : recv_room[slot] + c->to;
    char want[8];

    cuda(cudaMemcpy(host, at, c->count * size, cudaMemcpyDeviceToHost), "reading");
    for (size_t i = 0; i < c->count; i++) {
        put(types[c->type].type, want, 0, expected(ops[c->op], i));
        if (memcmp(want, host + i * size, size) == 0)
            continue;
        fprintf(stderr,
                "rank %d: call %d, element %zu of %zu, type %d, op %d%s%s%s: wrong\n",
                rank, number, i, c->count, (int)types[c->type].type, (int)ops[c->op],
                c->in_place ? ", in place" : "", c->grouped ? ", grouped" : "",
                c->captured ? ", captured" : "");
        exit(1);
    }
}

static void random_calls(int calls)
{
    unsigned common = 7, own = 100u + (unsigned)rank;
    ncclComm_t comm[COMMS];
    cudaStream_t stream[STREAMS];
    struct call wave[SLOTS];

    for (int i = 0; i < COMMS; i++)
        comm[i] = communicator(i);
    for (int i = 0; i < STREAMS; i++)
        cuda(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking), "stream");
    patterns_make();
    for (int done = 0; done < calls; done += SLOTS) {
        if (done / SLOTS % 8 == 0)
            rooms_renew(&own);
        /* a stream ends, and its handle may come again */
        cuda(cudaStreamDestroy(stream[done / SLOTS % STREAMS]), "stream");
        cuda(cudaStreamCreateWithFlags(&stream[done / SLOTS % STREAMS],
                                       cudaStreamNonBlocking),
             "stream");
        for (int k = 0; k < SLOTS; k++) {
            wave[k] = draw(&common, &own);
            enqueue(&wave[k], k, comm[wave[k].comm], stream[wave[k].stream]);
        }
        cuda(cudaDeviceSynchronize(), "the calls");
        for (int k = 0; k < SLOTS; k++)
            check(&wave[k], k, done + k);
    }
    for (int i = 0; i < COMMS; i++)
        nccl(ncclCommDestroy(comm[i]), "ncclCommDestroy");
}

/* ---- Ranks that are late or die ------------------------------------------------- */

static float *ones;

static void sum_start(ncclComm_t comm, cudaStream_t s)
{
    static const float one[256] = { [0 ... 255] = 1.0f };

    if (!ones)
        cuda(cudaMalloc((void **)&ones, sizeof one), "cudaMalloc");
    cuda(cudaMemcpyAsync(ones, one, sizeof one, cudaMemcpyHostToDevice, s), "copy");
    nccl(ncclAllReduce(ones, ones, 256, ncclFloat32, ncclSum, comm, s),
         "ncclAllReduce");
}

static void sum_check(cudaStream_t s)
{
    float got[256];

    cuda(cudaStreamSynchronize(s), "the sum");
    cuda(cudaMemcpy(got, ones, sizeof got, cudaMemcpyDeviceToHost), "copy");
    for (int i = 0; i < 256; i++)
        if (got[i] != (float)ranks)
            die("the sum", "it is wrong");
}

/* Abort must end what runs within seconds. */
static void abort_now(ncclComm_t comm, cudaStream_t s)
{
    double from = now();

    nccl(ncclCommAbort(comm), "ncclCommAbort");
    while (cudaStreamQuery(s) == cudaErrorNotReady)
        if (now() - from > 10)
            die("the stream", "it is not idle 10 s after the abort");
}

static void faults(const char *mode)
{
    ncclComm_t comm = communicator(0);
    cudaStream_t s;

    cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    sum_start(comm, s);
    sum_check(s);
    meet(ranks);
    if (strcmp(mode, "late") == 0) {
        if (rank == 1)
            sleep(3);
        sum_start(comm, s);
        sum_check(s);
        nccl(ncclCommDestroy(comm), "ncclCommDestroy");
    } else if (strcmp(mode, "killed") == 0) {
        if (rank == 1)
            kill(getpid(), SIGKILL);
        sum_start(comm, s);
        sleep(1);
        abort_now(comm, s);
    } else if (strcmp(mode, "abort") == 0) {
        if (rank != 1)
            sum_start(comm, s);
        sleep(1);
        abort_now(comm, s);
        meet(ranks);
        comm = communicator(1);
        sum_start(comm, s);
        sum_check(s);
        nccl(ncclCommDestroy(comm), "ncclCommDestroy");
    } else { /* fork: the child holds what it inherited */
        if (rank == 1 && fork() == 0) {
            sleep(8);
            _exit(0);
        }
        sum_start(comm, s);
        sum_check(s);
        nccl(ncclCommDestroy(comm), "ncclCommDestroy");
    }
}

/* ---- Times ---------------------------------------------------------------------- */

#define REPEATS 50

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* us of a call: REPEATS of them behind each other, the median of 9. */
static double time_of(ncclComm_t comm, cudaStream_t s, float *p, size_t bytes,
                      bool in_graph)
{
    cudaGraphExec_t run = NULL;
    cudaGraph_t graph;
    cudaEvent_t begin, end;
    double us[9];

    cuda(cudaEventCreate(&begin), "event");
    cuda(cudaEventCreate(&end), "event");
    for (int turn = -1; turn < 9; turn++) {
        float ms;

        if (in_graph && !run)
            cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal),
                 "capture");
        else
            meet(ranks);
        if (!in_graph)
            cuda(cudaEventRecord(begin, s), "event");
        for (int i = 0; i < REPEATS && (!in_graph || !run); i++)
            nccl(ncclAllReduce(p, p, bytes / 4, ncclFloat32, ncclSum, comm, s),
                 "ncclAllReduce");
        if (in_graph && !run) {
            cuda(cudaStreamEndCapture(s, &graph), "end of capture");
            cuda(cudaGraphInstantiate(&run, graph, 0), "graph");
            meet(ranks);
        }
        if (in_graph) {
            cuda(cudaEventRecord(begin, s), "event");
            cuda(cudaGraphLaunch(run, s), "graph");
        }
        cuda(cudaEventRecord(end, s), "event");
        cuda(cudaStreamSynchronize(s), "the calls");
        cuda(cudaEventElapsedTime(&ms, begin, end), "time");
        if (turn >= 0)
            us[turn] = ms * 1000.0 / REPEATS;
    }
    if (run) {
        cuda(cudaGraphExecDestroy(run), "graph");
        cuda(cudaGraphDestroy(graph), "graph");
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    qsort(us, 9, sizeof us[0], ascending);
    return us[4];
}

static void times(void)
{
    const size_t most = (size_t)64 << 20;
    ncclComm_t comm = communicator(0);
    cudaStream_t s;
    float *p;

    cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    cuda(cudaMalloc((void **)&p, most), "cudaMalloc");
    cuda(cudaMemset(p, 0, most), "cudaMemset");
    for (size_t bytes = 1024; bytes <= most; bytes *= 4) {
        double stream = time_of(comm, s, p, bytes, false);
        double graph = time_of(comm, s, p, bytes, true);

        if (rank == 0)
            printf("%zu\t%.2f\t%.2f\n", bytes, stream, graph);
    }
    nccl(ncclCommDestroy(comm), "ncclCommDestroy");
}

static void run_rank(const char *mode, int calls)
{
    cuda(cudaSetDevice(rank), "cudaSetDevice");
    if (strcmp(mode, "random") == 0)
        random_calls(calls);
    else if (strcmp(mode, "time") == 0)
        times();
    else
        faults(mode);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bool kills = argc > 2 && strcmp(argv[2], "killed") == 0;
    int failed = 0;
    pid_t pid[16];

    ranks = argc > 2 ? atoi(argv[1]) : 0;
    if (ranks < 2 || ranks > 16) {
        fprintf(stderr, "usage: check_preload RANKS MODE [CALLS]\n");
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (rank = 0; rank < ranks; rank++)
        if ((pid[rank] = fork()) == 0) {
            run_rank(argv[2], argc > 3 ? atoi(argv[3]) : 10000);
            exit(0);
        }
    for (int r = 0; r < ranks; r++) {
        int status;

        waitpid(pid[r], &status, 0);
        failed += kills && r == 1 ? !WIFSIGNALED(status) : status != 0;
    }
    return failed > 0;
}
