/* SPDX-License-Identifier: BSD-3-Clause */
/* hwloc_links.c - NVLink and xGMI between GPUs, from hwloc's matrices of bandwidth */
#include <string.h>

#include "spank/hw/hwloc/hwloc_reader.h"

/* The index of the GPU in a row of a distance matrix, by its PCI device or an OS device
 * of it.
 */
static int gpu_of(const struct mu_node *node, hwloc_obj_t obj)
{
    char id[MU_BUSID_LEN];
    int part = 0;

    if (!obj)
        return -1;
    if (obj->type == HWLOC_OBJ_OS_DEVICE) {
        for (hwloc_obj_t os = obj->prev_sibling; os; os = os->prev_sibling)
            if (os->name && obj->name && strncmp(os->name, obj->name, 4) == 0)
                part++;
        obj = obj->parent;
    }
    if (!obj || obj->type != HWLOC_OBJ_PCI_DEVICE)
        return -1;
    mu_hwloc_busid(id, &obj->attr->pcidev);
    for (int i = 0; i < node->ngpus; i++)
        if (strcmp(node->gpus[i].busid, id) == 0 &&
            (node->gpus[i].sub < 0 || node->gpus[i].sub == part))
            return i;
    return -1;
}

/* Bandwidth between two rows: direct, plus through the switches that both reach
 * (NVSwitch).
 */
static hwloc_uint64_t link_bandwidth(const struct mu_node *node,
                                     const struct hwloc_distances_s *d, unsigned i,
                                     unsigned j)
{
    hwloc_uint64_t direct = d->values[i * d->nbobjs + j], via_i = 0, via_j = 0;

    for (unsigned k = 0; k < d->nbobjs; k++) {
        if (gpu_of(node, d->objs[k]) >= 0 || !d->objs[k])
            continue;
        via_i += d->values[i * d->nbobjs + k];
        via_j += d->values[j * d->nbobjs + k];
    }
    return direct + (via_i < via_j ? via_i : via_j);
}

/* hwloc counts 25000 MB/s for a link of NVLink 2 and later, 20000 for NVLink 1; an xGMI
 * hop counts as one link.
 */
static int links_of(const char *name, hwloc_uint64_t bandwidth)
{
    if (bandwidth == 0)
        return 0;
    if (strcmp(name, "NVLinkBandwidth") != 0)
        return 1;
    if (bandwidth % 25000 == 0)
        return (int)(bandwidth / 25000 < 1000 ? bandwidth / 25000 : 1000);
    return bandwidth < 20000
               ? 1
               : (int)(bandwidth / 20000 < 1000 ? bandwidth / 20000 : 1000);
}

void mu_hwloc_read_links(struct mu_hwloc_walk *w, const char *name)
{
    struct mu_node *node = &w->machine->node;
    struct hwloc_distances_s *d = NULL;
    unsigned n = 1;

    if (hwloc_distances_get_by_name(w->topo, name, &n, &d, 0) < 0 || n == 0 || !d)
        return;
    for (unsigned i = 0; i < d->nbobjs; i++)
        for (unsigned j = 0; j < d->nbobjs; j++) {
            int a = gpu_of(node, d->objs[i]), b = gpu_of(node, d->objs[j]);

            if (a >= 0 && b >= 0 && a != b)
                node->nvlinks[a * node->ngpus + b] =
                    links_of(name, link_bandwidth(node, d, i, j));
        }
    hwloc_distances_release(w->topo, d);
}
