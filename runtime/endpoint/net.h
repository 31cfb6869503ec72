/* SPDX-License-Identifier: BSD-3-Clause */
/* net.h - sockets: listen on TCP, send and receive with a deadline */
#ifndef MU_NET_H
#define MU_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

/* Listen on *port, 0: on a free one, IPv6 with IPv4 inside where there is IPv6. *fd is
 * closed by the caller, also after a failure (-1: not opened).
 */
int mu_net_listen(int *fd, uint32_t *port, struct mu_err *err);
/* A dead link counts as a dead peer after 10 s; no delay of small messages. */
void mu_net_tune(int fd);
/* Close it and set it to -1, unless it is -1. */
void mu_net_drop(int *fd);
/* All of it before `until` (seconds of the monotonic clock), or false. */
bool mu_net_send(int fd, const void *bytes, size_t len, double until);
bool mu_net_receive(int fd, void *bytes, size_t len, double until);

#endif
