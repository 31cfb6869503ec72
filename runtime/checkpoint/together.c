/* SPDX-License-Identifier: BSD-3-Clause */
/* together.c - the collectives of a checkpoint */
#include "runtime/checkpoint/checkpoint.h"

#include <errno.h>

#include "runtime/core/status.h"

/* On a GPU a collective is only enqueued: the barrier makes its result readable. */
static int call(struct mu_comm *comm, const char *name, struct mu_coll *coll,
                struct mu_err *err)
{
    return mu_coll_call(comm, name, coll, err) < 0 ? -1 : mu_barrier(comm, err);
}

int mu_checkpoint_min(struct mu_comm *comm, int64_t *values, size_t n,
                      struct mu_err *err)
{
    struct mu_coll coll = { .kind = MU_COLL_ALLREDUCE,
                            .dtype = MUSTER_I64,
                            .op = MUSTER_MIN,
                            .send = values,
                            .recv = values,
                            .count = n,
                            .scale = 1,
                            .direct = true };

    return call(comm, "all-reduce", &coll, err);
}

int mu_checkpoint_gather(struct mu_comm *comm, const int64_t *mine, int64_t *all,
                         size_t n, struct mu_err *err)
{
    struct mu_coll coll = { .kind = MU_COLL_ALLGATHER,
                            .dtype = MUSTER_I64,
                            .send = mine,
                            .recv = all,
                            .count = n,
                            .scale = 1 };

    return call(comm, "all-gather", &coll, err);
}

static int broadcast(struct mu_comm *comm, void *words, uint64_t n, int root,
                     struct mu_err *err)
{
    struct mu_coll coll = { .kind = MU_COLL_BROADCAST,
                            .dtype = MUSTER_I32,
                            .send = words,
                            .recv = words,
                            .count = n,
                            .root = root,
                            .scale = 1 };

    return n > 0 ? mu_coll_call(comm, "broadcast", &coll, err) : 0;
}

int mu_checkpoint_broadcast(struct mu_comm *comm, void *data, uint64_t bytes, int root,
                            struct mu_err *err)
{
    uint64_t words = bytes / sizeof(int32_t), rest = bytes % sizeof(int32_t);
    uint8_t *end = (uint8_t *)data + bytes - rest;
    int32_t tail = 0;

    if (broadcast(comm, data, words, root, err) < 0 ||
        mu_checkpoint_copy(comm, &tail, end, rest, err) < 0 ||
        broadcast(comm, &tail, rest > 0, root, err) < 0 || mu_barrier(comm, err) < 0)
        return -1;
    return mu_checkpoint_copy(comm, end, &tail, rest, err);
}

/* An errno of the file layer as a muster_status; a status stays as it is. */
static int status_of(int code)
{
    if (mu_status_known(code))
        return code;
    return code == ENOMEM ? MUSTER_EMEMORY : MUSTER_EIO;
}

int mu_checkpoint_agree(struct mu_comm *comm, int rc, struct mu_err *err)
{
    const struct mu_world *w = comm->world;
    int64_t first = rc < 0 ? w->rank : w->size;
    struct mu_err lowest = { 0 };

    if (rc < 0) {
        mu_err_set(&lowest, status_of(err->code), "%s", err->text);
        if (w->size > 1)
            mu_err_context(&lowest, "rank %d (node %s)", w->rank, w->host_of[w->rank]);
    }
    if (mu_checkpoint_min(comm, &first, 1, err) < 0)
        return -1;
    if (first == w->size)
        return 0;
    if (mu_checkpoint_broadcast(comm, &lowest, sizeof lowest, (int)first, err) < 0)
        return -1;
    *err = lowest;
    return 1;
}
