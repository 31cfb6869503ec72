/* SPDX-License-Identifier: BSD-3-Clause */
/* dial.c - call an endpoint: connect with a deadline, then the hello */
#include "runtime/endpoint/dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/peercred.h"
#include "runtime/endpoint/net.h"

#define CONNECT_SECONDS 3.0
#define HELLO_SECONDS 5.0

/* ---- Where to call -------------------------------------------------------------- */

static void add(struct mu_dial *d, const void *at, socklen_t len)
{
    if (d->n == MU_DIAL_MAX)
        return;
    memcpy(&d->to[d->n].at, at, len);
    d->to[d->n++].len = len;
}

static void add_host(struct mu_dial *d, const char *host, const char *port,
                     bool elsewhere)
{
    struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *found = NULL;

    if (getaddrinfo(host, port, &want, &found) != 0)
        return;
    for (const struct addrinfo *a = found; a; a = a->ai_next)
        if (!elsewhere || !mu_address_is_own(a->ai_addr))
            add(d, a->ai_addr, a->ai_addrlen);
    freeaddrinfo(found);
}

static void add_all(struct mu_dial *d, const struct mu_address *own,
                    const struct mu_address *to, bool tcp)
{
    char list[MU_ADDRESS_HOSTS], port[16], *rest = list, *host;
    bool here = mu_address_same_machine(own, to);

    if (here && !tcp) {
        struct sockaddr_un at;
        socklen_t len = mu_address_local(to, &at);

        add(d, &at, len);
        return;
    }
    snprintf(port, sizeof port, "%u", to->port);
    if (here)
        add_host(d, "127.0.0.1", port, false);
    mu_copy(list, sizeof list, to->hosts);
    while ((host = mu_parse_next(&rest, ',')))
        add_host(d, host, port, !here && to->machine[0]);
}

void mu_dial_start(struct mu_dial *d, const struct mu_address *own,
                   const struct mu_address *to, bool tcp, const struct mu_claim *claim,
                   const uint8_t *secret)
{
    *d = (struct mu_dial){ .fd = -1, .hello = { .claim = *claim, .secret = secret } };
    memcpy(d->hello.callee, to->id, sizeof to->id);
    add_all(d, own, to, tcp);
}

/* ---- Calling -------------------------------------------------------------------- */

static enum mu_answer answer_of(int error)
{
    if (error == ECONNRESET)
        return MU_ANSWER_DROPPED;
    return error == ECONNREFUSED ? MU_ANSWER_REFUSED : MU_ANSWER_SILENT;
}

/* Another user may hold the port or the name that a rank has left. */
static bool is_ours(struct mu_dial *d)
{
    struct mu_peercred peer;

    if (d->to[d->turn].at.ss_family != AF_UNIX)
        return true;
    peer = mu_peercred_of(d->fd);
    if (peer.uid != geteuid())
        return false;
    d->pid = peer.pid;
    return true;
}

static enum mu_answer greet(struct mu_dial *d)
{
    const uint8_t *secret = d->hello.secret;
    struct mu_claim claim = d->hello.claim;
    uint8_t callee[MU_ADDRESS_ID];

    memcpy(callee, d->hello.callee, sizeof callee);
    d->connected = true;
    d->until = mu_clock_s() + HELLO_SECONDS;
    if (!is_ours(d))
        return MU_ANSWER_REFUSED;
    if (d->to[d->turn].at.ss_family != AF_UNIX)
        mu_net_tune(d->fd);
    return mu_hello_call(&d->hello, &claim, callee, secret) ? MU_ANSWER_NONE
                                                            : MU_ANSWER_SILENT;
}

/* A full AF_UNIX backlog is EAGAIN: connect is called again. */
static enum mu_answer connect_now(struct mu_dial *d)
{
    const struct mu_dial_to *to = &d->to[d->turn];

    if (connect(d->fd, (const struct sockaddr *)&to->at, to->len) == 0)
        return greet(d);
    return errno == EINPROGRESS || errno == EAGAIN || errno == EINTR ? MU_ANSWER_NONE
                                                                     : answer_of(errno);
}

static enum mu_answer begin(struct mu_dial *d)
{
    d->connected = false;
    d->until = mu_clock_s() + CONNECT_SECONDS;
    d->fd = socket(d->to[d->turn].at.ss_family,
                   SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return d->fd < 0 ? MU_ANSWER_SILENT : connect_now(d);
}

static enum mu_answer go_on_connecting(struct mu_dial *d)
{
    struct pollfd p = { d->fd, POLLOUT, 0 };
    int failure = 0;
    socklen_t len = sizeof failure;

    if (d->to[d->turn].at.ss_family == AF_UNIX)
        return connect_now(d);
    if (poll(&p, 1, 0) <= 0)
        return MU_ANSWER_NONE;
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &failure, &len) < 0 || failure)
        return answer_of(failure);
    return greet(d);
}

static enum mu_answer go_on_with_hello(struct mu_dial *d)
{
    switch (mu_hello_step(&d->hello, d->fd)) {
    case MU_HELLO_PENDING:
        return MU_ANSWER_NONE;
    case MU_HELLO_PROVED:
        return MU_ANSWER_PROVED;
    case MU_HELLO_GONE:
        return MU_ANSWER_DROPPED;
    default:
        return MU_ANSWER_REFUSED;
    }
}

static enum mu_answer try_address(struct mu_dial *d)
{
    enum mu_answer answer = d->fd < 0 ? begin(d) : MU_ANSWER_NONE;

    if (answer == MU_ANSWER_NONE && !d->connected)
        answer = go_on_connecting(d);
    if (answer == MU_ANSWER_NONE && d->connected)
        answer = go_on_with_hello(d);
    if (answer == MU_ANSWER_NONE && mu_clock_s() >= d->until)
        answer = d->connected ? MU_ANSWER_STALLED : MU_ANSWER_SILENT;
    return answer;
}

enum mu_answer mu_dial_step(struct mu_dial *d)
{
    while (d->answer == MU_ANSWER_NONE) {
        enum mu_answer answer = MU_ANSWER_SILENT;

        if (d->turn < d->n)
            answer = try_address(d);
        if (answer == MU_ANSWER_NONE)
            return answer;
        if (d->turn == 0)
            d->first = answer;
        if (answer == MU_ANSWER_PROVED || ++d->turn >= d->n)
            d->answer = answer == MU_ANSWER_PROVED ? answer : d->first;
        if (answer != MU_ANSWER_PROVED)
            mu_dial_stop(d);
    }
    return d->answer;
}

enum mu_answer mu_dial_wait(struct mu_dial *d, double until)
{
    while (mu_dial_step(d) == MU_ANSWER_NONE) {
        struct pollfd p = { d->fd, d->connected ? POLLIN : POLLOUT, 0 };
        bool again = !d->connected && d->to[d->turn].at.ss_family == AF_UNIX;
        double left = (d->until < until ? d->until : until) - mu_clock_s();

        if (until <= mu_clock_s())
            break;
        if (again)
            poll(NULL, 0, 1);
        else
            poll(&p, 1, left < 0 ? 0 : left < 1 ? (int)(left * 1000) + 1 : 1000);
    }
    return d->answer;
}

void mu_dial_stop(struct mu_dial *d)
{
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}
