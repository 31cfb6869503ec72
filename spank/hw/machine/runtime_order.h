/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime_order.h - how the runtimes of AMD's and Intel's GPUs count the devices.
 *
 * ROCr counts as the KFD driver does, which need not be the order of the PCI bus. Level
 * Zero counts cards along the PCI bus (ZE_ENABLE_PCI_ID_DEVICE_ORDER), and in the flat
 * hierarchy the tiles of each card. root as in sysfs.h.
 */
#ifndef MU_RUNTIME_ORDER_H
#define MU_RUNTIME_ORDER_H

#include "spank/core/node/node.h"

/* Number of compute devices the amdgpu driver made of one PCI function (CPX), 0
 * unknown. */
int mu_kfd_parts(const char *root, const char *busid);

/* Fill minor and runtime_nth of AMD's GPUs, minor and tiles of Intel's. What the system
 * does not list is left as it is.
 */
void mu_runtime_order(const char *root, struct mu_node *node);

#endif
