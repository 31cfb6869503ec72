/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - messages between two ranks of the program's choice
 *
 * A rank connects to another one when it first sends to it: one connection for each
 * direction, over the endpoints. The thread that sends or receives does the work. What
 * the kernel cannot take yet waits in the caller's buffer. The receiver compares the
 * header of a message with its own call.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/backend/host/domains.h"
#include "runtime/backend/host/memory.h"
#include "runtime/base/clock.h"
#include "runtime/core/dtype.h"
#include "runtime/endpoint/net.h"

#define LOOK_SECONDS 0.05 /* period of the check for a failure */

struct mu_host_pair {
    int out, in; /* connections to and from the rank; -1: none yet */
};

struct header {
    uint64_t count;
    uint32_t dtype, zero;
};

/* One message on its way. */
struct leg {
    int rank; /* -1: none */
    struct header head;
    char *data;
    size_t bytes, done; /* with the header */
};

struct exchange {
    struct mu_host_backend *b;
    const struct mu_host_request *rq;
    struct leg out, in;
};

/* ---- Connections ---- */

static int open_table(struct mu_host_backend *b, struct mu_err *err)
{
    size_t n = (size_t)b->env.size;

    if (b->pair)
        return 0;
    b->pair = malloc(n * sizeof *b->pair);
    if (!b->pair)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    for (size_t r = 0; r < n; r++)
        b->pair[r] = (struct mu_host_pair){ -1, -1 };
    return 0;
}

void mu_pair_forget(struct mu_host_backend *b)
{
    for (int r = 0; b->pair && r < b->env.size; r++) {
        if (b->pair[r].out >= 0)
            close(b->pair[r].out);
        if (b->pair[r].in >= 0)
            close(b->pair[r].in);
        b->pair[r] = (struct mu_host_pair){ -1, -1 };
    }
}

void mu_pair_close(struct mu_host_backend *b)
{
    mu_pair_forget(b);
    free(b->pair);
    b->pair = NULL;
}

/* Endpoints answer at any time: the receiver need not be in its call yet. */
static int connect_to(struct mu_host_backend *b, int rank, double deadline,
                      struct mu_err *err)
{
    struct mu_dial dial;

    if (b->pair[rank].out >= 0)
        return 0;
    if (mu_host_call(b, deadline, rank, MU_SERVICE_PAIR, b->env.force_tcp, &dial, err) <
        0)
        return -1;
    b->pair[rank].out = dial.fd;
    mu_net_tune(dial.fd);
    return 0;
}

static void take_arrivals(struct mu_host_backend *b)
{
    struct mu_arrival a;

    while (mu_endpoint_take(b->env.endpoint, MU_SERVICE_PAIR, b->env.generation, &a)) {
        int rank = a.claim.rank;

        if (rank < 0 || rank >= b->env.size || b->pair[rank].in >= 0)
            mu_endpoint_refuse(b->env.endpoint, &a, "its rank is not expected to send");
        else
            b->pair[rank].in = a.fd;
    }
}

/* ---- Progress ---- */

static int fail(struct exchange *x, int status, int rank, const char *why)
{
    mu_engine_blame(x->b, status, rank, why);
    return -1;
}

/* The connection has ended; `why` is an errno value, 0: the other side closed it. */
static int lost(struct exchange *x, int rank, int why)
{
    char who[128], text[MU_FAILURE_TEXT];

    mu_rank_text(x->b, rank, who, sizeof who);
    if (why == 0 || why == ECONNRESET || why == EPIPE)
        snprintf(text, sizeof text,
                 "%s died or closed its communicator; this rank waits for it in %s",
                 who, mu_host_request_text(x->rq));
    else
        snprintf(text, sizeof text, "the link to %s is dead: %s", who, strerror(why));
    return fail(
        x, why == 0 || why == ECONNRESET || why == EPIPE ? MUSTER_EPEER : MUSTER_EIO,
        rank, text);
}

static bool is_done(const struct leg *leg)
{
    return leg->rank < 0 || leg->done == leg->bytes;
}

/* What is left of the message. */
static int rest_of(struct leg *leg, struct iovec iov[2])
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

static int push(struct exchange *x)
{
    struct leg *leg = &x->out;

    while (!is_done(leg)) {
        struct iovec iov[2];
        struct msghdr msg = { .msg_iov = iov };
        ssize_t n;

        msg.msg_iovlen = (size_t)rest_of(leg, iov);
        n = sendmsg(x->b->pair[leg->rank].out, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && errno != EINTR)
            return lost(x, leg->rank, errno);
        leg->done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static bool calls_agree(struct exchange *x)
{
    const struct mu_coll *c = &x->rq->coll;
    const struct header *h = &x->in.head;
    char who[128], here[128], text[MU_FAILURE_TEXT];

    if (h->count == c->recv_count && h->dtype == c->dtype)
        return true;
    snprintf(text, sizeof text, "%s sends %llu %s to %s, which expects %zu %s (%s)",
             mu_rank_text(x->b, x->in.rank, who, sizeof who),
             (unsigned long long)h->count, mu_dtype_name((enum muster_dtype)h->dtype),
             mu_rank_text(x->b, x->b->env.rank, here, sizeof here), c->recv_count,
             mu_dtype_name(c->dtype), mu_host_request_text(x->rq));
    fail(x, MUSTER_ECONTRACT, x->in.rank, text);
    return false;
}

static int pull(struct exchange *x)
{
    struct leg *leg = &x->in;

    take_arrivals(x->b);
    while (!is_done(leg) && x->b->pair[leg->rank].in >= 0) {
        struct iovec iov[2];
        ssize_t n;

        rest_of(leg, iov); /* the header alone, then the data */
        n = recv(x->b->pair[leg->rank].in, iov[0].iov_base, iov[0].iov_len,
                 MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return lost(x, leg->rank, n < 0 ? errno : 0);
        leg->done += (size_t)n;
        if (leg->done == sizeof leg->head && !calls_agree(x))
            return -1;
    }
    return 0;
}

/* ---- The call ---- */

static int check_deadline(struct exchange *x)
{
    char who[128], text[MU_FAILURE_TEXT];
    int rank = is_done(&x->in) ? x->out.rank : x->in.rank;

    if (mu_clock_ns() < x->rq->deadline)
        return 0;
    snprintf(text, sizeof text, "%s has not taken part in %s after %g s",
             mu_rank_text(x->b, rank, who, sizeof who), mu_host_request_text(x->rq),
             x->b->env.timeout);
    return fail(x, MUSTER_ETIMEOUT, rank, text);
}

static void await_event(struct exchange *x)
{
    struct pollfd fds[3];
    int n = 1;

    if (!is_done(&x->out))
        fds[n++] = (struct pollfd){ x->b->pair[x->out.rank].out, POLLOUT, 0 };
    if (!is_done(&x->in) && x->b->pair[x->in.rank].in >= 0)
        fds[n++] = (struct pollfd){ x->b->pair[x->in.rank].in, POLLIN, 0 };
    mu_endpoint_poll(x->b->env.endpoint, fds, n, mu_clock_s() + LOOK_SECONDS);
}

static int run(struct exchange *x, struct mu_err *err)
{
    double deadline = (double)x->rq->deadline / 1e9;

    if (open_table(x->b, err) < 0)
        return -1;
    if (x->out.rank >= 0 && connect_to(x->b, x->out.rank, deadline, err) < 0)
        return atomic_load(&x->b->failed) ? -1
                                          : fail(x, err->code, x->out.rank, err->text);
    while (!is_done(&x->out) || !is_done(&x->in)) {
        if (push(x) < 0 || pull(x) < 0 || check_deadline(x) < 0 ||
            atomic_load(&x->b->failed))
            return -1;
        if (!is_done(&x->out) || !is_done(&x->in))
            await_event(x);
    }
    return 0;
}

static struct leg leg_of(const struct mu_host_request *rq, int rank, const void *data,
                         size_t count)
{
    return (struct leg){ .rank = rank,
                         .head = { count, (uint32_t)rq->coll.dtype, 0 },
                         .data = (char *)(uintptr_t)data,
                         .bytes = sizeof(struct header) + count * rq->esize };
}

int mu_pair_run(struct mu_host_backend *b, const struct mu_host_request *rq,
                struct mu_err *err)
{
    const struct mu_coll *c = &rq->coll;
    struct exchange x = { b, rq, leg_of(rq, c->to, c->send, c->count),
                          leg_of(rq, c->from, c->recv, c->recv_count) };

    if (c->to == b->env.rank && c->from == b->env.rank) {
        mu_memory_own_message(c);
        return 0;
    }
    if (run(&x, err) == 0)
        return 0;
    if (atomic_load(&b->failed)) /* a failure is final: reading it needs no lock */
        mu_err_set(err, b->failure.status, "%s", b->failure.text);
    return -1;
}
