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

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "runtime/boot/world.h"

#define MAGIC 0x6d75726fu /* changes with the record */
#define CALL_SECONDS 3.0
#define PAUSE_SECONDS 0.2

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- Neighbours in the ring ------------------------------------------------------ */

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
        mu_random(n->mine.secret, sizeof n->mine.secret) < 0 ||
        mu_net_listen(&n->listener, &n->mine.port, NULL) < 0) {
        drop(&n->listener);
        return;
    }
    mu_net_addresses(NULL, n->mine.address, sizeof n->mine.address);
    mu_net_machine(n->mine.machine);
    n->next = first_of_another(node_of, rank, size, 1);
    n->before = first_of_another(node_of, rank, size, size - 1);
}

void mu_node_ring_set_next(struct mu_node_ring *n, const void *record, size_t len)
{
    if (len != sizeof n->theirs)
        return;
    memcpy(&n->theirs, record, len);
    n->theirs.host[sizeof n->theirs.host - 1] = '\0';
    n->theirs.address[sizeof n->theirs.address - 1] = '\0';
    n->theirs.machine[sizeof n->theirs.machine - 1] = '\0';
    n->have_next = n->theirs.magic == MAGIC;
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
    if (strcmp(n->theirs.machine, n->mine.machine) != 0 && mu_net_is_own(at->ai_addr)) {
        n->pause = now; /* on to the next address */
        freeaddrinfo(at);
        return;
    }
    n->connected = false;
    n->call = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (n->call >= 0 && connect(n->call, at->ai_addr, at->ai_addrlen) < 0 &&
        errno != EINPROGRESS)
        drop(&n->call);
    if (n->call >= 0)
        n->pause = now + CALL_SECONDS;
    freeaddrinfo(at);
}

static enum mu_hello_result go_on_with_hello(struct mu_node_ring *n)
{
    if (!n->connected) {
        mu_net_tune(n->call);
        n->connected = true;
        if (!mu_hello_call(&n->hello, MU_HELLO_RING, n->theirs.secret, n->rank,
                           n->next))
            return MU_HELLO_GONE;
    }
    return mu_hello_step(&n->hello, n->call);
}

static void go_on_calling(struct mu_node_ring *n, double now)
{
    struct pollfd p = { n->call, n->connected ? POLLIN : POLLOUT, 0 };
    enum mu_hello_result result = MU_HELLO_GONE;

    if (now < n->pause) {
        if (poll(&p, 1, 0) <= 0)
            return;
        result = go_on_with_hello(n);
        if (result == MU_HELLO_PENDING)
            return;
    }
    if (result == MU_HELLO_PROVED &&
        mu_net_send(n->call, n->mine.host, sizeof n->mine.host, 0)) {
        n->to = (struct mu_node_ring_link){ .fd = n->call };
        n->call = -1;
        return;
    }
    drop(&n->call);
    n->pause = now + PAUSE_SECONDS;
}

/* ---- Being called ---------------------------------------------------------------- */

static void accept_callers(struct mu_node_ring *n, double now)
{
    for (int i = 0; i < MU_NODE_RING_CALLERS; i++) {
        struct mu_node_ring_caller *c = &n->callers[i];

        if (c->fd >= 0)
            continue;
        c->fd = accept4(n->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        c->until = now + MU_NET_HELLO;
        c->proved = false;
        c->got = 0;
        if (c->fd >= 0 &&
            !mu_hello_accept(&c->hello, c->fd, MU_HELLO_RING, n->mine.secret, n->rank))
            drop(&c->fd);
    }
}

/* Returns false when the connection is to be dropped. */
static bool prove_caller(struct mu_node_ring *n, struct mu_node_ring_caller *c)
{
    enum mu_hello_result result = mu_hello_step(&c->hello, c->fd);

    if (result == MU_HELLO_PENDING)
        return true;
    c->proved = result == MU_HELLO_PROVED && c->hello.peer == n->before &&
                mu_hello_confirm(&c->hello, c->fd);
    return c->proved;
}

static bool read_host(struct mu_node_ring_caller *c)
{
    ssize_t got = recv(c->fd, c->host + c->got, sizeof c->host - c->got, MSG_DONTWAIT);

    if (got > 0)
        c->got += (size_t)got;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static void serve_caller(struct mu_node_ring *n, struct mu_node_ring_caller *c,
                         double now)
{
    bool good = now < c->until && (c->proved || prove_caller(n, c));

    if (good && c->proved)
        good = read_host(c);
    if (!good) {
        drop(&c->fd);
    } else if (c->got == sizeof c->host) {
        mu_net_tune(c->fd);
        drop(&n->from.fd); /* it connects again if it did not receive our proof */
        n->from = (struct mu_node_ring_link){ .fd = c->fd };
        c->fd = -1;
        c->host[sizeof c->host - 1] = '\0';
        mu_copy(n->host_before, sizeof n->host_before, c->host);
    }
}

/* ---- Looking --------------------------------------------------------------------- */

void mu_node_ring_enter(struct mu_node_ring *n)
{
    n->entered++;
}

static bool is_behind(const struct mu_node_ring *n, const struct mu_node_ring_link *l)
{
    return l->fd >= 0 && l->received < n->entered;
}

int mu_node_ring_behind(const struct mu_node_ring *n)
{
    if (n->next >= 0 && is_behind(n, &n->to))
        return n->next;
    return n->next >= 0 && is_behind(n, &n->from) ? n->before : -1;
}

/* Send the fences that we entered and read those of the peer; true: it has ended. */
static bool ended(const struct mu_node_ring *n, struct mu_node_ring_link *l)
{
    char bytes[64];
    ssize_t got = 1;

    if (l->fd < 0)
        return false;
    for (; l->sent < n->entered; l->sent++)
        if (send(l->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
            break;
    while ((got = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        l->received += (int)got;
    return got == 0 || (errno != EAGAIN && errno != EINTR);
}

int mu_node_ring_poll(struct mu_node_ring *n, const char **host)
{
    double now = mu_clock_s();

    if (n->next < 0)
        return -1;
    if (n->call >= 0)
        go_on_calling(n, now);
    else if (n->to.fd < 0 && n->have_next)
        begin_call(n, now);
    accept_callers(n, now);
    for (int i = 0; i < MU_NODE_RING_CALLERS; i++)
        if (n->callers[i].fd >= 0)
            serve_caller(n, &n->callers[i], now);
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
