/* SPDX-License-Identifier: BSD-3-Clause */
/* locality.h - where the GPUs are when the system does not say (a virtual machine): a
 * topology file that root installed may tell
 */
#ifndef MU_LOCALITY_H
#define MU_LOCALITY_H

#include <stddef.h>

#include "spank/core/node/node.h"

/* Where nvidia-topologyd, which clouds run in their guests, leaves an NCCL file. */
#define MU_TOPOLOGYD_FILE "/var/run/nvidia-topologyd/virtualTopology.xml"

/* Complete the GPUs of a live node whose place is not known from NCCL's topology file:
 * the one that /etc/nccl.conf names, or that of nvidia-topologyd, below root ("" the
 * running system). Files that belong to neither root nor the caller are not read. file:
 * the one that told, "" none; *why says why the one of nccl.conf did not help.
 */
void mu_locality_complete(struct mu_node *node, const char *root, char *file,
                          size_t len, struct mu_err *why);

#endif
