/* SPDX-License-Identifier: BSD-3-Clause */
/* net.c - sockets: listen on TCP, send and receive with a deadline */
#include "runtime/endpoint/net.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/muster.h"

/* A port that is wanted may have connections of an earlier listener that have ended. */
static int open_socket(int family, uint32_t port)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

    if (fd >= 0 && port)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return fd;
}

int mu_net_listen(int *fd, uint32_t *port, struct mu_err *err)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6,
                                .sin6_port = htons((uint16_t)*port) };
    struct sockaddr_in four = { .sin_family = AF_INET,
                                .sin_port = htons((uint16_t)*port) };
    struct sockaddr_storage got;
    socklen_t len = sizeof got;
    int off = 0;

    *fd = open_socket(AF_INET6, *port);
    if (*fd >= 0 && (setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0 ||
                     bind(*fd, (struct sockaddr *)&six, sizeof six) < 0)) {
        close(*fd);
        *fd = -1;
    }
    if (*fd < 0) {
        *fd = open_socket(AF_INET, *port);
        if (*fd < 0 || bind(*fd, (struct sockaddr *)&four, sizeof four) < 0)
            return mu_err_set(err, MUSTER_ERENDEZVOUS, "cannot bind a TCP port: %s",
                              strerror(errno));
    }
    if (listen(*fd, SOMAXCONN) < 0 ||
        getsockname(*fd, (struct sockaddr *)&got, &len) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "cannot listen on TCP: %s",
                          strerror(errno));
    *port = ntohs(got.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&got)->sin6_port
                                            : ((struct sockaddr_in *)&got)->sin_port);
    return 0;
}

void mu_net_drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

bool mu_net_send(int fd, const void *bytes, size_t len, double until)
{
    size_t sent = 0;

    while (sent < len) {
        struct pollfd p = { fd, POLLOUT, 0 };
        double left = until - mu_clock_s();
        ssize_t n = send(fd, (const char *)bytes + sent, len - sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0)
            sent += (size_t)n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR) || left <= 0 ||
                 poll(&p, 1, (int)(left * 1000) + 1) <= 0)
            return false;
    }
    return true;
}

bool mu_net_receive(int fd, void *bytes, size_t len, double until)
{
    size_t got = 0;

    while (got < len) {
        struct pollfd p = { fd, POLLIN, 0 };
        double left = until - mu_clock_s();
        ssize_t n;

        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0)
            return false;
        n = recv(fd, (char *)bytes + got, len - got, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        if (n > 0)
            got += (size_t)n;
    }
    return true;
}

void mu_net_tune(int fd)
{
    int on = 1, idle = 5, interval = 2, count = 3;
    unsigned user_timeout = 10000; /* ms until a dead link counts as a dead peer */

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof user_timeout);
}
