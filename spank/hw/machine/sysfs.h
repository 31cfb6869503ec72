/* SPDX-License-Identifier: BSD-3-Clause */
/* sysfs.h - facts of this machine (or of a recorded tree) that hwloc does not report */
#ifndef MU_SYSFS_H
#define MU_SYSFS_H

#include "spank/hw/machine/machine.h"

/* root is "" for the running system, or the folder of a recorded /sys and /proc tree
 * (HWLOC_FSROOT). Everything is optional: what is missing or malformed stays unknown.
 */

/* The NUMA node's own CPUs from nodeN/cpulist (or cpumap); false when not known. hwloc
 * assigns nearby CPUs to nodes without CPUs, so only the kernel shows which nodes have
 * CPUs.
 */
bool mu_sysfs_node_cpus(const char *root, int os_index, struct mu_cpuset *out);

/* The rest of the line that begins with `key`, behind a colon and blanks: "Device
 * Minor: \t 3" gives "3".
 */
bool mu_sysfs_field(const char *text, const char *key, char *out, size_t len);

/* CPUs kept out of the scheduler's balancing (isolcpus=); empty when none. */
void mu_sysfs_isolated(const char *root, struct mu_cpuset *out);

/* UUID, minor number and model of an NVIDIA GPU from /proc/driver/nvidia; the number of
 * MIG compute instances of minor number N is *instances (0: MIG is off).
 */
void mu_sysfs_nvidia(const char *root, struct mu_gpu *gpu, int *instances);

/* The NUMA node that is the GPU's own memory (Grace, POWER9), or -1. */
int mu_sysfs_nvidia_numa(const char *root, const char *busid);

/* The NUMA node that the firmware gives a PCI device, which may have no CPUs; -1: none.
 */
int mu_sysfs_pci_numa(const char *root, const char *busid);

/* Port state, rate, link layer and image GUID of an InfiniBand-class device, and
 * whether it is software.
 */
void mu_sysfs_nic(const char *root, struct mu_nic *nic);

/* Append the RoCE v2 entries of a port's GID table to nic->gid; false: the table cannot
 * be read.
 */
bool mu_sysfs_gids(const char *root, int port, struct mu_nic *nic);

/* Is an InfiniBand-class device software: soft-RoCE (rxe) or soft-iWARP (siw)? */
bool mu_sysfs_is_soft(const char *root, const char *name);

/* Add the InfiniBand-class devices in software that no PCI function has to node->soft.
 * -1: out of memory.
 */
int mu_sysfs_soft_nics(const char *root, struct mu_node *node);

/* Can this process open the file through which it would use an InfiniBand-class device?
 * 0: yes; ENODEV with file "": the kernel has none for the device; another errno: it
 * has, and open failed; -1: a recorded tree without such files. file has 96 bytes or
 * more.
 */
int mu_sysfs_uverbs(const char *root, const char *device, char *file, size_t len);

/* The machine runs under a hypervisor. */
bool mu_sysfs_virtual(const char *root);

/* PCI link: as sysfs writes current_link_speed / max_link_speed. */
void mu_sysfs_link(const char *root, struct mu_pci_dev *dev);

#endif
