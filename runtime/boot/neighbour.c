/* SPDX-License-Identifier: BSD-3-Clause */
/* neighbour.c - a ring of local connections whose end is a rank's death */
#include "runtime/boot/neighbour.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* An abstract name: gone with its owner, and no file is left. */
static socklen_t address(const struct mu_neighbour *n, int rank, struct sockaddr_un *at)
{
    int len;

    memset(at, 0, sizeof *at);
    at->sun_family = AF_UNIX;
    len = snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "muster.ring.%016llx.%d",
                   (unsigned long long)n->key, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Anybody may use the name: only processes of our user are ranks. */
static bool is_ours(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           peer.uid == geteuid();
}

void mu_neighbour_open(struct mu_neighbour *n, uint64_t key, int rank,
                       const bool *local, int size)
{
    struct sockaddr_un at;
    socklen_t len;

    *n = MU_NEIGHBOUR_NONE;
    n->key = key;
    n->rank = rank;
    for (int i = 1; i < size && n->next < 0; i++)
        if (local[(rank + i) % size])
            n->next = (rank + i) % size;
    for (int i = 1; i < size && n->before < 0; i++)
        if (local[(rank + size - i) % size])
            n->before = (rank + size - i) % size;
    if (n->next < 0)
        return;
    len = address(n, rank, &at);
    n->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (n->listener >= 0 && (bind(n->listener, (struct sockaddr *)&at, len) < 0 ||
                             listen(n->listener, 8) < 0))
        drop(&n->listener);
}

static void call_next(struct mu_neighbour *n)
{
    struct sockaddr_un at;
    socklen_t len = address(n, n->next, &at);

    n->to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (n->to >= 0 &&
        (connect(n->to, (struct sockaddr *)&at, len) < 0 || !is_ours(n->to)))
        drop(&n->to); /* it is not there yet */
}

static void take_before(struct mu_neighbour *n)
{
    n->from = accept4(n->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (n->from >= 0 && !is_ours(n->from))
        drop(&n->from);
}

/* Nothing is ever sent, so what can be read is the end. */
static bool ended(int fd)
{
    char byte;
    ssize_t got = fd < 0 ? 1 : recv(fd, &byte, 1, MSG_DONTWAIT);

    return got == 0 || (got < 0 && errno == ECONNRESET);
}

int mu_neighbour_poll(struct mu_neighbour *n)
{
    if (n->next < 0)
        return -1;
    if (n->to < 0)
        call_next(n);
    if (n->from < 0 && n->listener >= 0)
        take_before(n);
    return ended(n->to) ? n->next : ended(n->from) ? n->before : -1;
}

void mu_neighbour_close(struct mu_neighbour *n)
{
    drop(&n->listener);
    drop(&n->to);
    drop(&n->from);
}
