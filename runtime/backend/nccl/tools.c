/* SPDX-License-Identifier: BSD-3-Clause */
/* tools.c - functions of the NCCL backend for benchmarks and tests, beyond its table */
#include <string.h>

#include "runtime/backend/nccl/nccl.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int mu_nccl_force(struct mu_backend *backend, const char *path)
{
    struct mu_nccl_backend *b = mu_nccl_of(backend);

    b->forced = -1;
    if (strcmp(path, "auto") == 0)
        return 0;
    for (int i = 0; mu_algo_names[i]; i++)
        if (strcmp(path, mu_algo_names[i]) == 0)
            b->forced = i;
    return b->forced < 0 ? -1 : 0;
}

EXPORTED const struct mu_algo_table *mu_nccl_table(const struct mu_backend *backend)
{
    const struct mu_nccl_backend *b = mu_nccl_of(backend);

    return &b->table;
}

EXPORTED void *mu_nccl_peer(struct mu_backend *backend, const void *p, int local_rank)
{
    struct mu_nccl_backend *b = mu_nccl_of(backend);
    struct mu_places places;

    if (!b->own || local_rank >= b->env.local_size ||
        !mu_nccl_arena_peers(b, p, 1, &places))
        return NULL;
    return places.peer[local_rank];
}

EXPORTED int mu_nccl_sendrecv(struct mu_backend *backend, const void *send, void *recv,
                              size_t count, enum muster_dtype dtype, int peer,
                              void *stream, struct mu_err *err)
{
    struct mu_nccl_backend *b = mu_nccl_of(backend);
    ncclDataType_t type = mu_nccl_type(dtype);
    ncclResult_t rc;

    mu_comm_calls(b);
    rc = ncclGroupStart();
    if (rc == ncclSuccess)
        rc = ncclSend(send, count, type, peer, b->comm, stream);
    if (rc == ncclSuccess)
        rc = ncclRecv(recv, count, type, peer, b->comm, stream);
    if (rc == ncclSuccess)
        rc = ncclGroupEnd();
    return mu_comm_called(b, rc, "send and receive", err);
}

EXPORTED int mu_nccl_plain(struct mu_backend *backend, const void *send, void *recv,
                           size_t count, enum muster_dtype dtype, void *stream,
                           struct mu_err *err)
{
    struct mu_nccl_backend *b = mu_nccl_of(backend);

    mu_comm_calls(b);
    return mu_comm_called(
        b,
        ncclAllReduce(send, recv, count, mu_nccl_type(dtype), ncclSum, b->comm, stream),
        "an all-reduce of NCCL", err);
}
