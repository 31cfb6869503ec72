/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_ledger_gpu.c - the same times on a GPU: of its own work, read some steps later
 *
 * The host is ahead of the GPU, so its clock shows when work was enqueued. The backend
 * has moments of streams instead: each bucket's gradients were ready, its collectives
 * began and ended, and the program's stream reached sync. From there on it waits for
 * one bucket after the other, in the order in which sync joins them. A step is recorded
 * when the GPU has reached all of its moments; nothing waits for that.
 */
#include <stdlib.h>

#include "runtime/ddp/ddp.h"

#define STEPS_MOST 8 /* that wait for the GPU; the oldest one is then given up */

/* A step that the host has ended. */
struct mu_ddp_timed {
    struct mu_ddp_timed *next;
    void *sync;
    uint64_t sync_ns;
    struct mu_ledger_bucket step; /* begin: on the host; 0: it is the first */
    int n;
    struct {
        struct mu_ledger_bucket times;
        struct mu_ddp_moments moments;
    } bucket[]; /* as they were joined */
};

static bool records(const struct muster_ddp *ddp)
{
    return ddp->comm->ledger.buckets && ddp->comm->ops->moment;
}

static void *moment(const struct muster_ddp *ddp, void *stream)
{
    return ddp->comm->ops->moment(ddp->comm->backend, stream);
}

static void forget(const struct muster_ddp *ddp, void **moment)
{
    if (*moment)
        ddp->comm->ops->forget(ddp->comm->backend, *moment);
    *moment = NULL;
}

static void forget_bucket(const struct muster_ddp *ddp, struct mu_ddp_moments *of)
{
    forget(ddp, &of->ready);
    forget(ddp, &of->started);
    forget(ddp, &of->ended);
}

void mu_ddp_gpu_ready(struct muster_ddp *ddp, int b, void *stream)
{
    if (records(ddp))
        ddp->bucket[b].moments.ready = moment(ddp, stream);
}

void mu_ddp_gpu_sync(struct muster_ddp *ddp, void *stream)
{
    if (!records(ddp))
        return;
    forget(ddp, &ddp->sync_moment); /* of a sync that was refused */
    ddp->sync_moment = moment(ddp, stream);
}

void mu_ddp_gpu_joined(struct muster_ddp *ddp, int b)
{
    struct mu_ddp_moments *of = &ddp->bucket[b].moments;

    if (!records(ddp))
        return;
    for (int s = 0; s < ddp->bucket[b].nstarted; s++) {
        struct mu_coll_times *t = &ddp->bucket[b].started[s].times;

        if (of->started)
            forget(ddp, &t->from);
        else
            of->started = t->from;
        if (t->to) {
            forget(ddp, &of->ended);
            of->ended = t->to;
        }
        t->from = t->to = NULL;
    }
}

/* ---- What the GPU has reached ---------------------------------------------------- */

static bool reached(const struct muster_ddp *ddp, void **moment, uint64_t *ns)
{
    int64_t at;

    if (!*moment)
        return true;
    if (!ddp->comm->ops->reached(ddp->comm->backend, *moment, &at))
        return false;
    *moment = NULL;
    *ns = (uint64_t)at;
    return true;
}

static bool reached_all(const struct muster_ddp *ddp, struct mu_ddp_timed *t)
{
    if (!reached(ddp, &t->sync, &t->sync_ns))
        return false;
    for (int k = 0; k < t->n; k++)
        if (!reached(ddp, &t->bucket[k].moments.ready, &t->bucket[k].times.ready) ||
            !reached(ddp, &t->bucket[k].moments.started, &t->bucket[k].times.started) ||
            !reached(ddp, &t->bucket[k].moments.ended, &t->bucket[k].times.ended))
            return false;
    return true;
}

/* The GPU packs a bucket when the host has launched that and its gradients are ready.
 */
static void write_timed(struct muster_ddp *ddp, struct mu_ddp_timed *t)
{
    uint64_t at = t->sync_ns;

    if (t->step.begin)
        t->step.begin = mu_ledger_later(t->step.begin, ddp->joined_ns);
    for (int k = 0; k < t->n; k++) {
        struct mu_ledger_bucket *b = &t->bucket[k].times;

        b->launched = mu_ledger_later(b->launched, b->ready);
        b->joined = mu_ledger_later(at, b->ended);
        b->exposed = at ? b->joined - at : 0;
        at = b->joined;
        mu_ledger_add_to_step(&ddp->comm->ledger, &t->step, b);
    }
    t->step.joined = ddp->joined_ns = at;
    t->step.exposed = t->sync_ns ? at - t->sync_ns : 0;
    mu_ledger_add_bucket(&ddp->comm->ledger, &t->step);
}

static void give_up(const struct muster_ddp *ddp, struct mu_ddp_timed *t)
{
    forget(ddp, &t->sync);
    for (int k = 0; k < t->n; k++)
        forget_bucket(ddp, &t->bucket[k].moments);
    free(t);
}

static void write_reached(struct muster_ddp *ddp)
{
    struct mu_ddp_timed *t;

    while ((t = ddp->timed) && reached_all(ddp, t)) {
        write_timed(ddp, t);
        ddp->timed = t->next;
        free(t);
    }
}

/* ---- The end of a step ----------------------------------------------------------- */

static void append(struct muster_ddp *ddp, struct mu_ddp_timed *t)
{
    struct mu_ddp_timed **end = &ddp->timed;
    int n = 1;

    for (; *end; end = &(*end)->next)
        n++;
    *end = t;
    if (n > STEPS_MOST) {
        t = ddp->timed;
        ddp->timed = t->next;
        ddp->joined_ns = 0;
        give_up(ddp, t);
    }
}

void mu_ddp_gpu_step(struct muster_ddp *ddp, const struct mu_ledger_bucket *step)
{
    size_t n = (size_t)ddp->plan.nbuckets;
    struct mu_ddp_timed *t = calloc(1, sizeof *t + n * sizeof t->bucket[0]);

    if (!t)
        return;
    t->step = *step;
    t->sync = ddp->sync_moment;
    ddp->sync_moment = NULL;
    t->n = ddp->plan.nbuckets;
    for (int k = 0; k < t->n; k++) {
        struct mu_ddp_bucket *b = &ddp->bucket[ddp->ready.order[k]];

        t->bucket[k].times = b->times;
        t->bucket[k].moments = b->moments;
        b->moments = (struct mu_ddp_moments){ NULL, NULL, NULL };
    }
    append(ddp, t);
    write_reached(ddp);
}

void mu_ddp_gpu_drop(struct muster_ddp *ddp)
{
    if (!records(ddp))
        return;
    write_reached(ddp);
    while (ddp->timed) {
        struct mu_ddp_timed *t = ddp->timed;

        ddp->timed = t->next;
        give_up(ddp, t);
    }
    for (int b = 0; ddp->bucket && b < ddp->plan.nbuckets; b++)
        forget_bucket(ddp, &ddp->bucket[b].moments);
    forget(ddp, &ddp->sync_moment);
    ddp->joined_ns = 0;
}
