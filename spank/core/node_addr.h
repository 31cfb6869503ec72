/* SPDX-License-Identifier: BSD-3-Clause */
/* node_addr.h - where Slurm itself reaches a node whose name does not resolve: text of
 * slurm.conf, and SLURM_NODE_ALIASES of cloud nodes
 */
#ifndef MU_NODE_ADDR_H
#define MU_NODE_ADDR_H

#include <stdbool.h>
#include <stddef.h>

struct mu_node_addr {
    char host[256];
    char addr[256]; /* an address or another name; "" not known */
};

/* Put lines that end in a backslash together with the next one, in place. */
void mu_slurm_conf_join(char *text);

/* One line of slurm.conf: if it is a NodeName line, the NodeAddr (else NodeHostname) of
 * those of the n entries that it names and that have no address yet.
 */
void mu_node_addrs_of_line(const char *line, struct mu_node_addr *list, int n);

/* The file of an `Include FILE` line; false: it is none. */
bool mu_slurm_include_of_line(const char *line, char *out, size_t len);

/* The same for "n1:10.0.0.1:host1,n2:[fd00::2]:host2". */
void mu_node_addrs_of_aliases(const char *aliases, struct mu_node_addr *list, int n);

#endif
