/* SPDX-License-Identifier: BSD-3-Clause */
/* hwloc_devices.c - the devices of a hwloc topology: PCI tree, GPUs, NICs */
#include <errno.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/hwloc/hwloc_reader.h"
#include "spank/hw/machine/runtime_order.h"
#include "spank/hw/machine/sysfs.h"

#define CRAY 0x17db /* PCI vendor of Slingshot's Cassini NIC; HPE's own id is 1590 */
#define HPE 0x1590
#define AMAZON 0x1d0f

/* hwloc reports the bandwidth of all lanes in GB/s, after encoding. Find the standard
 * lane rate and the number of lanes that give it: x16 first, then x8, since GPUs and
 * NICs have these widths.
 */
static void link_text(struct mu_pci_dev *dev, double gbytes)
{
    static const struct {
        const char *text;
        double lane; /* GB/s of one lane */
    } gen[] = { { "2.5 GT/s PCIe", 0.25 },      { "5.0 GT/s PCIe", 0.5 },
                { "8.0 GT/s PCIe", 0.984615 },  { "16.0 GT/s PCIe", 1.969231 },
                { "32.0 GT/s PCIe", 3.938462 }, { "64.0 GT/s PCIe", 7.876923 } };
    static const int lanes[] = { 16, 8, 4, 2, 1, 32 };

    for (size_t w = 0; gbytes > 0 && w < sizeof lanes / sizeof lanes[0]; w++)
        for (size_t g = 0; g < sizeof gen / sizeof gen[0]; g++) {
            double rate = gen[g].lane * lanes[w];

            if (gbytes > rate * 0.99 && gbytes < rate * 1.01) {
                mu_copy(dev->link_speed, sizeof dev->link_speed, gen[g].text);
                dev->link_width = lanes[w];
                return;
            }
        }
}

static int add_gpu(struct mu_hwloc_walk *w, int index, hwloc_obj_t obj, int sub)
{
    const struct mu_pci_dev *dev = &w->machine->dev[index];
    struct mu_gpu *gpu = mu_add_gpu(w->machine, index, w->err);

    if (!gpu)
        return -1;
    mu_copy(gpu->busid, sizeof gpu->busid, dev->busid);
    gpu->vendor = (int)dev->vendor;
    gpu->sub = sub;
    mu_copy(gpu->model, sizeof gpu->model, mu_hwloc_info(obj, "PCIDevice"));
    for (hwloc_obj_t os = obj->io_first_child; os; os = os->next_sibling) {
        static const char *const names[] = { "NVIDIAUUID", "AMDUUID", "LevelZeroUUID" };

        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (!gpu->uuid[0])
                mu_copy(gpu->uuid, sizeof gpu->uuid, mu_hwloc_info(os, names[i]));
        if (mu_hwloc_info(os, "GPUModel")[0])
            mu_copy(gpu->model, sizeof gpu->model, mu_hwloc_info(os, "GPUModel"));
    }
    return 0;
}

/* Compute devices of one PCI function: as many as ROCm shows there (CPX mode), MIG
 * instances, else one. Level Zero's ze0.1 are tiles of one device, not devices.
 */
static int count_parts(struct mu_hwloc_walk *w, const struct mu_pci_dev *dev,
                       hwloc_obj_t obj)
{
    int rsmi = 0, parts = 0;

    for (hwloc_obj_t os = obj->io_first_child; os; os = os->next_sibling)
        if (os->type == HWLOC_OBJ_OS_DEVICE && os->name &&
            strncmp(os->name, "rsmi", 4) == 0)
            rsmi++;
    if (rsmi > 0)
        return rsmi;
    if (w->root && dev->vendor == MU_VENDOR_AMD)
        parts = mu_kfd_parts(w->root, dev->busid);
    return parts > 1 ? parts : 1;
}

static void gpu_place(struct mu_hwloc_walk *w, struct mu_gpu *gpu, int index)
{
    struct mu_node *node = &w->machine->node;
    const struct mu_place *place = mu_pci_place(w->machine, index);
    struct mu_cpuset usable;

    mu_node_cpus(node, &usable);
    gpu->numa = place->numa;
    gpu->package = place->package;
    gpu->local_known = place->known;
    gpu->local = place->local;
    mu_cpuset_and(&gpu->local, &usable);
    if (!place->known)
        memset(&gpu->local, 0, sizeof gpu->local);
}

static int add_gpus(struct mu_hwloc_walk *w, int index, hwloc_obj_t obj)
{
    const struct mu_pci_dev *dev = &w->machine->dev[index];
    struct mu_node *node = &w->machine->node;
    int parts = count_parts(w, dev, obj), first = node->ngpus;

    for (int i = 0; i < parts; i++)
        if (add_gpu(w, index, obj, parts > 1 ? i : -1) < 0)
            return -1;
    if (w->root && dev->vendor == MU_VENDOR_NVIDIA) {
        struct mu_gpu *gpu = &node->gpus[first];
        struct mu_gpu whole;
        int instances;

        mu_sysfs_nvidia(w->root, gpu, &instances);
        whole = *gpu;
        for (int i = 1; i < instances; i++)
            if (add_gpu(w, index, obj, i) < 0)
                return -1;
        for (int i = 0; i < instances; i++) {
            gpu = &node->gpus[first + i];
            *gpu = whole;
            gpu->sub = i;
            gpu->uuid[0] = '\0'; /* only the driver reports a MIG device's own */
        }
    }
    for (int i = first; i < node->ngpus; i++)
        gpu_place(w, &node->gpus[i], index);
    return 0;
}

static enum mu_link_layer layer_of(const struct mu_pci_dev *dev, const char *name)
{
    if (strncmp(name, "hfi", 3) == 0)
        return MU_LINK_OPA;
    if (dev->vendor == CRAY || strncmp(name, "hsn", 3) == 0 ||
        strncmp(name, "cxi", 3) == 0)
        return MU_LINK_SLINGSHOT;
    if (dev->vendor == AMAZON)
        return MU_LINK_EFA;
    if (dev->class_id >> 8 == 0x0207)
        return MU_LINK_IB;
    return dev->class_id >> 8 == 0x0200 ? MU_LINK_ETHERNET : MU_LINK_UNKNOWN;
}

static int add_nic(struct mu_hwloc_walk *w, int index, hwloc_obj_t os)
{
    const struct mu_place *place = mu_pci_place(w->machine, index);
    const struct mu_pci_dev *dev = &w->machine->dev[index];
    struct mu_nic *nic = mu_add_nic(w->machine, index, w->err);

    if (!nic)
        return -1;
    mu_copy(nic->name, sizeof nic->name, os->name);
    mu_copy(nic->busid, sizeof nic->busid, dev->busid);
    nic->numa = place->numa;
    nic->package = place->package;
    nic->layer = layer_of(dev, nic->name);
    mu_copy(nic->guid, sizeof nic->guid, mu_hwloc_info(os, "SysImageGUID"));
    /* A saved PortNState may be out of date, so the state is read from sysfs. */
    if (w->root)
        mu_sysfs_nic(w->root, nic);
    return 0;
}

/* OpenFabrics devices of the function; failing these, a Slingshot network interface
 * (hwloc has no class for cxi).
 */
static int add_nics(struct mu_hwloc_walk *w, int index, hwloc_obj_t obj)
{
    unsigned vendor = w->machine->dev[index].vendor;
    int found = 0;

    for (hwloc_obj_t os = obj->io_first_child; os; os = os->next_sibling)
        if (os->type == HWLOC_OBJ_OS_DEVICE && os->name &&
            mu_osdev_is(os, HWLOC_OBJ_OSDEV_OPENFABRICS)) {
            found++;
            if (add_nic(w, index, os) < 0)
                return -1;
        }
    for (hwloc_obj_t os = obj->io_first_child; !found && os; os = os->next_sibling)
        if (os->type == HWLOC_OBJ_OS_DEVICE && os->name &&
            mu_osdev_is(os, HWLOC_OBJ_OSDEV_NETWORK) &&
            (vendor == CRAY || strncmp(os->name, "hsn", 3) == 0 ||
             (vendor == HPE && strncmp(os->name, "hsi", 3) == 0))) {
            found++;
            if (add_nic(w, index, os) < 0)
                return -1;
        }
    return 0;
}

static int visit(struct mu_hwloc_walk *w, hwloc_obj_t obj, int parent);

static int visit_children(struct mu_hwloc_walk *w, hwloc_obj_t obj, int parent)
{
    for (hwloc_obj_t child = obj->io_first_child; child; child = child->next_sibling)
        if (visit(w, child, parent) < 0)
            return -1;
    return 0;
}

static int add_host(struct mu_hwloc_walk *w, hwloc_obj_t at)
{
    int place = mu_hwloc_add_place(w, at);
    struct mu_pci_dev *dev = place < 0 ? NULL : mu_add_pci(w->machine, w->err);

    if (!dev)
        return -1;
    dev->kind = MU_PCI_HOST;
    dev->place = place;
    return w->machine->ndevs - 1;
}

static int add_device(struct mu_hwloc_walk *w, hwloc_obj_t obj, int parent)
{
    const struct hwloc_pcidev_attr_s *pci = obj->type == HWLOC_OBJ_BRIDGE
                                                ? &obj->attr->bridge.upstream.pci
                                                : &obj->attr->pcidev;
    struct mu_pci_dev *dev = mu_add_pci(w->machine, w->err);

    if (!dev)
        return -1;
    dev->kind = obj->type == HWLOC_OBJ_BRIDGE ? MU_PCI_BRIDGE : MU_PCI_DEVICE;
    dev->parent = parent;
    mu_hwloc_busid(dev->busid, pci);
    dev->class_id = (unsigned)pci->class_id << 8;
    dev->vendor = pci->vendor_id;
    dev->device = pci->device_id;
    dev->subvendor = pci->subvendor_id;
    dev->subdevice = pci->subdevice_id;
    link_text(dev, pci->linkspeed);
    if (w->root)
        mu_sysfs_link(w->root, dev);
    return w->machine->ndevs - 1;
}

static int visit(struct mu_hwloc_walk *w, hwloc_obj_t obj, int parent)
{
    int index;

    if (obj->type == HWLOC_OBJ_BRIDGE &&
        obj->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) {
        index = add_host(w, obj);
        return index < 0 ? -1 : visit_children(w, obj, index);
    }
    if (obj->type != HWLOC_OBJ_BRIDGE && obj->type != HWLOC_OBJ_PCI_DEVICE)
        return 0;
    /* A PCI device right below a package or the machine: no host bridge was recorded.
     */
    if (parent < 0 && (parent = add_host(w, obj)) < 0)
        return -1;
    index = add_device(w, obj, parent);
    if (index < 0)
        return -1;
    if (obj->type == HWLOC_OBJ_BRIDGE)
        return visit_children(w, obj, index);
    if (mu_pci_is_gpu(w->machine->dev[index].class_id, w->machine->dev[index].vendor,
                      w->machine->dev[index].device) &&
        add_gpus(w, index, obj) < 0)
        return -1;
    return add_nics(w, index, obj);
}

/* Host bridges are below packages, NUMA groups, caches and the machine. */
static int visit_normal(struct mu_hwloc_walk *w, hwloc_obj_t obj)
{
    if (visit_children(w, obj, -1) < 0)
        return -1;
    for (unsigned i = 0; i < obj->arity; i++)
        if (visit_normal(w, obj->children[i]) < 0)
            return -1;
    return 0;
}

int mu_hwloc_devices(hwloc_topology_t topo, const char *root,
                     struct mu_machine *machine, struct mu_err *err)
{
    struct mu_hwloc_walk w = { topo, root, machine, err };

    if (visit_normal(&w, hwloc_get_root_obj(topo)) < 0 ||
        mu_pci_fill_paths(machine, err) < 0)
        return -1;
    machine->links_are_max = root != NULL;
    if (root && mu_sysfs_soft_nics(root, &machine->node) < 0)
        return mu_err_set(err, ENOMEM, "out of memory");
    if (root)
        mu_runtime_order(root, &machine->node);
    if (root && mu_sysfs_virtual(root))
        machine->node.virtual_machine = true;
    mu_hwloc_read_links(&w, "XGMIBandwidth");
    mu_hwloc_read_links(&w, "NVLinkBandwidth");
    return 0;
}
