/* SPDX-License-Identifier: BSD-3-Clause */
/* gate.c - a listener and the table of its unproved callers */
#include "runtime/endpoint/gate.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/peercred.h"
#include "runtime/endpoint/net.h"

#define HELLO_SECONDS 5.0 /* to prove the secret */
#define TURN_SECONDS 0.02 /* no caller makes room earlier: a rank needs a few ms */
#define PAUSE_SECONDS 0.1 /* after accept has failed: no descriptors, for one */

#define MAPPED "::ffff:" /* an IPv4 caller at an IPv6 listener */

void mu_gate_init(struct mu_gate *g)
{
    g->fd = -1;
    for (int i = 0; i < MU_GATE_CALLERS; i++)
        g->caller[i].fd = -1;
}

void mu_gate_shut(struct mu_gate *g)
{
    mu_net_drop(&g->fd);
    for (int i = 0; i < MU_GATE_CALLERS; i++)
        mu_net_drop(&g->caller[i].fd);
}

void mu_gate_drop(struct mu_gate *g, struct mu_caller *c, const char *why)
{
    g->warn(g->arg, c->from, why);
    close(c->fd);
    c->fd = -1;
}

static void vanish(struct mu_gate *g, struct mu_caller *c, const char *why)
{
    if (c->pid)
        c->from[0] = '\0';
    mu_gate_drop(g, c, why);
}

void mu_gate_vanish(struct mu_gate *g, struct mu_caller *c)
{
    vanish(g, c, "it closed before it proved the job's token");
}

/* ---- Accepting ------------------------------------------------------------------ */

static struct mu_caller *oldest(struct mu_gate *g)
{
    struct mu_caller *old = &g->caller[0];

    for (int i = 1; i < MU_GATE_CALLERS && old->fd >= 0; i++)
        if (g->caller[i].fd < 0 || g->caller[i].since < old->since)
            old = &g->caller[i];
    return old;
}

/* When the next caller can be accepted; 0: now. */
static double accepts_at(struct mu_gate *g, double now)
{
    const struct mu_caller *old = oldest(g);
    double at = old->fd < 0 ? 0 : old->since + TURN_SECONDS;

    if (at < g->paused_until)
        at = g->paused_until;
    return at > now ? at : 0;
}

/* Whom it is; false: another user. */
static bool identify(const struct mu_gate *g, struct mu_caller *c,
                     const struct sockaddr_storage *from, socklen_t len)
{
    struct mu_peercred peer;

    if (g->tcp) {
        if (getnameinfo((const struct sockaddr *)from, len, c->from, sizeof c->from,
                        NULL, 0, NI_NUMERICHOST) != 0)
            snprintf(c->from, sizeof c->from, "?");
        if (strncmp(c->from, MAPPED, strlen(MAPPED)) == 0)
            memmove(c->from, c->from + strlen(MAPPED),
                    strlen(c->from + strlen(MAPPED)) + 1);
        return true;
    }
    peer = mu_peercred_of(c->fd);
    snprintf(c->from, sizeof c->from, "user id %u, pid %d", peer.uid, peer.pid);
    c->pid = peer.pid;
    return peer.uid == geteuid();
}

static bool accept_one(struct mu_gate *g, double now)
{
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    int fd =
        accept4(g->fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct mu_caller *c = oldest(g);

    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            g->paused_until = now + PAUSE_SECONDS;
        return false;
    }
    if (c->fd >= 0)
        mu_gate_drop(g, c, "it had not proved the job's token when others called");
    *c = (struct mu_caller){ .fd = fd, .since = now };
    if (!identify(g, c, &from, len))
        mu_gate_drop(g, c, "it belongs to another user");
    else if (!mu_hello_accept(&c->hello, fd, g->id))
        mu_gate_vanish(g, c);
    return true;
}

/* ---- Serving -------------------------------------------------------------------- */

static void soonest(double *next, double at)
{
    if (*next == 0 || at < *next)
        *next = at;
}

void mu_gate_prepare(struct mu_gate *g, struct pollfd fds[MU_GATE_FDS], double now,
                     double *next)
{
    double at = accepts_at(g, now);

    if (at > 0)
        soonest(next, at);
    fds[0] = (struct pollfd){ at > 0 ? -1 : g->fd, POLLIN, 0 };
    for (int i = 0; i < MU_GATE_CALLERS; i++) {
        struct mu_caller *c = &g->caller[i];

        if (c->fd >= 0 && c->since + HELLO_SECONDS <= now)
            vanish(g, c, "it did not prove the job's token in time");
        if (c->fd >= 0)
            soonest(next, c->since + HELLO_SECONDS);
        /* One that waits for its secret is not polled. */
        fds[1 + i] = (struct pollfd){ c->claimed ? -1 : c->fd, POLLIN, 0 };
    }
}

static void serve_caller(struct mu_gate *g, struct mu_caller *c)
{
    switch (mu_hello_step(&c->hello, c->fd)) {
    case MU_HELLO_CLAIMED:
        g->claim(g->arg, g, c);
        break;
    case MU_HELLO_GONE:
        mu_gate_vanish(g, c);
        break;
    case MU_HELLO_PENDING:
        break;
    default:
        mu_gate_drop(g, c, "its proof of this job's token is wrong");
    }
}

void mu_gate_serve(struct mu_gate *g, const struct pollfd fds[MU_GATE_FDS],
                   bool changed)
{
    double now = mu_clock_s();

    for (int i = 0; i < MU_GATE_CALLERS; i++) {
        struct mu_caller *c = &g->caller[i];

        if (c->fd >= 0 && c->claimed && changed)
            g->claim(g->arg, g, c);
        else if (c->fd >= 0 && fds[1 + i].revents)
            serve_caller(g, c);
    }
    if (fds[0].revents)
        while (accepts_at(g, now) == 0 && accept_one(g, now)) {
        }
}
