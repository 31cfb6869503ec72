/* SPDX-License-Identifier: BSD-3-Clause */
/* pci_tree.c - the PCI tree: how near two devices are, and which of them compute */
#include <string.h>

#include "spank/hw/machine/machine.h"

int mu_pci_find(const struct mu_machine *machine, const char *busid)
{
    if (!busid[0])
        return -1;
    for (int i = 0; i < machine->ndevs; i++)
        if (machine->dev[i].kind == MU_PCI_DEVICE &&
            strcmp(machine->dev[i].busid, busid) == 0)
            return i;
    return -1;
}

static int depth(const struct mu_machine *machine, int index)
{
    int n = 0;

    for (; machine->dev[index].parent >= 0; index = machine->dev[index].parent)
        n++;
    return n;
}

const struct mu_place *mu_pci_place(const struct mu_machine *machine, int index)
{
    static const struct mu_place nowhere = { .numa = -1, .package = -1 };

    while (machine->dev[index].parent >= 0)
        index = machine->dev[index].parent;
    index = machine->dev[index].place;
    return index < 0 ? &nowhere : &machine->place[index];
}

static enum mu_nearness place_path(const struct mu_place *a, const struct mu_place *b)
{
    if (a->numa >= 0 && a->numa == b->numa)
        return MU_NEAR_NODE;
    if (a->package >= 0 && a->package == b->package)
        return MU_NEAR_PKG;
    return MU_NEAR_SYS;
}

/* How near two devices of the tree are. PIX: at most one bridge on each side below the
 * common one (none below a merged switch); NODE, PKG and SYS come from the places of
 * their hosts.
 */
static enum mu_nearness pci_path(const struct mu_machine *machine, int a, int b)
{
    const struct mu_pci_dev *dev = machine->dev;
    int start_a = a, start_b = b, da = depth(machine, a), db = depth(machine, b);
    int below_a = 0, below_b = 0; /* steps up to the common ancestor */
    int limit;

    if (a == b)
        return MU_NEAR_PIX;
    for (; da > db; da--, below_a++)
        a = dev[a].parent;
    for (; db > da; db--, below_b++)
        b = dev[b].parent;
    for (; a != b && dev[a].parent >= 0; below_a++, below_b++) {
        a = dev[a].parent;
        b = dev[b].parent;
    }
    if (a != b)
        return place_path(mu_pci_place(machine, start_a),
                          mu_pci_place(machine, start_b));
    if (dev[a].kind == MU_PCI_HOST)
        return MU_NEAR_PHB;
    /* The first step leaves the device itself; each further one is a bridge. */
    limit = dev[a].kind == MU_PCI_SWITCH ? 1 : 2;
    return below_a <= limit && below_b <= limit ? MU_NEAR_PIX : MU_NEAR_PXB;
}

int mu_pci_fill_paths(struct mu_machine *machine, struct mu_err *err)
{
    struct mu_node *node = &machine->node;

    if (mu_node_matrices(node, err) < 0)
        return -1;
    for (int g = 0; g < node->ngpus; g++) {
        int a = machine->gpu_dev[g];

        for (int n = 0; a >= 0 && n < node->nnics; n++)
            if (machine->nic_dev[n] >= 0)
                node->gpu_nic[g * node->nnics + n] =
                    pci_path(machine, a, machine->nic_dev[n]);
        for (int h = 0; a >= 0 && h < node->ngpus; h++)
            if (machine->gpu_dev[h] >= 0)
                node->gpu_gpu[g * node->ngpus + h] =
                    pci_path(machine, a, machine->gpu_dev[h]);
    }
    return 0;
}

/* AMD sells display chips and compute cards under one vendor id and, for cards with a
 * video output, one class. Ids 4xxx and 5xxx are ATI's chips up to the ES1000 that
 * server boards carried as console; 13xx, 15xx, 16xx, 98xx and 99xx are the graphics
 * units inside Ryzen processors.
 */
static bool amd_display(unsigned device)
{
    unsigned family = device >> 8;

    return (family >= 0x40 && family <= 0x5f) || family == 0x13 || family == 0x15 ||
           family == 0x16 || family == 0x98 || family == 0x99;
}

bool mu_pci_is_gpu(unsigned class_id, unsigned vendor, unsigned device)
{
    unsigned class16 = class_id >> 8;

    switch (vendor) {
    case MU_VENDOR_NVIDIA:
        return class16 == 0x0300 || class16 == 0x0302 || class16 == 0x0380;
    case MU_VENDOR_AMD:
        if (class16 == 0x0300)
            return !amd_display(device);
        return class16 == 0x0302 || class16 == 0x0380 || class16 == 0x1200;
    case MU_VENDOR_INTEL:
        /* Class 0300 is the graphics unit of a processor, or an Arc card (56xx, e2xx).
         */
        if (class16 == 0x0300)
            return device >> 8 == 0x56 || device >> 8 == 0xe2;
        return class16 == 0x0302 || class16 == 0x0380 || class16 == 0x1200;
    default:
        return false;
    }
}
