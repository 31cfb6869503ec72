/* SPDX-License-Identifier: BSD-3-Clause */
/* control_end.c - what ranks have printed is written before the job ends
 *
 *   decision     END goes down the tree
 *   each rank    writes its streams, and waits for WRITTEN from each child
 *                then WRITTEN goes up, and this rank's end is due
 *
 * The rank that decided ends the step when WRITTEN has arrived from all its children.
 * Children of the dead rank have no parent any more. They connect to the rank that
 * decides, receive END and answer like its own children.
 *
 * The last result of mu_control_close does not reach the ranks behind one that dies or
 * is stopped with it. They connect to the rank that decides, too. That one leaves when
 * all ranks have said goodbye, or when its END is sent: where it has left without END,
 * nothing is lost.
 */
#include "runtime/boot/control_impl.h"

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

#define ASK_SECONDS 3.0 /* below the turn of a rank that asks */

/* ---- Orphans ---- */

/* The root, or the first of its children. */
static int decider(const struct mu_control *c)
{
    int rank = 0;

    if (c->parent == 0)
        while (c->parent_of[rank] != 0)
            rank++;
    return rank;
}

/* A rank that is about to leave drops the call; a busy one is late to answer. */
static void call(struct mu_control *c, int rank, bool leaving, struct mu_dial *d)
{
    const struct mu_world *w = c->env.world;
    const struct mu_claim claim = { MU_SERVICE_CONTROL, w->generation, c->rank };
    double until = mu_clock_s() + (leaving ? ASK_SECONDS : MU_WRITE_SECONDS);
    double pause = 0;
    bool again = true;

    while (again) {
        mu_dial_start(d, mu_endpoint_address(w->endpoint), &w->address[rank], false,
                      &claim, w->token);
        mu_dial_wait(d, until);
        again = leaving && mu_clock_s() < until && d->answer != MU_ANSWER_PROVED &&
                d->answer != MU_ANSWER_REFUSED;
        if (d->answer != MU_ANSWER_PROVED)
            mu_dial_stop(d);
        if (again)
            mu_pause_longer(&pause);
    }
}

/* As if the last result had arrived. */
static void part(struct mu_control *c)
{
    const struct mu_frame last = { .type = MU_FRAME_ALL,
                                   .flags = MU_FRAME_LAST,
                                   .number = c->gathers };

    mu_control_result(c, &last, "");
}

bool mu_control_rejoin(struct mu_control *c)
{
    bool leaving = c->leaving, stopped = c->up.fd >= 0, parts;
    struct mu_dial d = { .fd = -1 };
    int rank = decider(c);

    c->orphaned = false;
    if (c->ended)
        return true;
    if (rank != c->rank) {
        pthread_mutex_unlock(&c->lock);
        call(c, rank, leaving, &d);
        pthread_mutex_lock(&c->lock);
    }
    parts = leaving && d.answer == MU_ANSWER_REFUSED;
    if (parts)
        part(c);
    else if (d.answer == MU_ANSWER_PROVED && !stopped)
        mu_link_open(c, -1, d.fd, rank, d.pid);
    else
        mu_net_drop(&d.fd);
    return parts || !stopped;
}

void mu_control_expect_orphans(struct mu_control *c, const struct mu_complaint *why)
{
    if (why->death != MU_DEATH_ENDED || c->env.report_immediately)
        return;
    for (int r = 0; r < c->size; r++)
        c->orphans += r != c->rank && c->parent_of[r] == why->rank;
}

static void adopt(struct mu_control *c, const struct mu_arrival *a)
{
    struct mu_complaint why = { .status = c->ending.status,
                                .rank = c->ending.rank,
                                .printed = c->ending.printed };
    int i = c->nchildren;

    c->child[i] = a->claim.rank;
    if (mu_link_open(c, i, a->fd, a->claim.rank, a->pid) < 0)
        return;
    c->nchildren++;
    c->orphans--;
    mu_copy(why.text, sizeof why.text, c->ending.text);
    mu_link_send(c, &c->down[i], MU_FRAME_END, c->rank, 0, 0, &why, sizeof why);
}

static void take_orphans(struct mu_control *c)
{
    const struct mu_world *w = c->env.world;
    struct mu_arrival a;

    while (c->orphans > 0 &&
           mu_endpoint_take(w->endpoint, MU_SERVICE_CONTROL, w->generation, &a)) {
        int rank = a.claim.rank;

        if (rank >= 0 && rank < c->size && c->parent_of[rank] == c->ending.rank)
            adopt(c, &a);
        else
            mu_endpoint_refuse(w->endpoint, &a,
                               "its rank is not expected to connect here");
    }
}

/* ---- Streams ---- */

/* At a deadline, a rank that has not answered since may be stopped. */
static bool is_awaited(const struct mu_control *c, const struct mu_link *link)
{
    return link->fd >= 0 && !link->written &&
           !(link->asked && c->ending.status == MUSTER_ETIMEOUT);
}

static bool all_written(const struct mu_control *c)
{
    if (!c->ending.written || c->orphans > 0)
        return false;
    for (int i = 0; i < c->nchildren; i++)
        if (is_awaited(c, &c->down[i]))
            return false;
    return true;
}

bool mu_control_may_end(struct mu_control *c)
{
    if (c->env.report_immediately)
        return true;
    if (!c->ending.written) {
        bool written;

        pthread_mutex_unlock(&c->lock);
        written = c->env.hooks.alarmed(c->env.hooks.arg);
        pthread_mutex_lock(&c->lock);
        c->ending.written = written;
    }
    take_orphans(c);
    if (!all_written(c))
        return mu_clock_s() >= c->end_by;
    mu_control_send_up(c, MU_FRAME_WRITTEN, 0, 0, NULL, 0);
    return true;
}

void mu_control_await_written(struct mu_control *c)
{
    double until = mu_clock_s() + MU_WRITE_SECONDS, pause = 0;
    bool written = false;

    while (!written && mu_clock_s() < until) {
        pthread_mutex_lock(&c->lock);
        written = c->ending.reporter &&
                  (all_written(c) || (c->reported && mu_clock_s() >= c->end_by));
        pthread_mutex_unlock(&c->lock);
        if (!written)
            mu_pause_longer(&pause);
    }
}
