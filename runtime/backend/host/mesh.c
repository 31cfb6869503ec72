/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh.c - messages over sockets and rings, peers that leave or die; the transport
 * between islands
 */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/backend/host/mesh.h"
#include "runtime/backend/host/ring.h"
#include "runtime/base/clock.h"

#define GATHER 16            /* pieces of one sendmsg */
#define LINGER_MS 2000       /* for the others' goodbye */
#define FAILED_LINGER_MS 200 /* for the others to find the same failure themselves */

static bool linked(const struct mu_peer *p)
{
    return p->fd >= 0 || p->local >= 0;
}

static void want_out(struct mu_backend *b, int rank, bool on)
{
    struct mu_peer *p = &b->mesh->peer[rank];
    struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | (on ? EPOLLOUT : 0),
                                 .data.u32 = (uint32_t)rank };

    if (p->wants_out == on)
        return;
    p->wants_out = on;
    if (p->fd >= 0)
        epoll_ctl(b->epoll_fd, EPOLL_CTL_MOD, p->fd, &event);
}

static void drop(struct mu_backend *b, int rank)
{
    struct mu_peer *p = &b->mesh->peer[rank];

    if (p->fd >= 0)
        close(p->fd);
    p->fd = p->local = -1;
}

/* The connection is at its end. `why` is an errno value, 0: closed by the other side.
 */
static void lost(struct mu_backend *b, int rank, int why)
{
    char who[128];

    mu_rank_text(b, rank, who, sizeof who);
    drop(b, rank);
    if (b->mesh->peer[rank].left)
        return;
    if (why == 0 || why == ECONNRESET || why == EPIPE)
        mu_engine_fail(b, MUSTER_EPEER, rank, true, "%s died%s%s", who,
                       b->head ? "; this rank waits for it in " : "",
                       b->head ? mu_request_text(b->head) : "");
    else
        mu_engine_fail(b, MUSTER_EIO, rank, true, "the link to %s is dead: %s", who,
                       strerror(why));
}

/* ---- out ---- */

static struct mu_parcel *queued(struct mu_peer *p, size_t i)
{
    return &p->queue[(p->qhead + i) % p->qcap];
}

static bool grow(struct mu_peer *p)
{
    size_t cap = p->qcap ? 2 * p->qcap : 16;
    struct mu_parcel *bigger = malloc(cap * sizeof *bigger);

    if (!bigger)
        return false;
    for (size_t i = 0; i < p->qlen; i++)
        bigger[i] = *queued(p, i);
    free(p->queue);
    p->queue = bigger;
    p->qcap = cap;
    p->qhead = 0;
    return true;
}

static int gather(struct mu_peer *p, struct iovec *iov)
{
    size_t skip = p->qsent;
    int n = 0;

    for (size_t i = 0; i < p->qlen && n + 2 <= GATHER; i++) {
        struct mu_parcel *parcel = queued(p, i);
        struct iovec part[2] = { { &parcel->head, sizeof parcel->head },
                                 { (void *)(uintptr_t)parcel->payload,
                                   parcel->head.len } };

        for (int k = 0; k < 2; k++) {
            if (skip >= part[k].iov_len) {
                skip -= part[k].iov_len;
                continue;
            }
            iov[n].iov_base = (char *)part[k].iov_base + skip;
            iov[n++].iov_len = part[k].iov_len - skip;
            skip = 0;
        }
    }
    return n;
}

static void sent_bytes(struct mu_peer *p, size_t n)
{
    p->qsent += n;
    while (p->qlen > 0) {
        struct mu_parcel *first = queued(p, 0);
        size_t whole = sizeof first->head + first->head.len;

        if (p->qsent < whole)
            break;
        p->qsent -= whole;
        if (first->rq)
            first->rq->open_sends--;
        p->qhead = (p->qhead + 1) % p->qcap;
        p->qlen--;
    }
}

static void flush_peer(struct mu_backend *b, int rank)
{
    struct mu_peer *p = &b->mesh->peer[rank];

    while (p->qlen > 0 && linked(p)) {
        struct iovec iov[GATHER];
        struct msghdr msg = { .msg_iov = iov };
        ssize_t n;

        msg.msg_iovlen = (size_t)gather(p, iov);
        n = p->local >= 0 ? mu_ring_write(b->shm, p->local, iov, (int)msg.msg_iovlen)
                          : sendmsg(p->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            sent_bytes(p, (size_t)n);
        } else if (errno == EAGAIN) {
            want_out(b, rank, true);
            return;
        } else if (errno != EINTR) {
            /* What it said before is still to be read; reading tells the end. */
            if (errno != EPIPE && errno != ECONNRESET)
                lost(b, rank, errno);
            return;
        }
    }
    if (linked(p))
        want_out(b, rank, false);
}

void mu_mesh_send(struct mu_backend *b, int rank, const struct mu_head *head,
                  const void *payload, struct mu_request *rq)
{
    struct mu_peer *p = &b->mesh->peer[rank];

    if (!linked(p))
        return;
    if (p->qlen == p->qcap && !grow(p)) {
        mu_engine_fail(b, MUSTER_EMEMORY, b->env.rank, true, "out of memory");
        return;
    }
    *queued(p, p->qlen++) = (struct mu_parcel){ *head, payload, rq };
    if (rq)
        rq->open_sends++;
    if (!p->wants_out)
        flush_peer(b, rank);
}

/* ---- in ---- */

static void start_payload(struct mu_backend *b, int rank)
{
    struct mu_peer *p = &b->mesh->peer[rank];

    p->missing = p->head.len;
    if (p->missing == 0)
        return;
    if (p->head.verb == MU_SAY_ABORT && p->head.len == sizeof p->failure)
        p->into = (char *)&p->failure;
    else
        p->into = mu_mesh_place(b, rank, &p->head);
}

static void finish_message(struct mu_backend *b, int rank)
{
    struct mu_peer *p = &b->mesh->peer[rank];
    char who[128];

    p->head_len = 0;
    switch (p->head.verb) {
    case MU_SAY_GOODBYE:
        p->left = true;
        break;
    case MU_SAY_ABORT:
        p->failure.text[sizeof p->failure.text - 1] = '\0';
        mu_rank_text(b, rank, who, sizeof who);
        p->left = true;
        mu_engine_fail(b, p->failure.status, p->failure.rank, true, "%s%s%s",
                       p->failure.rank == rank ? who : "",
                       p->failure.rank == rank ? " gave up: " : "", p->failure.text);
        break;
    default:
        mu_mesh_arrived(b, rank, &p->head);
    }
}

/* Use up what lies in the read-ahead buffer. */
static void parse(struct mu_backend *b, int rank)
{
    struct mu_peer *p = &b->mesh->peer[rank];

    while (!b->failure.status) {
        size_t have = p->buf_len - p->buf_at, n;

        if (p->head_len < sizeof p->head) {
            n = sizeof p->head - p->head_len;
            n = n < have ? n : have;
            memcpy((char *)&p->head + p->head_len, p->buf + p->buf_at, n);
            p->head_len += n;
            p->buf_at += n;
            if (p->head_len < sizeof p->head)
                return;
            start_payload(b, rank);
            continue;
        }
        n = p->missing < have ? p->missing : have;
        if (n) {
            memcpy(p->into, p->buf + p->buf_at, n);
            p->into += n;
            p->missing -= n;
            p->buf_at += n;
        }
        if (p->missing > 0)
            return;
        finish_message(b, rank);
    }
}

static ssize_t take(struct mu_backend *b, struct mu_peer *p, void *to, size_t len)
{
    return p->local >= 0 ? mu_ring_read(b->shm, p->local, to, len)
                         : recv(p->fd, to, len, MSG_DONTWAIT);
}

static void read_peer(struct mu_backend *b, int rank)
{
    struct mu_peer *p = &b->mesh->peer[rank];

    while (linked(p) && !b->failure.status) {
        bool straight = p->head_len == sizeof p->head && p->missing >= MU_MESH_READ;
        ssize_t n;

        if (straight) {
            n = take(b, p, p->into, p->missing);
        } else {
            p->buf_at = p->buf_len = 0;
            n = take(b, p, p->buf, MU_MESH_READ);
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            lost(b, rank, n < 0 ? errno : 0);
            return;
        }
        if (straight) {
            p->into += n;
            p->missing -= (size_t)n;
            if (p->missing == 0)
                finish_message(b, rank);
        } else {
            p->buf_len = (size_t)n;
            parse(b, rank);
        }
    }
}

/* ---- the table ---- */

void mu_mesh_poll(struct mu_backend *b)
{
    for (int i = 0; b->shm && i < b->shm->nlocal && !b->failure.status; i++) {
        int rank = b->shm->rank_of[i];
        struct mu_peer *p = &b->mesh->peer[rank];

        if (p->local < 0)
            continue;
        read_peer(b, rank);
        if (p->wants_out)
            flush_peer(b, rank);
    }
}

/* A process of our island has ended; its last words are in the ring. */
static void local_ended(struct mu_backend *b, int local)
{
    int rank = b->shm->rank_of[local];

    epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, b->shm->watch[local], NULL);
    read_peer(b, rank);
    if (!b->failure.status)
        lost(b, rank, 0);
}

static void mesh_event(struct mu_backend *b, int index, uint32_t events)
{
    if (b->failure.status)
        return;
    if (index == MU_INDEX_BELL) {
        mu_mesh_poll(b);
        return;
    }
    if (index >= MU_INDEX_LOCAL) {
        local_ended(b, index - MU_INDEX_LOCAL);
        return;
    }
    if (events & EPOLLOUT)
        flush_peer(b, index);
    if (events & ~(uint32_t)EPOLLOUT)
        read_peer(b, index);
}

/* Say that we sleep, then look once more: one of us sees the other. */
static bool rings_quiet(struct mu_backend *b)
{
    struct mu_desk *desk;

    if (!b->shm)
        return true;
    desk = mu_shm_desk(b->shm, b->shm->me);
    atomic_store(&desk->asleep, MU_SLEEP_BELL);
    for (int i = 0; i < b->shm->nlocal; i++) {
        struct mu_peer *p = &b->mesh->peer[b->shm->rank_of[i]];

        if (p->local >= 0 && (mu_ring_readable(b->shm, i) ||
                              (p->qlen > 0 && mu_ring_writable(b->shm, i)))) {
            atomic_store(&desk->asleep, 0);
            return false;
        }
    }
    return true;
}

/* A peer that has left will never enter what this rank waits for. */
static bool mesh_arm(struct mu_backend *b, enum mu_sleep how)
{
    char who[128];

    for (int r = 0; r < b->env.size; r++) {
        struct mu_peer *p = &b->mesh->peer[r];

        if (p->left && b->head && p->entered <= b->head->seq) {
            mu_engine_fail(
                b, MUSTER_EPEER, r, true,
                "%s has closed its communicator; this rank waits for it in %s",
                mu_rank_text(b, r, who, sizeof who), mu_request_text(b->head));
            return false;
        }
    }
    return rings_quiet(b);
}

/* While something is under way: a link is dead when data or a window probe goes
 * unacknowledged. (A stopped peer's kernel goes on acknowledging.) With a look every
 * eighth of the limit and three quarters of it to be silent, it is found within the
 * limit.
 */
static void mesh_tick(struct mu_backend *b)
{
    int64_t now = mu_clock_ns(), limit = b->mesh->link_timeout;

    for (int r = 0; r < b->env.size && !b->failure.status; r++) {
        struct mu_peer *p = &b->mesh->peer[r];
        struct tcp_info info = { 0 };
        socklen_t len = sizeof info;

        if (p->fd < 0 || getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
            continue;
        if ((!info.tcpi_unacked && !info.tcpi_probes) ||
            info.tcpi_last_ack_recv < limit / 8000000)
            p->silent_since = 0;
        else if (!p->silent_since)
            p->silent_since = now;
        else if (now - p->silent_since >= limit / 4 * 3)
            lost(b, r, ETIMEDOUT);
    }
}

static void mesh_abort(struct mu_backend *b)
{
    struct mu_head head = { .verb = MU_SAY_ABORT, .len = sizeof b->failure };
    struct iovec iov[2] = { { &head, sizeof head },
                            { &b->failure, sizeof b->failure } };
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

    for (int r = 0; r < b->env.size; r++) {
        struct mu_peer *p = &b->mesh->peer[r];

        if (!linked(p))
            continue;
        /* In the middle of another message it would not be understood. */
        if (p->local >= 0) {
            if (p->qsent == 0)
                mu_ring_write(b->shm, p->local, iov, 2);
            mu_shm_ring(b->shm, p->local);
            p->qlen = 0;
            continue;
        }
        /* Who cannot be told sees no end before mesh_close: it would take us for dead.
         */
        if (p->qsent == 0 && sendmsg(p->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) ==
                                 (ssize_t)(sizeof head + sizeof b->failure))
            shutdown(p->fd, SHUT_WR);
        p->qlen = 0;
        epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, p->fd, NULL);
    }
}

static void mesh_forget(struct mu_backend *b)
{
    for (int r = 0; b->mesh && r < b->env.size; r++)
        drop(b, r);
    mu_shm_forget(b);
}

/* Until the others have said goodbye too, or a moment has passed: closing a socket with
 * unread data resets it.
 */
static void linger(struct mu_backend *b, int ms)
{
    int64_t end = mu_clock_ns() + ms * 1000000LL;
    char waste[4096];

    for (int r = 0; r < b->env.size; r++) {
        struct mu_peer *p = &b->mesh->peer[r];
        ssize_t n = 1;

        while (p->fd >= 0 && n > 0) {
            struct pollfd f = { .fd = p->fd, .events = POLLIN };
            int64_t left = (end - mu_clock_ns()) / 1000000;

            if (poll(&f, 1, left > 0 ? (int)left : 0) <= 0)
                break;
            n = recv(p->fd, waste, sizeof waste, MSG_DONTWAIT);
        }
    }
}

static void mesh_close(struct mu_backend *b)
{
    struct mu_head head = { .verb = MU_SAY_GOODBYE };

    if (!b->mesh)
        return;
    if (!b->failure.status) {
        for (int r = 0; r < b->env.size; r++) {
            mu_mesh_send(b, r, &head, NULL, NULL);
            if (b->mesh->peer[r].fd >= 0)
                shutdown(b->mesh->peer[r].fd, SHUT_WR);
        }
        linger(b, LINGER_MS);
    } else if (getpid() == b->owner) {
        linger(b, FAILED_LINGER_MS);
    }
    mesh_forget(b);
    mu_mesh_free(b->mesh, b->env.size);
    mu_shm_free(b->shm);
    b->mesh = NULL;
    b->shm = NULL;
}

const struct mu_transport mu_transport_mesh = {
    .name = "TCP",
    .connect = mu_mesh_open,
    .post = mu_mesh_post,
    .progress = mu_mesh_progress,
    .arm = mesh_arm,
    .event = mesh_event,
    .tick = mesh_tick,
    .late = mu_mesh_late,
    .abort = mesh_abort,
    .close = mesh_close,
    .forget = mesh_forget,
};
