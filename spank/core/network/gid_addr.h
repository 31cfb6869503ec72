/* SPDX-License-Identifier: BSD-3-Clause */
/* gid_addr.h - GIDs of RoCE ports as addresses in networks */
#ifndef MU_GID_ADDR_H
#define MU_GID_ADDR_H

#include "spank/core/network/interface.h"
#include "spank/core/node/gid.h"

/* The address; .global is false for loopback and link-local ones. */
void mu_gid_addr(const struct mu_gid *gid, struct mu_addr *out);

/* Has the NIC an address that other nodes can reach in one of n subnets? */
bool mu_gid_in(const struct mu_nic *nic, const struct mu_addr *subnet, int n);

#endif
