/* SPDX-License-Identifier: BSD-3-Clause */
/* control_meet.c - listening, finding the parent, proving the job */
#include "runtime/boot/control_impl.h"

#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/random.h"
#include "runtime/endpoint/net.h"
#include "runtime/core/text.h"
#include "runtime/muster.h"

#define FOREIGN_LINES 10
#define CONTROL_KEY "muster.control"

/* What a parent tells over PMIx. */
struct address_record {
    uint32_t port;  /* TCP, 0: none */
    char local[64]; /* abstract AF_UNIX name without the leading zero byte, "": none */
    char address[MU_NET_ADDRESSES]; /* numeric, comma separated, best first */
    char machine[MU_NET_MACHINE];
};

/* ---- Listening ------------------------------------------------------------------- */

static int listen_local(struct mu_control *c, char *name, size_t len,
                        struct mu_err *err)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    unsigned char random[12];
    size_t n = 0;
    socklen_t size;

    if (mu_random(random, sizeof random) < 0)
        return mu_err_set(err, MUSTER_EIO, "getrandom failed: %s", strerror(errno));
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
    struct address_record at = { 0 };

    if (has_child(c, true) && listen_local(c, at.local, sizeof at.local, err) < 0)
        return -1;
    /* A local child in another network namespace comes by TCP too. */
    if (c->nchildren > 0 && mu_net_listen(&c->tcp_fd, &at.port, err) < 0)
        return -1;
    if (at.port)
        mu_net_addresses(c->rank == 0 ? c->env.master_addr : NULL, at.address,
                         sizeof at.address);
    mu_net_machine(at.machine);
    return c->env.world->exchange.publish(c->env.world->exchange.arg, CONTROL_KEY, &at,
                                          sizeof at, err);
}

/* ---- Calling the parent ------------------------------------------------------------
 */

/* Prove the job to each other over a connection that was just made; takes fd. The
 * children may have linked already, so the thread is at work: the rest is done with the
 * lock. pid: 0 where the parent is not on this node.
 */
static bool prove_to_parent(struct mu_control *c, int fd, pid_t pid, double until)
{
    struct mu_hello hello;
    bool ok;

    if (!mu_hello_call(&hello, MU_HELLO_CONTROL, c->env.world->token, c->rank,
                       c->parent) ||
        mu_hello_wait(&hello, fd, until) != MU_HELLO_PROVED) {
        close(fd);
        return false;
    }
    pthread_mutex_lock(&c->lock);
    ok = mu_link_open(c, -1, fd, c->parent, pid) == 0;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

static bool connect_local(struct mu_control *c, const char *name, double until)
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
    return prove_to_parent(c, fd, peer.pid, until);
}

static bool prove_by_tcp(void *arg, int fd, double until)
{
    return prove_to_parent(arg, fd, 0, until);
}

static bool connect_tcp(struct mu_control *c, const struct address_record *at,
                        double until)
{
    char machine[MU_NET_MACHINE];
    bool elsewhere;

    mu_net_machine(machine);
    elsewhere = strcmp(machine, at->machine) != 0;
    return mu_net_call(at->address, elsewhere, at->port, until, prove_by_tcp, c) ==
           MU_NET_CONNECTED;
}

int mu_control_connect_parent(struct mu_control *c, double until, struct mu_err *err)
{
    const struct mu_world *w = c->env.world;
    const struct address_record *at;
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
                          "rank %d (node %s) runs another release of libmuster",
                          c->parent, w->host_of[c->parent]);
    }
    for (;;) {
        struct timespec pause = { 0, 50000000 };

        if ((local && at->local[0] && connect_local(c, at->local, until)) ||
            (at->port && connect_tcp(c, at, until)))
            break;
        if (mu_clock_s() >= until) {
            mu_err_set(err, MUSTER_ERENDEZVOUS,
                       "rank %d (node %s) cannot be reached at %s port %u within %g s: "
                       "check for a firewall between the nodes",
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
                              .until = mu_clock_s() + MU_NET_HELLO };
    if (!tcp && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &credlen) < 0)
        peer.uid = (uid_t)-1;
    name_caller(p, &from, len, &peer);
    p->pid = peer.pid;
    if (!tcp && peer.uid != geteuid())
        refuse(c, p, "it belongs to another user");
    else if (mu_control_watch(c, fd, MU_ON_PENDING, slot) < 0)
        refuse(c, p, "out of resources");
    else if (!mu_hello_accept(&p->hello, fd, MU_HELLO_CONTROL, c->env.world->token,
                              c->rank))
        refuse(c, p, "it closed before it proved the job's token");
}

static int expected_child(const struct mu_control *c, int rank)
{
    for (int i = 0; i < c->nchildren; i++)
        if (c->child[i] == rank)
            return c->down[i].fd < 0 ? i : -1;
    return -1;
}

static void accept_child(struct mu_control *c, struct mu_pending *p)
{
    int index = expected_child(c, p->hello.peer);

    if (index < 0) {
        refuse(c, p, "its rank is not expected to connect here");
        return;
    }
    if (p->tcp)
        mu_net_tune(p->fd);
    mu_hello_confirm(&p->hello, p->fd); /* where it fails, the link ends at once */
    /* From pending to link: epoll learns the new kind with a new registration. */
    mu_control_unwatch(c, p->fd);
    if (mu_link_open(c, index, p->fd, p->hello.peer, p->tcp ? 0 : p->pid) < 0) {
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

    if (p->fd < 0)
        return;
    switch (mu_hello_step(&p->hello, p->fd)) {
    case MU_HELLO_PENDING:
        break;
    case MU_HELLO_GONE:
        refuse(c, p, "it closed before it proved the job's token");
        break;
    case MU_HELLO_UNPROVED:
        refuse(c, p, "its proof of this job's token is wrong");
        break;
    case MU_HELLO_PROVED:
        accept_child(c, p);
        break;
    }
}

void mu_control_drop_late(struct mu_control *c, double now)
{
    for (int i = 0; i < MU_CONTROL_PENDING; i++)
        if (c->pending[i].fd >= 0 && c->pending[i].until <= now)
            refuse(c, &c->pending[i], "it did not prove the job's token in time");
}
