/* SPDX-License-Identifier: BSD-3-Clause */
/* interface.h - chooses the IP interface for the sockets of a step; pure, spank/hw/
 * net_live reads the interfaces
 *
 *   interfaces of this node   site's networks=   resolved addresses of the step's nodes
 *                 \_________________   |   ________________/
 *                               mu_net_choose()
 *                       one interface and address, or none and the reason
 */
#ifndef MU_INTERFACE_H
#define MU_INTERFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

#define MU_IFACE_NAME 16
#define MU_ADDR_TEXT 64

/* An IPv4 or IPv6 address with the prefix length of its subnet in bits. */
struct mu_addr {
    int family; /* AF_INET, AF_INET6; 0: none */
    uint8_t byte[16];
    int prefix;
    bool global; /* scope: not loopback, not link local */
};

struct mu_iface {
    char name[MU_IFACE_NAME];
    /* the kernel's link kind: "bridge", "veth", "dummy", "vlan", "bond"; "" hardware or
     * unknown */
    char kind[16];
    bool up, carrier, loopback;
    long mbits; /* link speed in Mb/s, 0 unknown */
    int naddrs;
    struct mu_addr *addr;
};

/* Owned arrays; in the kernel's order. Clear with mu_net_clear. */
struct mu_net {
    int nifaces;
    struct mu_iface *iface;
};

void mu_net_clear(struct mu_net *net);
/* Append; the returned pointers are valid until the next append. NULL: out of memory.
 */
struct mu_iface *mu_net_add_iface(struct mu_net *net, const char *name);
int mu_iface_add_addr(struct mu_iface *iface, const struct mu_addr *addr);

/* "10.1.2.3", "10.1.0.0/16", "fd00::/8"; without a length the prefix is all bits. */
int mu_addr_parse(const char *text, struct mu_addr *out, struct mu_err *err);

/* Parse the site's networks=: subnets separated by commas and blanks; "" or NULL: none.
 * out has room for MU_NETWORKS_MAX.
 */
#define MU_NETWORKS_MAX 32
int mu_networks_parse(const char *text, struct mu_addr *out, int *n,
                      struct mu_err *err);
/* The address alone, without the length. */
void mu_addr_format(const struct mu_addr *addr, char *buf, size_t len);
bool mu_addr_in(const struct mu_addr *addr, const struct mu_addr *subnet);
bool mu_addr_same(const struct mu_addr *a, const struct mu_addr *b);

/* A host name and the addresses that it resolves to. */
struct mu_peer {
    char host[256];
    int naddrs;
    struct mu_addr addr[8];
};

/* Is the interface local to this host or a tunnel? Local ones (docker0, br-*, virbr*,
 * veth*, cni*, lo) may have the same address on every node. A tunnel (wg*, tun*,
 * tailscale*) sends its packets through another interface.
 */
bool mu_iface_is_private(const struct mu_iface *iface);

struct mu_net_choice {
    int iface; /* index, -1: none */
    /* this node's address on the network; family 0: none. A global address on lo is
     * set without an interface */
    struct mu_addr addr;
    bool needed;      /* false: NCCL chooses this interface by default */
    char reason[512]; /* one sentence, also when no interface is chosen */
};

/* Choose an interface for sockets among those that are up, with carrier and a global
 * address:
 *   1. one on the first of the site's networks (in order) that has any;
 *   2. otherwise one whose subnet contains an address of every peer;
 *   3. otherwise none.
 * Of several, the fastest is chosen; a private one only if no other qualifies. `peers`
 * are the nodes of the step and may include this node.
 */
void mu_net_choose(const struct mu_net *net, const struct mu_addr *networks,
                   int nnetworks, const struct mu_peer *peers, int npeers,
                   struct mu_net_choice *out);

/* The address of `peer` to publish: one in the chosen network if there is one,
 * otherwise the first global one. NULL: there is none.
 */
const struct mu_addr *mu_net_peer_addr(const struct mu_peer *peer,
                                       const struct mu_net_choice *choice);

/* The first address of `own`, this node's name, that a program can bind on this node:
 * an address of an interface or of 127.0.0.0/8. NULL: there is none.
 */
const struct mu_addr *mu_net_own_addr(const struct mu_peer *own,
                                      const struct mu_net *net);

#endif
