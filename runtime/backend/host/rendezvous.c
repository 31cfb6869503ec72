/* SPDX-License-Identifier: BSD-3-Clause */
/* rendezvous.c - listening sockets, one address record per rank over the exchange,
 * domains
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/backend/host/rendezvous.h"
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/random.h"

#define KEY "muster.host"
#define LOST_CHECK_MS 50 /* period of the check for lost ranks */
#define RECORD "v=1;kernel=%s;netns=%llu;local=%s;port=%d;arena=%llu;hosts=%s"

/* An abstract name leaves no file behind, however the process ends. */
static int listen_local(struct mu_host_address *own, struct mu_err *err)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    unsigned char noise[16];
    int fd;

    if (mu_random(noise, sizeof noise) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "getrandom: %s", strerror(errno));
    strcpy(own->local, "muster-");
    for (size_t i = 0; i < sizeof noise; i++)
        sprintf(own->local + 7 + 2 * i, "%02x", noise[i]);
    memcpy(name.sun_path + 1, own->local, strlen(own->local));
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 ||
        bind(fd, (struct sockaddr *)&name,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                         strlen(own->local))) < 0 ||
        listen(fd, 1024) < 0) {
        mu_err_set(err, MUSTER_ERENDEZVOUS, "cannot listen on a local socket: %s",
                   strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

/* IPv6 sockets accept IPv4 too; a kernel without IPv6 has IPv4 alone. */
static int listen_tcp(struct mu_host_address *own, int size, struct mu_err *err)
{
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = in6addr_any };
    struct sockaddr_in v4 = { .sin_family = AF_INET };
    socklen_t len = sizeof v6;
    int off = 0, fd;

    fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0 ||
                    bind(fd, (struct sockaddr *)&v6, sizeof v6) < 0)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&v4, sizeof v4) < 0) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0 || listen(fd, size + 64) < 0 ||
        getsockname(fd, (struct sockaddr *)&v6, &len) < 0) {
        mu_err_set(err, MUSTER_ERENDEZVOUS, "cannot listen on a TCP port: %s",
                   strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    own->port = ntohs(v6.sin6_port); /* the port has the same offset in sockaddr_in */
    return fd;
}

static void add_host(char *hosts, size_t len, const char *host, bool first)
{
    size_t used = strlen(hosts), more = strlen(host) + (used ? 1 : 0);

    if (used + more >= len)
        return;
    if (!first) {
        sprintf(hosts + used, "%s%s", used ? "," : "", host);
        return;
    }
    memmove(hosts + more, hosts, used + 1);
    memcpy(hosts, host, strlen(host));
    if (used)
        hosts[more - 1] = ',';
}

/* First the address that the launcher trusts, if this host has it (it is rank 0's);
 * then all others, loopback last.
 */
static void list_hosts(struct mu_host_address *own, const char *master)
{
    static const int order[][2] = { { AF_INET, 0 }, { AF_INET6, 0 }, { AF_INET, 1 } };
    struct ifaddrs *list = NULL;
    char text[INET6_ADDRSTRLEN];

    if (getifaddrs(&list) < 0)
        return;
    for (int pass = 0; pass < 3; pass++) {
        for (struct ifaddrs *i = list; i; i = i->ifa_next) {
            const void *addr;

            if (!i->ifa_addr || i->ifa_addr->sa_family != order[pass][0] ||
                !(i->ifa_flags & IFF_UP) ||
                !!(i->ifa_flags & IFF_LOOPBACK) != order[pass][1])
                continue;
            addr = order[pass][0] == AF_INET
                       ? (const void *)&((struct sockaddr_in *)(void *)i->ifa_addr)
                             ->sin_addr
                       : (const void *)&((struct sockaddr_in6 *)(void *)i->ifa_addr)
                             ->sin6_addr;
            if (order[pass][0] == AF_INET6 &&
                IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)addr))
                continue;
            if (inet_ntop(order[pass][0], addr, text, sizeof text))
                add_host(own->hosts, sizeof own->hosts, text,
                         master && strcmp(text, master) == 0);
        }
    }
    freeifaddrs(list);
}

static int read_record(const struct mu_host_backend *b, int rank, char *text,
                       struct mu_host_address *out, struct mu_err *err)
{
    char *rest = text, *item;
    long port;

    while ((item = mu_parse_next(&rest, ';'))) {
        char *value = strchr(item, '=');

        if (!value)
            continue;
        *value++ = '\0';
        if (strcmp(item, "kernel") == 0)
            mu_copy(out->kernel, sizeof out->kernel, value);
        else if (strcmp(item, "netns") == 0)
            out->netns = strtoull(value, NULL, 10);
        else if (strcmp(item, "arena") == 0)
            out->arena = strtoull(value, NULL, 10);
        else if (strcmp(item, "local") == 0)
            mu_copy(out->local, sizeof out->local, value);
        else if (strcmp(item, "hosts") == 0)
            mu_copy(out->hosts, sizeof out->hosts, value);
        else if (strcmp(item, "port") == 0) {
            if (mu_parse_int("port", value, 1, 65535, &port, err) < 0)
                return mu_err_context(err, "address of rank %d", rank);
            out->port = (int)port;
        }
    }
    if (!out->port || !out->local[0]) {
        char who[128];

        return mu_err_set(err, MUSTER_ECONTRACT,
                          "%s published no usable address; does it run another "
                          "version?",
                          mu_rank_text(b, rank, who, sizeof who));
    }
    return 0;
}

static int fetch_all(struct mu_host_rendezvous *m, const struct mu_host_backend *b,
                     struct mu_err *err)
{
    const struct mu_exchange *x = &b->env.exchange;

    for (int r = 0; r < b->env.size; r++) {
        double left = (double)(m->deadline - mu_clock_ns()) / 1e9;
        void *value = NULL;
        size_t len = 0;
        char *text;
        int rc;

        if (r == b->env.rank)
            continue;
        if (x->fetch(x->arg, r, KEY, &value, &len, left > 0 ? left : 0, err) < 0)
            return -1;
        text = strndup(value ? value : "", len);
        free(value);
        if (!text)
            return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
        rc = read_record(b, r, text, &m->address[r], err);
        free(text);
        if (rc < 0)
            return -1;
    }
    return 0;
}

bool mu_host_rendezvous_same_host(const struct mu_host_rendezvous *m, int a, int b)
{
    return strcmp(m->address[a].kernel, m->address[b].kernel) == 0 &&
           m->address[a].netns == m->address[b].netns;
}

/* The inode of the first network namespace is equal on many machines, so the boot id
 * must distinguish kernels.
 */
static void identify(struct mu_host_address *own)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    struct stat st;

    if (f) {
        if (fgets(own->kernel, sizeof own->kernel, f))
            own->kernel[strcspn(own->kernel, "\n")] = '\0';
        fclose(f);
    }
    if (stat("/proc/self/ns/net", &st) == 0)
        own->netns = st.st_ino;
}

static void find_domains(struct mu_host_rendezvous *m, const struct mu_host_backend *b)
{
    for (int r = 0; r < b->env.size; r++) {
        m->domain_of[r] = r;
        for (int q = 0; q < r && !b->env.force_tcp; q++) {
            if (b->node_of[q] == b->node_of[r] &&
                mu_host_rendezvous_same_host(m, q, r)) {
                m->domain_of[r] = m->domain_of[q];
                break;
            }
        }
        m->ndomains += m->domain_of[r] == r;
    }
}

int mu_host_rendezvous_run(struct mu_host_rendezvous *m,
                           const struct mu_host_backend *b, struct mu_err *err)
{
    const struct mu_exchange *x = &b->env.exchange;
    struct mu_host_address *own;
    char record[768];
    size_t n = (size_t)b->env.size;

    *m = (struct mu_host_rendezvous){ .unix_fd = -1, .tcp_fd = -1 };
    m->deadline = mu_clock_ns() + (int64_t)(b->env.init_timeout * 1e9);
    m->address = calloc(n, sizeof *m->address);
    m->domain_of = calloc(n, sizeof *m->domain_of);
    if (!m->address || !m->domain_of)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    own = &m->address[b->env.rank];
    identify(own);
    own->arena = mu_host_arena_used(mu_host_of(b->env.parent));
    if (n > 1) {
        m->unix_fd = listen_local(own, err);
        if (m->unix_fd < 0)
            return -1;
        m->tcp_fd = listen_tcp(own, b->env.size, err);
        if (m->tcp_fd < 0)
            return -1;
        list_hosts(own, b->env.master_addr);
        snprintf(record, sizeof record, RECORD, own->kernel,
                 (unsigned long long)own->netns, own->local, own->port,
                 (unsigned long long)own->arena, own->hosts);
        if (x->publish(x->arg, KEY, record, strlen(record), err) < 0 ||
            x->fence(x->arg, b->env.init_timeout, err) < 0 || fetch_all(m, b, err) < 0)
            return mu_err_context(err, "host backend");
    }
    find_domains(m, b);
    return 0;
}

bool mu_host_open_is_over(const struct mu_host_backend *b, int64_t deadline)
{
    return mu_clock_ns() >= deadline || (b->env.lost && atomic_load(b->env.lost));
}

int mu_host_open_poll(const struct mu_host_backend *b, struct pollfd *fds, int n,
                      int64_t deadline)
{
    int rc = 0;

    do {
        int64_t left = (deadline - mu_clock_ns() + 999999) / 1000000;

        rc = poll(fds, (nfds_t)n,
                  left < 0               ? 0
                  : left < LOST_CHECK_MS ? (int)left
                                         : LOST_CHECK_MS);
    } while ((rc < 0 && errno == EINTR) ||
             (rc == 0 && !mu_host_open_is_over(b, deadline)));
    return rc;
}

void mu_host_rendezvous_clear(struct mu_host_rendezvous *m)
{
    if (m->unix_fd >= 0)
        close(m->unix_fd);
    if (m->tcp_fd >= 0)
        close(m->tcp_fd);
    free(m->address);
    free(m->domain_of);
}
