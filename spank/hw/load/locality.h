/* SPDX-License-Identifier: BSD-3-Clause */
/* locality.h - the GPUs' locality from a topology file of the user, the site or the
 * image, where the system does not report it (a virtual machine). The plugin and all
 * commands call it.
 */
#ifndef MU_LOCALITY_H
#define MU_LOCALITY_H

#include <stddef.h>

#include "spank/core/node/node.h"

/* The NCCL file that nvidia-topologyd writes, a daemon in the guests of some clouds. */
#define MU_TOPOLOGYD_FILE "/var/run/nvidia-topologyd/virtualTopology.xml"

/* Complete the GPUs of a node whose place is not known, from NCCL's topology files in
 * this order: `topo`, the file of topo= in the options or the site file (NULL none); if
 * the node is live, the one that /etc/nccl.conf names, then that of nvidia-topologyd,
 * both below root ("" the running system, NULL: the node is not live). The latter two
 * are read only if they belong to root or the caller. A child with a deadline reads
 * each.
 *
 * file: the last one that was used, "" none; *why: the sentence about the first one
 * that could not be used.
 */
void mu_locality_complete(struct mu_node *node, const char *root, const char *topo,
                          char *file, size_t len, struct mu_err *why);

#endif
