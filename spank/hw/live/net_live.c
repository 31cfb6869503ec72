/* SPDX-License-Identifier: BSD-3-Clause */
/* net_live.c - interfaces by netlink, speeds by ethtool's ioctl, names by getaddrinfo
 */
#include "spank/hw/live/net_live.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "spank/hw/io/child.h"

#define NAMES_EACH 64 /* a longer list of names is looked up in parallel */

static struct mu_iface *find_iface(struct mu_net *net, const char *name)
{
    for (int i = 0; i < net->nifaces; i++)
        if (strcmp(net->iface[i].name, name) == 0)
            return &net->iface[i];
    return NULL;
}

/* ETHTOOL_GSET is old but sufficient: every driver answers it, and no link mode bits
 * are needed. Software interfaces answer -1 (unknown).
 */
static long link_speed(int sock, const char *name)
{
    struct ethtool_cmd cmd = { .cmd = ETHTOOL_GSET };
    struct ifreq req = { 0 };
    uint32_t speed;

    mu_copy(req.ifr_name, sizeof req.ifr_name, name);
    req.ifr_data = (char *)&cmd;
    if (ioctl(sock, SIOCETHTOOL, &req) < 0)
        return 0;
    /* Not ethtool_cmd_speed(): it shifts into the sign bit where the speed is unknown.
     */
    speed = (uint32_t)cmd.speed_hi << 16 | cmd.speed;
    return speed == (uint32_t)SPEED_UNKNOWN || speed == 0xffff ? 0 : (long)speed;
}

static int prefix_of(const struct sockaddr *mask)
{
    const uint8_t *b;
    int n, bits = 0;

    if (!mask)
        return 0;
    if (mask->sa_family == AF_INET6) {
        b = ((const struct sockaddr_in6 *)mask)->sin6_addr.s6_addr;
        n = 16;
    } else {
        b = (const uint8_t *)&((const struct sockaddr_in *)mask)->sin_addr;
        n = 4;
    }
    for (int i = 0; i < n; i++)
        bits += __builtin_popcount(b[i]);
    return bits;
}

static bool addr_from(const struct sockaddr *sa, struct mu_addr *out)
{
    struct mu_addr addr = { 0 }, parsed;
    char text[MU_ADDR_TEXT];

    if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
        return false;
    addr.family = sa->sa_family;
    if (sa->sa_family == AF_INET)
        memcpy(addr.byte, &((const struct sockaddr_in *)sa)->sin_addr, 4);
    else
        memcpy(addr.byte, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
    mu_addr_format(&addr, text, sizeof text);
    if (mu_addr_parse(text, &parsed, NULL) < 0) /* fills prefix and scope */
        return false;
    *out = parsed;
    return true;
}

/* Walk the answer to RTM_GETLINK for the link kinds, which ioctl does not report. */
static void take_kinds(struct mu_net *net, const char *buf, ssize_t len)
{
    for (const struct nlmsghdr *h = (const void *)buf; NLMSG_OK(h, (size_t)len);
         h = NLMSG_NEXT(h, len)) {
        struct mu_iface *iface = NULL;
        const struct rtattr *a;
        int left;

        if (h->nlmsg_type != RTM_NEWLINK)
            continue;
        a = IFLA_RTA((const struct ifinfomsg *)NLMSG_DATA(h));
        left = (int)IFLA_PAYLOAD(h);
        for (; RTA_OK(a, left); a = RTA_NEXT(a, left)) {
            if (a->rta_type == IFLA_IFNAME)
                iface = find_iface(net, RTA_DATA(a));
            if (a->rta_type != IFLA_LINKINFO || !iface)
                continue;
            const struct rtattr *in = RTA_DATA(a);
            int inner = (int)RTA_PAYLOAD(a);

            for (; RTA_OK(in, inner); in = RTA_NEXT(in, inner))
                if (in->rta_type == IFLA_INFO_KIND)
                    mu_copy(iface->kind, sizeof iface->kind, RTA_DATA(in));
        }
    }
}

static bool last_message(const char *buf, ssize_t len)
{
    for (const struct nlmsghdr *h = (const void *)buf; NLMSG_OK(h, (size_t)len);
         h = NLMSG_NEXT(h, len))
        if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
            return true;
    return false;
}

/* The kinds are optional: without them interfaces are classified by name. */
static void load_kinds(struct mu_net *net)
{
    struct {
        struct nlmsghdr h;
        struct ifinfomsg m;
    } request = { .h = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                         .nlmsg_type = RTM_GETLINK,
                         .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };
    struct timeval limit = { .tv_sec = 1 };
    static const size_t room = 1 << 16;
    char *buf = malloc(room);
    int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    ssize_t len;

    if (!buf || sock < 0)
        goto out;
    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (send(sock, &request, request.h.nlmsg_len, 0) < 0)
        goto out;
    while ((len = recv(sock, buf, room, 0)) > 0) {
        take_kinds(net, buf, len);
        if (last_message(buf, len))
            break;
    }
out:
    if (sock >= 0)
        close(sock);
    free(buf);
}

int mu_net_load_live(struct mu_net *net, struct mu_err *err)
{
    struct mu_net out = { 0 };
    struct ifaddrs *list = NULL;
    int rc = -1, sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (sock < 0 || getifaddrs(&list) < 0) {
        mu_err_set(err, errno, "the network interfaces cannot be listed: %s",
                   strerror(errno));
        goto out;
    }
    for (const struct ifaddrs *a = list; a; a = a->ifa_next) {
        struct mu_iface *iface;
        struct mu_addr addr;
        char name[MU_IFACE_NAME];

        /* "eth0:1" is a label of an address of eth0, not another interface. */
        mu_copy(name, sizeof name, a->ifa_name);
        name[strcspn(name, ":")] = '\0';
        iface = find_iface(&out, name);
        if (!iface && !(iface = mu_net_add_iface(&out, name)))
            goto memory;
        iface->up = a->ifa_flags & IFF_UP;
        iface->carrier = a->ifa_flags & IFF_RUNNING;
        iface->loopback = a->ifa_flags & IFF_LOOPBACK;
        if (!addr_from(a->ifa_addr, &addr))
            continue;
        addr.prefix = prefix_of(a->ifa_netmask);
        if (mu_iface_add_addr(iface, &addr) < 0)
            goto memory;
    }
    for (int i = 0; i < out.nifaces; i++)
        out.iface[i].mbits = link_speed(sock, out.iface[i].name);
    load_kinds(&out);
    *net = out;
    rc = 0;
    goto out;
memory:
    mu_err_set(err, ENOMEM, "out of memory while listing network interfaces");
    mu_net_clear(&out);
out:
    if (list)
        freeifaddrs(list);
    if (sock >= 0)
        close(sock);
    return rc;
}

static void resolve_one(struct mu_peer *peer)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    const int room = sizeof peer->addr / sizeof peer->addr[0];

    peer->naddrs = 0;
    if (getaddrinfo(peer->host, NULL, &hints, &list) != 0)
        return;
    for (const struct addrinfo *a = list; a && peer->naddrs < room; a = a->ai_next)
        if (addr_from(a->ai_addr, &peer->addr[peer->naddrs]))
            peer->naddrs++;
    freeaddrinfo(list);
}

/* An address needs no look-up. */
static bool resolve_address(struct mu_peer *peer)
{
    peer->naddrs = !strchr(peer->host, '/') &&
                   mu_addr_parse(peer->host, &peer->addr[0], NULL) == 0;
    return peer->naddrs > 0;
}

/* A child's answer for one name; short enough for an atomic write. */
struct answer {
    int index;
    struct mu_peer peer;
};
_Static_assert(sizeof(struct answer) <= PIPE_BUF, "answers of several children mix");

struct names {
    struct mu_peer *peers;
    int n;        /* peers */
    int left;     /* names that need a look-up */
    int children; /* that share them */
};

/* Runs in the child: resolves every name of its share. */
static int look_up(void *arg, int index, int fd)
{
    const struct names *names = arg;

    for (int i = index; i < names->n; i += names->children) {
        struct answer answer = { .index = i, .peer = names->peers[i] };

        if (answer.peer.naddrs > 0)
            continue;
        resolve_one(&answer.peer);
        if (write(fd, &answer, sizeof answer) != (ssize_t)sizeof answer)
            return 1;
    }
    return 0;
}

/* Takes a child's answer only as far as it can be true. */
static void take_answer(struct names *names, const struct answer *answer,
                        bool *answered)
{
    const struct mu_peer *from = &answer->peer;
    const int room = sizeof from->addr / sizeof from->addr[0];
    struct mu_peer *peer;

    if (answer->index < 0 || answer->index >= names->n || answered[answer->index] ||
        from->naddrs < 0 || from->naddrs > room)
        return;
    peer = &names->peers[answer->index];
    memcpy(peer->addr, from->addr, sizeof peer->addr);
    peer->naddrs = from->naddrs;
    answered[answer->index] = true;
    names->left--;
}

/* 0, or the number, from 1, of the first peer without an answer at the deadline. */
static int take_answers(struct names *names, const struct mu_children *children,
                        double deadline)
{
    bool *answered = calloc((size_t)names->n, sizeof *answered);
    struct answer answer;
    int late = 0;

    while (answered && names->left > 0 &&
           mu_children_read(children, &answer, sizeof answer, deadline) ==
               (ssize_t)sizeof answer)
        take_answer(names, &answer, answered);
    for (int i = 0; i < names->n && names->left > 0 && !late; i++)
        if (!answered || (!answered[i] && names->peers[i].naddrs == 0))
            late = i + 1;
    free(answered);
    return late;
}

/* A look-up waits for the name server or reads /etc/hosts. A thousand in sequence
 * exceed the limit, so several children share a long list.
 */
int mu_net_resolve(struct mu_peer *peers, int n, double timeout, struct mu_err *err)
{
    double deadline = mu_clock_s() + timeout;
    struct names names = { .peers = peers, .n = n };
    struct mu_children children;
    int rc;

    for (int i = 0; i < n; i++)
        names.left += !resolve_address(&peers[i]);
    if (names.left == 0)
        return 0;
    names.children = names.left > NAMES_EACH ? MU_CHILDREN_MAX : 1;
    rc = mu_children_start(&children, names.children, look_up, &names, err);
    if (rc < 0)
        mu_err_context(err, "name look-ups");
    else
        rc = take_answers(&names, &children, deadline);
    if (rc > 0)
        rc = mu_err_set(err, ETIMEDOUT,
                        "the name %s was not resolved within %.1f s: check the name "
                        "service of this node",
                        peers[rc - 1].host, timeout);
    mu_children_end(&children, 0);
    return rc;
}
