/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh.c - messages over sockets and pipes; peers that leave or die */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/backend/host/mesh.h"
#include "runtime/backend/host/shm_pipe.h"

#define GATHER 16 /* pieces of one sendmsg */

bool mu_mesh_linked(const struct mu_mesh_peer *p)
{
    return p->fd >= 0 || p->local >= 0;
}

static void want_out(struct mu_host_backend *b, int rank, bool on)
{
    struct mu_mesh_peer *p = &b->mesh->peer[rank];
    struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | (on ? EPOLLOUT : 0),
                                 .data.u32 = (uint32_t)rank };

    if (p->wants_out == on)
        return;
    p->wants_out = on;
    if (p->fd >= 0)
        epoll_ctl(b->epoll_fd, EPOLL_CTL_MOD, p->fd, &event);
}

void mu_mesh_drop(struct mu_host_backend *b, int rank)
{
    struct mu_mesh_peer *p = &b->mesh->peer[rank];

    if (p->fd >= 0)
        close(p->fd);
    p->fd = p->local = -1;
}

void mu_mesh_lost(struct mu_host_backend *b, int rank, int why)
{
    mu_mesh_drop(b, rank);
    if (!b->mesh->peer[rank].left)
        mu_engine_lost(b, rank, mu_death_of_errno(why));
}

/* ---- Sending ---- */

static struct mu_mesh_parcel *queued(struct mu_mesh_peer *p, size_t i)
{
    return &p->queue[(p->qhead + i) % p->qcap];
}

static bool grow(struct mu_mesh_peer *p)
{
    size_t cap = p->qcap ? 2 * p->qcap : 16;
    struct mu_mesh_parcel *bigger = malloc(cap * sizeof *bigger);

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

static int gather(struct mu_mesh_peer *p, struct iovec *iov)
{
    size_t skip = p->qsent;
    int n = 0;

    for (size_t i = 0; i < p->qlen && n + 2 <= GATHER; i++) {
        struct mu_mesh_parcel *parcel = queued(p, i);
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

static void sent_bytes(struct mu_mesh_peer *p, size_t n)
{
    p->qsent += n;
    while (p->qlen > 0) {
        struct mu_mesh_parcel *first = queued(p, 0);
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

void mu_mesh_flush(struct mu_host_backend *b, int rank)
{
    struct mu_mesh_peer *p = &b->mesh->peer[rank];

    while (p->qlen > 0 && mu_mesh_linked(p)) {
        struct iovec iov[GATHER];
        struct msghdr msg = { .msg_iov = iov };
        ssize_t n;

        msg.msg_iovlen = (size_t)gather(p, iov);
        n = p->local >= 0
                ? mu_shm_pipe_write(b->shm, p->local, iov, (int)msg.msg_iovlen)
                : sendmsg(p->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            sent_bytes(p, (size_t)n);
        } else if (errno == EAGAIN) {
            want_out(b, rank, true);
            return;
        } else if (errno != EINTR) {
            /* Messages it sent earlier are still unread; the read side detects the end.
             */
            if (errno != EPIPE && errno != ECONNRESET)
                mu_mesh_lost(b, rank, errno);
            return;
        }
    }
    if (mu_mesh_linked(p))
        want_out(b, rank, false);
}

void mu_mesh_send(struct mu_host_backend *b, int rank,
                  const struct mu_mesh_header *head, const void *payload,
                  struct mu_host_request *rq)
{
    struct mu_mesh_peer *p = &b->mesh->peer[rank];

    if (!mu_mesh_linked(p))
        return;
    if (p->qlen == p->qcap && !grow(p)) {
        mu_engine_fail(b, MUSTER_EMEMORY, b->env.rank, true, "out of memory");
        return;
    }
    *queued(p, p->qlen++) = (struct mu_mesh_parcel){ *head, payload, rq };
    if (rq)
        rq->open_sends++;
    if (!p->wants_out)
        mu_mesh_flush(b, rank);
}

/* ---- Receiving ---- */

void mu_mesh_begin_large(struct mu_host_backend *b, struct mu_host_request *rq)
{
    b->mesh->under_way = rq;
    b->mesh->reduced = 0;
    for (int r = 0; r < b->env.size; r++) {
        struct mu_mesh_peer *p = &b->mesh->peer[r];

        p->sent = p->credit = p->got = p->results = 0;
    }
}

char *mu_mesh_misplaced(struct mu_host_backend *b, int rank,
                        const struct mu_mesh_header *h)
{
    char who[128];

    mu_engine_fail(b, MUSTER_ECONTRACT, rank, true,
                   "%s sent an unexpected message (kind %d, request %llu, %llu "
                   "bytes)",
                   mu_rank_text(b, rank, who, sizeof who), h->verb,
                   (unsigned long long)h->seq, (unsigned long long)h->len);
    return NULL;
}

static void start_payload(struct mu_host_backend *b, int rank)
{
    struct mu_mesh_peer *p = &b->mesh->peer[rank];

    p->missing = p->head.len;
    if (p->missing == 0)
        return;
    if (p->head.verb == MU_MESH_ABORT && p->head.len == sizeof p->failure)
        p->into = (char *)&p->failure;
    else
        p->into = b->mesh->sink->place(b, rank, &p->head);
}

static void finish_message(struct mu_host_backend *b, int rank)
{
    struct mu_mesh_peer *p = &b->mesh->peer[rank];

    p->head_len = 0;
    switch (p->head.verb) {
    case MU_MESH_GOODBYE:
        p->left = true;
        break;
    case MU_MESH_ABORT:
        p->failure.text[sizeof p->failure.text - 1] = '\0';
        p->left = true;
        mu_engine_follow(b, rank, &p->failure);
        break;
    default:
        b->mesh->sink->arrived(b, rank, &p->head);
    }
}

/* Process the bytes in the read-ahead buffer. */
static void parse(struct mu_host_backend *b, int rank)
{
    struct mu_mesh_peer *p = &b->mesh->peer[rank];

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

static ssize_t take(struct mu_host_backend *b, struct mu_mesh_peer *p, void *to,
                    size_t len)
{
    return p->local >= 0 ? mu_shm_pipe_read(b->shm, p->local, to, len)
                         : recv(p->fd, to, len, MSG_DONTWAIT);
}

void mu_mesh_read(struct mu_host_backend *b, int rank)
{
    struct mu_mesh_peer *p = &b->mesh->peer[rank];

    while (mu_mesh_linked(p) && !b->failure.status) {
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
            mu_mesh_lost(b, rank, n < 0 ? errno : 0);
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

void mu_mesh_poll(struct mu_host_backend *b)
{
    for (int i = 0; b->shm && i < b->shm->nlocal && !b->failure.status; i++) {
        int rank = b->shm->rank_of[i];
        struct mu_mesh_peer *p = &b->mesh->peer[rank];

        if (p->local < 0)
            continue;
        mu_mesh_read(b, rank);
        if (p->wants_out)
            mu_mesh_flush(b, rank);
    }
}
