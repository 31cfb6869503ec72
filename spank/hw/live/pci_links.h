/* SPDX-License-Identifier: BSD-3-Clause */
/* pci_links.h - link rates and ACS bits of GPUs, RDMA NICs and the bridges above them
 */
#ifndef MU_PCI_LINKS_H
#define MU_PCI_LINKS_H

#include "spank/core/doctor/doctor.h"

/* From root/sys/bus/pci/devices ("" is this machine). Both arrays are owned by the
 * caller (free). A machine without PCI gives none.
 */
int mu_pci_links_load(const char *root, const struct mu_node *node,
                      struct mu_link **links, int *nlinks, struct mu_acs **acs,
                      int *nacs, struct mu_err *err);

#endif
