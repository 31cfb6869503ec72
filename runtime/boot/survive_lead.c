/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_lead.c - the leader: wait for all ranks that live, send the verdict */
#include "runtime/boot/survive_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/endpoint/hello.h"
#include "runtime/muster.h"

#define CALLERS 32 /* connections that have not proved the job yet */

struct caller {
    int fd; /* -1: free */
    double until;
    struct mu_hello hello;
    bool proved;
    size_t got; /* of the join, when it is proved */
    unsigned char bytes[sizeof(struct mu_join)];
};

struct lead {
    struct mu_survive *s;
    bool *joined; /* by origin; else s->fd is a call that waits there, or -1 */
    struct caller caller[CALLERS];
    struct pollfd *poll; /* listening socket, callers, ranks */
};

static void hang_up_on(struct lead *l, struct caller *c, const char *why)
{
    if (why)
        mu_log(l->s->log, MU_LOG_WARN, "survivors: a connection was dropped: %s", why);
    close(c->fd);
    c->fd = -1;
}

static void accept_caller(struct lead *l)
{
    int fd = accept4(l->s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    for (int i = 0; fd >= 0 && i < CALLERS; i++)
        if (l->caller[i].fd < 0) {
            struct caller *c = &l->caller[i];

            *c = (struct caller){ .fd = fd, .until = mu_clock_s() + MU_NET_HELLO };
            if (!mu_hello_accept(&c->hello, fd, MU_HELLO_SURVIVE, l->s->token,
                                 l->s->me))
                hang_up_on(l, c, NULL);
            return;
        }
    if (fd >= 0)
        close(fd); /* a flood: who belongs here calls again */
}

static void take_join(struct lead *l, struct caller *c)
{
    struct mu_survive *s = l->s;
    int origin = c->hello.peer;
    struct mu_join join;

    memcpy(&join, c->bytes, sizeof join);
    if (join.magic != MU_JOIN_MAGIC) {
        hang_up_on(l, c, "it runs another release of libmuster");
        return;
    }
    mu_net_tune(c->fd);
    mu_survive_drop(s, origin);
    s->fd[origin] = c->fd;
    c->fd = -1;
    s->fate[origin].life = MU_LIVES;
    memcpy(s->fate[origin].ballot, join.ballot, sizeof join.ballot);
    l->joined[origin] = true;
}

static void go_on_with_hello(struct lead *l, struct caller *c)
{
    enum mu_hello_result result = mu_hello_step(&c->hello, c->fd);
    int origin = c->hello.peer;

    if (result == MU_HELLO_PENDING)
        return;
    if (result == MU_HELLO_UNPROVED)
        hang_up_on(l, c, "its proof of this job's token is wrong");
    else if (result == MU_HELLO_GONE) /* one that only looked whether we live */
        hang_up_on(l, c, NULL);
    else if (origin < 0 || origin >= l->s->n || origin == l->s->me)
        hang_up_on(l, c, "its rank is not expected to connect here");
    else if (mu_hello_confirm(&c->hello, c->fd))
        c->proved = true;
    else
        hang_up_on(l, c, NULL);
}

static void read_caller(struct lead *l, struct caller *c)
{
    ssize_t n;

    if (!c->proved) {
        go_on_with_hello(l, c);
        return;
    }
    n = recv(c->fd, c->bytes + c->got, sizeof c->bytes - c->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        hang_up_on(l, c, NULL);
        return;
    }
    c->got += (size_t)n;
    if (c->got == sizeof c->bytes)
        take_join(l, c);
}

/* Something happened on a rank's connection: it ended, unless that rank leads as well,
 * then it has sent a nonce that nobody answers.
 */
static void check_rank(struct lead *l, int origin)
{
    char bytes[64];
    ssize_t n = recv(l->s->fd[origin], bytes, sizeof bytes, MSG_DONTWAIT);

    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    mu_survive_drop(l->s, origin);
    l->joined[origin] = false; /* called again, and found dead or alive */
}

/* Have all who live called? Each one who has not is called, so that its end shows. */
static bool complete(struct lead *l, int *missing)
{
    struct mu_survive *s = l->s;
    bool all_here = true;

    for (int o = s->n - 1; o >= 0; o--) {
        if (o == s->me || l->joined[o] || s->fate[o].life != MU_LIVES)
            continue;
        if (s->fd[o] < 0 && !mu_survive_call(s, o, NULL, 0))
            continue;
        all_here = false;
        *missing = o;
    }
    return all_here;
}

static void listen_once(struct lead *l, double until)
{
    struct mu_survive *s = l->s;
    double now = mu_clock_s(), wait = until - now;
    struct pollfd *ranks = l->poll + 1 + CALLERS;

    l->poll[0] = (struct pollfd){ s->listen_fd, POLLIN, 0 };
    for (int i = 0; i < CALLERS; i++) {
        struct caller *c = &l->caller[i];

        if (c->fd >= 0 && c->until <= now)
            hang_up_on(l, c, "it did not prove the job's token in time");
        l->poll[1 + i] = (struct pollfd){ c->fd, POLLIN, 0 };
    }
    for (int o = 0; o < s->n; o++)
        ranks[o] = (struct pollfd){ s->fd[o], POLLIN, 0 };
    if (wait > 1)
        wait = 1; /* for the callers' time limits */
    if (poll(l->poll, (nfds_t)(1 + CALLERS + s->n),
             wait < 0 ? 0 : (int)(wait * 1000)) <= 0)
        return;
    for (int o = 0; o < s->n; o++)
        if (ranks[o].revents)
            check_rank(l, o);
    for (int i = 0; i < CALLERS; i++)
        if (l->poll[1 + i].revents)
            read_caller(l, &l->caller[i]);
    if (l->poll[0].revents)
        accept_caller(l);
}

/* A rank that does not receive it finds its connection closed, at the next fence at the
 * latest.
 */
static void send_verdict(struct mu_survive *s)
{
    struct mu_verdict v = { .magic = MU_VERDICT_MAGIC, .n = (uint32_t)s->n };
    double until = mu_clock_s() + MU_CALL_SECONDS;

    for (int o = 0; o < s->n; o++)
        if (s->fd[o] >= 0 &&
            (!mu_net_send(s->fd[o], &v, sizeof v, until) ||
             !mu_net_send(s->fd[o], s->fate, (size_t)s->n * sizeof *s->fate, until)))
            mu_survive_drop(s, o);
}

int mu_survive_lead(struct mu_survive *s, const struct mu_join *mine, double until,
                    double patience, struct mu_err *err)
{
    struct lead l = { .s = s };
    int missing = -1, rc = 0;

    l.joined = calloc((size_t)s->n, sizeof *l.joined);
    l.poll = calloc(1 + CALLERS + (size_t)s->n, sizeof *l.poll);
    for (int i = 0; i < CALLERS; i++)
        l.caller[i].fd = -1;
    if (!l.joined || !l.poll)
        rc = mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", s->n);
    s->leader = s->me;
    memcpy(s->fate[s->me].ballot, mine->ballot, sizeof mine->ballot);
    while (rc == 0 && !complete(&l, &missing)) {
        if (mu_clock_s() >= until)
            rc = mu_survive_late(s, missing, patience, err);
        else
            listen_once(&l, until);
    }
    for (int i = 0; i < CALLERS; i++)
        if (l.caller[i].fd >= 0)
            close(l.caller[i].fd);
    free(l.joined);
    free(l.poll);
    if (rc == 0)
        send_verdict(s);
    return rc;
}
