/* SPDX-License-Identifier: BSD-3-Clause */
/* control_meet.c - connects to the parent and to the children
 *
 * The endpoints accept and prove at any time, so no rank waits until another one calls
 * mu_control_open: what a child sends early waits in its socket.
 */
#include "runtime/boot/control_impl.h"

#include <stdio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/muster.h"

#define AGAIN_SECONDS 0.05 /* before the parent is called again */

enum state { GOES_ON, LATE, FAILED };

/* FAILED: the job has failed or a rank has died; err is set. */
static enum state look(struct mu_control *c, double until, struct mu_err *err)
{
    const struct mu_exchange *x = &c->env.world->exchange;

    if (mu_control_failed(c, err) || (x->lost && x->lost(x->arg, err)))
        return FAILED;
    return mu_clock_s() >= until ? LATE : GOES_ON;
}

static double soon(double until)
{
    double at = mu_clock_s() + MU_LOOK_SECONDS;

    return at < until ? at : until;
}

/* ---- The parent ----------------------------------------------------------------- */

/* One call. PROVED: the link is open. */
static enum mu_answer call_parent(struct mu_control *c, double until, bool *local,
                                  enum state *state, struct mu_err *err)
{
    const struct mu_world *w = c->env.world;
    const struct mu_claim claim = { MU_SERVICE_CONTROL, w->generation, c->rank };
    enum mu_answer answer;
    struct mu_dial d;
    int rc;

    mu_dial_start(&d, mu_endpoint_address(w->endpoint), &w->address[c->parent], false,
                  &claim, w->token);
    do {
        answer = mu_dial_wait(&d, soon(until));
        *state = look(c, until, err);
    } while (answer == MU_ANSWER_NONE && *state == GOES_ON);
    *local = d.to[0].at.ss_family == AF_UNIX;
    if (answer == MU_ANSWER_NONE && d.connected)
        answer = MU_ANSWER_STALLED;
    if (answer != MU_ANSWER_PROVED) {
        mu_dial_stop(&d);
        return answer;
    }
    pthread_mutex_lock(&c->lock);
    rc = mu_link_open(c, -1, d.fd, c->parent, d.pid);
    pthread_mutex_unlock(&c->lock);
    return rc == 0 ? answer : MU_ANSWER_SILENT;
}

static int name_late(const struct mu_control *c, int rank, struct mu_err *err)
{
    char who[32];

    snprintf(who, sizeof who, "rank %d", rank);
    return mu_late_err(who, c->env.world->host_of[rank], c->env.init_timeout, err);
}

int mu_control_connect_parent(struct mu_control *c, double until, struct mu_err *err)
{
    const struct mu_world *w = c->env.world;
    const struct mu_address *at = &w->address[c->parent];
    enum state state = GOES_ON;
    enum mu_answer answer;
    bool local;

    while ((answer = call_parent(c, until, &local, &state, err)) != MU_ANSWER_PROVED) {
        if (state == FAILED)
            return -1;
        /* Its endpoint was there when it published the address, and no firewall is on
         * the way.
         */
        if (answer == MU_ANSWER_REFUSED && local)
            return mu_death_err(MU_DEATH_EARLY,
                                &(struct mu_rank_name){ .rank = c->parent,
                                                        .host = w->host_of[c->parent] },
                                err);
        if (state == LATE &&
            (answer == MU_ANSWER_STALLED || answer == MU_ANSWER_DROPPED))
            return name_late(c, c->parent, err);
        if (state == LATE)
            return mu_err_set(
                err, MUSTER_ERENDEZVOUS,
                "rank %d (node %s) cannot be reached at %s port %u within "
                "%g s: check for a firewall between the nodes",
                c->parent, w->host_of[c->parent], at->hosts, at->port,
                c->env.init_timeout);
        mu_pause(AGAIN_SECONDS);
    }
    return 0;
}

/* ---- The children --------------------------------------------------------------- */

static int expected_child(const struct mu_control *c, int rank)
{
    for (int i = 0; i < c->nchildren; i++)
        if (c->child[i] == rank)
            return c->down[i].fd < 0 && !c->down[i].gone ? i : -1;
    return -1;
}

static void accept_child(struct mu_control *c, const struct mu_arrival *a)
{
    int index, rc = 0;

    pthread_mutex_lock(&c->lock);
    index = expected_child(c, a->claim.rank);
    if (index >= 0)
        rc = mu_link_open(c, index, a->fd, a->claim.rank, a->pid);
    c->nlinked += index >= 0 && rc == 0;
    pthread_mutex_unlock(&c->lock);
    if (index < 0)
        mu_endpoint_refuse(c->env.world->endpoint, a,
                           "its rank is not expected to connect here");
}

/* Report the missing child to the root too, which cannot see it. */
static int complain(struct mu_control *c, struct mu_err *err)
{
    for (int i = 0; i < c->nchildren; i++) {
        if (c->down[i].fd >= 0 || c->down[i].gone)
            continue;
        name_late(c, c->child[i], err);
        if (c->parent >= 0)
            mu_control_fail(c, err->code, c->child[i], err->text);
        return -1;
    }
    return -1;
}

int mu_control_await_children(struct mu_control *c, double until, struct mu_err *err)
{
    const struct mu_world *w = c->env.world;
    enum state state = GOES_ON;

    while (c->nlinked < c->nchildren) {
        struct mu_arrival a;
        struct pollfd bell;

        state = look(c, until, err);
        if (state == FAILED)
            return -1;
        if (mu_endpoint_take(w->endpoint, MU_SERVICE_CONTROL, w->generation, &a))
            accept_child(c, &a);
        else if (state == LATE)
            return complain(c, err);
        else
            mu_endpoint_poll(w->endpoint, &bell, 1, soon(until));
    }
    return look(c, until, err) == FAILED ? -1 : 0;
}
