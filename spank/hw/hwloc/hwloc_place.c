/* SPDX-License-Identifier: BSD-3-Clause */
/* hwloc_place.c - where a PCI host bridge is attached: NUMA node, package, CPUs */
#include <limits.h>

#include "spank/hw/hwloc/hwloc_reader.h"
#include "spank/hw/machine/sysfs.h"

/* Sets place->numa: the only node of the locality with CPUs, else its only node. */
static void nearest_numa(const struct mu_node *node, hwloc_const_bitmap_t nodeset,
                         struct mu_place *place)
{
    int with = 0, all = 0, last = -1, last_with = -1;

    for (int i = 0; i < node->nnumas; i++) {
        if (!nodeset || !hwloc_bitmap_isset(nodeset, (unsigned)node->numas[i].os_index))
            continue;
        all++;
        last = i;
        if (!mu_cpuset_empty(&node->numas[i].cpus)) {
            with++;
            last_with = i;
        }
    }
    if (with == 1)
        place->numa = last_with;
    else if (all == 1)
        place->numa = last;
}

/* The node with CPUs that is nearest to `from`, or `from` itself; -1 when two are
 * equally near.
 */
static int nearest_with_cpus(const struct mu_node *node, int from)
{
    int best = -1, least = INT_MAX;
    bool tie = false;

    if (!mu_cpuset_empty(&node->numas[from].cpus))
        return from;
    for (int i = 0; i < node->nnumas; i++) {
        int d = mu_node_distance(node, from, i);

        if (mu_cpuset_empty(&node->numas[i].cpus) || d > least)
            continue;
        tie = d == least;
        best = i;
        least = d;
    }
    return tie ? -1 : best;
}

/* hwloc places a bus by its CPUs. For a bus at a NUMA node without CPUs (memory only,
 * or all CPUs off line), the kernel reports the number and the distances of the node.
 */
static void place_by_node(struct mu_hwloc_walk *w, hwloc_obj_t bridge,
                          struct mu_place *place)
{
    hwloc_obj_t first =
        bridge->type == HWLOC_OBJ_BRIDGE ? bridge->io_first_child : bridge;
    const struct mu_node *node = &w->machine->node;
    char id[MU_BUSID_LEN];
    int os_index, numa = -1;

    if (!first ||
        (first->type != HWLOC_OBJ_PCI_DEVICE && first->type != HWLOC_OBJ_BRIDGE))
        return;
    mu_hwloc_busid(id, first->type == HWLOC_OBJ_BRIDGE
                           ? &first->attr->bridge.upstream.pci
                           : &first->attr->pcidev);
    os_index = mu_sysfs_pci_numa(w->root, id);
    for (int i = 0; i < node->nnumas && os_index >= 0; i++)
        if (node->numas[i].os_index == os_index)
            numa = nearest_with_cpus(node, i);
    if (numa < 0)
        return;
    place->numa = numa;
    place->package = node->numas[numa].package;
    place->local = node->numas[numa].cpus;
    place->known = true;
}

/* Where the host bridge is attached. On a machine with several NUMA nodes hwloc
 * attaches it to the whole machine if the firmware reports no node (numa_node -1) or
 * one without CPUs.
 */
int mu_hwloc_add_place(struct mu_hwloc_walk *w, hwloc_obj_t bridge)
{
    struct mu_place *place = mu_add_place(w->machine, w->err);
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(w->topo, bridge);
    struct mu_node *node = &w->machine->node;
    hwloc_obj_t obj;

    if (!place)
        return -1;
    mu_hwloc_set(near->cpuset, &place->local);
    nearest_numa(node, near->nodeset, place);
    for (obj = near; obj; obj = obj->parent)
        if (obj->type == HWLOC_OBJ_PACKAGE)
            break;
    if (obj)
        place->package = obj->os_index == HWLOC_UNKNOWN_INDEX ? (int)obj->logical_index
                                                              : (int)obj->os_index;
    else if (place->numa >= 0)
        place->package = node->numas[place->numa].package;
    place->known = place->numa >= 0 || near->type != HWLOC_OBJ_MACHINE;
    if (!place->known && mu_node_numas_with_cpus(node) <= 1)
        place->known = true;
    if (!place->known && w->root)
        place_by_node(w, bridge, place);
    return w->machine->nplaces - 1;
}
