/* SPDX-License-Identifier: BSD-3-Clause */
/* node_addr.h - the address under which Slurm reaches a node whose name does not
 * resolve: from slurm.conf, or from SLURM_NODE_ALIASES of cloud nodes
 */
#ifndef MU_NODE_ADDR_H
#define MU_NODE_ADDR_H

struct mu_node_addr {
    char host[256];
    char addr[256]; /* an address or another name; "" unknown */
};

/* Read one line of slurm.conf, with its continuation lines joined. If it has a
 * NodeName, set the NodeAddr (or else NodeHostname) of each of the n entries that it
 * names and that has no address yet.
 */
void mu_node_addrs_of_line(const char *line, struct mu_node_addr *list, int n);

/* The same for "n1:10.0.0.1:host1,n2:[fd00::2]:host2". */
void mu_node_addrs_of_aliases(const char *aliases, struct mu_node_addr *list, int n);

#endif
