/* SPDX-License-Identifier: BSD-3-Clause */
/* net.c - TCP between ranks before they know each other: listen, addresses, call */
#include "runtime/boot/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/backend/backend.h"
#include "runtime/base/parse.h"
#include "runtime/core/text.h"

#define CONNECT_SECONDS 3.0

int mu_net_listen(int *fd, uint32_t *port, struct mu_err *err)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
    struct sockaddr_in four = { .sin_family = AF_INET };
    struct sockaddr_storage got;
    socklen_t len = sizeof got;
    int off = 0;

    *fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0 && (setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0 ||
                     bind(*fd, (struct sockaddr *)&six, sizeof six) < 0)) {
        close(*fd);
        *fd = -1;
    }
    if (*fd < 0) {
        *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (*fd < 0 || bind(*fd, (struct sockaddr *)&four, sizeof four) < 0)
            return mu_err_set(err, MUSTER_ERENDEZVOUS, "cannot bind a TCP port: %s",
                              strerror(errno));
    }
    if (listen(*fd, 128) < 0 || getsockname(*fd, (struct sockaddr *)&got, &len) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "cannot listen on TCP: %s",
                          strerror(errno));
    *port = ntohs(got.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&got)->sin6_port
                                            : ((struct sockaddr_in *)&got)->sin_port);
    return 0;
}

/* Names that mean a bridge or tunnel of this host: others reach the wrong thing there.
 */
static bool is_virtual(const char *name)
{
    static const char *const prefix[] = { "docker",  "br-", "virbr", "veth",   "cni",
                                          "flannel", "tun", "tap",   "podman", NULL };

    for (int i = 0; prefix[i]; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
            return true;
    return false;
}

/* 0: best. Loopback is last: two nodes may share one kernel. -1: no use. */
static int worth(const struct ifaddrs *i)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
        return -1;
    if (i->ifa_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)i->ifa_addr;

        /* Link-local addresses need a scope that means nothing elsewhere. */
        if (IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr))
            return -1;
    } else if (i->ifa_addr->sa_family != AF_INET) {
        return -1;
    }
    if (i->ifa_flags & IFF_LOOPBACK)
        return 3;
    if (is_virtual(i->ifa_name))
        return 2;
    return i->ifa_addr->sa_family == AF_INET ? 0 : 1;
}

void mu_net_addresses(const char *first, char *out, size_t len)
{
    struct ifaddrs *all = NULL;
    size_t n = 0;

    out[0] = '\0';
    if (first)
        mu_text_add(out, len, &n, "%s", first);
    if (getifaddrs(&all) < 0)
        return;
    for (int rank = 0; rank <= 3; rank++)
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            char text[INET6_ADDRSTRLEN] = "";

            if (worth(i) != rank)
                continue;
            if (getnameinfo(i->ifa_addr,
                            i->ifa_addr->sa_family == AF_INET
                                ? sizeof(struct sockaddr_in)
                                : sizeof(struct sockaddr_in6),
                            text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 &&
                n + strlen(text) + 2 < len)
                mu_text_add(out, len, &n, "%s%s", n ? "," : "", text);
        }
    freeifaddrs(all);
}

bool mu_net_send(int fd, const void *bytes, size_t len, double until)
{
    size_t sent = 0;

    while (sent < len) {
        struct pollfd p = { fd, POLLOUT, 0 };
        double left = until - mu_control_now();
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
        double left = until - mu_control_now();
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

bool mu_net_same_token(const uint8_t *a, const uint8_t *b)
{
    unsigned char differ = 0;

    for (int i = 0; i < MU_TOKEN_LEN; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
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

/* A connection, or -1 with errno. */
static int connect_until(const struct addrinfo *at, double until)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd p = { fd, POLLOUT, 0 };
    double left = until - mu_control_now();
    int failure = 0;
    socklen_t len = sizeof failure;

    if (fd < 0)
        return -1;
    if (connect(fd, at->ai_addr, at->ai_addrlen) < 0) {
        failure = errno;
        if (failure == EINPROGRESS)
            failure = left > 0 && poll(&p, 1, (int)(left * 1000)) > 0 &&
                              getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len) == 0
                          ? failure
                          : ETIMEDOUT;
    }
    if (failure) {
        close(fd);
        errno = failure;
        return -1;
    }
    mu_net_tune(fd);
    return fd;
}

static enum mu_net_answer call_host(const char *host, const char *port, double until,
                                    bool (*greet)(void *arg, int fd, double until),
                                    void *arg)
{
    struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    enum mu_net_answer answer = MU_NET_SILENT;

    if (getaddrinfo(host, port, &want, &found) != 0)
        return answer;
    for (const struct addrinfo *a = found; a && answer != MU_NET_GREETED;
         a = a->ai_next) {
        int fd = connect_until(a, until);

        if (fd >= 0 && greet(arg, fd, until + MU_NET_HELLO))
            answer = MU_NET_GREETED;
        else if (fd >= 0 || errno == ECONNREFUSED || errno == ECONNRESET)
            answer = MU_NET_REFUSED;
    }
    freeaddrinfo(found);
    return answer;
}

enum mu_net_answer mu_net_call(const char *addresses, uint32_t port, double until,
                               bool (*greet)(void *arg, int fd, double until),
                               void *arg)
{
    char copy[MU_NET_ADDRESSES], number[16], *rest = copy, *host;
    enum mu_net_answer first = MU_NET_SILENT;
    bool is_first = true;

    mu_copy(copy, sizeof copy, addresses);
    snprintf(number, sizeof number, "%u", port);
    while ((host = mu_parse_next(&rest, ','))) {
        double now = mu_control_now();
        double turn = now + CONNECT_SECONDS < until ? now + CONNECT_SECONDS : until;
        enum mu_net_answer answer = call_host(host, number, turn, greet, arg);

        if (answer == MU_NET_GREETED)
            return answer;
        if (is_first)
            first = answer;
        is_first = false;
    }
    return first;
}
