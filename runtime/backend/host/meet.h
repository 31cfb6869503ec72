/* SPDX-License-Identifier: BSD-3-Clause */
/* meet.h - how ranks find each other: listening sockets, addresses, islands */
#ifndef MU_HOST_MEET_H
#define MU_HOST_MEET_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend/host/host.h"

struct mu_address {
    char kernel[40]; /* boot id */
    uint64_t netns;  /* inode of the network namespace */
    char local[64];  /* abstract AF_UNIX name, without the leading zero byte */
    int port;        /* TCP */
    uint64_t arena;  /* mu_arena_used of the backend before */
    char hosts[512]; /* numeric addresses, comma separated, best first */
};

struct mu_meeting {
    int unix_fd, tcp_fd;        /* listening, or -1 */
    int64_t deadline;           /* ns */
    struct mu_address *address; /* of each rank */
    int *island_of;             /* of each rank: the lowest rank of its island */
    int nislands;
};

/* Listen, publish, wait for all, fetch all. Closed with mu_meeting_clear. */
int mu_meeting_hold(struct mu_meeting *meeting, const struct mu_backend *b,
                    struct mu_err *err);
/* Do both see the same loopback interface? */
bool mu_meeting_same_host(const struct mu_meeting *meeting, int a, int b);
/* Is there no use in waiting any longer: late, or a rank is lost? */
bool mu_meeting_over(const struct mu_backend *b, int64_t deadline);
/* poll() until something happens or that is so; 0 then. */
int mu_meeting_wait(const struct mu_backend *b, struct pollfd *fds, int n,
                    int64_t deadline);
void mu_meeting_clear(struct mu_meeting *meeting);

#endif
