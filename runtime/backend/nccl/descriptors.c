/* SPDX-License-Identifier: BSD-3-Clause */
/* descriptors.c - the ranks of a node give each other file descriptors; no CUDA */
#include "runtime/backend/nccl/descriptors.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Of one message: the sender and one descriptor. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
};

/* An abstract name begins with a zero byte; without a name the kernel chooses one. */
static bool bind_anywhere(int fd, struct mu_descriptor_address *mine)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    const socklen_t none = offsetof(struct sockaddr_un, sun_path);
    socklen_t len = sizeof at;

    if (bind(fd, (struct sockaddr *)&at, none) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0 || len <= none ||
        len - none > MU_DESCRIPTOR_NAME)
        return false;
    mine->len = (uint8_t)(len - none);
    memcpy(mine->name, at.sun_path, mine->len);
    return true;
}

void mu_descriptors_open(struct mu_descriptors *d, struct mu_descriptor_address *mine)
{
    const int on = 1;

    *mine = (struct mu_descriptor_address){ .len = 0 };
    *d = (struct mu_descriptors){
        .fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)
    };
    /* Before the name is known: each message has its sender. */
    if (d->fd >= 0 && (setsockopt(d->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0 ||
                       !bind_anywhere(d->fd, mine)))
        mu_descriptors_close(d);
}

void mu_descriptors_join(struct mu_descriptors *d, int rank, int n,
                         const struct mu_descriptor_address *all)
{
    d->rank = rank;
    d->n = n;
    memcpy(d->rank_at, all, (size_t)n * sizeof *all);
}

void mu_descriptors_close(struct mu_descriptors *d)
{
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
    d->n = 0;
}

enum mu_sent mu_descriptors_send(const struct mu_descriptors *d, int to,
                                 const void *note, size_t len, int fd)
{
    const struct mu_descriptor_address *peer = &d->rank_at[to];
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    union control control = { .bytes = { 0 } };
    struct iovec data = { (void *)(uintptr_t)note, len };
    struct msghdr m = {
        .msg_name = &at,
        .msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + peer->len),
        .msg_iov = &data,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = CMSG_SPACE(sizeof fd)
    };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    ssize_t n;

    if (d->fd < 0 || to >= d->n || peer->len == 0)
        return MU_SEND_NEVER;
    memcpy(at.sun_path, peer->name, peer->len);
    *c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(sizeof fd) };
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    do
        n = sendmsg(d->fd, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)len)
        return MU_SENT;
    if (n < 0 && errno == ECONNREFUSED)
        return MU_SEND_LEFT;
    /* The last: too many descriptors are under way. */
    return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ||
                   errno == ETOOMANYREFS
               ? MU_SEND_LATER
               : MU_SEND_NEVER;
}

/* The descriptor and the sender of a message. */
static void unpack(struct msghdr *m, struct ucred *sender, int *fd)
{
    *sender = (struct ucred){ .uid = (uid_t)-1 };
    *fd = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        size_t len = c->cmsg_len - CMSG_LEN(0);
        int got;

        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
            memcpy(sender, CMSG_DATA(c), sizeof *sender);
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof got <= len; at += sizeof got) {
            memcpy(&got, CMSG_DATA(c) + at, sizeof got);
            if (*fd >= 0)
                close(*fd);
            *fd = got;
        }
    }
}

static int rank_of(const struct mu_descriptors *d, const struct msghdr *m,
                   const struct ucred *sender)
{
    const struct sockaddr_un *at = m->msg_name;
    size_t len = m->msg_namelen - offsetof(struct sockaddr_un, sun_path);

    if (sender->uid != geteuid())
        return -1;
    for (int r = 0; r < d->n; r++)
        if (r != d->rank && len == d->rank_at[r].len &&
            memcmp(at->sun_path, d->rank_at[r].name, len) == 0)
            return r;
    return -1;
}

bool mu_descriptors_take(const struct mu_descriptors *d, int *from, void *note,
                         size_t len, int *fd)
{
    while (d->fd >= 0) {
        struct sockaddr_un at;
        union control control;
        struct iovec data = { note, len };
        struct msghdr m = { .msg_name = &at,
                            .msg_namelen = sizeof at,
                            .msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control };
        struct ucred sender;
        ssize_t n = recvmsg(d->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        unpack(&m, &sender, fd);
        *from = rank_of(d, &m, &sender);
        if (*from >= 0 && n == (ssize_t)len && !(m.msg_flags & MSG_TRUNC))
            return true;
        if (*fd >= 0)
            close(*fd);
    }
    return false;
}

bool mu_descriptors_await(const struct mu_descriptors *d, double seconds)
{
    struct pollfd p = { .fd = d->fd, .events = POLLIN };

    return d->fd >= 0 && poll(&p, 1, (int)(seconds * 1000) + 1) > 0;
}
