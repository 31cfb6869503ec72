/* SPDX-License-Identifier: BSD-3-Clause */
/* domains.h - which ranks share memory, and how the ranks call each other at the start
 */
#ifndef MU_HOST_DOMAINS_H
#define MU_HOST_DOMAINS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend/host/host.h"

struct mu_host_domains {
    double deadline; /* seconds of the monotonic clock */
    int *of;         /* of each rank: the lowest rank of its domain */
    int n;
};

/* From the addresses of the endpoints. Free `of` with free. */
int mu_host_domains_find(struct mu_host_domains *domains,
                         const struct mu_host_backend *b, struct mu_err *err);

/* Call a rank until the deadline; -1: it cannot be reached, err names it. tcp: as in
 * mu_dial_start. The connection is dial->fd.
 */
int mu_host_call(const struct mu_host_backend *b, double deadline, int rank,
                 enum mu_service service, bool tcp, struct mu_dial *dial,
                 struct mu_err *err);
/* Wait for a rank that calls; false: the deadline has passed or a rank is lost. */
bool mu_host_await_call(const struct mu_host_backend *b, double deadline,
                        enum mu_service service, struct mu_arrival *out);
/* Wait until fd is readable; -1: the deadline has passed or a rank is lost. */
int mu_host_await_readable(const struct mu_host_backend *b, int fd, double deadline);

#endif
