/* SPDX-License-Identifier: BSD-3-Clause */
/* hwloc_reader.h - shared by the files that read a hwloc topology
 *
 *   hwloc_machine.c  opens the topology, live or saved; the whole of it
 *   hwloc_cpus.c     NUMA nodes, cores, distances
 *   hwloc_devices.c  PCI tree, GPUs, NICs
 *   hwloc_place.c    where a host bridge is attached
 *   hwloc_links.c    links between GPUs
 *   hwloc_set.c      hwloc's bitmap as a CPU set
 */
#ifndef MU_HWLOC_READER_H
#define MU_HWLOC_READER_H

#include <hwloc.h>
#include <stdio.h>

#include "spank/hw/machine/machine.h"

#if HWLOC_API_VERSION < 0x00020100
#error "hwloc 2.1 or newer is needed (hwloc_topology_set_components)"
#endif

/* hwloc 3 turned the OS device type into a set of flags; a device has at least one. */
static inline bool mu_osdev_is(hwloc_obj_t obj, hwloc_obj_osdev_type_t type)
{
#if HWLOC_API_VERSION >= 0x00030000
    return (obj->attr->osdev.types & type) != 0;
#else
    return obj->attr->osdev.type == type;
#endif
}

/* Never NULL: "" when there is no such info. */
static inline const char *mu_hwloc_info(hwloc_obj_t obj, const char *name)
{
    const char *value = hwloc_obj_get_info_by_name(obj, name);

    return value ? value : "";
}

static inline void mu_hwloc_busid(char out[MU_BUSID_LEN],
                                  const struct hwloc_pcidev_attr_s *pci)
{
    snprintf(out, MU_BUSID_LEN, "%04x:%02x:%02x.%01x", (unsigned)pci->domain,
             (unsigned)pci->bus, (unsigned)pci->dev, (unsigned)pci->func);
}

/* *out becomes the set; NULL is the empty set. */
void mu_hwloc_set(hwloc_const_bitmap_t bitmap, struct mu_cpuset *out);

/* NUMA nodes, then cores, then distances, in this order; root as in sysfs.h, NULL when
 * /sys describes another machine.
 */
int mu_hwloc_read_numas(hwloc_topology_t topo, const char *root, struct mu_node *node,
                        struct mu_err *err);
int mu_hwloc_read_cores(hwloc_topology_t topo, const char *root, struct mu_node *node,
                        struct mu_err *err);
int mu_hwloc_read_distances(hwloc_topology_t topo, struct mu_node *node,
                            struct mu_err *err);

/* PCI tree, GPUs, NICs, NVLinks of a loaded topology whose cores and NUMA nodes are
 * already in machine->node. root as above.
 */
int mu_hwloc_devices(hwloc_topology_t topo, const char *root,
                     struct mu_machine *machine, struct mu_err *err);

/* The walk through the PCI tree; root as above. */
struct mu_hwloc_walk {
    hwloc_topology_t topo;
    const char *root;
    struct mu_machine *machine;
    struct mu_err *err;
};

/* Adds the place where the host bridge, or a PCI device without one, is attached.
 * Returns its index in machine->place, -1 with err set.
 */
int mu_hwloc_add_place(struct mu_hwloc_walk *w, hwloc_obj_t bridge);

/* Links between GPUs from the matrix of that name; none where hwloc has no such matrix.
 */
void mu_hwloc_read_links(struct mu_hwloc_walk *w, const char *name);

#endif
