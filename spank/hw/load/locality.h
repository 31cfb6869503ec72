/* SPDX-License-Identifier: BSD-3-Clause */
/* locality.h - the GPUs' locality from a topology file that root installed, where the
 * system does not report it (a virtual machine)
 */
#ifndef MU_LOCALITY_H
#define MU_LOCALITY_H

#include <stddef.h>

#include "spank/core/node/node.h"

/* The NCCL file that nvidia-topologyd writes, a daemon in the guests of some clouds. */
#define MU_TOPOLOGYD_FILE "/var/run/nvidia-topologyd/virtualTopology.xml"

/* Complete the GPUs of a live node whose place is not known. The source is NCCL's
 * topology file: the one that /etc/nccl.conf names, or that of nvidia-topologyd, below
 * root ("" the running system). Files that belong to neither root nor the caller are
 * not read. file: the one that was used, "" none; *why: why the file that nccl.conf
 * names was not.
 */
void mu_locality_complete(struct mu_node *node, const char *root, char *file,
                          size_t len, struct mu_err *why);

#endif
