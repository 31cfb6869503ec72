/* SPDX-License-Identifier: BSD-3-Clause */
/* staged.c - a chunk of a collective on host memory, copied to GPU memory and back */
#include "runtime/comm/staged.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/core/dtype.h"

bool mu_has_unequal_parts(const struct mu_coll *coll)
{
    return coll->kind == MU_COLL_EXCHANGE && coll->pattern == MU_ALLTOALLV;
}

static void equal_parts(struct mu_part *parts, int n, size_t count)
{
    for (int p = 0; p < n; p++)
        parts[p] = (struct mu_part){ (size_t)p * count, count };
}

static void list_parts(struct mu_staged *s, int rank)
{
    const struct mu_coll *coll = &s->coll;

    switch (coll->kind) {
    case MU_COLL_EXCHANGE:
        memcpy(s->sends, coll->sends, (size_t)s->n * sizeof *s->sends);
        memcpy(s->recvs, coll->recvs, (size_t)s->n * sizeof *s->recvs);
        return;
    case MU_COLL_PAIR:
        equal_parts(s->sends, 1, coll->count);
        equal_parts(s->recvs, 1, coll->recv_count);
        return;
    default:
        equal_parts(s->sends, coll->kind == MU_COLL_REDUCE_SCATTER ? s->n : 1,
                    coll->count);
        if (coll->kind != MU_COLL_REDUCE || coll->root == rank)
            equal_parts(s->recvs, coll->kind == MU_COLL_ALLGATHER ? s->n : 1,
                        coll->count);
    }
}

/* Elements from .. from + most - 1 of every part. Returns how many they are. */
static size_t cut_parts(const struct mu_part *parts, int n, size_t from, size_t most,
                        struct mu_part *out)
{
    size_t at = 0;

    for (int r = 0; r < n; r++) {
        size_t left = parts[r].count > from ? parts[r].count - from : 0;

        out[r] = (struct mu_part){ at, left < most ? left : most };
        at += out[r].count;
    }
    return at;
}

size_t mu_staged_cut(struct mu_staged *s, int k)
{
    size_t from = (size_t)k * s->most, sent, received;
    /* In place stays in place; else the received parts lie behind the sent ones. */
    bool in_place = s->coll.send == s->coll.recv && !mu_has_unequal_parts(&s->coll);

    s->chunk_sends = s->recvs + s->n + (s->at_once ? (size_t)k * 2 * s->n : 0);
    s->chunk_recvs = s->chunk_sends + s->n;
    sent = cut_parts(s->sends, s->n, from, s->most, s->chunk_sends);
    received = cut_parts(s->recvs, s->n, from, s->most, s->chunk_recvs);
    s->from = from;
    s->recv_at = in_place ? 0 : sent;
    s->chunk = s->coll;
    s->chunk.sends = s->chunk_sends;
    s->chunk.recvs = s->chunk_recvs;
    if (s->coll.count - from > s->most)
        s->chunk.count = s->most;
    else
        s->chunk.count -= from;
    return (!in_place         ? sent + received
            : sent > received ? sent
                              : received) *
           mu_dtype_size(s->coll.dtype);
}

struct mu_staged *mu_staged_new(const struct mu_comm *comm, const struct mu_coll *coll,
                                size_t most, bool at_once, struct mu_err *err)
{
    size_t n = (size_t)comm->world->size;
    size_t chunks = coll->count > 0 ? (coll->count - 1) / most + 1 : 1;
    struct mu_staged *s = calloc(1, sizeof *s);

    if (!s) {
        mu_err_set(err, MUSTER_EMEMORY, "%s: out of memory", coll->what);
        return NULL;
    }
    s->coll = *coll;
    s->n = (int)n;
    s->most = most;
    s->chunks = (int)chunks;
    s->at_once = at_once;
    s->earlier = calloc(at_once ? chunks : 1, sizeof *s->earlier);
    s->parts = calloc((at_once ? chunks + 1 : 2) * 2 * n, sizeof *s->parts);
    if (!s->earlier || !s->parts) {
        mu_staged_delete(s);
        mu_err_set(err, MUSTER_EMEMORY, "%s: out of memory", coll->what);
        return NULL;
    }
    s->sends = s->parts;
    s->recvs = s->sends + n;
    list_parts(s, comm->world->rank);
    s->chunk_bytes = mu_staged_cut(s, 0);
    return s;
}

void mu_staged_delete(struct mu_staged *s)
{
    free(s->earlier);
    free(s->parts);
    free(s);
}

static int copy(struct mu_comm *comm, const struct mu_staged *s, void *dst,
                const void *src, size_t count, struct mu_err *err)
{
    size_t bytes = count * mu_dtype_size(s->coll.dtype);

    if (bytes == 0)
        return 0;
    return comm->ops->copy(comm->backend, dst, src, bytes, s->coll.stream, err) < 0
               ? mu_comm_fail(comm, err)
               : 0;
}

static char *received(const struct mu_staged *s)
{
    return s->memory + s->recv_at * mu_dtype_size(s->coll.dtype);
}

int mu_staged_copy_in(struct mu_comm *comm, struct mu_staged *s, struct mu_err *err)
{
    size_t size = mu_dtype_size(s->coll.dtype);
    const char *send = s->coll.send;

    s->chunk.send = s->memory;
    s->chunk.recv = received(s);
    for (int p = 0; p < s->n; p++)
        if (copy(comm, s, s->memory + s->chunk_sends[p].at * size,
                 send + (s->sends[p].at + s->from) * size, s->chunk_sends[p].count,
                 err) < 0)
            return -1;
    return 0;
}

int mu_staged_copy_out(struct mu_comm *comm, const struct mu_staged *s,
                       struct mu_err *err)
{
    size_t size = mu_dtype_size(s->coll.dtype);
    const char *out = received(s);
    char *recv = s->coll.recv;

    for (int p = 0; p < s->n; p++)
        if (copy(comm, s, recv + (s->recvs[p].at + s->from) * size,
                 out + s->chunk_recvs[p].at * size, s->chunk_recvs[p].count, err) < 0)
            return -1;
    return 0;
}
