/* SPDX-License-Identifier: BSD-3-Clause */
/* gid.h - GIDs of RoCE ports as bytes. The kernel fills a port's table with the
 * addresses of its network interface: each as RoCE v1 and as RoCE v2, the link-local
 * one first.
 */
#ifndef MU_GID_H
#define MU_GID_H

#include "spank/core/node/node.h"

/* "0000:0000:0000:0000:0000:ffff:0a01:0005", as /sys writes it. False: not a GID, or the
 * empty entry.
 */
bool mu_gid_parse(const char *text, uint8_t byte[16]);

/* The address in a GID: 4 bytes of IPv4 (*v4 is true), or 16 of IPv6. */
const uint8_t *mu_gid_bytes(const struct mu_gid *gid, bool *v4);

/* Can other nodes have a route to this address: is it not loopback, not link local, not
 * empty? 4 bytes of IPv4, or 16 of IPv6.
 */
bool mu_ip_is_global(const uint8_t *byte, bool v4);

/* The NIC has a GID with such an address. */
bool mu_gid_any_global(const struct mu_nic *nic);

#endif
