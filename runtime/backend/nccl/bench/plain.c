/* SPDX-License-Identifier: BSD-3-Clause */
/* plain.c - a communicator of NCCL as programs without libmuster have it */
#include "runtime/backend/nccl/bench/plain.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/core/tune_table.h"

struct mu_plain {
    ncclComm_t comm;
    size_t size;
};

_Static_assert(sizeof(ncclUniqueId) == MU_PLAIN_ID, "an id of NCCL");

static void check(ncclResult_t rc, const char *what)
{
    if (rc == ncclSuccess)
        return;
    fprintf(stderr, "muster: %s: %s (%s)\n", what, ncclGetErrorString(rc),
            ncclGetLastError(NULL));
    exit(MUSTER_EDEVICE);
}

int mu_plain_release(void)
{
    int release = 0;

    check(ncclGetVersion(&release), "ncclGetVersion");
    return release;
}

void mu_plain_id(void *id)
{
    check(ncclGetUniqueId(id), "ncclGetUniqueId");
}

struct mu_plain *mu_plain_open(int device, int rank, int size, const void *id)
{
    struct mu_plain *p = calloc(1, sizeof *p);

    if (!p)
        exit(MUSTER_EMEMORY);
    mu_gpu_check(cudaSetDevice(device), "cudaSetDevice");
    p->size = (size_t)size;
    check(ncclCommInitRank(&p->comm, size, *(const ncclUniqueId *)id, rank),
          "ncclCommInitRank");
    return p;
}

void mu_plain_close(struct mu_plain *p)
{
    if (p)
        check(ncclCommDestroy(p->comm), "ncclCommDestroy");
    free(p);
}

void mu_plain_call(struct mu_plain *p, int func, const void *send, void *recv,
                   size_t bytes, void *stream)
{
    size_t count = bytes / 4;

    switch (func) {
    case MU_TUNE_ALLREDUCE:
        check(ncclAllReduce(recv, recv, count, ncclFloat, ncclSum, p->comm, stream),
              "ncclAllReduce");
        break;
    case MU_TUNE_ALLGATHER:
        check(ncclAllGather(send, recv, count / p->size, ncclFloat, p->comm, stream),
              "ncclAllGather");
        break;
    case MU_TUNE_REDUCE_SCATTER:
        check(ncclReduceScatter(send, recv, count / p->size, ncclFloat, ncclSum,
                                p->comm, stream),
              "ncclReduceScatter");
        break;
    default:
        check(ncclBroadcast(recv, recv, count, ncclFloat, 0, p->comm, stream),
              "ncclBroadcast");
    }
}
