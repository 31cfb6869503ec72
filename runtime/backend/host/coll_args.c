/* SPDX-License-Identifier: BSD-3-Clause */
/* coll_args.c - a request from the arguments of a collective: check, compare with other
 * ranks, describe; overlapping buffers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/host/host.h"
#include "runtime/backend/host/memory.h"
#include "runtime/core/dtype.h"

/* Parts begin at multiples of this many elements, so that two ranks never write into
 * the same cache line.
 */
#define PART_ALIGN 64

const char *mu_kind_name(enum mu_coll_kind kind)
{
    static const char *const names[] = { "all-reduce",     "broadcast", "all-gather",
                                         "reduce-scatter", "barrier",   "reduce",
                                         "exchange",       "message" };

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
                                  .op = (uint8_t)(c->kind == MU_COLL_EXCHANGE
                                                      ? (unsigned)c->pattern
                                                      : (unsigned)c->op),
                                  .root = c->root,
                                  .count = c->count,
                                  .scale = c->scale,
                                  .owner = c->owner };
}

struct mu_span mu_host_part(const struct mu_coll *c, int nparts, int part)
{
    size_t n = (size_t)nparts, each, at;

    if (c->kind == MU_COLL_ALLGATHER || c->kind == MU_COLL_REDUCE_SCATTER)
        return (struct mu_span){ (size_t)part * c->count, c->count };
    each = ((c->count + n - 1) / n + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    at = each * (size_t)part < c->count ? each * (size_t)part : c->count;
    return (struct mu_span){ at, c->count - at < each ? c->count - at : each };
}

size_t mu_host_payload(const struct mu_host_request *rq, int nparts)
{
    size_t bytes = rq->coll.count * rq->esize;

    if (rq->coll.kind == MU_COLL_REDUCE_SCATTER)
        bytes *= (size_t)nparts;
    return rq->coll.kind == MU_COLL_BARRIER ? 0 : bytes;
}

static const char *op_name(unsigned op)
{
    static const char *const names[] = {
        [MUSTER_SUM] = "sum", [MUSTER_MIN] = "minimum", [MUSTER_MAX] = "maximum"
    };

    return op <= MUSTER_MAX ? names[op] : "?";
}

static void describe_exchange(const struct mu_signature *s, const char *type, char *buf,
                              size_t len)
{
    unsigned long long count = s->count;

    switch (s->op) {
    case MU_GATHER:
        snprintf(buf, len, "gather of %llu %s to rank %d", count, type, s->root);
        break;
    case MU_SCATTER:
        snprintf(buf, len, "scatter of %llu %s from rank %d", count, type, s->root);
        break;
    case MU_ALLTOALL:
        snprintf(buf, len, "all-to-all of %llu %s", count, type);
        break;
    default:
        snprintf(buf, len, "all-to-all-v of %s", type);
    }
}

static bool finalizes(const struct mu_signature *s)
{
    return s->owner.object == MU_OWNER_LIBRARY && s->owner.part == MU_PART_FINALIZE;
}

/* owner: name the ddp object that the collective belongs to, if it has one. */
static void describe(const struct mu_signature *s, bool owner, char *buf, size_t len)
{
    const char *type = mu_dtype_name((enum muster_dtype)s->dtype);
    unsigned long long count = s->count;

    if (s->kind == MU_COLL_BARRIER)
        snprintf(buf, len, "a barrier");
    else if (finalizes(s))
        snprintf(buf, len, "muster_finalize");
    else if (s->owner.object == MU_OWNER_LIBRARY)
        snprintf(buf, len, "a barrier or an exchange of libmuster's own");
    else if (owner && s->owner.object > 0)
        snprintf(buf, len, "%s of %s %u of ddp object %u in step %llu",
                 mu_kind_name((enum mu_coll_kind)s->kind),
                 s->kind == MU_COLL_BROADCAST ? "parameter" : "bucket", s->owner.part,
                 s->owner.object, (unsigned long long)s->owner.step);
    else if (s->kind == MU_COLL_BROADCAST)
        snprintf(buf, len, "broadcast of %llu %s from rank %d", count, type, s->root);
    else if (s->kind == MU_COLL_EXCHANGE)
        describe_exchange(s, type, buf, len);
    else if (s->kind == MU_COLL_REDUCE)
        snprintf(buf, len, "reduce of %llu %s (%s, scale %g) to rank %d", count, type,
                 op_name(s->op), s->scale, s->root);
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
    if (a->root != b->root)
        return false;
    if (a->kind == MU_COLL_BROADCAST)
        return true;
    return a->kind == MU_COLL_ALLGATHER || (a->op == b->op && a->scale == b->scale);
}

static bool same_owner(const struct mu_owner *a, const struct mu_owner *b)
{
    /* Where the library's own calls differ, control compares their names. */
    return a->object == b->object && (a->object == MU_OWNER_LIBRARY ||
                                      (a->part == b->part && a->step == b->step));
}

bool mu_host_request_agrees(const struct mu_host_backend *b,
                            const struct mu_host_request *rq, int rank,
                            const struct mu_signature *theirs, char *why, size_t len)
{
    static const char advice[] =
        ": gradients of all ddp objects, and collectives beside them, must start in "
        "the same order on all ranks; a collective on another group (muster_split) may "
        "start at any time";
    static const char ended[] =
        ": all ranks must take the same number of steps; a rank without data for the "
        "rest calls muster_ddp_join";
    struct mu_signature own = mu_host_request_signature(rq);
    bool order = !same_owner(&own.owner, &theirs->owner), swap = rank < b->env.rank;
    char who[128], whom[128], one[128], other[128], at[sizeof rq->what + 3] = "";

    if (!order && same_call(&own, theirs))
        return true;
    if (own.owner.object > 0) /* else each rank has another text */
        snprintf(at, sizeof at, " (%s)", mu_host_request_text(rq));
    describe(swap ? theirs : &own, order, one, sizeof one);
    describe(swap ? &own : theirs, order, other, sizeof other);
    snprintf(why, len, "%s calls %s where %s calls %s%s",
             mu_rank_text(b, swap ? rank : b->env.rank, who, sizeof who), one,
             mu_rank_text(b, swap ? b->env.rank : rank, whom, sizeof whom), other,
             !order                                 ? at
             : finalizes(&own) || finalizes(theirs) ? ended
                                                    : advice);
    return false;
}

static void write_parts(const struct mu_host_backend *b,
                        const struct mu_host_request *rq, int from, uint64_t sent,
                        int to, uint64_t expected, char *why, size_t len)
{
    char who[128], whom[128];

    snprintf(why, len, "%s sends %llu %s to %s, which expects %llu from it (%s)",
             mu_rank_text(b, from, who, sizeof who), (unsigned long long)sent,
             mu_dtype_name(rq->coll.dtype), mu_rank_text(b, to, whom, sizeof whom),
             (unsigned long long)expected, mu_host_request_text(rq));
}

bool mu_host_parts_agree(const struct mu_host_backend *b,
                         const struct mu_host_request *rq, int rank, uint64_t sent,
                         uint64_t expected, char *why, size_t len)
{
    uint64_t own_sent = rq->coll.sends[rank].count;
    uint64_t own_expected = rq->coll.recvs[rank].count;
    bool from_it = sent == own_expected, to_it = own_sent == expected;

    if (!from_it && (to_it || rank < b->env.rank))
        write_parts(b, rq, rank, sent, b->env.rank, own_expected, why, len);
    else if (!to_it)
        write_parts(b, rq, b->env.rank, own_sent, rank, expected, why, len);
    return from_it && to_it;
}

static bool adds(enum mu_coll_kind kind)
{
    return kind == MU_COLL_ALLREDUCE || kind == MU_COLL_REDUCE_SCATTER ||
           kind == MU_COLL_REDUCE;
}

static bool has_root(enum mu_coll_kind kind)
{
    return kind == MU_COLL_BROADCAST || kind == MU_COLL_REDUCE;
}

static bool overlap(const void *a, size_t alen, const void *b, size_t blen)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return alen && blen && x < y + blen && y < x + alen;
}

static int check(const struct mu_host_backend *b, const struct mu_coll *coll,
                 struct mu_err *err)
{
    size_t esize = mu_dtype_size(coll->dtype), n = (size_t)b->env.size, bytes;

    if ((unsigned)coll->kind > MU_COLL_PAIR)
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
    if (has_root(coll->kind) && (coll->root < 0 || coll->root >= b->env.size))
        return mu_err_set(err, MUSTER_EUSAGE, "%s %s rank %d in a world of %d",
                          mu_kind_name(coll->kind),
                          coll->kind == MU_COLL_REDUCE ? "to" : "from", coll->root,
                          b->env.size);
    if (coll->kind == MU_COLL_EXCHANGE && b->one_domain && n > MU_EXCHANGE_MOST)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "an exchange of %zu ranks that share memory; it takes %d", n,
                          MU_EXCHANGE_MOST);
    if (coll->count == 0 || coll->kind == MU_COLL_EXCHANGE ||
        coll->kind == MU_COLL_PAIR)
        return 0;
    if (!coll->recv && (coll->kind != MU_COLL_REDUCE || coll->root == b->env.rank))
        return mu_err_set(err, MUSTER_EUSAGE, "%s: the receive buffer is NULL",
                          mu_kind_name(coll->kind));
    if (!coll->send && (coll->kind != MU_COLL_BROADCAST || coll->root == b->env.rank))
        return mu_err_set(err, MUSTER_EUSAGE, "%s: the send buffer is NULL",
                          mu_kind_name(coll->kind));
    bytes = coll->count * esize;
    if ((coll->kind == MU_COLL_ALLREDUCE || coll->kind == MU_COLL_REDUCE) &&
        coll->recv && coll->send != coll->recv &&
        overlap(coll->send, bytes, coll->recv, bytes))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "%s: send and receive buffer overlap but are not equal",
                          mu_kind_name(coll->kind));
    return 0;
}

/* Over messages the sum of this rank's part is sent from where it lies. */
static bool needs_scratch(const struct mu_host_backend *b, const struct mu_coll *coll)
{
    return coll->kind == MU_COLL_REDUCE && coll->root != b->env.rank &&
           !b->one_domain && coll->count > 0;
}

struct mu_host_request *mu_host_request_make(const struct mu_host_backend *b,
                                             const struct mu_coll *coll,
                                             struct mu_err *err)
{
    struct mu_host_request *rq;

    if (check(b, coll, err) < 0)
        return NULL;
    rq = malloc(sizeof *rq); /* takes a fifth of what calloc does (glibc 2.36) */
    if (!rq)
        goto no_memory;
    *rq =
        (struct mu_host_request){ .coll = *coll, .esize = mu_dtype_size(coll->dtype) };
    if (coll->kind == MU_COLL_BARRIER)
        rq->coll.count = 0;
    if (needs_scratch(b, coll)) {
        rq->scratch = malloc(coll->count * rq->esize);
        if (!rq->scratch)
            goto no_memory;
        rq->coll.recv = rq->scratch;
    }
    return rq;
no_memory:
    free(rq);
    mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    return NULL;
}

void mu_host_request_free(struct mu_host_request *rq)
{
    free(rq->scratch);
    free(rq);
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
    case MU_COLL_EXCHANGE:
        mu_memory_own_part(c, b->env.rank);
        break;
    case MU_COLL_ALLREDUCE:
    case MU_COLL_REDUCE:
    case MU_COLL_BARRIER:
    case MU_COLL_PAIR:
        break;
    }
}

void mu_host_request_finish(struct mu_host_request *rq)
{
    if (rq->result)
        memmove(rq->result, rq->coll.recv, rq->coll.count * rq->esize);
}
