/* SPDX-License-Identifier: BSD-3-Clause */
/* hwloc_cpus.c - the NUMA nodes, cores and NUMA distances of a hwloc topology */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "spank/hw/hwloc/hwloc_reader.h"
#include "spank/hw/machine/sysfs.h"

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

int mu_hwloc_read_numas(hwloc_topology_t topo, const char *root, struct mu_node *node,
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

int mu_hwloc_read_cores(hwloc_topology_t topo, const char *root, struct mu_node *node,
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

int mu_hwloc_read_distances(hwloc_topology_t topo, struct mu_node *node,
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
