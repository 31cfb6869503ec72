/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c - listeners, the thread that accepts, and the tables of callers */
#include "runtime/endpoint/endpoint.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fork.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

#define CALLERS 128       /* unproved, of each listener */
#define HELLO_SECONDS 5.0 /* to prove the secret */
#define TURN_SECONDS 0.02 /* no caller makes room earlier: a rank needs a few ms */
#define PAUSE_SECONDS 0.1 /* after accept has failed: no descriptors, for one */

#define RETIRED 16       /* generations: no caller is so far behind */
#define MAPPED "::ffff:" /* an IPv4 caller at an IPv6 listener */

/* A connection before its proof. */
struct caller {
    int fd; /* -1: free */
    pid_t pid;
    double since;
    bool claimed; /* it is complete, but its service has no secret yet */
    struct mu_hello hello;
    char from[64];
};

/* AF_UNIX callers have a table of their own, so that those of TCP leave them room. */
struct gate {
    int fd; /* listens */
    bool tcp;
    double paused_until;
    struct caller caller[CALLERS];
};

enum { LOCAL, TCP, GATES };

struct mu_endpoint {
    struct mu_address address;
    struct gate gate[GATES]; /* the thread's */
    int wake_fd, bell_fd;    /* for the thread; an arrival is there */
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

/* from "": it is not reported */
static void warn(struct mu_endpoint *ep, const char *from, const char *why)
{
    pthread_mutex_lock(&ep->lock);
    if (ep->log && ep->lines > 0 && from[0]) {
        ep->lines--;
        mu_log(ep->log, MU_LOG_WARN, "connection from %s dropped: %s%s", from, why,
               ep->lines ? "" : "; further ones are not reported");
    }
    pthread_mutex_unlock(&ep->lock);
}

static void drop(struct mu_endpoint *ep, struct caller *c, const char *why)
{
    warn(ep, c->from, why);
    close(c->fd);
    c->fd = -1;
}

/* Over AF_UNIX it was of our own user: a rank that ends is not reported. */
static void vanish(struct mu_endpoint *ep, struct caller *c, const char *why)
{
    if (c->pid)
        c->from[0] = '\0';
    drop(ep, c, why);
}

/* ---- Accepting ------------------------------------------------------------------ */

static struct caller *oldest(struct gate *g)
{
    struct caller *old = &g->caller[0];

    for (int i = 1; i < CALLERS && old->fd >= 0; i++)
        if (g->caller[i].fd < 0 || g->caller[i].since < old->since)
            old = &g->caller[i];
    return old;
}

/* When the next caller can be accepted; 0: now. */
static double accepts_at(struct gate *g, double now)
{
    const struct caller *old = oldest(g);
    double at = old->fd < 0 ? 0 : old->since + TURN_SECONDS;

    if (at < g->paused_until)
        at = g->paused_until;
    return at > now ? at : 0;
}

/* Whom it is; false: another user. */
static bool identify(const struct gate *g, struct caller *c,
                     const struct sockaddr_storage *from, socklen_t len)
{
    struct ucred peer;
    socklen_t credlen = sizeof peer;

    if (g->tcp) {
        if (getnameinfo((const struct sockaddr *)from, len, c->from, sizeof c->from,
                        NULL, 0, NI_NUMERICHOST) != 0)
            snprintf(c->from, sizeof c->from, "?");
        if (strncmp(c->from, MAPPED, strlen(MAPPED)) == 0)
            memmove(c->from, c->from + strlen(MAPPED),
                    strlen(c->from + strlen(MAPPED)) + 1);
        return true;
    }
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &credlen) < 0)
        peer = (struct ucred){ .uid = (uid_t)-1 };
    snprintf(c->from, sizeof c->from, "user id %u, pid %d", peer.uid, peer.pid);
    c->pid = peer.pid;
    return peer.uid == geteuid();
}

static bool accept_one(struct mu_endpoint *ep, struct gate *g, double now)
{
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    int fd =
        accept4(g->fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct caller *c = oldest(g);

    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            g->paused_until = now + PAUSE_SECONDS;
        return false;
    }
    if (c->fd >= 0)
        drop(ep, c, "it had not proved the job's token when others called");
    *c = (struct caller){ .fd = fd, .since = now };
    if (!identify(g, c, &from, len))
        drop(ep, c, "it belongs to another user");
    else if (!mu_hello_accept(&c->hello, fd, ep->address.id))
        vanish(ep, c, "it closed before it proved the job's token");
    return true;
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

static void arrive(struct mu_endpoint *ep, struct caller *c)
{
    struct mu_arrival *a = calloc(1, sizeof *a);

    if (!a) {
        drop(ep, c, "out of memory");
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
static void turn_away(struct caller *c)
{
    close(c->fd);
    c->fd = -1;
}

/* The claim is complete: is it proved? */
static void judge(struct mu_endpoint *ep, struct caller *c)
{
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
        drop(ep, c, "its proof of this job's token is wrong");
    else if (retired)
        turn_away(c);
    else if (!mu_hello_confirm(&c->hello, c->fd, secret))
        vanish(ep, c, "it closed before it proved the job's token");
    else
        arrive(ep, c);
}

static void serve_caller(struct mu_endpoint *ep, struct caller *c)
{
    switch (mu_hello_step(&c->hello, c->fd)) {
    case MU_HELLO_CLAIMED:
        judge(ep, c);
        break;
    case MU_HELLO_GONE:
        vanish(ep, c, "it closed before it proved the job's token");
        break;
    case MU_HELLO_PENDING:
        break;
    default:
        drop(ep, c, "its proof of this job's token is wrong");
    }
}

/* ---- The thread ----------------------------------------------------------------- */

static void soonest(double *next, double at)
{
    if (*next == 0 || at < *next)
        *next = at;
}

/* Drop late callers, list what to poll. A caller that is complete waits for its
 * secret: it is not polled. Returns when to look again, 0: no time.
 */
static double prepare(struct mu_endpoint *ep, struct pollfd *fds, double now)
{
    double next = 0;
    int n = 0;

    fds[n++] = (struct pollfd){ ep->wake_fd, POLLIN, 0 };
    for (int k = 0; k < GATES; k++) {
        struct gate *g = &ep->gate[k];
        double at = accepts_at(g, now);

        if (at > 0)
            soonest(&next, at);
        fds[n++] = (struct pollfd){ at > 0 ? -1 : g->fd, POLLIN, 0 };
        for (int i = 0; i < CALLERS; i++) {
            struct caller *c = &g->caller[i];

            if (c->fd >= 0 && c->since + HELLO_SECONDS <= now)
                vanish(ep, c, "it did not prove the job's token in time");
            if (c->fd >= 0)
                soonest(&next, c->since + HELLO_SECONDS);
            fds[n++] = (struct pollfd){ c->claimed ? -1 : c->fd, POLLIN, 0 };
        }
    }
    return next;
}

static void serve_gate(struct mu_endpoint *ep, struct gate *g, const struct pollfd *fds,
                       bool changed)
{
    double now = mu_clock_s();

    for (int i = 0; i < CALLERS; i++) {
        struct caller *c = &g->caller[i];

        if (c->fd >= 0 && c->claimed && changed)
            judge(ep, c);
        else if (c->fd >= 0 && fds[1 + i].revents)
            serve_caller(ep, c);
    }
    if (fds[0].revents)
        while (accepts_at(g, now) == 0 && accept_one(ep, g, now)) {
        }
}

static void *serve(void *arg)
{
    struct pollfd fds[1 + GATES * (1 + CALLERS)];
    struct mu_endpoint *ep = arg;
    bool stop = false;

    while (!stop) {
        double now = mu_clock_s(), next = prepare(ep, fds, now);
        bool changed;

        if (poll(fds, sizeof fds / sizeof *fds,
                 next == 0 ? -1 : (int)((next - now) * 1000) + 1) < 0)
            continue;
        if (fds[0].revents)
            hush(ep->wake_fd);
        pthread_mutex_lock(&ep->lock);
        stop = ep->stop;
        changed = ep->changed;
        ep->changed = false;
        pthread_mutex_unlock(&ep->lock);
        for (int k = 0; k < GATES; k++)
            serve_gate(ep, &ep->gate[k], &fds[1 + k * (1 + CALLERS)], changed);
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

        if (a->claim.service != service) {
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

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void shut_all(struct mu_endpoint *ep)
{
    for (int k = 0; k < GATES; k++) {
        shut(&ep->gate[k].fd);
        for (int i = 0; i < CALLERS; i++)
            shut(&ep->gate[k].caller[i].fd);
    }
    for (struct mu_arrival *a = ep->first; a; a = a->next)
        shut(&a->fd);
    shut(&ep->wake_fd);
    shut(&ep->bell_fd);
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
    ep->gate[TCP].tcp = true;
    for (int k = 0; k < GATES; k++) {
        ep->gate[k].fd = -1;
        for (int i = 0; i < CALLERS; i++)
            ep->gate[k].caller[i].fd = -1;
    }
    pthread_mutex_init(&ep->lock, NULL);
    ep->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ep->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return ep;
}

static int start_thread(struct mu_endpoint *ep, struct mu_err *err)
{
    sigset_t all, before;
    int rc;

    /* The program's signal handlers run in the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&ep->thread, NULL, serve, ep);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return mu_err_set(err, MUSTER_EMEMORY, "cannot start the endpoint's thread: %s",
                          strerror(rc));
    pthread_setname_np(ep->thread, "muster-endpoint");
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

int mu_endpoint_open(const char *first, struct mu_endpoint **out, struct mu_err *err)
{
    struct mu_endpoint *ep = make();

    if (!ep)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    ep->fork.in_child = in_child;
    mu_fork_enter(&ep->fork);
    if (ep->wake_fd < 0 || ep->bell_fd < 0 || sodium_init() < 0 ||
        !mu_address_fill(&ep->address, first)) {
        mu_err_set(err, MUSTER_EIO, "cannot open the endpoint: %s", strerror(errno));
        goto fail;
    }
    if (mu_net_listen(&ep->gate[TCP].fd, &ep->address.port, err) < 0 ||
        listen_local(ep, err) < 0 || start_thread(ep, err) < 0)
        goto fail;
    *out = ep;
    return 0;
fail:
    release(ep);
    return -1;
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
