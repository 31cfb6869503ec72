/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_devices.c - the <pci>, <net> and <nvlink> elements of an NCCL topology file */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/nccl/nccl_dialect.h"
#include "spank/hw/nccl/nccl_reader.h"

static bool known_gpu(const struct mu_nccl_reader *r, const char *busid)
{
    for (int i = 0; r->known && i < r->known->ngpus; i++)
        if (strcmp(r->known->gpus[i].busid, busid) == 0)
            return true;
    return false;
}

/* As NCCL does, which asks sysfs: the class of a <pci> that has none. */
static unsigned known_class(const struct mu_nccl_reader *r, const char *busid)
{
    if (known_gpu(r, busid))
        return 0x030200;
    for (int i = 0; r->known && i < r->known->nnics; i++)
        if (strcmp(r->known->nics[i].busid, busid) == 0)
            return r->known->nics[i].layer == MU_LINK_IB ? 0x020700 : 0x020000;
    return 0;
}

static unsigned hex_attr(const struct mu_nccl_reader *r, int elem, const char *name)
{
    char buf[32], *end;
    unsigned long n;

    mu_nccl_attr(r, elem, name, buf, sizeof buf);
    n = strtoul(buf, &end, 16);
    return *end || end == buf || n > 0xffffffff ? 0 : (unsigned)n;
}

/* Nearest ancestor that is a PCI device or host, or -1. */
static int dev_above(const struct mu_nccl_reader *r, int elem)
{
    for (elem = r->doc->elem[elem].parent; elem >= 0; elem = r->doc->elem[elem].parent)
        if (r->dev_of[elem] >= 0)
            return r->dev_of[elem];
    return -1;
}

static bool is_gpu(const struct mu_nccl_reader *r, int elem,
                   const struct mu_pci_dev *dev)
{
    unsigned class16 = dev->class_id >> 8;

    if (mu_xml_elem_has(r->doc, elem, "gpu") || known_gpu(r, dev->busid))
        return true;
    if (dev->vendor)
        return mu_pci_is_gpu(dev->class_id, dev->vendor, dev->device);
    return class16 == 0x0302 || class16 == 0x0380 || class16 == 0x1200;
}

/* Compute devices of the function: from the muster attribute, or the number of <gpu>
 * elements.
 */
static int add_gpus(struct mu_nccl_reader *r, int elem, int index, const char *notes)
{
    struct mu_machine *m = r->machine;
    const struct mu_place *place = mu_pci_place(m, index);
    long parts = mu_nccl_note_number(notes, "parts", 2, MU_GPUS_PER_FUNCTION, 1);
    long elements = 0;

    for (int e = elem + 1; e < r->doc->nelems && r->doc->elem[e].parent >= elem; e++)
        elements += r->doc->elem[e].parent == elem && mu_xml_elem_is(r->doc, e, "gpu");
    if (elements > parts)
        parts = elements < MU_GPUS_PER_FUNCTION ? elements : MU_GPUS_PER_FUNCTION;

    for (long i = 0; i < parts; i++) {
        struct mu_gpu *gpu = mu_add_gpu(m, index, r->err);

        if (!gpu)
            return -1;
        mu_copy(gpu->busid, sizeof gpu->busid, m->dev[index].busid);
        gpu->sub = parts > 1 ? (int)i : -1;
        gpu->vendor = (int)m->dev[index].vendor;
        gpu->numa = place->numa;
        gpu->package = place->package;
        gpu->local = place->local;
        gpu->local_known = place->known;
    }
    return 0;
}

static struct mu_nic *add_nic(struct mu_nccl_reader *r, int index, const char *name)
{
    struct mu_nic *nic = mu_add_nic(r->machine, index, r->err);
    const struct mu_pci_dev *dev = &r->machine->dev[index];
    const struct mu_place *place = mu_pci_place(r->machine, index);

    if (!nic)
        return NULL;
    mu_copy(nic->name, sizeof nic->name, name);
    mu_copy(nic->busid, sizeof nic->busid, dev->busid);
    nic->numa = place->numa;
    nic->package = place->package;
    nic->layer = dev->class_id >> 8 == 0x0207 ? MU_LINK_IB : MU_LINK_UNKNOWN;
    return nic;
}

/* One <net> of the function or host at dev[index]. */
static int read_net(struct mu_nccl_reader *r, int elem, int index)
{
    char name[MU_NAME_LEN], speed[32];
    struct mu_nic *nic;
    double mbits;

    mu_nccl_attr(r, elem, "name", name, sizeof name);
    mu_nccl_attr(r, elem, "speed", speed, sizeof speed);
    nic = add_nic(r, index, name);
    if (!nic)
        return -1;
    if (mu_parse_double("speed", speed, 1, 1e9, &mbits, NULL) == 0)
        nic->gbits = mbits / 1000;
    return 0;
}

/* Is elem below `pci`, and below no other <pci> in between? */
static bool is_of(const struct mu_nccl_reader *r, int elem, int pci)
{
    do
        elem = r->doc->elem[elem].parent;
    while (elem >= 0 && !mu_xml_elem_is(r->doc, elem, "pci"));
    return elem == pci;
}

/* The <net> elements below; a NIC that lists none (files without gpu and net elements)
 * counts once, by its class.
 */
static int add_nics(struct mu_nccl_reader *r, int elem, int index, const char *notes)
{
    char names[256], *rest, *item;
    int found = 0;

    for (int e = elem + 1; e < r->doc->nelems && r->doc->elem[e].parent >= elem; e++) {
        if (!mu_xml_elem_is(r->doc, e, "net") || !is_of(r, e, elem))
            continue;
        if (read_net(r, e, index) < 0)
            return -1;
        found++;
    }
    if (found || (!mu_nccl_note(notes, "nics", names, sizeof names) &&
                  r->machine->dev[index].class_id >> 16 != 0x02))
        return 0;
    for (rest = names; (item = mu_parse_next(&rest, ','));)
        if (!add_nic(r, index, item))
            return -1;
    return 0;
}

/* NCCL puts a device without a PCI function of its own below the <cpu>: an interface
 * for sockets, which has port 0, and devices that newer releases merged out of several.
 */
static bool is_rdma(const struct mu_nccl_reader *r, int elem, const char *name)
{
    char port[16], gdr[8];
    long n;

    mu_nccl_attr(r, elem, "port", port, sizeof port);
    mu_nccl_attr(r, elem, "gdr", gdr, sizeof gdr);
    return strchr(name, '+') || strcmp(gdr, "1") == 0 ||
           (mu_parse_int("port", port, 1, 255, &n, NULL) == 0);
}

int mu_nccl_read_cpu_nets(struct mu_nccl_reader *r, int cpu)
{
    char name[MU_NAME_LEN];

    for (int e = cpu + 1; e < r->doc->nelems && r->doc->elem[e].parent >= cpu; e++) {
        int nic = r->doc->elem[e].parent;

        if (!mu_xml_elem_is(r->doc, e, "net") || !mu_xml_elem_is(r->doc, nic, "nic") ||
            r->doc->elem[nic].parent != cpu)
            continue;
        mu_nccl_attr(r, e, "name", name, sizeof name);
        if (name[0] && is_rdma(r, e, name) && read_net(r, e, r->dev_of[cpu]) < 0)
            return -1;
    }
    return 0;
}

int mu_nccl_read_pci(struct mu_nccl_reader *r, int elem)
{
    char raw[64], notes[256];
    struct mu_pci_dev *dev;
    int parent = dev_above(r, elem), index;
    bool leaf = !mu_xml_elem_has(r->doc, elem, "pci"), gpu, nic;

    if (parent < 0)
        return mu_nccl_fail(r, elem, "a <pci> outside any <cpu>", "");
    mu_nccl_attr(r, elem, "busid", raw, sizeof raw);
    mu_nccl_attr(r, elem, "muster", notes, sizeof notes);
    if (leaf && strstr(notes, "host=") &&
        (parent = mu_nccl_noted_parent(r->machine, notes, parent, r->err)) < 0)
        return -1;
    dev = mu_add_pci(r->machine, r->err);
    if (!dev)
        return -1;
    index = r->dev_of[elem] = r->machine->ndevs - 1;
    if (mu_busid_normal(raw, dev->busid, NULL) < 0)
        return mu_nccl_fail(r, elem, "busid is not a PCI address:", raw);
    dev->parent = parent;
    dev->class_id = hex_attr(r, elem, "class");
    if (dev->class_id == 0)
        dev->class_id = known_class(r, dev->busid);
    dev->vendor = hex_attr(r, elem, "vendor");
    dev->device = hex_attr(r, elem, "device");
    dev->subvendor = hex_attr(r, elem, "subsystem_vendor");
    dev->subdevice = hex_attr(r, elem, "subsystem_device");
    mu_nccl_attr(r, elem, "link_speed", dev->link_speed, sizeof dev->link_speed);
    mu_nccl_attr(r, elem, "link_width", raw, sizeof raw);
    dev->link_width = atoi(raw);
    /* Devices may lie below a GPU or a NIC, too: NICs that reach memory through it. */
    gpu = is_gpu(r, elem, dev);
    nic = mu_xml_elem_has(r->doc, elem, "nic") || dev->class_id >> 16 == 0x02;
    dev->kind = (leaf && dev->class_id >> 8 != 0x0604) || gpu || nic ? MU_PCI_DEVICE
                                                                     : MU_PCI_SWITCH;
    if (gpu && add_gpus(r, elem, index, notes) < 0)
        return -1;
    return leaf || nic ? add_nics(r, elem, index, notes) : 0;
}

static int gpu_at(const struct mu_machine *m, int dev)
{
    for (int i = 0; i < m->ngpu_devs; i++)
        if (m->gpu_dev[i] == dev)
            return i;
    return -1;
}

/* <nvlink> and <xgmi>: to another GPU, or to the switch (class 0680) that all GPUs
 * reach. Through switches, two GPUs have the smaller of their two numbers of links.
 */
void mu_nccl_read_links(struct mu_nccl_reader *r)
{
    struct mu_node *node = &r->machine->node;
    int *to_switch = calloc((size_t)node->ngpus + 1, sizeof *to_switch);
    char target[64], count[16], busid[MU_BUSID_LEN], tclass[16];
    long n;

    for (int e = 0; to_switch && e < r->doc->nelems; e++) {
        int a, b;

        if (!mu_xml_elem_is(r->doc, e, "nvlink") && !mu_xml_elem_is(r->doc, e, "xgmi"))
            continue;
        a = gpu_at(r->machine, dev_above(r, e));
        mu_nccl_attr(r, e, "target", target, sizeof target);
        mu_nccl_attr(r, e, "count", count, sizeof count);
        mu_nccl_attr(r, e, "tclass", tclass, sizeof tclass);
        if (a < 0 || mu_parse_int("count", count, 1, 1000, &n, NULL) < 0)
            continue;
        if (strncmp(tclass, "0x0680", 6) == 0) {
            to_switch[a] += (int)n;
            continue;
        }
        if (mu_busid_normal(target, busid, NULL) < 0)
            continue;
        b = gpu_at(r->machine, mu_pci_find(r->machine, busid));
        if (b >= 0 && b != a)
            node->nvlinks[a * node->ngpus + b] = (int)n;
    }
    for (int a = 0; to_switch && a < node->ngpus; a++)
        for (int b = 0; b < node->ngpus; b++)
            if (a != b && to_switch[a] && to_switch[b])
                node->nvlinks[a * node->ngpus + b] +=
                    to_switch[a] < to_switch[b] ? to_switch[a] : to_switch[b];
    free(to_switch);
}
