/* SPDX-License-Identifier: BSD-3-Clause */
/* hwloc_reader.h - shared by the files that read a hwloc topology */
#ifndef MU_HWLOC_READER_H
#define MU_HWLOC_READER_H

#include <hwloc.h>

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

/* *out becomes the set; NULL is the empty set. */
void mu_hwloc_set(hwloc_const_bitmap_t bitmap, struct mu_cpuset *out);

/* PCI tree, GPUs, NICs, NVLinks of a loaded topology whose cores and NUMA nodes are
 * already in machine->node. root as in sysfs.h, NULL when /sys describes another
 * machine.
 */
int mu_hwloc_devices(hwloc_topology_t topo, const char *root,
                     struct mu_machine *machine, struct mu_err *err);

#endif
