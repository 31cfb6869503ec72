/* SPDX-License-Identifier: BSD-3-Clause */
/* net_live.h - the IP interfaces of this network namespace, and name look-ups with a
 * time limit
 */
#ifndef MU_NET_LIVE_H
#define MU_NET_LIVE_H

#include "runtime/base/err.h"
#include "spank/core/network/interface.h"

/* Read by netlink and ioctl, not from /sys, which shows the interfaces of the
 * namespace it was mounted in. *net is cleared by the caller with mu_net_clear.
 */
int mu_net_load_live(struct mu_net *net, struct mu_err *err);

/* Resolve n host names (peers[i].host set by the caller) into peers[i].addr. Names that
 * do not resolve keep naddrs 0. Addresses are taken as they are. Names are looked up in
 * child processes (several for a long list), which are killed after timeout seconds. So
 * a name server that does not answer cannot block the caller. Fails only if no child
 * can be started or the time ran out; peers then holds the answers until that time.
 */
int mu_net_resolve(struct mu_peer *peers, int n, double timeout, struct mu_err *err);

#endif
