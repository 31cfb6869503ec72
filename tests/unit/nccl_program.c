/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_program.c - a program that calls NCCL, for the tests of libmuster-nccl
 *
 *   nccl_program HOW LIBRARY RANKS STEP ...
 *
 * HOW: global: NCCL is in the global scope, as a linked one is; local: only the library
 * itself has it, as in Python; by-name: its functions are taken from LIBRARY alone.
 * Each rank is a process. Steps: init, config, scalable, sum:COUNT:TYPE:OP,
 * scatter:COUNT:TYPE:OP, gather:COUNT:TYPE, broadcast:COUNT:TYPE:ROOT, bcast of the
 * same, group, endgroup, window:FLAGS, revoke, shrink:FLAGS, finalize, destroy, abort,
 * reduce, split:COLOR (sums are of the part from then on), whole (of the first again),
 * again (a communicator of one rank), error; @R before a step: rank R alone makes it.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/nccl/nccl_abi.h"

static struct {
    void *library; /* NULL: the global scope */
    int rank, size;
    struct mu_nccl_id id;
    void *comm, *whole;
} me;

static void *function(const char *name)
{
    void *f = dlsym(me.library ? me.library : RTLD_DEFAULT, name);

    if (!f) {
        printf("r%d has no %s\n", me.rank, name);
        exit(3);
    }
    return f;
}

#define CALL(name, type, ...) (((type)function(name))(__VA_ARGS__))

typedef int of_comm(void *);
typedef int of_flags(void *, int);

static int init(const char *step)
{
    if (strcmp(step, "config") == 0)
        return CALL("ncclCommInitRankConfig",
                    int (*)(void **, int, struct mu_nccl_id, int, void *), &me.comm,
                    me.size, me.id, me.rank, NULL);
    if (strcmp(step, "scalable") == 0)
        return CALL("ncclCommInitRankScalable",
                    int (*)(void **, int, int, int, struct mu_nccl_id *, void *),
                    &me.comm, me.size, me.rank, 1, &me.id, NULL);
    return CALL("ncclCommInitRank", int (*)(void **, int, struct mu_nccl_id, int),
                &me.comm, strcmp(step, "again") == 0 ? 1 : me.size, me.id,
                strcmp(step, "again") == 0 ? 0 : me.rank);
}

static int sum(const char *step)
{
    long count;
    int type, op;

    if (sscanf(step, "sum:%ld:%d:%d", &count, &type, &op) != 3)
        exit(4);
    return CALL("ncclAllReduce",
                int (*)(const void *, void *, size_t, int, int, void *, void *), &me,
                &me, (size_t)count, type, op, me.comm, NULL);
}

typedef int of_buffers(const void *, void *, size_t, int, int, void *, void *);

/* A collective other than an all-reduce; -1: it is none. */
static int other(const char *step)
{
    int type = 0, last = 0;
    long count = 0;
    char name[16];
    void *here = &me, *beside = (char *)here + 8;

    if (sscanf(step, "%15[a-z]:%ld:%d:%d", name, &count, &type, &last) < 3)
        return -1;
    if (strcmp(name, "scatter") == 0)
        return CALL("ncclReduceScatter", of_buffers *, here, beside, (size_t)count,
                    type, last, me.comm, NULL);
    if (strcmp(name, "gather") == 0)
        return CALL("ncclAllGather",
                    int (*)(const void *, void *, size_t, int, void *, void *), here,
                    beside, (size_t)count, type, me.comm, NULL);
    if (strcmp(name, "broadcast") == 0)
        return CALL("ncclBroadcast", of_buffers *, me.rank == last ? here : NULL,
                    beside, (size_t)count, type, last, me.comm, NULL);
    if (strcmp(name, "bcast") == 0)
        return CALL("ncclBcast", int (*)(void *, size_t, int, int, void *, void *),
                    here, (size_t)count, type, last, me.comm, NULL);
    return -1;
}

static int run(const char *step)
{
    int flags = strchr(step, ':') ? atoi(strchr(step, ':') + 1) : 0;

    int rc = strncmp(step, "sum", 3) == 0 ? sum(step) : other(step);

    if (rc >= 0)
        return rc;
    if (strncmp(step, "window", 6) == 0)
        return CALL("ncclCommWindowRegister",
                    int (*)(void *, void *, size_t, void **, int), me.comm, NULL, 4096,
                    NULL, flags);
    if (strncmp(step, "shrink", 6) == 0)
        return CALL("ncclCommShrink", int (*)(void *, int *, int, void **, void *, int),
                    me.comm, NULL, 1, NULL, NULL, flags);
    if (strncmp(step, "split", 5) == 0) {
        me.whole = me.comm;
        return CALL("ncclCommSplit", int (*)(void *, int, int, void **, void *),
                    me.whole, flags, 0, &me.comm, NULL);
    }
    if (strcmp(step, "whole") == 0)
        return (me.comm = me.whole) == NULL;
    if (strcmp(step, "revoke") == 0)
        return CALL("ncclCommRevoke", of_flags *, me.comm, 0);
    if (strcmp(step, "group") == 0)
        return CALL("ncclGroupStart", int (*)(void));
    if (strcmp(step, "endgroup") == 0)
        return CALL("ncclGroupEnd", int (*)(void));
    if (strcmp(step, "finalize") == 0)
        return CALL("ncclCommFinalize", of_comm *, me.comm);
    if (strcmp(step, "destroy") == 0)
        return CALL("ncclCommDestroy", of_comm *, me.comm);
    if (strcmp(step, "abort") == 0)
        return CALL("ncclCommAbort", of_comm *, me.comm);
    if (strcmp(step, "reduce") == 0)
        return CALL(
            "ncclReduce",
            int (*)(const void *, void *, size_t, int, int, int, void *, void *), NULL,
            NULL, 11, 7, 0, 1, me.comm, (void *)88);
    if (strcmp(step, "error") == 0)
        return printf("r%d is %s\n", me.rank,
                      CALL("ncclGetErrorString", const char *(*)(int), 0)) < 0;
    return init(step);
}

static int rank_main(int n, char **steps)
{
    for (int i = 0; i < n; i++) {
        const char *step = steps[i];
        int rc;

        if (step[0] == '@' && step[1] - '0' != me.rank)
            continue;
        rc = run(step[0] == '@' ? step + 2 : step);
        if (rc != 0)
            printf("r%d %s returned %d\n", me.rank, step, rc);
        fflush(stdout);
    }
    return 0;
}

/* Returns when all ranks run: libmuster-nccl waits one second for a late one. */
static void await_ranks(atomic_int *running)
{
    atomic_fetch_add(running, 1);
    while (atomic_load(running) < me.size)
        usleep(1000);
}

int main(int argc, char **argv)
{
    bool global = argc > 1 && strcmp(argv[1], "global") == 0;
    int status = 0, worst = 0;
    atomic_int *running;
    void *library;

    if (argc < 4)
        return 2;
    library = dlopen(argv[2], RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library && strcmp(argv[2], "none") != 0) {
        printf("%s\n", dlerror());
        return 2;
    }
    if (strcmp(argv[1], "by-name") == 0)
        me.library = library;
    me.size = atoi(argv[3]);
    for (size_t i = 0; i < sizeof me.id; i++)
        me.id.internal[i] = (char)((long)getpid() >> (i % 4 * 8));
    running = mmap(NULL, sizeof *running, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (running == MAP_FAILED)
        return 2;
    for (int r = 0; r < me.size; r++)
        if (fork() == 0) {
            me.rank = r;
            await_ranks(running);
            exit(rank_main(argc - 4, argv + 4));
        }
    while (wait(&status) > 0)
        worst = status ? 1 : worst;
    return worst;
}
