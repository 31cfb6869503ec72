/* SPDX-License-Identifier: BSD-3-Clause */
/* arrivals.c - the list of proved connections, and what services call */
#include "runtime/endpoint/arrivals.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/endpoint/net.h"

void mu_arrivals_warn(void *arg, const char *from, const char *why)
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

void mu_arrivals_unlink(struct mu_endpoint *ep, struct mu_arrival **at)
{
    struct mu_arrival *a = *at;

    *at = a->next;
    if (!a->next)
        ep->last = at;
    free(a);
}

static bool is_retired(const struct mu_endpoint *ep, const struct mu_claim *claim)
{
    if (claim->service < MU_SERVICE_CONTROL || claim->service == MU_SERVICE_SURVIVE ||
        claim->service == MU_SERVICE_JOIN)
        return false;
    for (unsigned i = 0; i < ep->nretired && i < MU_RETIRED; i++)
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
            mu_arrivals_unlink(ep, at);
        } else {
            at = &(*at)->next;
        }
    }
}

void mu_endpoint_retire(struct mu_endpoint *ep, uint64_t generation)
{
    pthread_mutex_lock(&ep->lock);
    ep->retired[ep->nretired++ % MU_RETIRED] = generation;
    close_retired(ep);
    pthread_mutex_unlock(&ep->lock);
}

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
    mu_bell_ring(ep->bell_fd);
}

/* A rank of this job is no stranger: it is not reported. */
static void turn_away(struct mu_caller *c)
{
    close(c->fd);
    c->fd = -1;
}

/* The claim is complete: is it proved? */
void mu_arrivals_judge(void *arg, struct mu_gate *g, struct mu_caller *c)
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
    mu_bell_ring(ep->wake_fd);
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
        mu_arrivals_unlink(ep, at);
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
        mu_bell_rung(ep->bell_fd);
    return rc;
}

void mu_endpoint_refuse(struct mu_endpoint *ep, const struct mu_arrival *arrival,
                        const char *why)
{
    mu_arrivals_warn(ep, arrival->from, why);
    close(arrival->fd);
}
