/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.c - two rings of connections whose end is a rank's death */
#include "runtime/boot/ring.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "runtime/endpoint/net.h"

#define PAUSE_SECONDS 0.2  /* between two calls */
#define HELLO_SECONDS 0.05 /* a rank that lives answers within that */
#define SETTLED_SECONDS 1  /* a rank that lives has sent its fences by then */

static enum mu_service service_of(int kind)
{
    return (enum mu_service)(MU_SERVICE_RING + kind);
}

/* ---- Who is next ---------------------------------------------------------------- */

static bool is_first(const uint64_t *node_of, int rank)
{
    for (int r = 0; r < rank; r++)
        if (node_of[r] == node_of[rank])
            return false;
    return true;
}

/* The nearest other rank of the ring, forwards (step 1) or back (step size - 1). */
static int nearest(enum mu_ring_kind kind, const uint64_t *node_of, int rank, int size,
                   int step)
{
    for (int i = 1; i < size; i++) {
        int r = (int)((rank + (long long)i * step) % size);
        bool same = node_of[r] == node_of[rank];

        if (kind == MU_RING_NODE ? same : !same && is_first(node_of, r))
            return r;
    }
    return -1;
}

static bool all_known(const uint64_t *node_of, int size)
{
    for (int r = 0; r < size; r++)
        if (node_of[r] == 0)
            return false;
    return true;
}

void mu_ring_open(struct mu_ring *n, struct mu_endpoint *endpoint, int rank,
                  const uint64_t *node_of, int size, const char *host)
{
    bool nodes = all_known(node_of, size) && is_first(node_of, rank);

    *n = (struct mu_ring){ .rank = rank };
    for (int k = 0; k < MU_RINGS; k++) {
        struct mu_ring_side *s = &n->side[k];
        bool in = k == MU_RING_NODE || nodes;

        s->to.fd = s->from.fd = -1;
        s->next = in ? nearest((enum mu_ring_kind)k, node_of, rank, size, 1) : -1;
        s->before =
            in ? nearest((enum mu_ring_kind)k, node_of, rank, size, size - 1) : -1;
    }
    if (!endpoint || mu_random(n->mine.secret, sizeof n->mine.secret) < 0)
        return;
    n->endpoint = endpoint;
    n->mine.address = *mu_endpoint_address(endpoint);
    mu_copy(n->mine.host, sizeof n->mine.host, host);
    for (int k = 0; k < MU_RINGS; k++)
        mu_endpoint_set_secret(endpoint, service_of(k), n->mine.secret);
}

void mu_ring_set_next(struct mu_ring *n, enum mu_ring_kind kind, const void *record,
                      size_t len)
{
    struct mu_ring_side *s = &n->side[kind];

    if (len != sizeof s->theirs)
        return;
    memcpy(&s->theirs, record, len);
    s->theirs.host[sizeof s->theirs.host - 1] = '\0';
    s->have_next =
        mu_address_read(&s->theirs.address, record, sizeof s->theirs.address);
}

/* ---- Calling and being called --------------------------------------------------- */

static void call_next(struct mu_ring *n, int kind)
{
    struct mu_ring_side *s = &n->side[kind];
    const struct mu_claim claim = { service_of(kind), 0, n->rank };

    if (!s->dialing && mu_clock_s() < s->pause)
        return;
    if (!s->dialing)
        mu_dial_start(&s->dial, &n->mine.address, &s->theirs.address, false, &claim,
                      s->theirs.secret);
    s->dialing = true;
    /* The fence may be over soon: a call that stays half done looks like a stranger's.
     */
    if (mu_dial_wait(&s->dial, mu_clock_s() + HELLO_SECONDS) == MU_ANSWER_NONE)
        return;
    s->dialing = false;
    s->pause = mu_clock_s() + PAUSE_SECONDS;
    if (s->dial.answer == MU_ANSWER_PROVED &&
        mu_net_send(s->dial.fd, n->mine.host, sizeof n->mine.host, 0))
        s->to = (struct mu_ring_link){ .fd = s->dial.fd,
                                       .since = mu_clock_s(),
                                       .got = MU_RING_HOST };
    else
        mu_dial_stop(&s->dial);
}

static void take_callers(struct mu_ring *n)
{
    for (int k = 0; k < MU_RINGS; k++) {
        struct mu_ring_side *s = &n->side[k];
        struct mu_arrival a;

        while (mu_endpoint_take(n->endpoint, service_of(k), 0, &a)) {
            if (a.claim.rank != s->before) {
                mu_endpoint_refuse(n->endpoint, &a,
                                   "its rank is not expected to connect here");
                continue;
            }
            mu_net_drop(
                &s->from.fd); /* it connects again if it did not receive our proof */
            s->from = (struct mu_ring_link){ .fd = a.fd, .since = mu_clock_s() };
        }
    }
}

/* ---- Looking -------------------------------------------------------------------- */

void mu_ring_enter(struct mu_ring *n)
{
    n->entered++;
}

/* A connection made a moment ago has not carried the fences yet: its rank may be
 * well.
 */
static bool is_behind(const struct mu_ring *n, const struct mu_ring_link *l)
{
    return l->fd >= 0 && l->received < n->entered &&
           mu_clock_s() - l->since >= SETTLED_SECONDS;
}

int mu_ring_behind(const struct mu_ring *n)
{
    const struct mu_ring_side *s = &n->side[MU_RING_NODES];

    if (!n->endpoint || s->next < 0)
        return -1;
    if (is_behind(n, &s->to))
        return s->next;
    return is_behind(n, &s->from) ? s->before : -1;
}

/* The caller's host name first, then a byte for each fence. */
static void read_bytes(struct mu_ring_link *l, char *host, const char *bytes, size_t n)
{
    size_t name = MU_RING_HOST - l->got < n ? MU_RING_HOST - l->got : n;

    memcpy(host + l->got, bytes, name);
    l->got += name;
    l->received += (int)(n - name);
    host[MU_RING_HOST - 1] = '\0';
}

/* Send the fences that we entered and read those of the peer; true: it has ended. */
static bool ended(const struct mu_ring *n, struct mu_ring_link *l, char *host)
{
    char bytes[64];
    ssize_t got;

    if (l->fd < 0)
        return false;
    for (; l->sent < n->entered; l->sent++)
        if (send(l->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
            break;
    while ((got = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        read_bytes(l, host, bytes, (size_t)got);
    return got == 0 || (errno != EAGAIN && errno != EINTR);
}

int mu_ring_poll(struct mu_ring *n, const char **host, enum mu_ring_kind *kind)
{
    if (!n->endpoint)
        return -1;
    take_callers(n);
    for (int k = 0; k < MU_RINGS; k++) {
        struct mu_ring_side *s = &n->side[k];

        *kind = (enum mu_ring_kind)k;
        if (s->to.fd < 0 && s->have_next)
            call_next(n, k);
        *host = s->theirs.host;
        if (ended(n, &s->to, s->theirs.host))
            return s->next;
        *host = k == MU_RING_NODE ? n->mine.host : s->host_before;
        if (ended(n, &s->from, s->host_before))
            return s->before;
    }
    return -1;
}

void mu_ring_close(struct mu_ring *n)
{
    for (int k = 0; n->endpoint && k < MU_RINGS; k++) {
        mu_net_drop(&n->side[k].to.fd);
        mu_net_drop(&n->side[k].from.fd);
        if (n->side[k].dialing)
            mu_dial_stop(&n->side[k].dial);
    }
    n->endpoint = NULL;
}
