/* SPDX-License-Identifier: BSD-3-Clause */
/* hwloc_machine.c - a machine from hwloc: live, or from the XML that lstopo saves.
 *
 * hwloc's GPU back ends (CUDA, NVML, OpenCL, ROCm, Level Zero) are switched off: they
 * start drivers, which a plugin must not do. GPUs are found by their PCI ids.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/hwloc/hwloc_reader.h"
#include "spank/hw/machine/sysfs.h"
#include "spank/hw/io/xml.h"

static void read_processor(hwloc_topology_t topo, struct mu_machine *machine)
{
    hwloc_obj_t top = hwloc_get_root_obj(topo);
    hwloc_obj_t package = hwloc_get_obj_by_type(topo, HWLOC_OBJ_PACKAGE, 0);
    hwloc_obj_t from[] = { package ? package : top, top };
    static const char *const guests[] = { "QEMU",
                                          "KVM",
                                          "VMware",
                                          "Virtual Machine",
                                          "VirtualBox",
                                          "Xen",
                                          "Google Compute Engine",
                                          "OpenStack",
                                          NULL };
    long n;

    mu_copy(machine->arch, sizeof machine->arch, mu_hwloc_info(top, "Architecture"));
    machine->cpu_family = machine->cpu_model = -1;
    for (int i = 0; i < 2; i++) {
        if (!machine->cpu_vendor[0])
            mu_copy(machine->cpu_vendor, sizeof machine->cpu_vendor,
                    mu_hwloc_info(from[i], "CPUVendor"));
        if (mu_parse_int("", mu_hwloc_info(from[i], "CPUFamilyNumber"), 0, 4095, &n,
                         NULL) == 0)
            machine->cpu_family = (int)n;
        if (mu_parse_int("", mu_hwloc_info(from[i], "CPUModelNumber"), 0, 4095, &n,
                         NULL) == 0)
            machine->cpu_model = (int)n;
    }
    mu_copy(machine->node.host, sizeof machine->node.host,
            mu_hwloc_info(top, "HostName"));
    for (int i = 0; guests[i]; i++)
        if (strstr(mu_hwloc_info(top, "DMIProductName"), guests[i]) ||
            strstr(mu_hwloc_info(top, "DMISysVendor"), guests[i]))
            machine->node.virtual_machine = true;
}

/* Mark the NUMA nodes that are the memory of a GPU. Older kernels and hwloc give one
 * sign only: a node without CPUs, on one of the two architectures that have such
 * memory.
 */
static void mark_gpu_memory(struct mu_machine *machine, const char *root)
{
    struct mu_node *node = &machine->node;
    bool coherent = strncmp(machine->arch, "ppc64", 5) == 0 ||
                    strcmp(machine->arch, "aarch64") == 0;

    for (int g = 0; g < node->ngpus; g++) {
        int own = root ? mu_sysfs_nvidia_numa(root, node->gpus[g].busid) : -1;

        for (int i = 0; i < node->nnumas; i++)
            if (node->gpus[g].vendor == MU_VENDOR_NVIDIA &&
                mu_cpuset_empty(&node->numas[i].cpus) &&
                (node->numas[i].os_index == own || coherent))
                node->numas[i].gpu_memory = true;
    }
}

static int fill(hwloc_topology_t topo, const char *root, struct mu_machine *machine,
                struct mu_err *err)
{
    read_processor(topo, machine);
    if (mu_hwloc_read_numas(topo, root, &machine->node, err) < 0 ||
        mu_hwloc_read_cores(topo, root, &machine->node, err) < 0 ||
        mu_hwloc_read_distances(topo, &machine->node, err) < 0 ||
        mu_hwloc_devices(topo, root, machine, err) < 0)
        return -1;
    mark_gpu_memory(machine, root);
    return mu_machine_finish(machine, err);
}

static int open_topology(hwloc_topology_t *topo, struct mu_err *err)
{
    static const char *const drivers[] = { "cuda", "nvml",      "opencl",
                                           "rsmi", "levelzero", "gl" };

    if (hwloc_topology_init(topo) < 0)
        return mu_err_set(err, errno ? errno : ENOMEM, "hwloc_topology_init failed");
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        hwloc_topology_set_components(*topo, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      drivers[i]);
    /* The whole machine is read, so that GPU locality survives a small cpuset; CPUs
     * that may not be used are removed from the cores afterwards.
     */
    hwloc_topology_set_flags(*topo, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_io_types_filter(*topo, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    hwloc_topology_set_type_filter(*topo, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    return 0;
}

void *mu_hwloc_hold(void)
{
    hwloc_topology_t topo;

    return hwloc_topology_init(&topo) < 0 ? NULL : topo;
}

void mu_hwloc_release(void *held)
{
    if (held)
        hwloc_topology_destroy(held);
}

int mu_read_hwloc_live(struct mu_machine *machine, struct mu_err *err)
{
    const char *root = getenv("HWLOC_FSROOT");
    hwloc_topology_t topo;
    int rc;

    if (open_topology(&topo, err) < 0)
        return -1;
    if (hwloc_topology_load(topo) < 0) {
        rc = mu_err_set(err, errno ? errno : EIO, "hwloc cannot read this machine");
        goto out;
    }
    mu_copy(machine->node.source, sizeof machine->node.source, "this node");
    /* With HWLOC_XMLFILE or HWLOC_SYNTHETIC, /sys describes another machine. */
    if (!root)
        root = hwloc_topology_is_thissystem(topo) ? "" : NULL;
    rc = fill(topo, root, machine, err);
out:
    hwloc_topology_destroy(topo);
    if (rc < 0)
        mu_machine_clear(machine);
    return rc;
}

/* libxml2 stops at a comment or text between two objects, and hwloc then drops the rest
 * without an error. So compare the number of devices in the text with the loaded ones.
 */
static int check_complete(const char *name, const struct mu_xml_count *in_text,
                          hwloc_topology_t topo, struct mu_err *err)
{
    int loaded = 0;

    for (hwloc_obj_t obj = NULL; (obj = hwloc_get_next_pcidev(topo, obj));)
        loaded++;
    if (loaded >= in_text->pci_devices)
        return 0;
    return mu_err_set(
        err, EINVAL,
        "%s: hwloc dropped %d of its %d PCI device%s without an error; line "
        "%d has a comment or text between objects: remove it, or save the machine "
        "again with lstopo",
        name, in_text->pci_devices - loaded, in_text->pci_devices,
        mu_plural(in_text->pci_devices), in_text->odd_line);
}

/* A copy from the first tag to the end of the last: hwloc accepts no blank line before
 * the topology, and no text after it. The caller frees it.
 */
static char *only_topology(const char *text, size_t len)
{
    static const char last[] = "</topology>";
    const size_t n = sizeof last - 1;
    const char *start = memchr(text, '<', len), *end = text + len;

    while (start && end > start + n && memcmp(end - n, last, n) != 0)
        end--;
    return start ? strndup(start, (size_t)(end - start)) : NULL;
}

static int cannot_read(const char *name, const struct mu_xml_count *count,
                       struct mu_err *err)
{
    unsigned api = hwloc_get_api_version();

    return mu_err_set(
        err, EINVAL,
        "%s: line %d: hwloc (API %u.%u) cannot read this topology (format version "
        "%s); %s",
        name, count->topology_line, api >> 16, (api >> 8) & 255,
        count->version[0] ? count->version : "1",
        count->version[0] == '3' && api < 0x30000
            ? "lstopo of hwloc 2.12 or newer converts it"
            : "save it again on the machine with lstopo FILE.xml");
}

int mu_read_hwloc_xml(const char *name, const char *text, size_t len,
                      struct mu_machine *machine, struct mu_err *err)
{
    struct mu_xml_count count;
    hwloc_topology_t topo;
    char *xml;
    int rc;

    if (mu_xml_count_hwloc(name, text, len, &count, err) < 0)
        return -1;
    if (len >= INT32_MAX)
        return mu_err_set(err, EFBIG, "%s: larger than 2 GiB", name);
    if (open_topology(&topo, err) < 0)
        return -1;
    hwloc_topology_set_io_types_filter(topo, HWLOC_TYPE_FILTER_KEEP_ALL);
    xml = only_topology(text, len);
    if (!xml || hwloc_topology_set_xmlbuffer(topo, xml, (int)strlen(xml) + 1) < 0 ||
        hwloc_topology_load(topo) < 0) {
        rc = cannot_read(name, &count, err);
        goto out;
    }
    mu_copy(machine->node.source, sizeof machine->node.source, "hwloc xml");
    rc = check_complete(name, &count, topo, err);
    if (rc == 0 && fill(topo, NULL, machine, err) < 0)
        rc = mu_err_context(err, "%s", name);
out:
    hwloc_topology_destroy(topo);
    free(xml);
    if (rc < 0)
        mu_machine_clear(machine);
    return rc;
}
