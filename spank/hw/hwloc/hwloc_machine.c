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

/* By hwloc's subtype: a node that is not ordinary memory. */
static bool special_memory(hwloc_obj_t obj)
{
    static const char *const words[] = { "HBM", "NVM",    "GPUMemory", "SPM",
                                         "CXL", "MCDRAM", "DAX",       NULL };

    for (int i = 0; obj->subtype && words[i]; i++)
        if (strncmp(obj->subtype, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

static int package_of(hwloc_obj_t obj)
{
    for (; obj; obj = obj->parent)
        if (obj->type == HWLOC_OBJ_PACKAGE)
            return obj->os_index == HWLOC_UNKNOWN_INDEX ? (int)obj->logical_index
                                                        : (int)obj->os_index;
    return -1;
}

/* In a saved topology, nodes without CPUs list the CPUs near them. A CPU belongs to the
 * node that lists the fewest CPUs. Among equals, ordinary memory wins, then the lowest
 * number, since kernels number nodes with CPUs first.
 */
static bool better_owner(hwloc_obj_t a, hwloc_obj_t b, bool complete)
{
    int wa = hwloc_bitmap_weight(complete ? a->complete_cpuset : a->cpuset);
    int wb = hwloc_bitmap_weight(complete ? b->complete_cpuset : b->cpuset);

    if (wa != wb)
        return wa < wb;
    if (special_memory(a) != special_memory(b))
        return special_memory(b);
    return a->os_index < b->os_index;
}

/* complete: with the CPUs that this system has, but that were not allowed where the
 * topology was saved.
 */
static void own_cpus(hwloc_topology_t topo, hwloc_obj_t obj, bool complete,
                     struct mu_cpuset *out)
{
    mu_hwloc_set(complete ? obj->complete_cpuset : obj->cpuset, out);
    for (hwloc_obj_t other = NULL;
         (other = hwloc_get_next_obj_by_type(topo, HWLOC_OBJ_NUMANODE, other));) {
        struct mu_cpuset theirs;

        if (other == obj || !better_owner(other, obj, complete))
            continue;
        mu_hwloc_set(complete ? other->complete_cpuset : other->cpuset, &theirs);
        mu_cpuset_andnot(out, &theirs);
    }
}

static int by_os_index(const void *a, const void *b)
{
    const struct mu_numa *x = a, *y = b;

    return (x->os_index > y->os_index) - (x->os_index < y->os_index);
}

/* No memory anywhere: it was not recorded (a topology from CPUID alone, say). */
static void forget_no_memory(struct mu_node *node)
{
    uint64_t total = 0;

    for (int i = 0; i < node->nnumas; i++)
        total |= node->numas[i].memory;
    for (int i = 0; total == 0 && i < node->nnumas; i++)
        node->numas[i].memory = UINT64_MAX;
}

static int read_numas(hwloc_topology_t topo, const char *root, struct mu_node *node,
                      struct mu_err *err)
{
    struct mu_cpuset online, complete;

    mu_hwloc_set(hwloc_topology_get_topology_cpuset(topo), &online);
    for (hwloc_obj_t obj = NULL;
         (obj = hwloc_get_next_obj_by_type(topo, HWLOC_OBJ_NUMANODE, obj));) {
        struct mu_numa *numa = mu_add_numa(node, err);

        if (!numa)
            return -1;
        numa->os_index = (int)obj->os_index;
        numa->memory = obj->attr->numanode.local_memory;
        numa->package = package_of(obj);
        numa->gpu_memory = obj->subtype && strcmp(obj->subtype, "GPUMemory") == 0;
        if (!root || !mu_sysfs_node_cpus(root, numa->os_index, &numa->cpus))
            own_cpus(topo, obj, false, &numa->cpus);
        own_cpus(topo, obj, true, &complete);
        mu_cpuset_and(&numa->cpus, &online);
        numa->cpus_elsewhere =
            mu_cpuset_empty(&numa->cpus) && !mu_cpuset_empty(&complete);
    }
    forget_no_memory(node);
    /* Before mu_machine_finish sorts them: distances are read in this order. */
    if (node->nnumas > 1)
        qsort(node->numas, (size_t)node->nnumas, sizeof *node->numas, by_os_index);
    return 0;
}

static int numa_of_cpu(const struct mu_node *node, int cpu)
{
    for (int i = 0; i < node->nnumas; i++)
        if (mu_cpuset_has(&node->numas[i].cpus, cpu))
            return i;
    return -1;
}

/* The outermost cache around the core that several cores may share and that lies inside
 * its NUMA node.
 */
static int cache_of(hwloc_obj_t obj, const struct mu_cpuset *numa_cpus)
{
    int found = -1;

    for (; obj; obj = obj->parent) {
        struct mu_cpuset set;

        if (obj->type != HWLOC_OBJ_L3CACHE && obj->type != HWLOC_OBJ_L2CACHE &&
            obj->type != HWLOC_OBJ_L4CACHE && obj->type != HWLOC_OBJ_L5CACHE)
            continue;
        mu_hwloc_set(obj->cpuset, &set);
        if (mu_cpuset_inside(&set, numa_cpus))
            found = (int)obj->type * MU_CPUSET_MAX + (int)obj->logical_index;
    }
    return found;
}

static int add_core(struct mu_node *node, hwloc_obj_t obj,
                    const struct mu_cpuset *usable, struct mu_err *err)
{
    struct mu_cpuset set;
    struct mu_core *core;

    mu_hwloc_set(obj->cpuset, &set);
    mu_cpuset_and(&set, usable);
    if (mu_cpuset_empty(&set))
        return 0;
    if (mu_cpuset_count(&set) > MU_CORE_CPUS)
        return mu_err_set(err, EINVAL, "core %u has %d hardware threads, more than %d",
                          obj->logical_index, mu_cpuset_count(&set), MU_CORE_CPUS);
    core = mu_add_core(node, err);
    if (!core)
        return -1;
    for (int cpu = -1; (cpu = mu_cpuset_next(&set, cpu)) >= 0;)
        core->cpu[core->ncpus++] = cpu;
    core->numa = numa_of_cpu(node, core->cpu[0]);
    core->package = package_of(obj);
    if (core->numa >= 0)
        core->cache = cache_of(obj->parent, &node->numas[core->numa].cpus);
    return 0;
}

/* A NUMA node above its package (hwloc 1, or one node for several packages): the
 * package is that of its cores, when they have one.
 */
static void numa_packages(struct mu_node *node)
{
    for (int n = 0; n < node->nnumas; n++) {
        int package = -1;

        if (node->numas[n].package >= 0)
            continue;
        for (int i = 0; i < node->ncores; i++) {
            if (node->cores[i].numa != n)
                continue;
            if (package >= 0 && node->cores[i].package != package) {
                package = -1;
                break;
            }
            package = node->cores[i].package;
        }
        node->numas[n].package = package;
    }
}

static int read_cores(hwloc_topology_t topo, const char *root, struct mu_node *node,
                      struct mu_err *err)
{
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    struct mu_cpuset usable, isolated;

    mu_hwloc_set(hwloc_topology_get_allowed_cpuset(topo), &usable);
    if (root) {
        mu_sysfs_isolated(root, &isolated);
        /* If all CPUs are isolated, all are used. */
        if (!mu_cpuset_inside(&usable, &isolated))
            mu_cpuset_andnot(&usable, &isolated);
    }
    node->core_data = hwloc_get_nbobjs_by_type(topo, HWLOC_OBJ_CORE) > 0;
    if (!node->core_data)
        type = HWLOC_OBJ_PU;
    for (hwloc_obj_t obj = NULL; (obj = hwloc_get_next_obj_by_type(topo, type, obj));)
        if (add_core(node, obj, &usable, err) < 0)
            return -1;
    if (node->ncores == 0)
        return mu_err_set(err, EINVAL, "no CPU can be used");
    numa_packages(node);
    return 0;
}

static int read_distances(hwloc_topology_t topo, struct mu_node *node,
                          struct mu_err *err)
{
    struct hwloc_distances_s *dist = NULL;
    unsigned n = 1;

    if (hwloc_distances_get_by_name(topo, "NUMALatency", &n, &dist, 0) < 0 || n == 0 ||
        !dist)
        return 0;
    node->numa_distance = calloc((size_t)node->nnumas * (size_t)node->nnumas + 1,
                                 sizeof *node->numa_distance);
    if (!node->numa_distance) {
        hwloc_distances_release(topo, dist);
        return mu_err_set(err, ENOMEM, "no memory for %d NUMA nodes", node->nnumas);
    }
    for (int i = 0; i < node->nnumas * node->nnumas; i++)
        node->numa_distance[i] = i / node->nnumas == i % node->nnumas ? 10 : 20;
    for (unsigned i = 0; i < dist->nbobjs; i++)
        for (unsigned j = 0; j < dist->nbobjs; j++) {
            int a = -1, b = -1;
            hwloc_uint64_t value = dist->values[i * dist->nbobjs + j];

            for (int k = 0; k < node->nnumas && dist->objs[i] && dist->objs[j]; k++) {
                if (node->numas[k].os_index == (int)dist->objs[i]->os_index)
                    a = k;
                if (node->numas[k].os_index == (int)dist->objs[j]->os_index)
                    b = k;
            }
            if (a >= 0 && b >= 0 && value > 0 && value < 100000)
                node->numa_distance[a * node->nnumas + b] = (int)value;
        }
    hwloc_distances_release(topo, dist);
    return 0;
}

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
    if (read_numas(topo, root, &machine->node, err) < 0 ||
        read_cores(topo, root, &machine->node, err) < 0 ||
        read_distances(topo, &machine->node, err) < 0 ||
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
