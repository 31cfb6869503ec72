/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_queue.c - the queue of requests, and the failure that ends all of them */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/backend/host/engine.h"
#include "runtime/base/clock.h"
#include "runtime/endpoint/bell.h"

void mu_engine_ring(struct mu_host_backend *b)
{
    mu_bell_ring(b->doorbell_fd);
}

void mu_engine_unlock(struct mu_host_backend *b)
{
    bool report = b->report;

    b->report = false;
    pthread_mutex_unlock(&b->lock);
    /* failure is final: no lock needed */
    if (report && b->env.died && b->failure.death != MU_DEATH_NONE)
        b->env.died(b->env.failed_arg, b->failure.rank, b->failure.death);
    else if (report && b->env.failed)
        b->env.failed(b->env.failed_arg, b->failure.rank, b->failure.status,
                      b->failure.text);
}

static void wake_joiners(struct mu_host_backend *b)
{
    if (b->joiners)
        pthread_cond_broadcast(&b->changed);
    if (b->driver && b->transport->nudge)
        b->transport->nudge(b);
}

/* The usual empty inbox costs no lock. A request that arrives at the same moment is not
 * lost: its thread starts it, or rings the doorbell.
 */
void mu_engine_take_inbox(struct mu_host_backend *b)
{
    if (!atomic_load(&b->arrived)) {
        if (!b->head && atomic_load(&b->busy))
            atomic_store(&b->busy, false);
        return;
    }
    pthread_mutex_lock(&b->inbox_lock);
    if (b->inbox) {
        *b->tail = b->inbox;
        if (!b->unposted)
            b->unposted = b->inbox;
        b->tail = b->inbox_tail;
        b->inbox = NULL;
        b->inbox_tail = &b->inbox;
        atomic_store(&b->arrived, false);
    }
    if (!b->head)
        atomic_store(&b->busy, false);
    pthread_mutex_unlock(&b->inbox_lock);
}

void mu_engine_finish_head(struct mu_host_backend *b, int rc)
{
    struct mu_host_request *rq = b->head;

    b->head = rq->next;
    if (!b->head)
        b->tail = &b->head;
    if (b->unposted == rq)
        b->unposted = rq->next;
    if (rc == 0)
        mu_host_request_finish(rq);
    if (rc == 0 && rq->coll.times)
        rq->coll.times->ended = mu_clock_ns();
    rq->rc = rc;
    rq->done = true; /* the joiner may free it from here on */
    wake_joiners(b);
}

void mu_engine_fail(struct mu_host_backend *b, int status, int rank, bool report,
                    const char *fmt, ...)
{
    va_list ap;

    if (b->failure.status)
        return;
    b->failure.status = status;
    b->failure.rank = rank;
    va_start(ap, fmt);
    vsnprintf(b->failure.text, sizeof b->failure.text, fmt, ap);
    va_end(ap);
    b->report = report;
    atomic_store(&b->failed, status);
    b->transport->abort(b);
    mu_engine_take_inbox(b);
    while (b->head)
        mu_engine_finish_head(b, -1);
    mu_engine_take_inbox(b);
    mu_engine_ring(b);
}

void mu_engine_lost(struct mu_host_backend *b, int rank, enum mu_death death)
{
    const struct mu_rank_name who = { .rank = rank, .host = b->host_of[rank] };
    const struct mu_rank_name by = { b->env.rank, b->host_of[b->env.rank], 0 };
    char doing[128] = "", text[MU_FAILURE_TEXT];

    if (b->failure.status)
        return;
    if (b->head)
        snprintf(doing, sizeof doing, "waits for %s", mu_host_request_text(b->head));
    mu_death_text(death, &who, &by, doing, text, sizeof text);
    b->failure.death = death; /* the others receive it too */
    mu_engine_fail(b, MUSTER_EPEER, rank, true, "%s", text);
}

/* A rank that gave up because of another one's death was not at fault. */
void mu_engine_follow(struct mu_host_backend *b, int from,
                      const struct mu_failure *failure)
{
    int rank = failure->rank;
    char who[128];

    if (b->failure.status)
        return;
    b->failure.death = failure->death;
    mu_rank_text(b, from, who, sizeof who);
    if (rank != from)
        mu_engine_fail(b, failure->status, rank, true, "%s", failure->text);
    else
        mu_engine_fail(b, failure->status, failure->status == MUSTER_EPEER ? -1 : rank,
                       true, "%s gave up: %s", who, failure->text);
}
