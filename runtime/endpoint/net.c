/* SPDX-License-Identifier: BSD-3-Clause */
/* net.c - TCP between ranks before their first handshake: listen, addresses, call */
#include "runtime/endpoint/net.h"

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
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/exchange.h"
#include "runtime/base/parse.h"
#include "runtime/core/text.h"
#include "runtime/muster.h"

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

static bool begins_with_one_of(const char *name, const char *const *prefix)
{
    for (int i = 0; prefix[i]; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
            return true;
    return false;
}

enum { TUNNEL = 2, BRIDGE, LOOPBACK };

/* 0: best. Loopback is last: two nodes may share one kernel. -1: no use. */
static int worth(const struct ifaddrs *i)
{
    static const char *const bridge[] = { "docker", "br-",    "virbr", "veth",
                                          "cni",    "podman", NULL };
    static const char *const tunnel[] = { "flannel", "tun", "tap", NULL };

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
        return LOOPBACK;
    if (begins_with_one_of(i->ifa_name, bridge))
        return BRIDGE;
    if (begins_with_one_of(i->ifa_name, tunnel))
        return TUNNEL;
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
    for (int rank = 0; rank <= LOOPBACK; rank++) {
        /* Other hosts reach their own bridge there: only without any other address. */
        if (rank == BRIDGE && n > 0)
            continue;
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
    }
    freeifaddrs(all);
}

void mu_net_machine(char machine[MU_NET_MACHINE])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    char boot[40] = "?";
    struct stat st = { 0 };

    if (f) {
        if (!fgets(boot, sizeof boot, f))
            boot[0] = '\0';
        fclose(f);
    }
    boot[strcspn(boot, "\n")] = '\0';
    stat("/proc/self/ns/net", &st);
    snprintf(machine, MU_NET_MACHINE, "%s %llu", boot, (unsigned long long)st.st_ino);
}

/* IPv6, or IPv4 inside it. */
static struct in6_addr as_six(const struct sockaddr *at)
{
    struct in6_addr six = { .s6_addr = { [10] = 0xff, [11] = 0xff } };

    if (at->sa_family == AF_INET6)
        return ((const struct sockaddr_in6 *)at)->sin6_addr;
    memcpy(&six.s6_addr[12], &((const struct sockaddr_in *)at)->sin_addr, 4);
    return six;
}

bool mu_net_is_own(const struct sockaddr *at)
{
    struct in6_addr six = as_six(at);
    struct ifaddrs *all = NULL;
    bool own = IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_UNSPECIFIED(&six) ||
               (IN6_IS_ADDR_V4MAPPED(&six) &&
                (six.s6_addr[12] == 127 || six.s6_addr[12] == 0));

    if (own || getifaddrs(&all) < 0)
        return own;
    for (const struct ifaddrs *i = all; i && !own; i = i->ifa_next)
        if (i->ifa_addr &&
            (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6)) {
            struct in6_addr mine = as_six(i->ifa_addr);

            own = memcmp(&mine, &six, sizeof six) == 0;
        }
    freeifaddrs(all);
    return own;
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

/* A connection, or -1 with errno. */
static int connect_until(const struct addrinfo *at, double until)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd p = { fd, POLLOUT, 0 };
    double left = until - mu_clock_s();
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

struct callee {
    const char *port;
    bool elsewhere;
    bool (*handshake)(void *arg, int fd, double until);
    void *arg;
};

/* enum mu_net_answer, or -1: all that the name leads to is this host. */
static int call_host(const struct callee *c, const char *host, double until)
{
    struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    int answer = -1;

    if (getaddrinfo(host, c->port, &want, &found) != 0)
        return MU_NET_SILENT;
    for (const struct addrinfo *a = found; a && answer != MU_NET_CONNECTED;
         a = a->ai_next) {
        int fd;

        if (c->elsewhere && mu_net_is_own(a->ai_addr))
            continue;
        fd = connect_until(a, until);
        if (fd >= 0 && c->handshake(c->arg, fd, until + MU_NET_HELLO))
            answer = MU_NET_CONNECTED;
        else if (fd >= 0 || errno == ECONNREFUSED || errno == ECONNRESET)
            answer = MU_NET_REFUSED;
        else if (answer < 0)
            answer = MU_NET_SILENT;
    }
    freeaddrinfo(found);
    return answer;
}

enum mu_net_answer mu_net_call(const char *addresses, bool elsewhere, uint32_t port,
                               double until,
                               bool (*handshake)(void *arg, int fd, double until),
                               void *arg)
{
    char copy[MU_NET_ADDRESSES], number[16], *rest = copy, *host;
    struct callee callee = { number, elsewhere, handshake, arg };
    int first = -1;

    mu_copy(copy, sizeof copy, addresses);
    snprintf(number, sizeof number, "%u", port);
    while ((host = mu_parse_next(&rest, ','))) {
        double now = mu_clock_s();
        double turn = now + CONNECT_SECONDS < until ? now + CONNECT_SECONDS : until;
        int answer = call_host(&callee, host, turn);

        if (answer == MU_NET_CONNECTED)
            return MU_NET_CONNECTED;
        if (first < 0)
            first = answer;
    }
    return first < 0 ? MU_NET_SILENT : (enum mu_net_answer)first;
}
