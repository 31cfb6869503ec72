/* SPDX-License-Identifier: BSD-3-Clause */
/* node_ring.c - a ring of nodes over TCP whose end is a rank's death */
#include "runtime/boot/node_ring.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/boot/world.h"

#define MAGIC 0x6d75726eu /* changes with card and hello */
#define CALL_SECONDS 3.0
#define PAUSE_SECONDS 0.2

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- Who stands where ------------------------------------------------------------ */

static bool is_first(const uint64_t *node_of, int rank)
{
    for (int r = 0; r < rank; r++)
        if (node_of[r] == node_of[rank])
            return false;
    return true;
}

/* The first rank of the next node (step 1) or the one before (step size - 1). */
static int first_of_another(const uint64_t *node_of, int rank, int size, int step)
{
    for (int i = 1; i < size; i++) {
        int r = (int)((rank + (long long)i * step) % size);

        if (node_of[r] != node_of[rank] && is_first(node_of, r))
            return r;
    }
    return -1;
}

void mu_node_ring_open(struct mu_node_ring *n, int rank, const uint64_t *node_of,
                       int size, const char *host)
{
    *n = MU_NODE_RING_NONE;
    n->rank = rank;
    if (!is_first(node_of, rank))
        return;
    n->mine.magic = MAGIC;
    mu_copy(n->mine.host, sizeof n->mine.host, host);
    if (first_of_another(node_of, rank, size, 1) < 0 ||
        mu_world_random(n->mine.secret, sizeof n->mine.secret, NULL) < 0 ||
        mu_net_listen(&n->listener, &n->mine.port, NULL) < 0) {
        drop(&n->listener);
        return;
    }
    mu_net_addresses(NULL, n->mine.address, sizeof n->mine.address);
    n->next = first_of_another(node_of, rank, size, 1);
    n->before = first_of_another(node_of, rank, size, size - 1);
}

void mu_node_ring_told(struct mu_node_ring *n, const void *card, size_t len)
{
    if (len != sizeof n->theirs)
        return;
    memcpy(&n->theirs, card, len);
    n->theirs.host[sizeof n->theirs.host - 1] = '\0';
    n->theirs.address[sizeof n->theirs.address - 1] = '\0';
    n->told = n->theirs.magic == MAGIC;
}

/* ---- Calling --------------------------------------------------------------------- */

/* Address number `turn` of the list; behind the last comes the first. */
static bool pick_address(struct mu_node_ring *n, char *host, size_t len)
{
    char copy[MU_NET_ADDRESSES], *rest = copy, *item;
    int i = 0;

    mu_copy(copy, sizeof copy, n->theirs.address);
    host[0] = '\0';
    while ((item = mu_parse_next(&rest, ','))) {
        if (i == 0 || i == n->turn)
            mu_copy(host, len, item);
        i++;
    }
    n->turn = n->turn < i ? n->turn + 1 : 1;
    return host[0] != '\0';
}

static void begin_call(struct mu_node_ring *n, double now)
{
    struct addrinfo want = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };
    struct addrinfo *at = NULL;
    char host[MU_NET_ADDRESSES], port[16];

    if (now < n->pause)
        return;
    n->pause = now + PAUSE_SECONDS;
    snprintf(port, sizeof port, "%u", n->theirs.port);
    if (!pick_address(n, host, sizeof host) || getaddrinfo(host, port, &want, &at) != 0)
        return;
    n->greeted = false;
    n->call = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (n->call >= 0 && connect(n->call, at->ai_addr, at->ai_addrlen) < 0 &&
        errno != EINPROGRESS)
        drop(&n->call);
    if (n->call >= 0)
        n->pause = now + CALL_SECONDS;
    freeaddrinfo(at);
}

/* The connection is there: say who calls. */
static bool greet(struct mu_node_ring *n)
{
    struct mu_node_ring_hello hello = { .magic = MAGIC, .rank = n->rank };

    mu_copy(hello.host, sizeof hello.host, n->mine.host);
    memcpy(hello.half, n->theirs.secret, sizeof hello.half);
    mu_net_tune(n->call);
    n->greeted = true;
    return mu_net_send(n->call, &hello, sizeof hello, 0);
}

static void go_on_calling(struct mu_node_ring *n, double now)
{
    struct pollfd p = { n->call, n->greeted ? POLLIN : POLLOUT, 0 };
    uint8_t half[MU_NODE_RING_HALF];
    bool good = now < n->pause;

    if (good && poll(&p, 1, 0) <= 0)
        return;
    if (good && !n->greeted) {
        if (greet(n))
            return;
        good = false;
    }
    /* The answer is so short that it comes in one piece. */
    if (good && recv(n->call, half, sizeof half, MSG_DONTWAIT) == sizeof half &&
        mu_net_same_token(half, n->theirs.secret + sizeof half)) {
        n->to = (struct mu_node_ring_link){ .fd = n->call };
        n->call = -1;
        return;
    }
    drop(&n->call);
    n->pause = now + PAUSE_SECONDS;
}

/* ---- Being called ---------------------------------------------------------------- */

static void take_callers(struct mu_node_ring *n, double now)
{
    for (int i = 0; i < MU_NODE_RING_CALLERS; i++) {
        struct mu_node_ring_caller *c = &n->callers[i];

        if (c->fd >= 0)
            continue;
        c->fd = accept4(n->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        c->until = now + MU_NET_HELLO;
        c->got = 0;
    }
}

static bool is_the_one_before(const struct mu_node_ring *n,
                              const struct mu_node_ring_hello *h)
{
    return h->magic == MAGIC && h->rank == n->before &&
           mu_net_same_token(h->half, n->mine.secret);
}

static void hear_caller(struct mu_node_ring *n, struct mu_node_ring_caller *c,
                        double now)
{
    ssize_t got =
        recv(c->fd, (char *)&c->hello + c->got, sizeof c->hello - c->got, MSG_DONTWAIT);

    if (got > 0)
        c->got += (size_t)got;
    if (c->got == sizeof c->hello && is_the_one_before(n, &c->hello) &&
        mu_net_send(c->fd, n->mine.secret + MU_NODE_RING_HALF, MU_NODE_RING_HALF, 0)) {
        mu_net_tune(c->fd);
        drop(&n->from.fd); /* it calls again where it did not hear our answer */
        n->from = (struct mu_node_ring_link){ .fd = c->fd };
        c->fd = -1;
        mu_copy(n->host_before, sizeof n->host_before, c->hello.host);
    } else if (c->got == sizeof c->hello || got == 0 || now >= c->until ||
               (got < 0 && errno != EAGAIN && errno != EINTR)) {
        drop(&c->fd);
    }
}

/* ---- Looking --------------------------------------------------------------------- */

void mu_node_ring_enter(struct mu_node_ring *n)
{
    n->entered++;
}

static bool has_not_come(const struct mu_node_ring *n,
                         const struct mu_node_ring_link *l)
{
    return l->fd >= 0 && l->heard < n->entered;
}

int mu_node_ring_silent(const struct mu_node_ring *n)
{
    if (n->next >= 0 && has_not_come(n, &n->to))
        return n->next;
    return n->next >= 0 && has_not_come(n, &n->from) ? n->before : -1;
}

/* Tell which fence we are in and hear of the other's; true: it has ended. */
static bool ended(const struct mu_node_ring *n, struct mu_node_ring_link *l)
{
    char bytes[64];
    ssize_t got = 1;

    if (l->fd < 0)
        return false;
    for (; l->told < n->entered; l->told++)
        if (send(l->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
            break;
    while ((got = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        l->heard += (int)got;
    return got == 0 || (errno != EAGAIN && errno != EINTR);
}

int mu_node_ring_look(struct mu_node_ring *n, const char **host)
{
    double now = mu_control_now();

    if (n->next < 0)
        return -1;
    if (n->call >= 0)
        go_on_calling(n, now);
    else if (n->to.fd < 0 && n->told)
        begin_call(n, now);
    take_callers(n, now);
    for (int i = 0; i < MU_NODE_RING_CALLERS; i++)
        if (n->callers[i].fd >= 0)
            hear_caller(n, &n->callers[i], now);
    *host = n->theirs.host;
    if (ended(n, &n->to))
        return n->next;
    *host = n->host_before;
    return ended(n, &n->from) ? n->before : -1;
}

void mu_node_ring_close(struct mu_node_ring *n)
{
    drop(&n->listener);
    drop(&n->to.fd);
    drop(&n->from.fd);
    drop(&n->call);
    for (int i = 0; i < MU_NODE_RING_CALLERS; i++)
        drop(&n->callers[i].fd);
    n->next = -1;
}
