/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - all-to-all, all-to-all-v, gather, scatter: each rank has a part for each
 *
 * All of them are one collective of the backend: the parts of send and recv by rank.
 */
#include "runtime/api/impl.h"

#include <stdlib.h>

#include "runtime/core/dtype.h"

/* parts[0 .. size-1] of the send buffer, then those of recv. */
static int parts_new(struct muster *m, const char *call, struct mu_coll *coll,
                     struct mu_part **parts)
{
    size_t size = (size_t)m->comm.world->size;

    *parts = calloc(2 * size, sizeof **parts);
    if (!*parts)
        return mu_fail(m, MUSTER_EMEMORY, "%s: out of memory", call);
    coll->sends = *parts;
    coll->recvs = *parts + size;
    return MUSTER_OK;
}

/* Equal parts: one for each rank where `all`, else one for rank `only`. */
static void equal_parts(struct mu_part *parts, int size, bool all, int only,
                        size_t count)
{
    for (int r = 0; r < size; r++)
        if (all)
            parts[r] = (struct mu_part){ (size_t)r * count, count };
        else if (r == only)
            parts[r] = (struct mu_part){ 0, count };
}

/* Run an exchange of equal parts. sends_all, recvs_all: a part for every rank; else
 * sends, recvs: one part for the root.
 */
static int run_equal(struct muster *m, const char *call, const char *name,
                     struct mu_coll *coll, bool sends_all, bool recvs_all)
{
    int size = m->comm.world->size, rc;
    struct mu_part *parts;

    coll->kind = MU_COLL_EXCHANGE;
    coll->scale = 1;
    rc = parts_new(m, call, coll, &parts);
    if (rc)
        return rc;
    if (coll->send)
        equal_parts(parts, size, sends_all, coll->root, coll->count);
    if (coll->recv)
        equal_parts(parts + size, size, recvs_all, coll->root, coll->count);
    rc = mu_run_coll(m, name, coll);
    free(parts);
    return rc;
}

static bool overlap(const char *a, size_t alen, const char *b, size_t blen)
{
    return alen > 0 && blen > 0 && a < b + blen && b < a + alen;
}

int muster_alltoall(struct muster *m, const void *send, void *recv, size_t count,
                    enum muster_dtype dtype, void *stream)
{
    struct mu_coll coll = { .pattern = MU_ALLTOALL,
                            .dtype = dtype,
                            .send = send,
                            .recv = recv,
                            .count = count,
                            .stream = stream };
    int rc = mu_check_buffers(m, "muster_alltoall", send, recv, count, dtype);
    size_t bytes = count * mu_dtype_size(dtype) * (size_t)m->comm.world->size;

    if (rc == MUSTER_OK && overlap(send, bytes, recv, bytes))
        rc = mu_fail(m, MUSTER_EUSAGE,
                     "muster_alltoall: the send and the receive buffer overlap");
    return rc ? rc
              : run_equal(m, "muster_alltoall", "all-to-all", &coll, count > 0,
                          count > 0);
}

int muster_gather(struct muster *m, const void *send, void *recv, size_t count,
                  enum muster_dtype dtype, int root, void *stream)
{
    bool here = root == m->comm.world->rank;
    struct mu_coll coll = { .pattern = MU_GATHER,
                            .dtype = dtype,
                            .send = send,
                            .recv = here ? recv : NULL,
                            .count = count,
                            .root = root,
                            .stream = stream };
    int rc = mu_check_rank(m, "muster_gather", "root", root);

    if (rc == MUSTER_OK)
        rc = mu_check_buffers(m, "muster_gather", send, here ? recv : send, count,
                              dtype);
    return rc ? rc : run_equal(m, "muster_gather", "gather", &coll, false, true);
}

/* recv is inside send, and not where this rank's part is. */
static bool in_another_part(const struct muster *m, const struct mu_coll *c)
{
    size_t bytes = c->count * mu_dtype_size(c->dtype);
    const char *own = (const char *)c->send + (size_t)m->comm.world->rank * bytes;

    return c->recv != own &&
           overlap(c->send, bytes * (size_t)m->comm.world->size, c->recv, bytes);
}

int muster_scatter(struct muster *m, const void *send, void *recv, size_t count,
                   enum muster_dtype dtype, int root, void *stream)
{
    bool here = root == m->comm.world->rank;
    struct mu_coll coll = { .pattern = MU_SCATTER,
                            .dtype = dtype,
                            .send = here ? send : NULL,
                            .recv = recv,
                            .count = count,
                            .root = root,
                            .stream = stream };
    int rc = mu_check_rank(m, "muster_scatter", "root", root);

    if (rc == MUSTER_OK)
        rc = mu_check_buffers(m, "muster_scatter", here ? send : recv, recv, count,
                              dtype);
    if (rc == MUSTER_OK && here && in_another_part(m, &coll))
        rc = mu_fail(m, MUSTER_EUSAGE,
                     "muster_scatter: the receive buffer overlaps the part of another "
                     "rank");
    return rc ? rc : run_equal(m, "muster_scatter", "scatter", &coll, true, false);
}

/* ---- Parts of unequal size ---- */

static void list_parts(struct mu_part *parts, int size, const size_t *counts,
                       const size_t *at)
{
    size_t next = 0;

    for (int r = 0; r < size; r++) {
        parts[r] = (struct mu_part){ at ? at[r] : next, counts[r] };
        next = parts[r].at + parts[r].count;
    }
}

/* Refuse parts that have no buffer, or more bytes than can be counted. */
static int check_parts(struct muster *m, const char *which, const void *buffer,
                       const struct mu_part *parts, size_t element)
{
    const size_t most = SIZE_MAX / 4 / element;

    for (int r = 0; r < m->comm.world->size; r++) {
        if (parts[r].count > most || parts[r].at > most)
            return mu_fail(m, MUSTER_EUSAGE,
                           "muster_alltoallv: the %s part of rank %d, %zu elements at "
                           "%zu, is too large",
                           which, r, parts[r].count, parts[r].at);
        if (parts[r].count > 0 && !buffer)
            return mu_fail(m, MUSTER_EUSAGE, "muster_alltoallv: the %s buffer is NULL",
                           which);
    }
    return MUSTER_OK;
}

/* A part that is received must not change another part, or one that is still to be
 * sent.
 */
static int check_apart(struct muster *m, const struct mu_coll *c, size_t element)
{
    int size = m->comm.world->size;

    for (int r = 0; r < size; r++) {
        const struct mu_part *in = &c->recvs[r];
        const char *to = (const char *)c->recv + in->at * element;

        for (int q = 0; q < size; q++) {
            const struct mu_part *out = &c->sends[q], *other = &c->recvs[q];

            if (overlap(to, in->count * element,
                        (const char *)c->send + out->at * element,
                        out->count * element))
                return mu_fail(m, MUSTER_EUSAGE,
                               "muster_alltoallv: the part from rank %d overlaps the "
                               "part for rank %d",
                               r, q);
            if (q < r && overlap(to, in->count * element,
                                 (const char *)c->recv + other->at * element,
                                 other->count * element))
                return mu_fail(m, MUSTER_EUSAGE,
                               "muster_alltoallv: the parts from ranks %d and %d "
                               "overlap",
                               q, r);
        }
    }
    return MUSTER_OK;
}

static int check_alltoallv(struct muster *m, const struct mu_coll *c)
{
    size_t element = mu_dtype_size(c->dtype);
    int me = m->comm.world->rank, rc;

    rc = check_parts(m, "send", c->send, c->sends, element);
    if (rc == MUSTER_OK)
        rc = check_parts(m, "receive", c->recv, c->recvs, element);
    if (rc == MUSTER_OK && c->sends[me].count != c->recvs[me].count)
        rc = mu_fail(m, MUSTER_EUSAGE,
                     "muster_alltoallv: this rank sends %zu elements to itself, but "
                     "expects %zu",
                     c->sends[me].count, c->recvs[me].count);
    return rc ? rc : check_apart(m, c, element);
}

int muster_alltoallv(struct muster *m, const void *send, const size_t *send_counts,
                     const size_t *send_at, void *recv, const size_t *recv_counts,
                     const size_t *recv_at, enum muster_dtype dtype, void *stream)
{
    struct mu_coll coll = { .kind = MU_COLL_EXCHANGE,
                            .pattern = MU_ALLTOALLV,
                            .dtype = dtype,
                            .send = send,
                            .recv = recv,
                            .scale = 1,
                            .stream = stream };
    int size = m->comm.world->size;
    int rc =
        mu_check_buffers(m, "muster_alltoallv", send_counts, recv_counts, 1, dtype);
    struct mu_part *parts;

    if (rc == MUSTER_OK)
        rc = parts_new(m, "muster_alltoallv", &coll, &parts);
    if (rc)
        return rc;
    list_parts(parts, size, send_counts, send_at);
    list_parts(parts + size, size, recv_counts, recv_at);
    rc = check_alltoallv(m, &coll);
    if (rc == MUSTER_OK)
        rc = mu_run_coll(m, "all-to-all-v", &coll);
    free(parts);
    return rc;
}
