/* SPDX-License-Identifier: BSD-3-Clause */
/* coll.c - collectives on the caller's own buffers */
#include "runtime/api/impl.h"

#include <stdint.h>

#include "runtime/core/dtype.h"

int mu_check_buffers(struct muster *m, const char *call, const void *a, const void *b,
                     size_t count, enum muster_dtype dtype)
{
    size_t size = mu_dtype_size(dtype);

    if (size == 0)
        return mu_fail(m, MUSTER_EUSAGE, "%s: unknown dtype %d", call, (int)dtype);
    if (count > 0 && (!a || !b))
        return mu_fail(m, MUSTER_EUSAGE, "%s: the buffer for %zu elements is NULL",
                       call, count);
    if (count > SIZE_MAX / 2 / size / (size_t)m->comm.world->size)
        return mu_fail(m, MUSTER_EUSAGE, "%s: %zu elements are too many", call, count);
    return MUSTER_OK;
}

int mu_check_rank(struct muster *m, const char *call, const char *role, int rank)
{
    if (rank >= 0 && rank < m->comm.world->size)
        return MUSTER_OK;
    return mu_fail(m, MUSTER_EUSAGE, "%s: %s %d is not in 0..%d", call, role, rank,
                   m->comm.world->size - 1);
}

static int check_op(struct muster *m, const char *call, enum muster_dtype dtype,
                    enum muster_op op)
{
    if ((unsigned)op > MUSTER_MEAN)
        return mu_fail(m, MUSTER_EUSAGE, "%s: unknown operation %d", call, (int)op);
    if (dtype == MUSTER_BYTE)
        return mu_fail(m, MUSTER_EUSAGE, "%s: bytes cannot be added, use a number type",
                       call);
    return MUSTER_OK;
}

/* A mean is a sum that is scaled. */
static void set_op(const struct muster *m, struct mu_coll *coll, enum muster_op op)
{
    coll->op = op == MUSTER_MEAN ? MUSTER_SUM : op;
    coll->scale = op == MUSTER_MEAN ? 1.0 / m->comm.world->size : 1;
}

int mu_run_coll(struct muster *m, const char *call, struct mu_coll *coll)
{
    struct mu_err err;

    mu_err_clear(&err);
    if (m->start_into)
        return mu_handle_start(m, call, coll);
    return mu_coll_call(&m->comm, call, coll, &err) < 0 ? mu_fail_err(m, &err)
                                                        : MUSTER_OK;
}

int muster_allreduce(struct muster *m, void *buffer, size_t count,
                     enum muster_dtype dtype, enum muster_op op, void *stream)
{
    struct mu_coll coll = { .kind = MU_COLL_ALLREDUCE,
                            .dtype = dtype,
                            .send = buffer,
                            .recv = buffer,
                            .count = count,
                            .stream = stream,
                            .direct = true };
    int rc = mu_check_buffers(m, "muster_allreduce", buffer, buffer, count, dtype);

    if (rc == MUSTER_OK)
        rc = check_op(m, "muster_allreduce", dtype, op);
    set_op(m, &coll, op);
    return rc ? rc : mu_run_coll(m, "all-reduce", &coll);
}

int muster_broadcast(struct muster *m, void *buffer, size_t count,
                     enum muster_dtype dtype, int root, void *stream)
{
    struct mu_coll coll = { .kind = MU_COLL_BROADCAST,
                            .dtype = dtype,
                            .send = buffer,
                            .recv = buffer,
                            .count = count,
                            .root = root,
                            .scale = 1,
                            .stream = stream };
    int rc = mu_check_buffers(m, "muster_broadcast", buffer, buffer, count, dtype);

    if (rc == MUSTER_OK)
        rc = mu_check_rank(m, "muster_broadcast", "root", root);
    return rc ? rc : mu_run_coll(m, "broadcast", &coll);
}

int muster_reduce(struct muster *m, const void *send, void *recv, size_t count,
                  enum muster_dtype dtype, enum muster_op op, int root, void *stream)
{
    struct mu_coll coll = { .kind = MU_COLL_REDUCE,
                            .dtype = dtype,
                            .send = send,
                            .recv = recv,
                            .count = count,
                            .root = root,
                            .stream = stream };
    int rc = mu_check_rank(m, "muster_reduce", "root", root);

    if (rc == MUSTER_OK)
        rc = mu_check_buffers(m, "muster_reduce", send,
                              root == m->comm.world->rank ? recv : send, count, dtype);
    if (rc == MUSTER_OK)
        rc = check_op(m, "muster_reduce", dtype, op);
    set_op(m, &coll, op);
    return rc ? rc : mu_run_coll(m, "reduce", &coll);
}

int muster_allgather(struct muster *m, const void *send, void *recv, size_t count,
                     enum muster_dtype dtype, void *stream)
{
    struct mu_coll coll = { .kind = MU_COLL_ALLGATHER,
                            .dtype = dtype,
                            .send = send,
                            .recv = recv,
                            .count = count,
                            .scale = 1,
                            .stream = stream };
    int rc = mu_check_buffers(m, "muster_allgather", send, recv, count, dtype);

    return rc ? rc : mu_run_coll(m, "all-gather", &coll);
}

int muster_reduce_scatter(struct muster *m, const void *send, void *recv, size_t count,
                          enum muster_dtype dtype, void *stream)
{
    struct mu_coll coll = { .kind = MU_COLL_REDUCE_SCATTER,
                            .dtype = dtype,
                            .send = send,
                            .recv = recv,
                            .count = count,
                            .scale = 1,
                            .stream = stream };
    int rc = mu_check_buffers(m, "muster_reduce_scatter", send, recv, count, dtype);

    if (rc == MUSTER_OK)
        rc = check_op(m, "muster_reduce_scatter", dtype, MUSTER_SUM);
    return rc ? rc : mu_run_coll(m, "reduce-scatter", &coll);
}

int muster_barrier(struct muster *m)
{
    struct mu_err err;

    mu_err_clear(&err);
    if (m->start_into)
        return mu_fail(
            m, MUSTER_EUSAGE,
            "muster_start: a barrier cannot be started, use an all-reduce of "
            "one element");
    return mu_barrier(&m->comm, &err) < 0 ? mu_fail_err(m, &err) : MUSTER_OK;
}

void *muster_alloc(struct muster *m, size_t bytes)
{
    struct mu_err err = { 0 };
    void *p = m->comm.ops->alloc(m->comm.backend, bytes, &err);

    if (!p)
        mu_fail_err(m, &err);
    return p;
}

void muster_free(struct muster *m, void *p)
{
    if (p)
        m->comm.ops->free(m->comm.backend, p);
}
