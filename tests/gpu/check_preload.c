/* SPDX-License-Identifier: BSD-3-Clause */
/* check_preload.c - a program of NCCL alone, as users write it, to run under
 * libmuster-nccl
 *
 *   check_preload RANKS MODE [CALLS [virtual]]
 *
 *   check_preload RANKS random [CALLS]   4 functions, 3 communicators, 4 streams, every
 *                                        result right
 *   check_preload RANKS large            up to 256 MiB, buffers freed and made anew
 *   check_preload RANKS graphs [ROUNDS]  graphs replayed beside each other and calls
 *   check_preload RANKS parts            communicators of a group, and parts of them
 *   check_preload RANKS late             a rank that comes 3 s later
 *   check_preload RANKS killed           a rank dies in a call; the others abort
 *   check_preload RANKS abort            a call without its peers, abort, begin anew
 *   check_preload RANKS fork             a child of a rank outlives the communicator
 *   check_preload RANKS time             us of a call on a stream and in a graph
 *
 * virtual: the buffers are virtual memory, as PyTorch's expandable segments.
 * Each rank is a process with a GPU of its own. Exit status 0: all ranks are content.
 * Where no rank goes on for 30 s, the state of all is printed, and they are killed.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/preload_program.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
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
    cudaStream_t s = stream_new();

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

/* ---- Communicators of a group ---------------------------------------------------- */

/* As nccl-tests makes them under MPI; then a part with all ranks in reverse order. */
static void parts(void)
{
    ncclComm_t comm, part;
    cudaStream_t s = stream_new();

    if (rank == 0)
        nccl(ncclGetUniqueId(&shared->id[0]), "ncclGetUniqueId");
    meet(ranks);
    nccl(ncclGroupStart(), "ncclGroupStart");
    nccl(ncclCommInitRank(&comm, ranks, shared->id[0], rank), "ncclCommInitRank");
    nccl(ncclGroupEnd(), "ncclGroupEnd");
    sum_start(comm, s);
    sum_check(s);
    nccl(ncclCommSplit(comm, 3, ranks - rank, &part, NULL), "ncclCommSplit");
    for (int i = 0; i < 10; i++) {
        sum_start(i % 2 ? part : comm, s);
        sum_check(s);
    }
    nccl(ncclCommDestroy(part), "ncclCommDestroy");
    sum_start(comm, s);
    sum_check(s);
    nccl(ncclCommDestroy(comm), "ncclCommDestroy");
}

/* ---- Times ---------------------------------------------------------------------- */

#define REPEATS 50

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* What is timed. bytes of a call: of its larger buffer. */
static const struct timed {
    const char *name;
    enum { REDUCE, SCATTER, GATHER, BROADCAST } kind;
    int type;
} timed[] = { { "f32", REDUCE, 0 },
              { "bf16", REDUCE, 2 },
              { "scatter", SCATTER, 0 },
              { "gather", GATHER, 0 },
              { "bcast", BROADCAST, 0 } };

static ncclResult_t timed_call(const struct timed *w, char *p, size_t bytes,
                               ncclComm_t comm, cudaStream_t s)
{
    const struct type *t = &types[w->type];
    size_t count = bytes / (size_t)t->bytes, part = count / (size_t)ranks;
    char *mine = p + part * (size_t)rank * (size_t)t->bytes;

    switch (w->kind) {
    case SCATTER:
        return ncclReduceScatter(p, mine, part, t->type, ncclSum, comm, s);
    case GATHER:
        return ncclAllGather(mine, p, part, t->type, comm, s);
    case BROADCAST:
        return ncclBroadcast(p, p, count, t->type, 0, comm, s);
    default:
        return ncclAllReduce(p, p, count, t->type, ncclSum, comm, s);
    }
}

/* us of a call: REPEATS of them behind each other, the median of 9. */
static double time_of(ncclComm_t comm, cudaStream_t s, void *p, const struct timed *w,
                      size_t bytes, bool in_graph)
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
            nccl(timed_call(w, p, bytes, comm, s), w->name);
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
        if (turn < 0)
            usleep(20000); /* what a library does once for this memory */
        else
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

/* Those around 1 MiB are the limits of the library's ways. */
static void times(void)
{
    static const size_t sizes[] = { 1 << 10,  4 << 10,          16 << 10,
                                    64 << 10, 256 << 10,        512 << 10,
                                    1 << 20,  (1 << 20) + 4096, 2 << 20,
                                    4 << 20,  16 << 20,         25 << 20,
                                    64 << 20, (size_t)256 << 20 };
    const size_t n = sizeof sizes / sizeof sizes[0];
    ncclComm_t comm = communicator(0);
    cudaStream_t s = stream_new();
    void *p;

    p = memory_new(sizes[n - 1]);
    cuda(cudaMemset(p, 0, sizes[n - 1]), "cudaMemset");
    for (size_t k = 0; k < sizeof timed / sizeof timed[0]; k++)
        for (size_t i = 0; i < n; i++) {
            double stream = time_of(comm, s, p, &timed[k], sizes[i], false);
            double graph = time_of(comm, s, p, &timed[k], sizes[i], true);

            if (rank == 0)
                printf("%s\t%zu\t%.2f\t%.2f\n", timed[k].name, sizes[i], stream, graph);
        }
    nccl(ncclCommDestroy(comm), "ncclCommDestroy");
}

static void run_rank(const char *mode, int calls)
{
    cuda(cudaSetDevice(rank), "cudaSetDevice");
    if (strcmp(mode, "random") == 0)
        random_calls(calls);
    else if (strcmp(mode, "large") == 0)
        large_calls();
    else if (strcmp(mode, "graphs") == 0)
        graphs(calls);
    else if (strcmp(mode, "parts") == 0)
        parts();
    else if (strcmp(mode, "time") == 0)
        times();
    else
        faults(mode);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bool kills = argc > 2 && strcmp(argv[2], "killed") == 0;
    sigset_t child, before;
    pid_t pid[16];

    ranks = argc > 2 ? atoi(argv[1]) : 0;
    if (ranks < 2 || ranks > 16) {
        fprintf(stderr, "usage: check_preload RANKS MODE [CALLS [virtual]]\n");
        return 2;
    }
    is_virtual = argc > 4 && strcmp(argv[4], "virtual") == 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    /* NCCL 2.28 maps such memory of captured calls by itself. It maps the first range
     * of a buffer alone, and does nothing of it where a call is in place: a rank that
     * is, and its peer that is not, wait for each other. Memory of cudaMalloc it does
     * not map.
     */
    if (is_virtual)
        setenv("NCCL_GRAPH_REGISTER", "0", 0);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD); /* for progress_wait */
    sigprocmask(SIG_BLOCK, &child, &before);
    for (rank = 0; rank < ranks; rank++)
        if ((pid[rank] = fork()) == 0) {
            sigprocmask(SIG_SETMASK, &before, NULL);
            progress_begin(&shared->progress[rank]);
            run_rank(argv[2], argc > 3 ? atoi(argv[3]) : 10000);
            exit(0);
        }
    return progress_wait(shared->progress, pid, ranks, kills ? 1 : -1) > 0;
}
