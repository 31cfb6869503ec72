/* SPDX-License-Identifier: BSD-3-Clause */
/* coll_host.c - collectives on host memory when the backend works on a GPU's
 *
 * Data go through GPU memory, in one of two ways:
 *   chunks   All ranks wait, and their parts are equal: each chunk is a separate
 *            collective in a block of the backend's memory. All ranks pass host memory.
 *   whole    Messages, parts of unequal size, and what is only started: GPU memory for
 *            all of the buffers, of this rank alone, until the call is joined.
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

static int run_chunks(struct mu_comm *comm, const struct mu_coll *coll,
                      struct mu_err *err)
{
    size_t most = STAGE_BYTES / most_parts(comm, coll) / mu_dtype_size(coll->dtype);
    struct mu_staged *s;
    int rc = 0;

    /* Multiples of 128 bytes, so that each part of a chunk is aligned. */
    most -= most % (128 / mu_dtype_size(coll->dtype));
    if (most == 0)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "%s in host memory: too many ranks for the transfer buffer",
                          coll->what);
    if (!comm->stage)
        comm->stage = comm->ops->alloc(comm->backend, STAGE_BYTES, err);
    if (!comm->stage)
        return -1;
    s = mu_staged_new(comm, coll, err);
    if (!s)
        return -1;
    s->memory = comm->stage;
    for (size_t from = 0; rc == 0 && from < coll->count; from += most) {
        mu_staged_cut(s, from, most);
        rc = mu_staged_copy_in(comm, s, err);
        if (rc == 0)
            rc = mu_coll_run(comm, &s->chunk, err);
        if (rc == 0)
            rc = mu_staged_copy_out(comm, s, err);
        if (rc == 0)
            rc = mu_drain(comm, coll->stream, err);
    }
    free(s);
    return rc;
}

/* ---- Whole ---- */

static void release(struct mu_comm *comm, struct mu_staged *s)
{
    comm->ops->free_private(comm->backend, s->memory, s->coll.stream);
    free(s);
}

/* coll->what is borrowed until mu_coll_end. */
static int start_whole(struct mu_comm *comm, const struct mu_coll *coll,
                       struct mu_started *out, struct mu_err *err)
{
    struct mu_staged *s = mu_staged_new(comm, coll, err);
    size_t bytes;

    if (!s)
        return -1;
    bytes = mu_staged_cut(s, 0, SIZE_MAX) * mu_dtype_size(coll->dtype);
    s->memory = comm->ops->alloc_private(comm->backend, bytes, coll->stream, err);
    if (!s->memory) {
        free(s);
        return -1;
    }
    if (mu_staged_copy_in(comm, s, err) < 0 ||
        mu_coll_start(comm, &s->chunk, out, err) < 0) {
        release(comm, s);
        return -1;
    }
    out->staged = s;
    return 0;
}

bool mu_coll_test(const struct mu_comm *comm, const struct mu_started *started)
{
    bool blocks = comm->ops->host_memory || started->staged;

    return !blocks || !comm->ops->test ||
           comm->ops->test(comm->backend, started->request);
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
    int rc = mu_coll_join(comm, started, what, stream, err);

    if (!s)
        return rc;
    /* An abort ends this wait. It would not end that of a copy. */
    if (rc == 0)
        rc = wait_for(comm, started, what, stream, err);
    if (rc == 0)
        rc = mu_staged_copy_out(comm, s, err);
    if (rc == 0)
        rc = wait_for(comm, started, what, stream, err);
    release(comm, s);
    return rc;
}

static int run_whole(struct mu_comm *comm, const struct mu_coll *coll,
                     struct mu_err *err)
{
    struct mu_started started;

    return start_whole(comm, coll, &started, err) < 0
               ? -1
               : mu_coll_end(comm, &started, coll->what, coll->stream, err);
}

/* ---- Calls of the program ---- */

/* True for collectives of the program, false for those of a hook for its bucket. */
static bool is_plain(const struct mu_comm *comm)
{
    return comm->owner.object == 0;
}

/* Record a collective of the program in the order, by its kind and size. A backend that
 * compares each collective with those of the other ranks needs no record.
 */
static void put_in_order(struct mu_comm *comm, const struct mu_coll *coll)
{
    const uint32_t what[] = { coll->kind, coll->dtype, coll->op, coll->pattern,
                              (uint32_t)coll->root };
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
                   char what[MU_CALL_TEXT], struct mu_err *err)
{
    size_t n = 0;

    mu_text_add_word(what, MU_CALL_TEXT, &n, call);
    mu_text_add_word(what, MU_CALL_TEXT, &n, " of ");
    if (!mu_has_unequal_parts(coll)) {
        mu_text_add_number(what, MU_CALL_TEXT, &n, coll->count);
        mu_text_add_word(what, MU_CALL_TEXT, &n, " ");
    }
    mu_text_add_word(what, MU_CALL_TEXT, &n, mu_dtype_name(coll->dtype));
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
    if (!on_host(comm, coll))
        return mu_coll_run(comm, coll, err);
    return mu_has_unequal_parts(coll) ? run_whole(comm, coll, err)
                                      : run_chunks(comm, coll, err);
}

int mu_pair_call(struct mu_comm *comm, const struct mu_coll *coll, struct mu_err *err)
{
    return on_host(comm, coll) ? run_whole(comm, coll, err)
                               : mu_coll_run(comm, coll, err);
}

int mu_pair_begin(struct mu_comm *comm, const struct mu_coll *coll,
                  struct mu_started *out, struct mu_err *err)
{
    return on_host(comm, coll) ? start_whole(comm, coll, out, err)
                               : mu_coll_start(comm, coll, out, err);
}

int mu_coll_begin(struct mu_comm *comm, const char *call, struct mu_coll *coll,
                  char what[MU_CALL_TEXT], struct mu_started *out, struct mu_err *err)
{
    if (prepare(comm, call, coll, what, err) < 0 ||
        mu_pair_begin(comm, coll, out, err) < 0)
        return -1;
    put_in_order(comm, coll);
    return 0;
}
