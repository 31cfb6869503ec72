/* SPDX-License-Identifier: BSD-3-Clause */
/* coll_args.c - arguments of a collective: check, compare with other ranks, describe;
 * overlapping buffers
 */
#include <stdio.h>
#include <string.h>

#include "runtime/backend/host/host.h"
#include "runtime/core/dtype.h"

const char *mu_kind_name(enum mu_coll_kind kind)
{
    static const char *const names[] = { "all-reduce", "broadcast", "all-gather",
                                         "reduce-scatter", "barrier" };

    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}

const char *mu_rank_text(const struct mu_host_backend *b, int rank, char *buf,
                         size_t len)
{
    if (rank >= 0 && rank < b->env.size && b->host_of[rank])
        snprintf(buf, len, "rank %d (node %s)", rank, b->host_of[rank]);
    else
        snprintf(buf, len, "rank %d", rank);
    return buf;
}

const char *mu_host_request_text(const struct mu_host_request *rq)
{
    return rq->what;
}

struct mu_signature mu_host_request_signature(const struct mu_host_request *rq)
{
    const struct mu_coll *c = &rq->coll;

    return (struct mu_signature){ .kind = (uint8_t)c->kind,
                                  .dtype = (uint8_t)c->dtype,
                                  .op = (uint8_t)c->op,
                                  .root = c->root,
                                  .count = c->count,
                                  .scale = c->scale,
                                  .owner = c->owner };
}

static const char *op_name(unsigned op)
{
    static const char *const names[] = {
        [MUSTER_SUM] = "sum", [MUSTER_MIN] = "minimum", [MUSTER_MAX] = "maximum"
    };

    return op <= MUSTER_MAX ? names[op] : "?";
}

/* owner: name the ddp object that the collective belongs to, if it has one. */
static void describe(const struct mu_signature *s, bool owner, char *buf, size_t len)
{
    const char *type = mu_dtype_name((enum muster_dtype)s->dtype);
    unsigned long long count = s->count;

    if (s->kind == MU_COLL_BARRIER)
        snprintf(buf, len, "a barrier");
    else if (owner && s->owner.object > 0)
        snprintf(buf, len, "%s of %s %u of ddp object %u in step %llu",
                 mu_kind_name((enum mu_coll_kind)s->kind),
                 s->kind == MU_COLL_BROADCAST ? "parameter" : "bucket", s->owner.part,
                 s->owner.object, (unsigned long long)s->owner.step);
    else if (s->kind == MU_COLL_BROADCAST)
        snprintf(buf, len, "broadcast of %llu %s from rank %d", count, type, s->root);
    else
        snprintf(buf, len, "%s of %llu %s (%s, scale %g)",
                 mu_kind_name((enum mu_coll_kind)s->kind), count, type, op_name(s->op),
                 s->scale);
}

static bool same_call(const struct mu_signature *a, const struct mu_signature *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == MU_COLL_BARRIER)
        return true;
    if (a->dtype != b->dtype || a->count != b->count)
        return false;
    if (a->kind == MU_COLL_BROADCAST)
        return a->root == b->root;
    return a->kind == MU_COLL_ALLGATHER || (a->op == b->op && a->scale == b->scale);
}

static bool same_owner(const struct mu_owner *a, const struct mu_owner *b)
{
    return a->object == b->object && a->part == b->part && a->step == b->step;
}

bool mu_host_request_agrees(const struct mu_host_backend *b,
                            const struct mu_host_request *rq, int rank,
                            const struct mu_signature *theirs, char *why, size_t len)
{
    struct mu_signature own = mu_host_request_signature(rq);
    bool order = !same_owner(&own.owner, &theirs->owner);
    char who[128], here[128], this[128], that[128];

    if (!order && same_call(&own, theirs))
        return true;
    describe(&own, order, this, sizeof this);
    describe(theirs, order, that, sizeof that);
    mu_rank_text(b, rank, who, sizeof who);
    mu_rank_text(b, b->env.rank, here, sizeof here);
    if (order)
        snprintf(why, len,
                 "%s calls %s where %s calls %s: gradients of all ddp objects, "
                 "and collectives beside them, must start in the same order on "
                 "all ranks",
                 who, that, here, this);
    else
        snprintf(why, len, "%s calls %s where %s calls %s (%s)", who, that, here, this,
                 mu_host_request_text(rq));
    return false;
}

static bool adds(enum mu_coll_kind kind)
{
    return kind == MU_COLL_ALLREDUCE || kind == MU_COLL_REDUCE_SCATTER;
}

static bool overlap(const void *a, size_t alen, const void *b, size_t blen)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return alen && blen && x < y + blen && y < x + alen;
}

int mu_host_request_check(const struct mu_host_backend *b, const struct mu_coll *coll,
                          struct mu_err *err)
{
    size_t esize = mu_dtype_size(coll->dtype), n = (size_t)b->env.size, bytes;

    if ((unsigned)coll->kind > MU_COLL_BARRIER)
        return mu_err_set(err, MUSTER_EUSAGE, "unknown collective %d", (int)coll->kind);
    if (coll->kind == MU_COLL_BARRIER)
        return 0;
    if (!esize)
        return mu_err_set(err, MUSTER_EUSAGE, "unknown element type %d",
                          (int)coll->dtype);
    if ((unsigned)coll->op > MUSTER_MAX)
        return mu_err_set(err, MUSTER_EUSAGE, "unknown operation %d", (int)coll->op);
    if (adds(coll->kind) && coll->dtype == MUSTER_BYTE)
        return mu_err_set(err, MUSTER_EUSAGE, "%s of bytes, which cannot be added",
                          mu_kind_name(coll->kind));
    if (coll->count > SIZE_MAX / 2 / esize / n)
        return mu_err_set(err, MUSTER_EUSAGE, "%s of %zu elements is too large",
                          mu_kind_name(coll->kind), coll->count);
    if (coll->kind == MU_COLL_BROADCAST &&
        (coll->root < 0 || coll->root >= b->env.size))
        return mu_err_set(err, MUSTER_EUSAGE, "broadcast from rank %d in a world of %d",
                          coll->root, b->env.size);
    if (coll->count == 0)
        return 0;
    if (!coll->recv)
        return mu_err_set(err, MUSTER_EUSAGE, "%s: the receive buffer is NULL",
                          mu_kind_name(coll->kind));
    if (!coll->send && (coll->kind != MU_COLL_BROADCAST || coll->root == b->env.rank))
        return mu_err_set(err, MUSTER_EUSAGE, "%s: the send buffer is NULL",
                          mu_kind_name(coll->kind));
    bytes = coll->count * esize;
    if (coll->kind == MU_COLL_ALLREDUCE && coll->send != coll->recv &&
        overlap(coll->send, bytes, coll->recv, bytes))
        return mu_err_set(
            err, MUSTER_EUSAGE,
            "all-reduce: send and receive buffer overlap but are not equal");
    return 0;
}

void mu_host_request_settle(const struct mu_host_backend *b, struct mu_host_request *rq)
{
    struct mu_coll *c = &rq->coll;
    size_t bytes = c->count * rq->esize, n = (size_t)b->env.size;
    char *own;

    switch (c->kind) {
    case MU_COLL_BROADCAST:
        if (b->env.rank == c->root && bytes && c->send != c->recv)
            memmove(c->recv, c->send, bytes);
        c->send = c->recv;
        break;
    case MU_COLL_ALLGATHER:
        own = (char *)c->recv + (size_t)b->env.rank * bytes;
        if (c->send != own && overlap(c->send, bytes, c->recv, n * bytes)) {
            memmove(own, c->send, bytes);
            c->send = own;
        }
        break;
    case MU_COLL_REDUCE_SCATTER:
        own = (char *)c->send + (size_t)b->env.rank * bytes;
        if (c->recv != own && overlap(c->send, n * bytes, c->recv, bytes)) {
            /* Other ranks still read the part that recv covers. */
            rq->result = c->recv;
            c->recv = own;
        }
        break;
    case MU_COLL_ALLREDUCE:
    case MU_COLL_BARRIER:
        break;
    }
}

void mu_host_request_finish(struct mu_host_request *rq)
{
    if (rq->result)
        memmove(rq->result, rq->coll.recv, rq->coll.count * rq->esize);
}
