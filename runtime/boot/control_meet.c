/* SPDX-License-Identifier: BSD-3-Clause */
/* control_meet.c - listening, finding the parent, proving the job */
#include "runtime/boot/control_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/core/text.h"

#define HELLO_MAGIC 0x4d755331u /* changes with the frames */
#define HELLO_SECONDS 5.0
#define CONNECT_SECONDS 3.0
#define FOREIGN_LINES 10
#define CONTROL_KEY "muster.control"

/* What a parent tells over PMIx. */
struct whereabouts {
    uint32_t port;  /* TCP, 0: none */
    char local[64]; /* abstract AF_UNIX name without the leading zero byte, "": none */
    char address[512]; /* numeric, comma separated, best first */
};

/* The first bytes on a connection, both ways. */
struct hello {
    uint32_t magic;
    int32_t rank, pid;
    uint8_t token[MU_TOKEN_LEN];
};

_Static_assert(sizeof(struct hello) <= 64, "fits struct mu_pending");

/* ---- Listening ------------------------------------------------------------------- */

static int listen_local(struct mu_control *c, char *name, size_t len,
                        struct mu_err *err)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    unsigned char random[12];
    size_t n = 0;
    socklen_t size;

    if (mu_world_random(random, sizeof random, err) < 0)
        return -1;
    mu_text_add(name, len, &n, "muster-");
    for (size_t i = 0; i < sizeof random; i++)
        mu_text_add(name, len, &n, "%02x", random[i]);
    memcpy(at.sun_path + 1, name, n);
    size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    c->unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->unix_fd < 0 || bind(c->unix_fd, (struct sockaddr *)&at, size) < 0 ||
        listen(c->unix_fd, 128) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "cannot listen on a local socket: %s", strerror(errno));
    return 0;
}

/* IPv6 with IPv4 inside where there is IPv6, else IPv4. */
static int listen_tcp(struct mu_control *c, uint32_t *port, struct mu_err *err)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
    struct sockaddr_in four = { .sin_family = AF_INET };
    struct sockaddr_storage got;
    socklen_t len = sizeof got;
    int off = 0;

    c->tcp_fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->tcp_fd >= 0 &&
        (setsockopt(c->tcp_fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0 ||
         bind(c->tcp_fd, (struct sockaddr *)&six, sizeof six) < 0)) {
        close(c->tcp_fd);
        c->tcp_fd = -1;
    }
    if (c->tcp_fd < 0) {
        c->tcp_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (c->tcp_fd < 0 || bind(c->tcp_fd, (struct sockaddr *)&four, sizeof four) < 0)
            return mu_err_set(err, MUSTER_ERENDEZVOUS, "cannot bind a TCP port: %s",
                              strerror(errno));
    }
    if (listen(c->tcp_fd, 128) < 0 ||
        getsockname(c->tcp_fd, (struct sockaddr *)&got, &len) < 0)
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

static void list_addresses(const char *first, char *out, size_t len)
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

static bool has_child(const struct mu_control *c, bool local)
{
    const struct mu_world *w = c->env.world;

    for (int i = 0; i < c->nchildren; i++)
        if ((w->node_of[c->child[i]] == w->node) == local)
            return true;
    return false;
}

int mu_control_listen(struct mu_control *c, struct mu_err *err)
{
    struct whereabouts at = { 0 };

    if (has_child(c, true) && listen_local(c, at.local, sizeof at.local, err) < 0)
        return -1;
    /* A local child in another network namespace comes by TCP too. */
    if (c->nchildren > 0 && listen_tcp(c, &at.port, err) < 0)
        return -1;
    if (at.port)
        list_addresses(c->rank == 0 ? c->env.master_addr : NULL, at.address,
                       sizeof at.address);
    return c->env.world->exchange.publish(c->env.world->exchange.arg, CONTROL_KEY, &at,
                                          sizeof at, err);
}

/* ---- Calling the parent ------------------------------------------------------------
 */

static bool send_all(int fd, const void *bytes, size_t len)
{
    return send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static bool receive_all(int fd, void *bytes, size_t len, double until)
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

/* Compare without telling by the time it takes how many bytes were right. */
static bool same_token(const uint8_t *a, const uint8_t *b)
{
    unsigned char differ = 0;

    for (int i = 0; i < MU_TOKEN_LEN; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

static struct hello my_hello(const struct mu_control *c)
{
    struct hello h = { .magic = HELLO_MAGIC,
                       .rank = c->rank,
                       .pid = (int32_t)getpid() };

    memcpy(h.token, c->env.world->token, sizeof h.token);
    return h;
}

/* Exchange hellos over a connection that was just made; takes fd. The children may have
 * linked already, so the thread is at work: the rest is done with the lock.
 */
static bool greet_parent(struct mu_control *c, int fd, bool local, double until)
{
    struct hello mine = my_hello(c), theirs;
    bool ok;

    if (!send_all(fd, &mine, sizeof mine) ||
        !receive_all(fd, &theirs, sizeof theirs, until) ||
        theirs.magic != HELLO_MAGIC || theirs.rank != c->parent ||
        !same_token(theirs.token, mine.token)) {
        close(fd);
        return false;
    }
    pthread_mutex_lock(&c->lock);
    ok = mu_link_open(c, -1, fd, c->parent, local ? theirs.pid : 0) == 0;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

static bool call_local(struct mu_control *c, const char *name, double until)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    size_t n = strlen(name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (fd < 0)
        return false;
    memcpy(at.sun_path + 1, name, n);
    if (connect(fd, (struct sockaddr *)&at,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
        peer.uid != geteuid()) {
        close(fd);
        return false;
    }
    return greet_parent(c, fd, true, until);
}

static void tune_tcp(int fd)
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

static int connect_until(const struct addrinfo *at, double until)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd p = { fd, POLLOUT, 0 };
    double left = until - mu_control_now();
    int failure = 0;
    socklen_t len = sizeof failure;

    if (fd < 0)
        return -1;
    if (connect(fd, at->ai_addr, at->ai_addrlen) < 0 &&
        (errno != EINPROGRESS || left <= 0 || poll(&p, 1, (int)(left * 1000)) <= 0 ||
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len) < 0 || failure != 0)) {
        close(fd);
        return -1;
    }
    tune_tcp(fd);
    return fd;
}

static bool call_tcp(struct mu_control *c, const struct whereabouts *at, double until)
{
    char copy[sizeof at->address], port[16], *rest = copy, *host;

    memcpy(copy, at->address, sizeof copy);
    copy[sizeof copy - 1] = '\0';
    snprintf(port, sizeof port, "%u", at->port);
    while ((host = mu_parse_next(&rest, ','))) {
        struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *found = NULL;
        double now = mu_control_now();
        double turn = now + CONNECT_SECONDS < until ? now + CONNECT_SECONDS : until;

        if (getaddrinfo(host, port, &want, &found) != 0)
            continue;
        for (const struct addrinfo *a = found; a; a = a->ai_next) {
            int fd = connect_until(a, turn);

            if (fd >= 0 && greet_parent(c, fd, false, turn + HELLO_SECONDS)) {
                freeaddrinfo(found);
                return true;
            }
        }
        freeaddrinfo(found);
    }
    return false;
}

int mu_control_call_parent(struct mu_control *c, double until, struct mu_err *err)
{
    const struct mu_world *w = c->env.world;
    const struct whereabouts *at;
    bool local = w->node_of[c->parent] == w->node;
    void *value;
    size_t len;

    if (w->exchange.fetch(w->exchange.arg, c->parent, CONTROL_KEY, &value, &len, 5,
                          err) < 0)
        return -1;
    at = value;
    if (len != sizeof *at) {
        free(value);
        return mu_err_set(err, MUSTER_ECONTRACT,
                          "rank %d runs another release of libmuster", c->parent);
    }
    for (;;) {
        struct timespec pause = { 0, 50000000 };

        if ((local && at->local[0] && call_local(c, at->local, until)) ||
            (at->port && call_tcp(c, at, until)))
            break;
        if (mu_control_now() >= until) {
            mu_err_set(
                err, MUSTER_ERENDEZVOUS,
                "rank %d on node %s cannot be reached at %s port %u within %g s: is a "
                "firewall between the nodes?",
                c->parent, w->host_of[c->parent], at->address, at->port,
                c->env.init_timeout);
            free(value);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    free(value);
    return 0;
}

/* ---- Being called -------------------------------------------------------------------
 */

static void refuse(struct mu_control *c, struct mu_pending *p, const char *why)
{
    if (c->foreign++ < FOREIGN_LINES)
        mu_log(c->env.log, MU_LOG_WARN, "control: connection from %s dropped: %s",
               p->from, why);
    close(p->fd);
    p->fd = -1;
}

static void name_caller(struct mu_pending *p, const struct sockaddr_storage *from,
                        socklen_t len, const struct ucred *peer)
{
    if (!p->tcp)
        snprintf(p->from, sizeof p->from, "user id %u, pid %d", peer->uid, peer->pid);
    else if (getnameinfo((const struct sockaddr *)from, len, p->from, sizeof p->from,
                         NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(p->from, sizeof p->from, "?");
}

void mu_control_accept(struct mu_control *c, int listen_fd, bool tcp)
{
    struct sockaddr_storage from;
    socklen_t len = sizeof from, credlen = sizeof(struct ucred);
    struct ucred peer = { 0 };
    struct mu_pending *p = NULL;
    int slot = 0;
    int fd = accept4(listen_fd, (struct sockaddr *)&from, &len,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    while (slot < MU_CONTROL_PENDING && c->pending[slot].fd >= 0)
        slot++;
    if (slot == MU_CONTROL_PENDING) { /* a flood: later callers try again */
        close(fd);
        return;
    }
    p = &c->pending[slot];
    *p = (struct mu_pending){ .fd = fd,
                              .tcp = tcp,
                              .until = mu_control_now() + HELLO_SECONDS };
    if (!tcp && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &credlen) < 0)
        peer.uid = (uid_t)-1;
    name_caller(p, &from, len, &peer);
    p->pid = peer.pid;
    if (!tcp && peer.uid != geteuid())
        refuse(c, p, "another user");
    else if (mu_control_watch(c, fd, MU_ON_PENDING, slot) < 0)
        refuse(c, p, "out of resources");
}

static int expected_child(const struct mu_control *c, int rank)
{
    for (int i = 0; i < c->nchildren; i++)
        if (c->child[i] == rank)
            return c->down[i].fd < 0 ? i : -1;
    return -1;
}

static void welcome(struct mu_control *c, struct mu_pending *p,
                    const struct hello *theirs)
{
    struct hello mine = my_hello(c);
    int index;

    if (theirs->magic != HELLO_MAGIC || !same_token(theirs->token, mine.token)) {
        refuse(c, p, "it does not know this job's token");
        return;
    }
    index = expected_child(c, theirs->rank);
    if (index < 0) {
        refuse(c, p, "it is no rank that should call here");
        return;
    }
    if (p->tcp)
        tune_tcp(p->fd);
    send_all(p->fd, &mine, sizeof mine);
    /* From pending to link: epoll learns the new kind with a new registration. */
    mu_control_unwatch(c, p->fd);
    if (mu_link_open(c, index, p->fd, theirs->rank, p->tcp ? 0 : p->pid) < 0) {
        refuse(c, p, "out of resources");
        return;
    }
    p->fd = -1;
    c->nlinked++;
    pthread_cond_broadcast(&c->changed);
}

void mu_control_hello(struct mu_control *c, int slot)
{
    struct mu_pending *p = &c->pending[slot];
    struct hello theirs;
    ssize_t n;

    if (p->fd < 0)
        return;
    n = recv(p->fd, p->hello + p->got, sizeof theirs - p->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        refuse(c, p, "it left before it proved the job's token");
        return;
    }
    p->got += (size_t)n;
    if (p->got < sizeof theirs)
        return;
    memcpy(&theirs, p->hello, sizeof theirs);
    welcome(c, p, &theirs);
}

void mu_control_drop_late(struct mu_control *c, double now)
{
    for (int i = 0; i < MU_CONTROL_PENDING; i++)
        if (c->pending[i].fd >= 0 && c->pending[i].until <= now)
            refuse(c, &c->pending[i], "it did not prove the job's token in time");
}
