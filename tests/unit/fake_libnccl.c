/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_libnccl.c - a libnccl.so.2 that prints each call: "r1 nccl AllReduce 256 7 0"
 *
 * The rank is that of the communicator. FAKE_NCCL: "pending" leaves communicators
 * incomplete; "progress": those with a configuration report it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/nccl/nccl_abi.h"

struct comm {
    int rank, size;
};

#define API __attribute__((visibility("default")))

static int print(struct comm *c, const char *call, long a, long b, long d)
{
    printf("r%d nccl %s %ld %ld %ld\n", c->rank, call, a, b, d);
    fflush(stdout);
    return MU_NCCL_SUCCESS;
}

API int ncclGetVersion(int *version);
API int ncclCommInitRank(struct comm **out, int size, struct mu_nccl_id id, int rank);
API int ncclCommInitRankConfig(struct comm **out, int size, struct mu_nccl_id id,
                               int rank, void *config);
API int ncclCommInitRankScalable(struct comm **out, int size, int rank, int n,
                                 struct mu_nccl_id *ids, void *config);
API int ncclCommSplit(struct comm *c, int color, int key, struct comm **out,
                      void *config);
API int ncclCommUserRank(struct comm *c, int *rank);
API int ncclCommCount(struct comm *c, int *size);
API int ncclCommDestroy(struct comm *c);
API int ncclCommFinalize(struct comm *c);
API int ncclCommAbort(struct comm *c);
API int ncclCommRevoke(struct comm *c, int flags);
API int ncclCommShrink(struct comm *c, int *without, int n, struct comm **out,
                       void *config, int flags);
API int ncclCommWindowRegister(struct comm *c, void *at, size_t bytes, void **window,
                               int flags);
API int ncclCommGetAsyncError(struct comm *c, int *state);
API int ncclCommCuDevice(struct comm *c, int *device);
API int ncclGroupStart(void);
API int ncclGroupEnd(void);
API int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op,
                      struct comm *c, void *stream);
API int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op,
                          struct comm *c, void *stream);
API int ncclAllGather(const void *send, void *recv, size_t count, int type,
                      struct comm *c, void *stream);
API int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root,
                      struct comm *c, void *stream);
API int ncclReduce(const void *send, void *recv, size_t count, int type, int op,
                   int root, struct comm *c, void *stream);
API const char *ncclGetErrorString(int result);

int ncclGetVersion(int *version)
{
    *version = 22809;
    return MU_NCCL_SUCCESS;
}

int ncclCommInitRank(struct comm **out, int size, struct mu_nccl_id id, int rank)
{
    int intact = 1;

    for (size_t i = 0; i < sizeof id; i++)
        intact = intact && id.internal[i] == id.internal[i % 4];
    *out = calloc(1, sizeof **out);
    **out = (struct comm){ rank, size };
    return print(*out, "InitRank", size, intact, 0);
}

int ncclCommInitRankConfig(struct comm **out, int size, struct mu_nccl_id id, int rank,
                           void *config)
{
    const char *fake = getenv("FAKE_NCCL");
    int rc = ncclCommInitRank(out, size, id, rank);

    (void)config;
    return fake && strcmp(fake, "progress") == 0 ? MU_NCCL_IN_PROGRESS : rc;
}

int ncclCommInitRankScalable(struct comm **out, int size, int rank, int n,
                             struct mu_nccl_id *ids, void *config)
{
    (void)config;
    return ncclCommInitRank(out, size, ids[n - 1], rank);
}

/* Ranks of the same color; their order stays. */
int ncclCommSplit(struct comm *c, int color, int key, struct comm **out, void *config)
{
    int size = color < 0 ? 0 : color < 100 ? c->size : c->size / 2;

    (void)key, (void)config;
    *out = NULL;
    if (size > 0) {
        *out = calloc(1, sizeof **out);
        **out = (struct comm){ c->rank % size, size };
    }
    return print(c, "Split", color, 0, 0);
}

int ncclCommUserRank(struct comm *c, int *rank)
{
    *rank = c->rank;
    return MU_NCCL_SUCCESS;
}

int ncclCommCount(struct comm *c, int *size)
{
    *size = c->size;
    return MU_NCCL_SUCCESS;
}

int ncclCommDestroy(struct comm *c)
{
    print(c, "Destroy", 0, 0, 0);
    free(c);
    return MU_NCCL_SUCCESS;
}

int ncclCommFinalize(struct comm *c)
{
    return print(c, "Finalize", 0, 0, 0);
}

int ncclCommAbort(struct comm *c)
{
    return print(c, "Abort", 0, 0, 0);
}

int ncclCommRevoke(struct comm *c, int flags)
{
    return print(c, "Revoke", flags, 0, 0);
}

int ncclCommShrink(struct comm *c, int *without, int n, struct comm **out, void *config,
                   int flags)
{
    (void)without, (void)out, (void)config;
    return print(c, "Shrink", n, flags, 0);
}

int ncclCommWindowRegister(struct comm *c, void *at, size_t bytes, void **window,
                           int flags)
{
    (void)at, (void)window;
    return print(c, "WindowRegister", (long)bytes, flags, 0);
}

int ncclCommGetAsyncError(struct comm *c, int *state)
{
    const char *fake = getenv("FAKE_NCCL");

    (void)c;
    *state = fake && strcmp(fake, "pending") == 0 ? 7 : MU_NCCL_SUCCESS;
    return MU_NCCL_SUCCESS;
}

int ncclCommCuDevice(struct comm *c, int *device)
{
    *device = c->rank;
    return MU_NCCL_SUCCESS;
}

int ncclGroupStart(void)
{
    return MU_NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    return MU_NCCL_SUCCESS;
}

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op,
                  struct comm *c, void *stream)
{
    (void)send, (void)recv, (void)stream;
    return print(c, "AllReduce", (long)count, type, op);
}

int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op,
                      struct comm *c, void *stream)
{
    (void)send, (void)recv, (void)stream;
    return print(c, "ReduceScatter", (long)count, type, op);
}

int ncclAllGather(const void *send, void *recv, size_t count, int type, struct comm *c,
                  void *stream)
{
    (void)send, (void)recv, (void)stream;
    return print(c, "AllGather", (long)count, type, 0);
}

int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root,
                  struct comm *c, void *stream)
{
    (void)recv, (void)stream;
    return print(c, send ? "Broadcast" : "Broadcast of nothing", (long)count, type,
                 root);
}

int ncclReduce(const void *send, void *recv, size_t count, int type, int op, int root,
               struct comm *c, void *stream)
{
    (void)send, (void)recv, (void)type, (void)op;
    return print(c, "Reduce", (long)count, root, (long)stream);
}

const char *ncclGetErrorString(int result)
{
    return result == MU_NCCL_SUCCESS ? "no error" : "an error";
}
