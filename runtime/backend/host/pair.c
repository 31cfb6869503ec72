/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - messages between two ranks: connections, and one step of every message
 *
 * A rank connects to another one when it first sends to it: one connection for each
 * direction, over the endpoints. Ranks of one domain send through shared memory, and
 * the connection only wakes them. What finds no room yet waits in the caller's buffer.
 * The receiver compares the head of a message with its own call.
 */
#include "runtime/backend/host/pair.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/backend/host/domains.h"
#include "runtime/backend/host/shm.h"
#include "runtime/base/clock.h"
#include "runtime/core/dtype.h"
#include "runtime/endpoint/net.h"

/* ---- Connections ---- */

static bool shares_memory(const struct mu_host_backend *b, int rank)
{
    for (int i = 0; b->shm && i < b->shm->nlocal; i++)
        if (b->shm->rank_of[i] == rank)
            return true;
    return false;
}

static int ended(const struct mu_host_backend *b, const struct mu_host_request *rq,
                 int rank, struct mu_err *err)
{
    char who[128];

    return mu_err_set(
        err, MUSTER_EPEER,
        "%s died or closed its communicator; this rank waits for it in %s",
        mu_rank_text(b, rank, who, sizeof who), mu_host_request_text(rq));
}

int mu_pair_connect(struct mu_host_backend *b, int rank,
                    const struct mu_host_request *rq, struct mu_err *err)
{
    double deadline = (double)rq->deadline / 1e9;
    struct mu_channel channel = { 0 };
    struct mu_dial dial;
    char who[128];

    if (b->pairs->of[rank].out >= 0)
        return 0;
    if (mu_host_call(b, deadline, rank, MU_SERVICE_PAIR, b->env.force_tcp, &dial, err) <
        0)
        /* Its process has listened since the ranks met. */
        return dial.answer == MU_ANSWER_REFUSED ? ended(b, rq, rank, err) : -1;
    if (!shares_memory(b, rank)) {
        mu_net_tune(dial.fd);
    } else if (mu_channel_offer(&channel, dial.fd) < 0) {
        mu_err_set(err, MUSTER_EPEER, "cannot offer shared memory to %s: %s",
                   mu_rank_text(b, rank, who, sizeof who), strerror(errno));
        close(dial.fd);
        return -1;
    }
    pthread_mutex_lock(&b->pairs->lock);
    b->pairs->of[rank].to = channel;
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

/* 1: the rank's messages can be read; 0: not yet; -1: as recv. */
static int accept_from(struct mu_host_backend *b, int rank)
{
    struct mu_pair *pair = &b->pairs->of[rank];
    int rc = 1;

    if (pair->in < 0)
        take_arrivals(b);
    if (pair->in < 0)
        return 0;
    if (!pair->accepted && shares_memory(b, rank))
        rc = mu_channel_accept(&pair->from, pair->in);
    pair->accepted = rc > 0;
    return rc;
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
    struct mu_err err = { 0 };
    char who[128];

    if (why == 0 || why == ECONNRESET || why == EPIPE)
        ended(b, rq, rank, &err);
    else
        mu_err_set(&err, MUSTER_EIO, "the link to %s is dead: %s",
                   mu_rank_text(b, rank, who, sizeof who), strerror(why));
    return fail(b, err.code, rank, err.text);
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

static ssize_t write_to(struct mu_pair *pair, struct iovec *iov, int n)
{
    const struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)n };

    return pair->to.memory ? mu_channel_write(&pair->to, iov, n)
                           : sendmsg(pair->out, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t read_from(struct mu_pair *pair, void *data, size_t len)
{
    return pair->from.memory ? mu_channel_read(&pair->from, data, len)
                             : recv(pair->in, data, len, MSG_DONTWAIT);
}

static int push(struct mu_host_backend *b, struct mu_message *m)
{
    struct mu_leg *leg = &m->out;

    while (!is_done(leg) && b->pairs->of[leg->rank].sends == leg) {
        struct iovec iov[2];
        int parts = rest_of(leg, iov);
        ssize_t n = write_to(&b->pairs->of[leg->rank], iov, parts);

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

static int pull_all(struct mu_host_backend *b, struct mu_message *m,
                    struct mu_pair *pair)
{
    struct mu_leg *leg = &m->in;

    while (!is_done(leg)) {
        struct iovec iov[2];
        ssize_t n;

        rest_of(leg, iov); /* the head alone, then the data */
        n = read_from(pair, iov[0].iov_base, iov[0].iov_len);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return lost(b, m->rq, leg->rank, n < 0 ? errno : 0);
        leg->done += (size_t)n;
        if (leg->done == sizeof leg->head && !calls_agree(b, m))
            return -1;
    }
    pair->receives = leg->next;
    return 0;
}

static int pull(struct mu_host_backend *b, struct mu_message *m)
{
    struct mu_leg *leg = &m->in;
    struct mu_pair *pair = is_done(leg) ? NULL : &b->pairs->of[leg->rank];
    int rc;

    if (!pair || pair->receives != leg)
        return 0;
    rc = pair->accepted ? 1 : accept_from(b, leg->rank);
    if (rc < 0)
        return lost(b, m->rq, leg->rank, errno);
    if (rc == 0)
        return 0;
    rc = pull_all(b, m, pair);
    if (pair->from.memory)
        mu_channel_release(&pair->from);
    return rc;
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

/* True: nothing can be moved, and the other rank will wake this one. */
static bool arm(struct mu_pair *to, struct mu_pair *from)
{
    return (!to || !to->to.memory || mu_channel_arm_writer(&to->to)) &&
           (!from || !from->from.memory || mu_channel_arm_reader(&from->from));
}

/* Those of the message that move next; NULL: none. */
static struct mu_pair *next_to(const struct mu_host_backend *b, struct mu_message *m)
{
    struct mu_pair *pair = m->out.rank < 0 ? NULL : &b->pairs->of[m->out.rank];

    return pair && pair->sends == &m->out ? pair : NULL;
}

static struct mu_pair *next_from(const struct mu_host_backend *b, struct mu_message *m)
{
    struct mu_pair *pair = m->in.rank < 0 ? NULL : &b->pairs->of[m->in.rank];

    return pair && pair->receives == &m->in ? pair : NULL;
}

int mu_pair_events(struct mu_host_backend *b, struct pollfd *fds, bool *missing)
{
    int n = 1;

    *missing = false;
    for (struct mu_message *m = b->pairs->first; m; m = m->next) {
        struct mu_pair *to = next_to(b, m), *from = next_from(b, m);

        if (!arm(to, from))
            return 0;
        if (to)
            fds[n++] = (struct pollfd){ to->out, to->to.memory ? POLLIN : POLLOUT, 0 };
        if (from && from->in >= 0)
            fds[n++] = (struct pollfd){ from->in, POLLIN, 0 };
        *missing |= from && from->in < 0;
    }
    return n;
}

void mu_pair_woken(struct mu_host_backend *b)
{
    for (struct mu_message *m = b->pairs->first; m; m = m->next) {
        struct mu_pair *to = next_to(b, m), *from = next_from(b, m);

        if (to && to->to.memory)
            mu_channel_hear(&to->to);
        if (from && from->from.memory)
            mu_channel_hear(&from->from);
    }
}
