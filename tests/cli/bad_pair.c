/* SPDX-License-Identifier: BSD-3-Clause */
/* bad_pair.c - preloaded: makes the messages of muster bench pairs from one rank to
 * another slow, lost or wrong, where they are sent over TCP
 *
 * BAD_PAIR: "FROM TO slow", "FROM TO lost" or "FROM TO wrong". A message is recognised
 * by its first element, which bench_pairs.c computes from both ranks.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD 16       /* bytes in front of each message */
#define LARGE 4096    /* bytes; smaller messages pass as they are */
#define SLOW_US 30000 /* of each large message */

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    static ssize_t (*real)(int, const struct msghdr *, int);
    const struct iovec *iov = msg->msg_iov;
    const char *bad = getenv("BAD_PAIR");
    unsigned from, to;
    char how[8] = "";
    uint32_t *data;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "sendmsg");
    if (!bad || sscanf(bad, "%u %u %7s", &from, &to, how) != 3 ||
        msg->msg_iovlen != 2 || iov[0].iov_len != HEAD || iov[1].iov_len < LARGE)
        return real(fd, msg, flags);
    data = iov[1].iov_base;
    if (data[0] != from * 1000003u + to * 10007u)
        return real(fd, msg, flags);
    if (strcmp(how, "lost") == 0) {
        errno = EAGAIN;
        return -1;
    }
    if (strcmp(how, "wrong") == 0)
        data[7] ^= 1;
    else
        usleep(SLOW_US);
    return real(fd, msg, flags);
}
