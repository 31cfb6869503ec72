/* SPDX-License-Identifier: BSD-3-Clause */
/* iface.h - what the name of a network interface shows about its addresses
 *
 * The plugin chooses an interface for a step by it, and the runtime the addresses that
 * ranks publish.
 */
#ifndef MU_IFACE_H
#define MU_IFACE_H

enum mu_iface_reach {
    MU_IFACE_NETWORK, /* of this host; also of a name that shows nothing */
    MU_IFACE_TUNNEL,  /* other hosts may reach it, slowly */
    MU_IFACE_BRIDGE,  /* of containers or virtual machines of this host, or of its DPU:
                         other hosts reach their own there */
};

enum mu_iface_reach mu_iface_reach(const char *name);

#endif
