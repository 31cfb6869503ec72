/* SPDX-License-Identifier: BSD-3-Clause */
/* fds.c - send descriptors to a process of this machine */
#include "runtime/backend/host/fds.h"

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

int mu_fds_send(int to, const void *data, size_t len, const int *fds, int nfds)
{
    char control[CMSG_SPACE(MU_FDS_MOST * sizeof(int))] = { 0 };
    struct iovec iov = { (void *)(uintptr_t)data, len };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control };
    struct cmsghdr *cmsg;

    msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
    cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
    memcpy(CMSG_DATA(cmsg), fds, (size_t)nfds * sizeof(int));
    return sendmsg(to, &msg, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -1;
}

ssize_t mu_fds_recv(int from, void *data, size_t len, int *fds, int max, int *nfds)
{
    char control[CMSG_SPACE(MU_FDS_MOST * sizeof(int))];
    struct iovec iov = { data, len };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control,
                          .msg_controllen = sizeof control };
    ssize_t n = recvmsg(from, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    *nfds = 0;
    if (n < 0)
        return n;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        int got = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (int i = 0; i < got; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + (size_t)i * sizeof fd, sizeof fd);
            if (*nfds < max)
                fds[(*nfds)++] = fd;
            else
                close(fd);
        }
    }
    return n;
}
