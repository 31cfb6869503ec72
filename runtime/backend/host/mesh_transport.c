/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh_transport.c - the transport between domains: sleep, detect dead links, leave */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/backend/host/mesh.h"
#include "runtime/backend/host/shm_pipe.h"
#include "runtime/base/clock.h"

#define LINGER_MS 2000       /* wait for goodbyes of the peers */
#define FAILED_LINGER_MS 200 /* wait for the peers to detect the same failure */

/* A process of our domain has ended; the pipe still holds its last message. */
static void local_ended(struct mu_host_backend *b, int local)
{
    int rank = b->shm->rank_of[local];

    epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, b->shm->watch[local], NULL);
    mu_mesh_read(b, rank);
    if (!b->failure.status)
        mu_mesh_lost(b, rank, 0);
}

static void mesh_event(struct mu_host_backend *b, int index, uint32_t events)
{
    if (b->failure.status)
        return;
    if (index == MU_INDEX_DOORBELL) {
        mu_mesh_poll(b);
        return;
    }
    if (index >= MU_INDEX_LOCAL) {
        local_ended(b, index - MU_INDEX_LOCAL);
        return;
    }
    if (events & EPOLLOUT)
        mu_mesh_flush(b, index);
    if (events & ~(uint32_t)EPOLLOUT)
        mu_mesh_read(b, index);
}

/* Announce that this rank sleeps, then check the pipes again: one of the two sides sees
 * the other.
 */
static bool pipes_quiet(struct mu_host_backend *b)
{
    struct mu_shm_mailbox *mailbox;

    if (!b->shm)
        return true;
    mailbox = mu_shm_mailbox_of(b->shm, b->shm->me);
    atomic_store(&mailbox->asleep, MU_SLEEP_DOORBELL);
    for (int i = 0; i < b->shm->nlocal; i++) {
        struct mu_mesh_peer *p = &b->mesh->peer[b->shm->rank_of[i]];

        if (p->local >= 0 && (mu_shm_pipe_readable(b->shm, i) ||
                              (p->qlen > 0 && mu_shm_pipe_writable(b->shm, i)))) {
            atomic_store(&mailbox->asleep, 0);
            return false;
        }
    }
    return true;
}

/* A peer that has left will never enter what this rank waits for. */
static bool mesh_arm(struct mu_host_backend *b, enum mu_sleep how)
{
    for (int r = 0; r < b->env.size; r++) {
        struct mu_mesh_peer *p = &b->mesh->peer[r];

        if (p->left && b->head && p->entered <= b->head->seq) {
            mu_engine_lost(b, r, MU_DEATH_ENDED);
            return false;
        }
    }
    return pipes_quiet(b);
}

/* Runs while a request is active. A link is dead when data or a window probe stays
 * unacknowledged; the kernel of a stopped peer still acknowledges. It checks every
 * eighth of the limit and accepts three quarters of silence, so it detects a dead link
 * within the limit.
 */
static void mesh_tick(struct mu_host_backend *b)
{
    int64_t now = mu_clock_ns(), limit = b->mesh->link_timeout;

    for (int r = 0; r < b->env.size && !b->failure.status; r++) {
        struct mu_mesh_peer *p = &b->mesh->peer[r];
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
            mu_mesh_lost(b, r, ETIMEDOUT);
    }
}

static void mesh_abort(struct mu_host_backend *b)
{
    struct mu_mesh_header head = { .verb = MU_MESH_ABORT, .len = sizeof b->failure };
    struct iovec iov[2] = { { &head, sizeof head },
                            { &b->failure, sizeof b->failure } };
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

    for (int r = 0; r < b->env.size; r++) {
        struct mu_mesh_peer *p = &b->mesh->peer[r];

        if (!mu_mesh_linked(p))
            continue;
        /* Inside another message the peer would misread it. */
        if (p->local >= 0) {
            if (p->qsent == 0)
                mu_shm_pipe_write(b->shm, p->local, iov, 2);
            mu_shm_ring_doorbell(b->shm, p->local);
            p->qlen = 0;
            continue;
        }
        /* Shut down only after the abort is sent: a peer without it would take the end
         * of the connection for our death.
         */
        if (p->qsent == 0 && sendmsg(p->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) ==
                                 (ssize_t)(sizeof head + sizeof b->failure))
            shutdown(p->fd, SHUT_WR);
        p->qlen = 0;
        epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, p->fd, NULL);
    }
}

static void mesh_forget(struct mu_host_backend *b)
{
    for (int r = 0; b->mesh && r < b->env.size; r++)
        mu_mesh_drop(b, r);
    mu_shm_forget(b);
}

/* Wait until the peers have said goodbye, or for ms: closing a socket with unread data
 * resets it.
 */
static void linger(struct mu_host_backend *b, int ms)
{
    int64_t end = mu_clock_ns() + ms * 1000000LL;
    char waste[4096];

    for (int r = 0; r < b->env.size; r++) {
        struct mu_mesh_peer *p = &b->mesh->peer[r];
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

static void mesh_close(struct mu_host_backend *b)
{
    struct mu_mesh_header head = { .verb = MU_MESH_GOODBYE };

    if (!b->mesh)
        return;
    if (!b->failure.status) {
        for (int r = 0; r < b->env.size; r++) {
            mu_mesh_send(b, r, &head, NULL, NULL);
            if (b->mesh->peer[r].fd >= 0)
                shutdown(b->mesh->peer[r].fd, SHUT_WR);
        }
        linger(b, LINGER_MS);
    } else if (!b->in_child) {
        linger(b, FAILED_LINGER_MS);
    }
    mesh_forget(b);
    mu_mesh_free(b->mesh, b->env.size);
    mu_shm_free(b->shm);
    b->mesh = NULL;
    b->shm = NULL;
}

static int mesh_connect(struct mu_host_backend *b,
                        const struct mu_host_domains *domains, struct mu_err *err)
{
    return mu_mesh_open(b, domains, &mu_mesh_collectives, err);
}

const struct mu_host_transport mu_transport_mesh = {
    .name = "TCP",
    .connect = mesh_connect,
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
