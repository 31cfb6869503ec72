/* SPDX-License-Identifier: BSD-3-Clause */
/* coll_host.c - collectives on host memory where the backend works on a GPU's
 *
 * Through a piece of the backend's memory, chunk by chunk. All ranks must come with
 * host memory alike: the chunks are collectives of their own.
 */
#include "runtime/api/impl.h"

#include "runtime/core/dtype.h"

#define STAGE_BYTES ((size_t)4 << 20)

bool mu_coll_on_host(const struct muster *m, const struct mu_coll *coll)
{
    return m->ops->is_host && coll->count > 0 &&
           m->ops->is_host(m->backend, coll->recv);
}

/* How many parts of `count` elements each side of the collective has. */
static size_t parts_sent(const struct muster *m, const struct mu_coll *coll)
{
    return coll->kind == MU_COLL_REDUCE_SCATTER ? (size_t)m->world->size : 1;
}

static size_t parts_received(const struct muster *m, const struct mu_coll *coll)
{
    return coll->kind == MU_COLL_ALLGATHER ? (size_t)m->world->size : 1;
}

static int copy(struct muster *m, void *dst, const void *src, size_t bytes,
                void *stream, struct mu_err *err)
{
    return m->ops->copy(m->backend, dst, src, bytes, stream, err);
}

/* Elements from .. from + n - 1 of every part. */
static int run_chunk(struct muster *m, const struct mu_coll *coll, size_t from,
                     size_t n, struct mu_err *err)
{
    size_t size = mu_dtype_size(coll->dtype), bytes = n * size;
    size_t sent = parts_sent(m, coll), received = parts_received(m, coll);
    /* In place stays in place; else the received parts lie behind those sent. */
    char *in = m->stage, *out = coll->send == coll->recv ? in : in + sent * bytes;
    struct mu_coll chunk = *coll;

    for (size_t p = 0; p < sent; p++)
        if (copy(m, in + p * bytes,
                 (const char *)coll->send + (p * coll->count + from) * size, bytes,
                 coll->stream, err) < 0)
            return -1;
    chunk.send = in;
    chunk.recv = out;
    chunk.count = n;
    if (mu_coll_run(m, &chunk, err) < 0)
        return -1;
    for (size_t p = 0; p < received; p++)
        if (copy(m, (char *)coll->recv + (p * coll->count + from) * size,
                 out + p * bytes, bytes, coll->stream, err) < 0)
            return -1;
    return m->ops->drain(m->backend, coll->stream, err);
}

int mu_coll_run_on_host(struct muster *m, const struct mu_coll *coll,
                        struct mu_err *err)
{
    size_t parts = parts_sent(m, coll) + parts_received(m, coll);
    size_t most = STAGE_BYTES / parts / mu_dtype_size(coll->dtype);

    if (!m->stage)
        m->stage = m->ops->alloc(m->backend, STAGE_BYTES, err);
    if (!m->stage)
        return -1;
    /* Whole lines of 128 bytes, so that each part of a chunk is aligned. */
    most -= most % (128 / mu_dtype_size(coll->dtype));
    if (most == 0)
        return mu_err_set(err, MUSTER_EUSAGE, "%s: too many ranks for host memory",
                          coll->what);
    for (size_t from = 0; from < coll->count; from += most)
        if (run_chunk(m, coll, from,
                      coll->count - from < most ? coll->count - from : most, err) < 0)
            return -1;
    return 0;
}
