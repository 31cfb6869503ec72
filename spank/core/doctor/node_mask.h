/* SPDX-License-Identifier: BSD-3-Clause */
/* node_mask.h - facts of nodes without what identifies a site
 *
 * Names of nodes become node1, node2, ...; IP addresses addr1, MAC addresses and GUIDs
 * mac1, UUIDs uuid1, and where a file system is mounted from source1. Equal ones get
 * the same word, so that the masked facts differ where the facts do.
 */
#ifndef MU_NODE_MASK_H
#define MU_NODE_MASK_H

#include "spank/core/doctor/node_facts.h"

/* The lines of all facts, node by node, masked. The caller frees the text; NULL: out of
 * memory.
 */
char *mu_node_facts_mask(const struct mu_node_facts *facts);

#endif
