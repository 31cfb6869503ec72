/* SPDX-License-Identifier: BSD-3-Clause */
/* net.h - TCP between ranks before their first handshake: listen, addresses, call */
#ifndef MU_NET_H
#define MU_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "runtime/base/err.h"

#define MU_NET_ADDRESSES 512 /* bytes of a list of addresses */
#define MU_NET_MACHINE 64    /* bytes of a machine's name */
#define MU_NET_HELLO 5.0 /* seconds for a hello on a connection that was just made */

/* Listen on a free port, IPv6 with IPv4 inside where there is IPv6. *fd is closed by
 * the caller, also after a failure (-1: not opened).
 */
int mu_net_listen(int *fd, uint32_t *port, struct mu_err *err);
/* The addresses of this host, numeric, comma separated, best first; `first` (or NULL)
 * before all.
 */
void mu_net_addresses(const char *first, char *out, size_t len);

/* Kernel and network namespace: equal for those that see the same loopback. */
void mu_net_machine(char machine[MU_NET_MACHINE]);
/* Is this a loopback address, or one of this host's own? A call to it does not reach
 * another machine.
 */
bool mu_net_is_own(const struct sockaddr *at);

/* Result of mu_net_call. */
enum mu_net_answer {
    MU_NET_SILENT,    /* no reply: the host or the link to it may be dead */
    MU_NET_REFUSED,   /* connection refused, or handshake returned false */
    MU_NET_CONNECTED, /* connected, and handshake returned true */
};
/* Connect to the addresses in turn, until `until` (seconds of the monotonic clock).
 * Calls handshake(arg, fd, deadline) on each connection; handshake owns fd; stops when
 * it returns true. If none does, the result is that of the first address, since the
 * others may belong to another host. elsewhere: the rank is on another machine, so the
 * addresses of this host are skipped.
 */
enum mu_net_answer mu_net_call(const char *addresses, bool elsewhere, uint32_t port,
                               double until,
                               bool (*handshake)(void *arg, int fd, double until),
                               void *arg);

/* A dead link counts as a dead peer after 10 s; no delay of small messages. */
void mu_net_tune(int fd);
/* All of it before `until`, or false. */
bool mu_net_send(int fd, const void *bytes, size_t len, double until);
bool mu_net_receive(int fd, void *bytes, size_t len, double until);

#endif
