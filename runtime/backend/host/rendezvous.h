/* SPDX-License-Identifier: BSD-3-Clause */
/* rendezvous.h - address records, listening sockets and domains of all ranks */
#ifndef MU_HOST_RENDEZVOUS_H
#define MU_HOST_RENDEZVOUS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend/host/host.h"

struct mu_host_address {
    char kernel[40]; /* boot id */
    uint64_t netns;  /* inode of the network namespace */
    char local[64];  /* abstract AF_UNIX name, without the leading zero byte */
    int port;        /* TCP */
    uint64_t arena;  /* mu_host_arena_used of the previous backend */
    char hosts[512]; /* numeric addresses, comma separated, best first */
};

struct mu_host_rendezvous {
    int unix_fd, tcp_fd;             /* listening, or -1 */
    int64_t deadline;                /* ns */
    struct mu_host_address *address; /* of each rank */
    int *domain_of;                  /* of each rank: the lowest rank of its domain */
    int ndomains;
};

/* Listen, publish our address record, fetch those of all ranks. Close with _clear. */
int mu_host_rendezvous_run(struct mu_host_rendezvous *rendezvous,
                           const struct mu_host_backend *b, struct mu_err *err);
/* True if both ranks use the same loopback interface. */
bool mu_host_rendezvous_same_host(const struct mu_host_rendezvous *rendezvous, int a,
                                  int b);
/* True when the deadline has passed or a rank is lost. */
bool mu_host_open_is_over(const struct mu_host_backend *b, int64_t deadline);
/* poll() until an event, or until mu_host_open_is_over; returns 0 then. */
int mu_host_open_poll(const struct mu_host_backend *b, struct pollfd *fds, int n,
                      int64_t deadline);
void mu_host_rendezvous_clear(struct mu_host_rendezvous *rendezvous);

#endif
