/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - messages between two ranks: connections, and one step of every message
 *
 * A rank connects to another one when it first sends to it: one connection for each
 * direction, over the endpoints. What the kernel cannot take yet waits in the caller's
 * buffer. The receiver compares the head of a message with its own call.
 */
#include "runtime/backend/host/pair.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "runtime/backend/host/domains.h"
#include "runtime/base/clock.h"
#include "runtime/core/dtype.h"
#include "runtime/endpoint/net.h"

/* ---- Connections ---- */

int mu_pair_connect(struct mu_host_backend *b, int rank, double deadline,
                    struct mu_err *err)
{
    struct mu_dial dial;

    if (b->pairs->of[rank].out >= 0)
        return 0;
    if (mu_host_call(b, deadline, rank, MU_SERVICE_PAIR, b->env.force_tcp, &dial, err) <
        0)
        return -1;
    mu_net_tune(dial.fd);
    pthread_mutex_lock(&b->pairs->lock);
    b->pairs->of[rank].out = dial.fd;
    pthread_mutex_unlock(&b->pairs->lock);
    return 0;
}

static void take_arrivals(struct mu_host_backend *b)
{
    struct mu_arrival a;

    while (mu_endpoint_take(b->env.endpoint, MU_SERVICE_PAIR, b->env.generation, &a)) {
        int rank = a.claim.rank;

        if (rank < 0 || rank >= b->env.size || b->pairs->of[rank].in >= 0)
            mu_endpoint_refuse(b->env.endpoint, &a, "its rank is not expected to send");
        else
            b->pairs->of[rank].in = a.fd;
    }
}

/* ---- Failures ---- */

static int fail(struct mu_host_backend *b, int status, int rank, const char *why)
{
    mu_engine_blame(b, status, rank, why);
    return -1;
}

/* The connection has ended; `why` is an errno value, 0: the other side closed it. */
static int lost(struct mu_host_backend *b, const struct mu_host_request *rq, int rank,
                int why)
{
    bool ended = why == 0 || why == ECONNRESET || why == EPIPE;
    char who[128], text[MU_FAILURE_TEXT];

    mu_rank_text(b, rank, who, sizeof who);
    if (ended)
        snprintf(text, sizeof text,
                 "%s died or closed its communicator; this rank waits for it in %s",
                 who, mu_host_request_text(rq));
    else
        snprintf(text, sizeof text, "the link to %s is dead: %s", who, strerror(why));
    return fail(b, ended ? MUSTER_EPEER : MUSTER_EIO, rank, text);
}

static bool calls_agree(struct mu_host_backend *b, const struct mu_message *m)
{
    const struct mu_coll *c = &m->rq->coll;
    const struct mu_message_head *h = &m->in.head;
    char who[128], here[128], text[MU_FAILURE_TEXT];

    if (h->count == c->recv_count && h->dtype == c->dtype)
        return true;
    snprintf(text, sizeof text, "%s sends %llu %s to %s, which expects %zu %s (%s)",
             mu_rank_text(b, m->in.rank, who, sizeof who), (unsigned long long)h->count,
             mu_dtype_name((enum muster_dtype)h->dtype),
             mu_rank_text(b, b->env.rank, here, sizeof here), c->recv_count,
             mu_dtype_name(c->dtype), mu_host_request_text(m->rq));
    fail(b, MUSTER_ECONTRACT, m->in.rank, text);
    return false;
}

/* ---- One step ---- */

static bool is_done(const struct mu_leg *leg)
{
    return leg->rank < 0 || leg->done == leg->bytes;
}

/* What is left of the message. */
static int rest_of(struct mu_leg *leg, struct iovec iov[2])
{
    size_t head = sizeof leg->head, in_head = leg->done < head ? leg->done : head;
    size_t in_data = leg->done - in_head;
    int n = 0;

    if (in_head < head)
        iov[n++] = (struct iovec){ (char *)&leg->head + in_head, head - in_head };
    if (leg->bytes - head > in_data)
        iov[n++] = (struct iovec){ leg->data + in_data, leg->bytes - head - in_data };
    return n;
}

static int push(struct mu_host_backend *b, struct mu_message *m)
{
    struct mu_leg *leg = &m->out;

    while (!is_done(leg) && b->pairs->of[leg->rank].sends == leg) {
        struct iovec iov[2];
        struct msghdr msg = { .msg_iov = iov };
        ssize_t n;

        msg.msg_iovlen = (size_t)rest_of(leg, iov);
        n = sendmsg(b->pairs->of[leg->rank].out, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && errno != EINTR)
            return lost(b, m->rq, leg->rank, errno);
        leg->done += n > 0 ? (size_t)n : 0;
        if (is_done(leg))
            b->pairs->of[leg->rank].sends = leg->next;
    }
    return 0;
}

static int pull(struct mu_host_backend *b, struct mu_message *m)
{
    struct mu_leg *leg = &m->in;

    while (!is_done(leg) && b->pairs->of[leg->rank].receives == leg &&
           b->pairs->of[leg->rank].in >= 0) {
        struct iovec iov[2];
        ssize_t n;

        rest_of(leg, iov); /* the head alone, then the data */
        n = recv(b->pairs->of[leg->rank].in, iov[0].iov_base, iov[0].iov_len,
                 MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return lost(b, m->rq, leg->rank, n < 0 ? errno : 0);
        leg->done += (size_t)n;
        if (leg->done == sizeof leg->head && !calls_agree(b, m))
            return -1;
        if (is_done(leg))
            b->pairs->of[leg->rank].receives = leg->next;
    }
    return 0;
}

static int check_deadline(struct mu_host_backend *b, const struct mu_message *m,
                          int64_t now)
{
    char who[128], text[MU_FAILURE_TEXT];
    int rank = is_done(&m->in) ? m->out.rank : m->in.rank;

    if (now < m->rq->deadline)
        return 0;
    snprintf(text, sizeof text, "%s has not taken part in %s after %g s",
             mu_rank_text(b, rank, who, sizeof who), mu_host_request_text(m->rq),
             b->env.timeout);
    return fail(b, MUSTER_ETIMEOUT, rank, text);
}

void mu_pair_step(struct mu_host_backend *b)
{
    int64_t now = mu_clock_ns();

    take_arrivals(b);
    for (struct mu_message **at = &b->pairs->first; *at;) {
        struct mu_message *m = *at;

        if (atomic_load(&b->failed) || push(b, m) < 0 || pull(b, m) < 0)
            return;
        m->done = is_done(&m->out) && is_done(&m->in);
        if (m->done)
            *at = m->next;
        else if (check_deadline(b, m, now) < 0)
            return;
        else
            at = &m->next;
    }
}

int mu_pair_events(const struct mu_host_backend *b, struct pollfd *fds, bool *missing)
{
    int n = 1;

    *missing = false;
    for (const struct mu_message *m = b->pairs->first; m; m = m->next) {
        const struct mu_pair *to = m->out.rank < 0 ? NULL : &b->pairs->of[m->out.rank];
        const struct mu_pair *from = m->in.rank < 0 ? NULL : &b->pairs->of[m->in.rank];

        if (to && to->sends == &m->out)
            fds[n++] = (struct pollfd){ to->out, POLLOUT, 0 };
        if (from && from->receives == &m->in && from->in >= 0)
            fds[n++] = (struct pollfd){ from->in, POLLIN, 0 };
        *missing |= from && from->receives == &m->in && from->in < 0;
    }
    return n;
}
