/* SPDX-License-Identifier: BSD-3-Clause */
/* meet_link.c - connections of a meeting: names, bytes with a deadline, frames */
#include "runtime/nccl/meet_link.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/peercred.h"

#define DIAL_EVERY 0.002                /* seconds */
#define FRAME_MOST ((uint32_t)16 << 20) /* bytes */

struct head {
    uint32_t kind, len;
};

void mu_meet_mark(const void *id, size_t len, char mark[MU_MEET_MARK])
{
    unsigned char hash[crypto_generichash_BYTES];

    crypto_generichash(hash, sizeof hash, id, len, NULL, 0);
    sodium_bin2hex(mark, MU_MEET_MARK, hash, (MU_MEET_MARK - 1) / 2);
}

/* An abstract name begins with a zero byte and leaves no file behind. */
static socklen_t name_of(const void *id, size_t len, struct sockaddr_un *name)
{
    char mark[MU_MEET_MARK];
    int n;

    mu_meet_mark(id, len, mark);
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "muster-nccl.%u.%s",
                 (unsigned)geteuid(), mark);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool same_user(int fd)
{
    return mu_peercred_of(fd).uid == geteuid();
}

int mu_meet_listen(const void *id, size_t len)
{
    struct sockaddr_un name;
    socklen_t n = name_of(id, len, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&name, n) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    close(fd);
    return -1;
}

int mu_meet_dial(const void *id, size_t len, double end)
{
    struct sockaddr_un name;
    socklen_t n = name_of(id, len, &name);

    do {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0)
            return -1;
        if (connect(fd, (struct sockaddr *)&name, n) == 0 && same_user(fd))
            return fd;
        close(fd);
        mu_pause(DIAL_EVERY);
    } while (mu_clock_s() < end);
    return -1;
}

/* False: the deadline has passed. */
static bool ready(int fd, short events, double end)
{
    for (;;) {
        struct pollfd p = { .fd = fd, .events = events };
        double left = end - mu_clock_s();
        int n;

        if (left <= 0)
            return false;
        n = poll(&p, 1, left > 1.0 ? 1000 : (int)(left * 1000) + 1);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

int mu_meet_accept(int listener, double end)
{
    while (ready(listener, POLLIN, end)) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0 && same_user(fd))
            return fd;
        if (fd >= 0)
            close(fd);
        else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            return -1;
    }
    return -1;
}

bool mu_meet_write(int fd, const void *data, size_t len, double end)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

        if (n > 0) {
            p += n;
            len -= (size_t)n;
        } else if ((errno != EAGAIN && errno != EINTR) || !ready(fd, POLLOUT, end)) {
            return false;
        }
    }
    return true;
}

bool mu_meet_read(int fd, void *data, size_t len, double end)
{
    char *p = data;

    while (len > 0) {
        ssize_t n = recv(fd, p, len, 0);

        if (n > 0) {
            p += n;
            len -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR) ||
                   !ready(fd, POLLIN, end)) {
            return false;
        }
    }
    return true;
}

bool mu_meet_send(int fd, char kind, const void *data, size_t len, double end)
{
    struct head head = { (uint32_t)kind, (uint32_t)len };

    return len <= FRAME_MOST && mu_meet_write(fd, &head, sizeof head, end) &&
           mu_meet_write(fd, data, len, end);
}

bool mu_meet_receive(int fd, char kind, void **data, size_t *len, double end)
{
    struct head head;
    char *p;

    if (!mu_meet_read(fd, &head, sizeof head, end) || head.kind != (uint32_t)kind ||
        head.len > FRAME_MOST)
        return false;
    p = malloc(head.len + 1u);
    if (!p || !mu_meet_read(fd, p, head.len, end)) {
        free(p);
        return false;
    }
    *data = p;
    *len = head.len;
    return true;
}
