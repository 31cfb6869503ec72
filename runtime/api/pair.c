/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - messages between two ranks: send, receive, both at once */
#include "runtime/api/impl.h"

#include <stdio.h>

#include "runtime/core/dtype.h"

static int run(struct muster *m, struct mu_coll *coll)
{
    struct mu_err err = { 0 };

    coll->kind = MU_COLL_PAIR;
    coll->scale = 1;
    if (m->start_into)
        return mu_handle_start(m, NULL, coll);
    return mu_pair_call(&m->comm, coll, &err) < 0 ? mu_fail_err(m, &err) : MUSTER_OK;
}

static int check_other(struct muster *m, const char *call, int rank)
{
    int rc = mu_check_rank(m, call, "rank", rank);

    if (rc == MUSTER_OK && rank == m->comm.world->rank)
        rc =
            mu_fail(m, MUSTER_EUSAGE,
                    "%s: rank %d is this rank itself, use muster_sendrecv", call, rank);
    return rc;
}

int muster_send(struct muster *m, const void *buffer, size_t count,
                enum muster_dtype dtype, int to, void *stream)
{
    char what[96];
    struct mu_coll coll = { .dtype = dtype,
                            .send = buffer,
                            .count = count,
                            .to = to,
                            .from = -1,
                            .stream = stream,
                            .what = what };
    int rc = mu_check_buffers(m, "muster_send", buffer, buffer, count, dtype);

    if (rc == MUSTER_OK)
        rc = check_other(m, "muster_send", to);
    snprintf(what, sizeof what, "send of %zu %s to rank %d", count,
             mu_dtype_name(dtype), to);
    return rc ? rc : run(m, &coll);
}

int muster_recv(struct muster *m, void *buffer, size_t count, enum muster_dtype dtype,
                int from, void *stream)
{
    char what[96];
    struct mu_coll coll = { .dtype = dtype,
                            .recv = buffer,
                            .recv_count = count,
                            .to = -1,
                            .from = from,
                            .stream = stream,
                            .what = what };
    int rc = mu_check_buffers(m, "muster_recv", buffer, buffer, count, dtype);

    if (rc == MUSTER_OK)
        rc = check_other(m, "muster_recv", from);
    snprintf(what, sizeof what, "receive of %zu %s from rank %d", count,
             mu_dtype_name(dtype), from);
    return rc ? rc : run(m, &coll);
}

/* Both buffers, both ranks, and a message to this rank itself. */
static int check_both(struct muster *m, const struct mu_coll *c)
{
    static const char call[] = "muster_sendrecv";
    int me = m->comm.world->rank;
    size_t size = mu_dtype_size(c->dtype);
    const char *out = c->send, *in = c->recv;
    int rc = mu_check_buffers(m, call, out, out, c->count, c->dtype);

    if (rc == MUSTER_OK)
        rc = mu_check_buffers(m, call, in, in, c->recv_count, c->dtype);
    if (rc == MUSTER_OK)
        rc = mu_check_rank(m, call, "rank", c->to);
    if (rc == MUSTER_OK)
        rc = mu_check_rank(m, call, "rank", c->from);
    if (rc != MUSTER_OK)
        return rc;
    if ((c->to == me) != (c->from == me))
        return mu_fail(m, MUSTER_EUSAGE,
                       "%s: rank %d sends to rank %d and receives from rank %d: to "
                       "itself both or neither",
                       call, me, c->to, c->from);
    if (c->to == me && c->count != c->recv_count)
        return mu_fail(m, MUSTER_EUSAGE,
                       "%s: this rank sends %zu elements to itself, but expects %zu",
                       call, c->count, c->recv_count);
    if (c->count > 0 && c->recv_count > 0 && in < out + c->count * size &&
        out < in + c->recv_count * size)
        return mu_fail(m, MUSTER_EUSAGE, "%s: the send and the receive buffer overlap",
                       call);
    return MUSTER_OK;
}

int muster_sendrecv(struct muster *m, const void *send, size_t send_count, int to,
                    void *recv, size_t recv_count, int from, enum muster_dtype dtype,
                    void *stream)
{
    char what[128];
    struct mu_coll coll = { .dtype = dtype,
                            .send = send,
                            .recv = recv,
                            .count = send_count,
                            .recv_count = recv_count,
                            .to = to,
                            .from = from,
                            .stream = stream,
                            .what = what };
    int rc = check_both(m, &coll);

    snprintf(what, sizeof what, "receive of %zu %s from rank %d and send to rank %d",
             recv_count, mu_dtype_name(dtype), from, to);
    return rc ? rc : run(m, &coll);
}
