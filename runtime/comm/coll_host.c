/* SPDX-License-Identifier: BSD-3-Clause */
/* coll_host.c - collectives on host memory when the backend works on a GPU's
 *
 * Data go through GPU memory of this rank alone, in chunks: each is a collective of its
 * own, and all ranks cut the same ones. Messages and parts of unequal size are one
 * chunk. A call that waits has one block of memory for each chunk in turn; one that
 * only starts has memory for all chunks until it is joined. So a rank may wait for a
 * collective that others only start.
 */
#include "runtime/comm/staged.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/core/dtype.h"
#include "runtime/core/text.h"

#define STAGE_BYTES ((size_t)4 << 20)

static bool is_empty(const struct mu_comm *comm, const struct mu_coll *coll)
{
    size_t n = coll->count + coll->recv_count;

    for (int r = 0; mu_has_unequal_parts(coll) && r < comm->world->size; r++)
        n += coll->sends[r].count + coll->recvs[r].count;
    return n == 0;
}

static bool on_host(const struct mu_comm *comm, const struct mu_coll *coll)
{
    /* Only the root of a reduce uses recv. */
    const void *at =
        coll->recv && coll->kind != MU_COLL_REDUCE ? coll->recv : coll->send;

    return comm->ops->is_host && at && !is_empty(comm, coll) &&
           comm->ops->is_host(comm->backend, at);
}

/* ---- Chunks ---- */

/* Parts of both sides on the rank that has most: so all ranks cut the same chunks. */
static size_t most_parts(const struct mu_comm *comm, const struct mu_coll *coll)
{
    size_t size = (size_t)comm->world->size;

    switch (coll->kind) {
    case MU_COLL_ALLREDUCE:
    case MU_COLL_BROADCAST:
    case MU_COLL_REDUCE:
        return 2;
    case MU_COLL_EXCHANGE:
        return coll->pattern == MU_ALLTOALL ? 2 * size : size + 1;
    default:
        return size + 1;
    }
}

static struct mu_staged *cut(const struct mu_comm *comm, const struct mu_coll *coll,
                             bool at_once, struct mu_err *err)
{
    size_t most = STAGE_BYTES / most_parts(comm, coll) / mu_dtype_size(coll->dtype);

    if (coll->kind == MU_COLL_PAIR || mu_has_unequal_parts(coll))
        return mu_staged_new(comm, coll, SIZE_MAX, at_once, err);
    /* Multiples of 128 bytes, so that each part of a chunk is aligned. */
    most -= most % (128 / mu_dtype_size(coll->dtype));
    if (most > 0)
        return mu_staged_new(comm, coll, most, at_once, err);
    mu_err_set(err, MUSTER_EUSAGE,
               "%s in host memory: too many ranks for the transfer buffer", coll->what);
    return NULL;
}

/* ---- Calls that wait ---- */

static int run_chunks(struct mu_comm *comm, const struct mu_coll *coll,
                      struct mu_err *err)
{
    struct mu_staged *s;
    int rc = 0;

    if (!comm->stage)
        comm->stage =
            comm->ops->alloc_private(comm->backend, STAGE_BYTES, coll->stream, err);
    if (!comm->stage)
        return -1;
    s = cut(comm, coll, false, err);
    if (!s)
        return -1;
    s->memory = comm->stage;
    for (int k = 0; rc == 0 && k < s->chunks; k++) {
        mu_staged_cut(s, k);
        rc = mu_staged_copy_in(comm, s, err);
        if (rc == 0)
            rc = mu_coll_run(comm, &s->chunk, err);
        if (rc == 0)
            rc = mu_staged_copy_out(comm, s, err);
        if (rc == 0)
            rc = mu_drain(comm, coll->stream, err);
    }
    mu_staged_delete(s);
    return rc;
}

/* ---- Calls that only start ---- */

static void release(struct mu_comm *comm, struct mu_staged *s)
{
    comm->ops->free_private(comm->backend, s->lent, s->coll.stream);
    mu_staged_delete(s);
}

static void turn_to(struct mu_staged *s, int k)
{
    mu_staged_cut(s, k);
    s->memory = s->lent + (size_t)k * s->chunk_bytes;
}

static int join_earlier(struct mu_comm *comm, const struct mu_staged *s, int n,
                        const char *what, void *stream, struct mu_err *err)
{
    int rc = 0;

    for (int k = 0; rc == 0 && k < n; k++)
        rc = mu_coll_join(comm, &s->earlier[k], what, stream, err);
    return rc;
}

/* coll->what is borrowed until mu_coll_end. */
static int start_chunks(struct mu_comm *comm, const struct mu_coll *coll,
                        struct mu_started *out, struct mu_err *err)
{
    struct mu_staged *s = cut(comm, coll, true, err);
    struct mu_err ignored = { 0 };
    int last, rc = 0;

    if (!s)
        return -1;
    last = s->chunks - 1;
    s->lent = comm->ops->alloc_private(
        comm->backend, (size_t)last * s->chunk_bytes + mu_staged_cut(s, last),
        coll->stream, err);
    if (!s->lent) {
        mu_staged_delete(s);
        return -1;
    }
    for (int k = 0; k <= last; k++) {
        turn_to(s, k);
        rc = mu_staged_copy_in(comm, s, err);
        if (rc == 0)
            rc = mu_coll_start(comm, &s->chunk, k < last ? &s->earlier[k] : out, err);
        if (rc < 0) {
            join_earlier(comm, s, k, coll->what, coll->stream, &ignored);
            release(comm, s);
            return -1;
        }
    }
    out->staged = s;
    return 0;
}

static bool is_done(const struct mu_comm *comm, const struct mu_started *started)
{
    return comm->ops->test(comm->backend, started->request);
}

bool mu_coll_test(const struct mu_comm *comm, const struct mu_started *started)
{
    const struct mu_staged *s = started->staged;

    if ((!comm->ops->host_memory && !s) || !comm->ops->test)
        return true;
    for (int k = 0; s && k < s->chunks - 1; k++)
        if (!is_done(comm, &s->earlier[k]))
            return false;
    return is_done(comm, started);
}

/* Not mu_drain, which also waits for what was started later: that may wait for a call
 * of this rank.
 */
static int wait_for(struct mu_comm *comm, const struct mu_started *started,
                    const char *what, void *stream, struct mu_err *err)
{
    int rc;

    if (comm->control)
        mu_control_wait_begin(comm->control, what, started->within);
    rc = comm->ops->idle(comm->backend, stream, err);
    if (comm->control)
        mu_control_wait_end(comm->control);
    return rc < 0 ? mu_comm_fail(comm, err) : 0;
}

int mu_coll_end(struct mu_comm *comm, const struct mu_started *started,
                const char *what, void *stream, struct mu_err *err)
{
    struct mu_staged *s = started->staged;
    int rc = 0;

    if (!s)
        return mu_coll_join(comm, started, what, stream, err);
    for (int k = 0; k < s->chunks - 1; k++)
        s->earlier[k].within = started->within;
    rc = join_earlier(comm, s, s->chunks - 1, what, stream, err);
    if (rc == 0)
        rc = mu_coll_join(comm, started, what, stream, err);
    /* An abort ends this wait. It would not end that of a copy. */
    if (rc == 0)
        rc = wait_for(comm, started, what, stream, err);
    for (int k = 0; rc == 0 && k < s->chunks; k++) {
        turn_to(s, k);
        rc = mu_staged_copy_out(comm, s, err);
    }
    if (rc == 0)
        rc = wait_for(comm, started, what, stream, err);
    release(comm, s);
    return rc;
}

/* A message, or parts of unequal size: memory for all of it, and no longer. */
static int run_whole(struct mu_comm *comm, const struct mu_coll *coll,
                     struct mu_err *err)
{
    struct mu_started started;

    return start_chunks(comm, coll, &started, err) < 0
               ? -1
               : mu_coll_end(comm, &started, coll->what, coll->stream, err);
}

/* ---- Calls of the program ---- */

/* True for collectives of the program, false for those of a hook for its bucket. */
static bool is_plain(const struct mu_comm *comm)
{
    return comm->owner.object == 0;
}

/* Where the buffer or the call decides the way of its data; else 0. A rank whose parts
 * are all empty has no memory.
 */
static unsigned way_of(const struct mu_comm *comm, const struct mu_coll *coll,
                       bool host)
{
    if (!is_plain(comm))
        return 0;
    if (host)
        return mu_has_unequal_parts(coll) ? 0 : MU_WAY_HOST;
    return comm->ops->way ? comm->ops->way(comm->backend, coll) : 0;
}

/* Record a collective of the program in the order, by its kind, size and way. A backend
 * that compares each collective with those of the other ranks needs no record.
 */
static void put_in_order(struct mu_comm *comm, const struct mu_coll *coll, unsigned way)
{
    const uint32_t what[] = { coll->kind,    coll->dtype,          coll->op,
                              coll->pattern, (uint32_t)coll->root, way };
    struct mu_owner plain = { 0 };

    if (comm->ops->compares || !is_plain(comm))
        return;
    plain.part = (uint32_t)mu_hash(0, what, sizeof what);
    plain.step = coll->count;
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
                   bool host, char what[MU_CALL_TEXT], unsigned *way,
                   struct mu_err *err)
{
    size_t n = 0;

    *way = way_of(comm, coll, host);
    mu_text_add_word(what, MU_CALL_TEXT, &n, call);
    mu_text_add_word(what, MU_CALL_TEXT, &n, " of ");
    if (!mu_has_unequal_parts(coll)) {
        mu_text_add_number(what, MU_CALL_TEXT, &n, coll->count);
        mu_text_add_word(what, MU_CALL_TEXT, &n, " ");
    }
    mu_text_add_word(what, MU_CALL_TEXT, &n, mu_dtype_name(coll->dtype));
    if (*way & MU_WAY_HOST)
        mu_text_add_word(what, MU_CALL_TEXT, &n, " in host memory");
    if (*way & MU_WAY_ALLOCATED)
        mu_text_add_word(what, MU_CALL_TEXT, &n, " in memory of muster_alloc");
    if (*way & MU_WAY_ASIDE)
        mu_text_add_word(what, MU_CALL_TEXT, &n, ", started");
    coll->what = what;
    coll->owner = comm->owner;
    return is_plain(comm) ? mix(comm, call, err) : 0;
}

int mu_coll_call(struct mu_comm *comm, const char *call, struct mu_coll *coll,
                 struct mu_err *err)
{
    bool host = on_host(comm, coll);
    char what[MU_CALL_TEXT];
    unsigned way;

    if (prepare(comm, call, coll, host, what, &way, err) < 0)
        return -1;
    put_in_order(comm, coll, way);
    if (!host)
        return mu_coll_run(comm, coll, err);
    return mu_has_unequal_parts(coll) ? run_whole(comm, coll, err)
                                      : run_chunks(comm, coll, err);
}

int mu_pair_call(struct mu_comm *comm, const struct mu_coll *coll, struct mu_err *err)
{
    return on_host(comm, coll) ? run_whole(comm, coll, err)
                               : mu_coll_run(comm, coll, err);
}

static int begin(struct mu_comm *comm, const struct mu_coll *coll, bool host,
                 struct mu_started *out, struct mu_err *err)
{
    return host ? start_chunks(comm, coll, out, err)
                : mu_coll_start(comm, coll, out, err);
}

int mu_pair_begin(struct mu_comm *comm, const struct mu_coll *coll,
                  struct mu_started *out, struct mu_err *err)
{
    return begin(comm, coll, on_host(comm, coll), out, err);
}

int mu_coll_begin(struct mu_comm *comm, const char *call, struct mu_coll *coll,
                  char what[MU_CALL_TEXT], struct mu_started *out, struct mu_err *err)
{
    bool host = on_host(comm, coll);
    unsigned way;

    if (prepare(comm, call, coll, host, what, &way, err) < 0 ||
        begin(comm, coll, host, out, err) < 0)
        return -1;
    put_in_order(comm, coll, way);
    return 0;
}
