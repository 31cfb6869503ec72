/* SPDX-License-Identifier: BSD-3-Clause */
/* peercred.c - the process at the other end of an AF_UNIX connection */
#include "runtime/base/peercred.h"

#include <sys/socket.h>

struct mu_peercred mu_peercred_of(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return (struct mu_peercred){ (uid_t)-1, 0 };
    return (struct mu_peercred){ peer.uid, peer.pid };
}
