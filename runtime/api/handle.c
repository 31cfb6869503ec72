/* SPDX-License-Identifier: BSD-3-Clause */
/* handle.c - muster_start: the next collective or message only starts
 *
 * A handle is a collective that was started and is not joined yet. The functions of
 * coll.c, exchange.c and pair.c check the arguments as always, then call this file.
 */
#include "runtime/api/impl.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

struct muster_handle {
    struct muster *m;
    struct mu_started started;
    char what[MU_CALL_TEXT];
    void *stream;
    struct mu_part *parts; /* of an exchange; else NULL */
    bool dropped;          /* the ranks were numbered anew; the request is freed */
    struct muster_handle *next;
};

static void release(struct muster_handle *h)
{
    free(h->parts);
    free(h);
}

static void unlink_handle(const struct muster_handle *h)
{
    struct muster_handle **at = &h->m->handles;

    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
}

int mu_handles(const struct muster *m)
{
    int n = 0;

    for (const struct muster_handle *h = m->handles; h; h = h->next)
        n++;
    return n;
}

/* Ranks died: the backend has failed, so no join blocks. */
static void drop(void *arg)
{
    struct muster *m = arg;
    struct mu_err ignored = { 0 };

    for (struct muster_handle *h = m->handles; h; h = h->next) {
        if (!h->dropped)
            mu_coll_end(&m->comm, &h->started, h->what, h->stream, &ignored);
        h->dropped = true;
    }
}

/* ---- Start ---- */

/* Copy the caller's parts, which are valid during its call only. */
static int keep_parts(struct muster_handle *h, struct mu_coll *coll, size_t size)
{
    if (coll->kind != MU_COLL_EXCHANGE)
        return 0;
    h->parts = malloc(2 * size * sizeof *h->parts);
    if (!h->parts)
        return -1;
    memcpy(h->parts, coll->sends, size * sizeof *h->parts);
    memcpy(h->parts + size, coll->recvs, size * sizeof *h->parts);
    coll->sends = h->parts;
    coll->recvs = h->parts + size;
    return 0;
}

static int begin(struct muster_handle *h, const char *name, struct mu_coll *coll,
                 struct mu_err *err)
{
    if (keep_parts(h, coll, (size_t)h->m->comm.world->size) < 0)
        return mu_err_set(err, MUSTER_EMEMORY, "muster_start: out of memory");
    coll->direct = false; /* work of the program may run beside it */
    h->stream = coll->stream;
    if (name)
        return mu_coll_begin(&h->m->comm, name, coll, h->what, &h->started, err);
    mu_copy(h->what, sizeof h->what, coll->what);
    coll->what = h->what;
    return mu_pair_begin(&h->m->comm, coll, &h->started, err);
}

int mu_handle_start(struct muster *m, const char *name, struct mu_coll *coll)
{
    struct muster_handle **out = m->start_into, *h = calloc(1, sizeof *h);
    struct mu_err err = { 0 };

    m->start_into = NULL;
    if (!h)
        return mu_fail(m, MUSTER_EMEMORY, "muster_start: out of memory");
    h->m = m;
    if (begin(h, name, coll, &err) < 0) {
        release(h);
        return mu_fail_err(m, &err);
    }
    if (!m->dropping.drop) {
        m->dropping = (struct mu_resettable){ .drop = drop, .arg = m };
        mu_recover_add(&m->recover, &m->dropping);
    }
    h->next = m->handles;
    m->handles = h;
    *out = h;
    return MUSTER_OK;
}

/* ---- Public ---- */

int muster_start(struct muster *m, struct muster_handle **out)
{
    if (!out)
        return mu_fail(m, MUSTER_EUSAGE, "muster_start needs a place for its result");
    *out = NULL;
    m->start_into = out;
    return MUSTER_OK;
}

int muster_test(const struct muster_handle *h, int *done)
{
    if (!h || !done)
        return mu_fail(h ? h->m : NULL, MUSTER_EUSAGE,
                       "muster_test needs a handle and a place for its result");
    *done = h->dropped || mu_coll_test(&h->m->comm, &h->started);
    return MUSTER_OK;
}

int muster_wait(struct muster_handle *h, double seconds)
{
    struct mu_err err = { 0 };
    struct muster *m;
    int rc = MUSTER_OK;

    if (!h)
        return MUSTER_OK;
    m = h->m;
    if (!(seconds >= 0))
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_wait: seconds is %g, use a number above 0, or 0 for the "
                       "deadline of the options",
                       seconds);
    h->started.within = seconds;
    unlink_handle(h);
    if (h->dropped) /* another call has dealt with the death */
        rc = mu_fail(m, MUSTER_ESHRUNK, "ranks died during the %s, which is not done",
                     h->what);
    else if (mu_coll_end(&m->comm, &h->started, h->what, h->stream, &err) < 0)
        rc = mu_fail_err(m, &err);
    release(h);
    return rc;
}
