/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c - the listeners and their thread, and the list of arrivals */
#include "runtime/endpoint/endpoint.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fork.h"
#include "runtime/base/thread.h"
#include "runtime/endpoint/gate.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

#define RETIRED 16 /* generations: no caller is so far behind */

enum { LOCAL, TCP, GATES };

struct mu_endpoint {
    struct mu_address address;
    struct mu_gate gate[GATES]; /* the thread's */
    int wake_fd, bell_fd;       /* for the thread; an arrival is there */
    pid_t owner;
    pthread_t thread;
    struct mu_forkable fork;

    pthread_mutex_t lock; /* of what follows */
    bool stop, changed;   /* changed: a secret is new */
    bool has_secret[MU_NSERVICES];
    uint8_t secret[MU_NSERVICES][MU_TOKEN_LEN];
    const struct mu_log *log;
    int lines; /* of warnings left */
    struct mu_arrival *first, **last;
    uint64_t retired[RETIRED]; /* the newest; a ring of nretired entries so far */
    unsigned nretired;
};

static void ring(int fd)
{
    uint64_t one = 1;

    if (write(fd, &one, sizeof one) < 0) {
        /* Full means readable, which is all that is needed. */
    }
}

static void hush(int fd)
{
    uint64_t n;

    if (read(fd, &n, sizeof n) < 0) {
        /* another wake-up was read before */
    }
}

static void warn(void *arg, const char *from, const char *why)
{
    struct mu_endpoint *ep = arg;

    pthread_mutex_lock(&ep->lock);
    if (ep->log && ep->lines > 0 && from[0]) {
        ep->lines--;
        mu_log(ep->log, MU_LOG_WARN, "connection from %s dropped: %s%s", from, why,
               ep->lines ? "" : "; further ones are not reported");
    }
    pthread_mutex_unlock(&ep->lock);
}

/* ---- Arrivals ------------------------------------------------------------------- */

static void unlink_arrival(struct mu_endpoint *ep, struct mu_arrival **at)
{
    struct mu_arrival *a = *at;

    *at = a->next;
    if (!a->next)
        ep->last = at;
    free(a);
}

static bool is_retired(const struct mu_endpoint *ep, const struct mu_claim *claim)
{
    if (claim->service < MU_SERVICE_CONTROL || claim->service == MU_SERVICE_SURVIVE)
        return false;
    for (unsigned i = 0; i < ep->nretired && i < RETIRED; i++)
        if (ep->retired[i] == claim->generation)
            return true;
    return false;
}

/* With the lock. */
static void close_retired(struct mu_endpoint *ep)
{
    for (struct mu_arrival **at = &ep->first; *at;) {
        if (is_retired(ep, &(*at)->claim)) {
            close((*at)->fd);
            unlink_arrival(ep, at);
        } else {
            at = &(*at)->next;
        }
    }
}

void mu_endpoint_retire(struct mu_endpoint *ep, uint64_t generation)
{
    pthread_mutex_lock(&ep->lock);
    ep->retired[ep->nretired++ % RETIRED] = generation;
    close_retired(ep);
    pthread_mutex_unlock(&ep->lock);
}

/* ---- Proving -------------------------------------------------------------------- */

static void arrive(struct mu_endpoint *ep, struct mu_gate *g, struct mu_caller *c)
{
    struct mu_arrival *a = calloc(1, sizeof *a);

    if (!a) {
        mu_gate_drop(g, c, "out of memory");
        return;
    }
    if (!c->pid)
        mu_net_tune(c->fd);
    *a = (struct mu_arrival){ .claim = c->hello.claim, .fd = c->fd, .pid = c->pid };
    memcpy(a->from, c->from, sizeof a->from);
    c->fd = -1;
    pthread_mutex_lock(&ep->lock);
    *ep->last = a;
    ep->last = &a->next;
    close_retired(ep);
    pthread_mutex_unlock(&ep->lock);
    ring(ep->bell_fd);
}

/* A rank of this job is no stranger: it is not reported. */
static void turn_away(struct mu_caller *c)
{
    close(c->fd);
    c->fd = -1;
}

/* The claim is complete: is it proved? */
static void judge(void *arg, struct mu_gate *g, struct mu_caller *c)
{
    struct mu_endpoint *ep = arg;
    enum mu_service service = c->hello.claim.service;
    uint8_t secret[MU_TOKEN_LEN];
    bool retired;

    pthread_mutex_lock(&ep->lock);
    retired = is_retired(ep, &c->hello.claim);
    c->claimed = !ep->has_secret[service];
    memcpy(secret, ep->secret[service], sizeof secret);
    pthread_mutex_unlock(&ep->lock);
    if (c->claimed)
        return;
    if (!mu_hello_judge(&c->hello, secret))
        mu_gate_drop(g, c, "its proof of this job's token is wrong");
    else if (retired)
        turn_away(c);
    else if (!mu_hello_confirm(&c->hello, c->fd, secret))
        mu_gate_vanish(g, c);
    else
        arrive(ep, g, c);
}

/* ---- The thread ----------------------------------------------------------------- */

#define FDS (1 + GATES * MU_GATE_FDS)

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
        for (int k = 0; k < GATES; k++)
            mu_gate_prepare(&ep->gate[k], &fds[1 + k * MU_GATE_FDS], now, &next);
        if (poll_open(fds, FDS, next == 0 ? -1 : (int)((next - now) * 1000) + 1) < 0)
            continue;
        if (fds[0].revents)
            hush(ep->wake_fd);
        pthread_mutex_lock(&ep->lock);
        stop = ep->stop;
        changed = ep->changed;
        ep->changed = false;
        pthread_mutex_unlock(&ep->lock);
        for (int k = 0; k < GATES; k++)
            mu_gate_serve(&ep->gate[k], &fds[1 + k * MU_GATE_FDS], changed);
    }
    return NULL;
}

/* ---- What services call --------------------------------------------------------- */

const struct mu_address *mu_endpoint_address(const struct mu_endpoint *ep)
{
    return &ep->address;
}

void mu_endpoint_set_secret(struct mu_endpoint *ep, enum mu_service service,
                            const uint8_t secret[MU_TOKEN_LEN])
{
    pthread_mutex_lock(&ep->lock);
    memcpy(ep->secret[service], secret, MU_TOKEN_LEN);
    ep->has_secret[service] = ep->changed = true;
    pthread_mutex_unlock(&ep->lock);
    ring(ep->wake_fd);
}

void mu_endpoint_set_log(struct mu_endpoint *ep, const struct mu_log *log, int lines)
{
    pthread_mutex_lock(&ep->lock);
    ep->log = log;
    ep->lines = lines;
    pthread_mutex_unlock(&ep->lock);
}

bool mu_endpoint_take(struct mu_endpoint *ep, enum mu_service service,
                      uint64_t generation, struct mu_arrival *out)
{
    struct mu_arrival **at = &ep->first;
    bool found = false;

    pthread_mutex_lock(&ep->lock);
    while (*at && !found) {
        struct mu_arrival *a = *at;

        if (a->claim.service != service ||
            (service == MU_SERVICE_PAIR && a->claim.generation != generation)) {
            at = &a->next;
            continue;
        }
        found = a->claim.generation == generation;
        if (found)
            *out = *a;
        else
            close(a->fd);
        unlink_arrival(ep, at);
    }
    pthread_mutex_unlock(&ep->lock);
    return found;
}

int mu_endpoint_poll(struct mu_endpoint *ep, struct pollfd *fds, int n, double until)
{
    double left = until - mu_clock_s();
    int rc;

    fds[0] = (struct pollfd){ ep->bell_fd, POLLIN, 0 };
    rc = poll(fds, (nfds_t)n, left < 0 ? 0 : (int)(left * 1000) + 1);
    if (rc > 0 && fds[0].revents)
        hush(ep->bell_fd);
    return rc;
}

void mu_endpoint_refuse(struct mu_endpoint *ep, const struct mu_arrival *arrival,
                        const char *why)
{
    warn(ep, arrival->from, why);
    close(arrival->fd);
}

/* ---- Open and close ------------------------------------------------------------- */

static void shut_all(struct mu_endpoint *ep)
{
    for (int k = 0; k < GATES; k++)
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

    ep->gate[LOCAL].fd = fd;
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
    for (int k = 0; k < GATES; k++) {
        struct mu_gate *g = &ep->gate[k];

        g->tcp = k == TCP;
        g->arg = ep;
        g->id = ep->address.id;
        g->warn = warn;
        g->claim = judge;
        mu_gate_init(g);
    }
    pthread_mutex_init(&ep->lock, NULL);
    ep->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ep->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
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
        unlink_arrival(ep, &ep->first);
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
    if ((tcp && mu_net_listen(&ep->gate[TCP].fd, &ep->address.port, err) < 0) ||
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
        ring(ep->wake_fd);
        pthread_join(ep->thread, NULL);
    }
    release(ep);
}
