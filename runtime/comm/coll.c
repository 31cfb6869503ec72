/* SPDX-License-Identifier: BSD-3-Clause */
/* coll.c - collectives on the caller's own buffers */
#include "runtime/api/impl.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/core/dtype.h"

static size_t bytes_of(const struct mu_coll *coll)
{
    return coll->count * mu_dtype_size(coll->dtype);
}

uint64_t mu_coll_order(uint64_t order, const struct mu_owner *owner)
{
    uint64_t word = (uint64_t)owner->object << 32 | owner->part;

    order = (order ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    order = (order ^ order >> 29 ^ owner->step) * UINT64_C(0xbf58476d1ce4e5b9);
    return order ^ order >> 32;
}

int mu_coll_start(struct muster *m, const struct mu_coll *coll, struct mu_started *out,
                  struct mu_err *err)
{
    if (mu_shrink_pending(m, err) < 0)
        return -1;
    pthread_mutex_lock(&m->flight_lock);
    out->number = mu_flight_enter(&m->flight, coll->what,
                                  coll->kind == MU_COLL_BARRIER ? 0 : bytes_of(coll),
                                  mu_clock_s());
    pthread_mutex_unlock(&m->flight_lock);
    if (m->ops->start(m->backend, coll, &out->request, err) < 0)
        return mu_failure_settle(m, err);
    return 0;
}

int mu_coll_join(struct muster *m, const struct mu_started *started, const char *what,
                 void *stream, struct mu_err *err)
{
    int rc;

    if (m->control)
        mu_control_wait_begin(m->control, what);
    rc = m->ops->join(m->backend, started->request, stream, err);
    if (m->control)
        mu_control_wait_end(m->control);
    if (rc < 0)
        return mu_failure_settle(m, err);
    pthread_mutex_lock(&m->flight_lock);
    mu_flight_leave(&m->flight, started->number, mu_clock_s());
    pthread_mutex_unlock(&m->flight_lock);
    return 0;
}

int mu_coll_run(struct muster *m, const struct mu_coll *coll, struct mu_err *err)
{
    struct mu_started started;

    if (mu_coll_start(m, coll, &started, err) < 0)
        return -1;
    return mu_coll_join(m, &started, coll->what, coll->stream, err);
}

/* One rank alone has gathered as soon as it asks. */
static int gather_alone(const void *data, size_t len, struct mu_gathered *out,
                        struct mu_err *err)
{
    struct mu_gathered g = { malloc(len + 1), malloc(sizeof *g.at),
                             malloc(sizeof *g.len) };

    if (!g.blob || !g.at || !g.len) {
        mu_gathered_clear(&g);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    }
    if (len > 0)
        memcpy(g.blob, data, len);
    g.at[0] = g.blob;
    g.len[0] = len;
    *out = g;
    return 0;
}

int mu_gather(struct muster *m, const char *what, const void *data, size_t len,
              struct mu_gathered *out, struct mu_err *err)
{
    uint64_t number;

    if (mu_shrink_pending(m, err) < 0)
        return -1;
    if (!m->control)
        return gather_alone(data, len, out, err);
    pthread_mutex_lock(&m->flight_lock);
    number = mu_flight_enter(&m->flight, what, len, mu_clock_s());
    pthread_mutex_unlock(&m->flight_lock);
    if (mu_control_gather(m->control, what, data, len, out, err) < 0)
        return mu_failure_settle(m, err);
    pthread_mutex_lock(&m->flight_lock);
    mu_flight_leave(&m->flight, number, mu_clock_s());
    pthread_mutex_unlock(&m->flight_lock);
    return 0;
}

static int check(struct muster *m, const char *call, const void *a, const void *b,
                 size_t count, enum muster_dtype dtype)
{
    size_t size = mu_dtype_size(dtype);

    if (size == 0)
        return mu_fail(m, MUSTER_EUSAGE, "%s: unknown dtype %d", call, (int)dtype);
    if (count > 0 && (!a || !b))
        return mu_fail(m, MUSTER_EUSAGE, "%s: the buffer of %zu elements is NULL", call,
                       count);
    if (count > SIZE_MAX / 2 / size / (size_t)m->world->size)
        return mu_fail(m, MUSTER_EUSAGE, "%s: %zu elements are too many", call, count);
    return MUSTER_OK;
}

/* A collective of the caller's own counts by what it is. */
static void put_in_order(struct muster *m, const struct mu_coll *coll)
{
    const uint32_t what[4] = { coll->kind, coll->dtype, coll->op,
                               (uint32_t)coll->root };
    const struct mu_owner plain = { 0, (uint32_t)mu_hash(0, what, sizeof what),
                                    coll->count };

    if (m->owner.object > 0)
        return; /* a hook's: a part of its bucket */
    m->order = mu_coll_order(m->order, &plain);
    m->ordered++;
}

static int run(struct muster *m, const char *call, struct mu_coll *coll)
{
    struct mu_err err = { 0 };
    char what[96];

    snprintf(what, sizeof what, "%s of %zu %s", call, coll->count,
             mu_dtype_name(coll->dtype));
    coll->what = what;
    coll->owner = m->owner;
    if ((mu_coll_on_host(m, coll) ? mu_coll_run_on_host(m, coll, &err)
                                  : mu_coll_run(m, coll, &err)) < 0)
        return mu_fail_err(m, &err);
    put_in_order(m, coll);
    return MUSTER_OK;
}

int muster_allreduce(struct muster *m, void *buffer, size_t count,
                     enum muster_dtype dtype, enum muster_op op, void *stream)
{
    struct mu_coll coll = { .kind = MU_COLL_ALLREDUCE,
                            .dtype = dtype,
                            .op = op,
                            .send = buffer,
                            .recv = buffer,
                            .count = count,
                            .scale = 1,
                            .stream = stream,
                            .direct = true };
    int rc = check(m, "muster_allreduce", buffer, buffer, count, dtype);

    if (rc == MUSTER_OK && (unsigned)op > MUSTER_MAX)
        rc = mu_fail(m, MUSTER_EUSAGE, "muster_allreduce: unknown operation %d",
                     (int)op);
    return rc ? rc : run(m, "all-reduce", &coll);
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
    int rc = check(m, "muster_broadcast", buffer, buffer, count, dtype);

    if (rc == MUSTER_OK && (root < 0 || root >= m->world->size))
        rc = mu_fail(m, MUSTER_EUSAGE, "muster_broadcast: root %d is not in 0..%d",
                     root, m->world->size - 1);
    return rc ? rc : run(m, "broadcast", &coll);
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
    int rc = check(m, "muster_allgather", send, recv, count, dtype);

    return rc ? rc : run(m, "all-gather", &coll);
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
    int rc = check(m, "muster_reduce_scatter", send, recv, count, dtype);

    return rc ? rc : run(m, "reduce-scatter", &coll);
}

int muster_barrier(struct muster *m)
{
    struct mu_gathered all;
    struct mu_err err = { 0 };

    /* What this rank has started is finished before it says that it is here. */
    if (m->ops->drain(m->backend, NULL, &err) < 0) {
        mu_failure_settle(m, &err);
        return mu_fail_err(m, &err);
    }
    if (mu_gather(m, "muster_barrier", NULL, 0, &all, &err) < 0)
        return mu_fail_err(m, &err);
    mu_gathered_clear(&all);
    return MUSTER_OK;
}

void *muster_alloc(struct muster *m, size_t bytes)
{
    struct mu_err err = { 0 };
    void *p = m->ops->alloc(m->backend, bytes, &err);

    if (!p)
        mu_fail_err(m, &err);
    return p;
}

void muster_free(struct muster *m, void *p)
{
    if (p)
        m->ops->free(m->backend, p);
}
