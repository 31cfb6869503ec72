/* SPDX-License-Identifier: BSD-3-Clause */
/* coll_host.c - collectives on host memory when the backend works on a GPU's
 *
 * Data go through a block of the backend's memory, chunk by chunk. All ranks must pass
 * host memory: each chunk is a separate collective.
 */
#include "runtime/comm/comm.h"

#include <stdio.h>

#include "runtime/core/dtype.h"

#define STAGE_BYTES ((size_t)4 << 20)

static bool on_host(const struct mu_comm *comm, const struct mu_coll *coll)
{
    const void *at = coll->recv ? coll->recv : coll->send;

    return comm->ops->is_host && at &&
           (coll->count + coll->recv_count > 0 || coll->sends) &&
           comm->ops->is_host(comm->backend, at);
}

/* How many parts of `count` elements each side of the collective has. */
static size_t parts_sent(const struct mu_comm *comm, const struct mu_coll *coll)
{
    return coll->kind == MU_COLL_REDUCE_SCATTER ? (size_t)comm->world->size : 1;
}

static size_t parts_received(const struct mu_comm *comm, const struct mu_coll *coll)
{
    return coll->kind == MU_COLL_ALLGATHER ? (size_t)comm->world->size : 1;
}

static int copy(struct mu_comm *comm, void *dst, const void *src, size_t bytes,
                void *stream, struct mu_err *err)
{
    return comm->ops->copy(comm->backend, dst, src, bytes, stream, err);
}

/* Copy elements from .. from + n - 1 of every part. */
static int run_chunk(struct mu_comm *comm, const struct mu_coll *coll, size_t from,
                     size_t n, struct mu_err *err)
{
    size_t size = mu_dtype_size(coll->dtype), bytes = n * size;
    size_t sent = parts_sent(comm, coll), received = parts_received(comm, coll);
    /* In place stays in place; else the received parts lie behind the sent ones. */
    char *in = comm->stage, *out = coll->send == coll->recv ? in : in + sent * bytes;
    struct mu_coll chunk = *coll;

    for (size_t p = 0; p < sent; p++)
        if (copy(comm, in + p * bytes,
                 (const char *)coll->send + (p * coll->count + from) * size, bytes,
                 coll->stream, err) < 0)
            return -1;
    chunk.send = in;
    chunk.recv = out;
    chunk.count = n;
    if (mu_coll_run(comm, &chunk, err) < 0)
        return -1;
    for (size_t p = 0; p < received; p++)
        if (copy(comm, (char *)coll->recv + (p * coll->count + from) * size,
                 out + p * bytes, bytes, coll->stream, err) < 0)
            return -1;
    return comm->ops->drain(comm->backend, coll->stream, err);
}

static int run_on_host(struct mu_comm *comm, const struct mu_coll *coll,
                       struct mu_err *err)
{
    size_t parts, most;

    if (coll->kind == MU_COLL_REDUCE || coll->kind == MU_COLL_EXCHANGE)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "%s on host memory: beside GPUs it takes GPU memory",
                          coll->what);
    parts = parts_sent(comm, coll) + parts_received(comm, coll);
    most = STAGE_BYTES / parts / mu_dtype_size(coll->dtype);

    if (!comm->stage)
        comm->stage = comm->ops->alloc(comm->backend, STAGE_BYTES, err);
    if (!comm->stage)
        return -1;
    /* Multiples of 128 bytes, so that each part of a chunk is aligned. */
    most -= most % (128 / mu_dtype_size(coll->dtype));
    if (most == 0)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "%s on host memory: too many ranks for the transfer buffer",
                          coll->what);
    for (size_t from = 0; from < coll->count; from += most)
        if (run_chunk(comm, coll, from,
                      coll->count - from < most ? coll->count - from : most, err) < 0)
            return -1;
    return 0;
}

/* Else a hook calls it: part of its bucket. */
static bool is_plain(const struct mu_comm *comm)
{
    return comm->owner.object == 0;
}

/* A collective of the program is named by its kind and size. */
static void put_in_order(struct mu_comm *comm, const struct mu_coll *coll)
{
    const uint32_t what[] = { coll->kind, coll->dtype, coll->op, coll->pattern,
                              (uint32_t)coll->root };
    const struct mu_owner plain = { 0, (uint32_t)mu_hash(0, what, sizeof what),
                                    coll->count };

    if (is_plain(comm))
        mu_comm_order(comm, &plain);
}

static int mix(struct mu_comm *comm, const char *call, struct mu_err *err)
{
    char what[64];

    if (comm->ddps == 0 || comm->mixes)
        return 0;
    snprintf(what, sizeof what, "the first %s beside a ddp object", call);
    return mu_comm_mix(comm, what, err);
}

static int prepare(struct mu_comm *comm, const char *call, struct mu_coll *coll,
                   char what[MU_CALL_TEXT], struct mu_err *err)
{
    if (coll->kind == MU_COLL_EXCHANGE && coll->pattern == MU_ALLTOALLV)
        snprintf(what, MU_CALL_TEXT, "%s of %s", call, mu_dtype_name(coll->dtype));
    else
        snprintf(what, MU_CALL_TEXT, "%s of %zu %s", call, coll->count,
                 mu_dtype_name(coll->dtype));
    coll->what = what;
    coll->owner = comm->owner;
    return is_plain(comm) ? mix(comm, call, err) : 0;
}

int mu_coll_call(struct mu_comm *comm, const char *call, struct mu_coll *coll,
                 struct mu_err *err)
{
    char what[MU_CALL_TEXT];

    if (prepare(comm, call, coll, what, err) < 0)
        return -1;
    put_in_order(comm, coll);
    return on_host(comm, coll) ? run_on_host(comm, coll, err)
                               : mu_coll_run(comm, coll, err);
}

int mu_pair_call(struct mu_comm *comm, const struct mu_coll *coll, struct mu_err *err)
{
    if (on_host(comm, coll))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "%s in host memory: beside GPUs it takes GPU memory",
                          coll->what);
    return mu_coll_run(comm, coll, err);
}

static int refuse_host_memory(const struct mu_comm *comm, const struct mu_coll *coll,
                              struct mu_err *err)
{
    return on_host(comm, coll)
               ? mu_err_set(err, MUSTER_EUSAGE,
                            "%s in host memory: after muster_start it takes GPU memory",
                            coll->what)
               : 0;
}

int mu_coll_begin(struct mu_comm *comm, const char *call, struct mu_coll *coll,
                  char what[MU_CALL_TEXT], struct mu_started *out, struct mu_err *err)
{
    if (prepare(comm, call, coll, what, err) < 0 ||
        refuse_host_memory(comm, coll, err) < 0 ||
        mu_coll_start(comm, coll, out, err) < 0)
        return -1;
    put_in_order(comm, coll);
    return 0;
}

int mu_pair_begin(struct mu_comm *comm, const struct mu_coll *coll,
                  struct mu_started *out, struct mu_err *err)
{
    if (refuse_host_memory(comm, coll, err) < 0)
        return -1;
    return mu_coll_start(comm, coll, out, err);
}
