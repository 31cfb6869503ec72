/* SPDX-License-Identifier: BSD-3-Clause */
/* control_link.c - frames over one control connection */
#include "runtime/boot/control_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/endpoint/bell.h"
#include "runtime/endpoint/net.h"

/* More than any agreement needs; a length above it means that frames are out of step.
 */
#define LONGEST_FRAME (1u << 30)

int mu_control_watch(struct mu_control *c, int fd, enum mu_source kind, int index)
{
    struct epoll_event event = {
        .events = EPOLLIN,
        .data.u64 = (uint64_t)kind << 32 | (uint32_t)index,
    };

    return epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

void mu_control_wake(struct mu_control *c)
{
    mu_bell_ring(c->wake_fd);
}

struct mu_link *mu_control_link(struct mu_control *c, int index)
{
    return index < 0 ? &c->up : &c->down[index];
}

static int link_index(const struct mu_control *c, const struct mu_link *link)
{
    return link == &c->up ? -1 : (int)(link - c->down);
}

int mu_link_open(struct mu_control *c, int index, int fd, int rank, pid_t pid)
{
    struct mu_link *link = mu_control_link(c, index);

    link->fd = fd;
    link->rank = rank;
    link->pidfd = -1;
    link->gone = link->reading = link->writing = false;
    if (mu_control_watch(c, fd, MU_ON_LINK, index) < 0)
        return -1;
    /* The process itself, since a child that it forked may hold the socket open. A pid
     * of another namespace is 0 here.
     */
    if (pid > 0)
        link->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (link->pidfd >= 0)
        mu_control_watch(c, link->pidfd, MU_ON_PIDFD, index);
    mu_link_flush(c, link);
    return 0;
}

void mu_link_close(struct mu_control *c, struct mu_link *link)
{
    mu_net_drop(&link->fd);
    mu_net_drop(&link->pidfd);
    link->gone = true;
    free(link->in.bytes);
    free(link->out.bytes);
    link->in = link->out = (struct mu_buffer){ 0 };
}

/* Room for `more` bytes at the end; what was consumed at the start is dropped first. */
static bool reserve(struct mu_buffer *b, size_t more)
{
    char *bytes;
    size_t room;

    if (b->start > 0) {
        memmove(b->bytes, b->bytes + b->start, b->end - b->start);
        b->end -= b->start;
        b->start = 0;
    }
    if (b->room - b->end >= more)
        return true;
    room = (b->end + more) * 2;
    bytes = realloc(b->bytes, room);
    if (!bytes)
        return false;
    b->bytes = bytes;
    b->room = room;
    return true;
}

static void ask_to_write(struct mu_control *c, struct mu_link *link, bool on)
{
    struct epoll_event event = {
        .events = EPOLLIN | (on ? EPOLLOUT : 0),
        .data.u64 = (uint64_t)MU_ON_LINK << 32 | (uint32_t)link_index(c, link),
    };

    if (link->writing == on)
        return;
    link->writing = on;
    epoll_ctl(c->epoll_fd, EPOLL_CTL_MOD, link->fd, &event);
}

bool mu_link_flush(struct mu_control *c, struct mu_link *link)
{
    struct mu_buffer *b = &link->out;

    while (link->fd >= 0 && b->start < b->end) {
        ssize_t n = send(link->fd, b->bytes + b->start, b->end - b->start,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            ask_to_write(c, link, true);
            return true;
        }
        if (n < 0)
            return false;
        b->start += (size_t)n;
    }
    if (link->fd < 0)
        return true;
    ask_to_write(c, link, false);
    b->start = b->end = 0;
    return true;
}

void mu_link_send(struct mu_control *c, struct mu_link *link, enum mu_frame_type type,
                  int from, uint32_t flags, uint64_t number, const void *data,
                  size_t len)
{
    struct mu_frame frame = { type, (uint32_t)len, from, flags, number };

    /* Frames of the children wait here until the link to the parent is open. */
    if (link->gone || !reserve(&link->out, sizeof frame + len))
        return;
    memcpy(link->out.bytes + link->out.end, &frame, sizeof frame);
    if (len > 0)
        memcpy(link->out.bytes + link->out.end + sizeof frame, data, len);
    link->out.end += sizeof frame + len;
    /* A failure to write shows as end of file when the thread reads. */
    mu_link_flush(c, link);
}

static void take_frames(struct mu_control *c, struct mu_link *link)
{
    struct mu_buffer *b = &link->in;
    struct mu_frame frame;

    while (b->end - b->start >= sizeof frame) {
        memcpy(&frame, b->bytes + b->start, sizeof frame);
        if (frame.len > LONGEST_FRAME || b->end - b->start < sizeof frame + frame.len)
            break;
        b->start += sizeof frame + frame.len;
        c->on_frame(c, link, &frame, b->bytes + b->start - frame.len);
    }
}

static bool read_frames(struct mu_control *c, struct mu_link *link)
{
    while (link->fd >= 0) {
        ssize_t n;

        if (!reserve(&link->in, 4096))
            return false;
        n = recv(link->fd, link->in.bytes + link->in.end, link->in.room - link->in.end,
                 MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n < 0)
            link->error = errno;
        if (n <= 0)
            return false;
        link->in.end += (size_t)n;
        take_frames(c, link);
    }
    return true;
}

bool mu_link_read(struct mu_control *c, struct mu_link *link)
{
    bool open;

    link->reading = true;
    open = read_frames(c, link);
    link->reading = false;
    return open;
}

void mu_control_pass_up(struct mu_control *c, const struct mu_frame *f,
                        const void *data)
{
    if (c->parent < 0)
        c->on_frame(c, NULL, f, data);
    else
        mu_link_send(c, &c->up, (enum mu_frame_type)f->type, f->from, f->flags,
                     f->number, data, f->len);
}

void mu_control_send_up(struct mu_control *c, enum mu_frame_type type, uint32_t flags,
                        uint64_t number, const void *data, size_t len)
{
    const struct mu_frame f = { type, (uint32_t)len, c->rank, flags, number };

    mu_control_pass_up(c, &f, data);
}

void mu_control_send_down(struct mu_control *c, enum mu_frame_type type, uint32_t flags,
                          uint64_t number, const void *data, size_t len)
{
    for (int i = 0; i < c->nchildren; i++)
        mu_link_send(c, &c->down[i], type, c->rank, flags, number, data, len);
}
