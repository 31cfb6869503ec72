/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c - opens and closes an endpoint: its listeners and their thread */
#include "runtime/endpoint/arrivals.h"

#include <errno.h>
#include <sodium.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/thread.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

#define FDS (1 + MU_GATES * MU_GATE_FDS)

/* poll, of those that are open: it refuses more entries than a process may have
 * descriptors, also closed ones.
 */
static int poll_open(struct pollfd *fds, int n, int timeout)
{
    struct pollfd open[FDS];
    int at[FDS], m = 0, rc;

    for (int i = 0; i < n; i++)
        if (fds[i].fd >= 0) {
            open[m] = fds[i];
            at[m++] = i;
        }
    rc = poll(open, (nfds_t)m, timeout);
    for (int i = 0; rc > 0 && i < m; i++)
        fds[at[i]].revents = open[i].revents;
    return rc;
}

static void *serve(void *arg)
{
    struct pollfd fds[FDS];
    struct mu_endpoint *ep = arg;
    bool stop = false;

    while (!stop) {
        double now = mu_clock_s(), next = 0;
        bool changed;

        fds[0] = (struct pollfd){ ep->wake_fd, POLLIN, 0 };
        for (int k = 0; k < MU_GATES; k++)
            mu_gate_prepare(&ep->gate[k], &fds[1 + k * MU_GATE_FDS], now, &next);
        if (poll_open(fds, FDS, next == 0 ? -1 : (int)((next - now) * 1000) + 1) < 0)
            continue;
        if (fds[0].revents)
            mu_bell_rung(ep->wake_fd);
        pthread_mutex_lock(&ep->lock);
        stop = ep->stop;
        changed = ep->changed;
        ep->changed = false;
        pthread_mutex_unlock(&ep->lock);
        for (int k = 0; k < MU_GATES; k++)
            mu_gate_serve(&ep->gate[k], &fds[1 + k * MU_GATE_FDS], changed);
    }
    return NULL;
}

static void shut_all(struct mu_endpoint *ep)
{
    for (int k = 0; k < MU_GATES; k++)
        mu_gate_shut(&ep->gate[k]);
    for (struct mu_arrival *a = ep->first; a; a = a->next)
        mu_net_drop(&a->fd);
    mu_net_drop(&ep->wake_fd);
    mu_net_drop(&ep->bell_fd);
}

static void in_child(struct mu_forkable *f)
{
    shut_all((void *)((char *)f - offsetof(struct mu_endpoint, fork)));
}

static int listen_local(struct mu_endpoint *ep, struct mu_err *err)
{
    struct sockaddr_un at;
    socklen_t len = mu_address_local(&ep->address, &at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    ep->gate[MU_LOCAL].fd = fd;
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) < 0 ||
        listen(fd, SOMAXCONN) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "cannot listen on a local socket: %s", strerror(errno));
    return 0;
}

static struct mu_endpoint *make(void)
{
    struct mu_endpoint *ep = calloc(1, sizeof *ep);

    if (!ep)
        return NULL;
    ep->last = &ep->first;
    ep->owner = getpid();
    for (int k = 0; k < MU_GATES; k++) {
        struct mu_gate *g = &ep->gate[k];

        g->tcp = k == MU_TCP;
        g->arg = ep;
        g->id = ep->address.id;
        g->warn = mu_arrivals_warn;
        g->claim = mu_arrivals_judge;
        mu_gate_init(g);
    }
    pthread_mutex_init(&ep->lock, NULL);
    ep->wake_fd = mu_bell_open();
    ep->bell_fd = mu_bell_open();
    return ep;
}

static int start_thread(struct mu_endpoint *ep, struct mu_err *err)
{
    int rc = mu_thread_start(&ep->thread, "muster-endpoint", serve, ep);

    if (rc)
        return mu_err_set(err, MUSTER_EMEMORY, "cannot start the endpoint's thread: %s",
                          strerror(rc));
    return 0;
}

static void release(struct mu_endpoint *ep)
{
    mu_fork_leave(&ep->fork);
    shut_all(ep);
    while (ep->first)
        mu_arrivals_unlink(ep, &ep->first);
    pthread_mutex_destroy(&ep->lock);
    free(ep);
}

static int open_at(const struct mu_address *at, bool tcp, bool local,
                   struct mu_endpoint **out, struct mu_err *err)
{
    struct mu_endpoint *ep = make();

    if (!ep)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    ep->address = *at;
    ep->fork.in_child = in_child;
    mu_fork_enter(&ep->fork);
    if (ep->wake_fd < 0 || ep->bell_fd < 0 || sodium_init() < 0) {
        mu_err_set(err, MUSTER_EIO, "cannot open the endpoint: %s", strerror(errno));
        goto fail;
    }
    if ((tcp && mu_net_listen(&ep->gate[MU_TCP].fd, &ep->address.port, err) < 0) ||
        (local && listen_local(ep, err) < 0) || start_thread(ep, err) < 0)
        goto fail;
    *out = ep;
    return 0;
fail:
    release(ep);
    return -1;
}

int mu_endpoint_open(const char *first, struct mu_endpoint **out, struct mu_err *err)
{
    struct mu_address at;

    if (!mu_address_fill(&at, first))
        return mu_err_set(err, MUSTER_EIO, "cannot open the endpoint: %s",
                          strerror(errno));
    return open_at(&at, true, true, out, err);
}

int mu_endpoint_open_at(const struct mu_address *at, bool tcp, struct mu_endpoint **out,
                        struct mu_err *err)
{
    return open_at(at, tcp, !tcp, out, err);
}

void mu_endpoint_close(struct mu_endpoint *ep)
{
    if (!ep)
        return;
    if (ep->owner == getpid()) {
        pthread_mutex_lock(&ep->lock);
        ep->stop = true;
        pthread_mutex_unlock(&ep->lock);
        mu_bell_ring(ep->wake_fd);
        pthread_join(ep->thread, NULL);
    }
    release(ep);
}
