/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_compare.c - an NCCL topology file against the machine it is meant for */
#include <stdlib.h>
#include <string.h>

#include "spank/hw/nccl/nccl_check.h"

static const char *whose(const struct mu_check *c)
{
    return c->here ? "this node" : "the machine";
}

static int numa_index(const struct mu_node *node, int os_index)
{
    for (int i = 0; i < node->nnumas; i++)
        if (node->numas[i].os_index == os_index)
            return i;
    return -1;
}

static void compare_mask(struct mu_check *c, const struct mu_check_cpu *cpu)
{
    const struct mu_node *node = &c->machine->node;
    int index = numa_index(node, cpu->numaid), other = -1;
    char file[256], machine[256];

    if (cpu->numaid < 0)
        return;
    if (index < 0) {
        mu_check_at(c, MU_NCCL_ERROR, cpu->elem, "%s has no NUMA node %d", whose(c),
                    cpu->numaid);
        return;
    }
    if (!cpu->has_mask || mu_cpuset_equal(&cpu->mask, &node->numas[index].cpus))
        return;
    for (int i = 0; i < node->nnumas; i++)
        if (mu_cpuset_equal(&cpu->mask, &node->numas[i].cpus))
            other = node->numas[i].os_index;
    mu_check_list(&cpu->mask, file);
    mu_check_list(&node->numas[index].cpus, machine);
    if (other >= 0)
        mu_check_at(c, MU_NCCL_ERROR, cpu->elem,
                    "numaid %d has CPUs %s, which belong to NUMA node %d: masks or "
                    "numaids are exchanged (node %d has %s)",
                    cpu->numaid, file, other, cpu->numaid, machine);
    else
        mu_check_at(c, MU_NCCL_ERROR, cpu->elem,
                    "numaid %d has CPUs %s; NUMA node %d of %s has %s", cpu->numaid,
                    file, cpu->numaid, whose(c), machine);
}

static int gpu_named(const struct mu_node *node, const char *busid)
{
    for (int i = 0; i < node->ngpus; i++)
        if (strcmp(node->gpus[i].busid, busid) == 0)
            return i;
    return -1;
}

static int nic_named(const struct mu_node *node, const char *busid)
{
    for (int i = 0; i < node->nnics; i++)
        if (strcmp(node->nics[i].busid, busid) == 0)
            return i;
    return -1;
}

static void compare_numa(struct mu_check *c, int elem, const char *busid, int numa)
{
    int cpu = mu_check_cpu_of(c, elem), os;

    if (cpu < 0 || c->cpu[cpu].numaid < 0 || numa < 0)
        return;
    os = c->machine->node.numas[numa].os_index;
    if (os != c->cpu[cpu].numaid)
        mu_check_at(c, MU_NCCL_ERROR, elem,
                    "%s is under numaid %d; on %s it is at NUMA node %d", busid,
                    c->cpu[cpu].numaid, whose(c), os);
}

/* A link rate in the file that is below the card's own: NCCL would use it. */
static void compare_link(struct mu_check *c, int elem, const char *busid)
{
    int dev = mu_pci_find(c->machine, busid);
    char speed[64];
    double file, card;

    if (dev < 0 || !c->machine->links_are_max || !c->machine->dev[dev].link_speed[0] ||
        !mu_xml_elem_attr(c->doc, elem, "link_speed", speed, sizeof speed))
        return;
    file = strtod(speed, NULL);
    card = strtod(c->machine->dev[dev].link_speed, NULL);
    if (file > 0 && card > 0 && file < card * 0.99)
        mu_check_at(c, MU_NCCL_WARNING, elem,
                    "link_speed %g GT/s of %s is less than the card's %g GT/s", file,
                    busid, card);
}

static void compare_device(struct mu_check *c, int elem, enum mu_check_pci kind,
                           int *missing)
{
    const struct mu_node *node = &c->machine->node;
    char busid[64];
    int found;

    mu_xml_elem_attr(c->doc, elem, "busid", busid, sizeof busid);
    compare_link(c, elem, busid);
    found = kind == MU_CHECK_GPU ? gpu_named(node, busid) : nic_named(node, busid);
    if (found < 0) {
        mu_check_at(c, MU_NCCL_ERROR, elem, "%s has no %s %s", whose(c),
                    kind == MU_CHECK_GPU ? "GPU" : "NIC", busid);
        ++*missing;
        return;
    }
    if (kind == MU_CHECK_GPU && node->gpus[found].local_known)
        compare_numa(c, elem, busid, node->gpus[found].numa);
    if (kind == MU_CHECK_NIC)
        compare_numa(c, elem, busid, node->nics[found].numa);
}

static void compare_sizes(struct mu_check *c, int gpus, int missing)
{
    const struct mu_node *node = &c->machine->node;
    int own = 0;

    for (int i = 0; i < node->ngpus; i++) {
        if (node->gpus[i].sub > 0)
            continue;
        own++;
        if (mu_check_pci_with(c, node->gpus[i].busid) < 0)
            mu_check_report(c, MU_NCCL_WARNING, 0,
                            "GPU %s of %s is not in the file: NCCL places it by sysfs",
                            node->gpus[i].busid, whose(c));
    }
    if (gpus > 0 && gpus != own)
        mu_check_at(c, MU_NCCL_ERROR, 0,
                    "made for another size of machine: %d GPU%s in the file, %d on %s",
                    gpus, mu_plural(gpus), own, whose(c));
    else if (gpus > 0 && missing == gpus)
        mu_check_at(c, MU_NCCL_ERROR, 0,
                    "made for another machine: none of its devices is on %s", whose(c));
}

void mu_check_compare(struct mu_check *c)
{
    const struct mu_node *node = &c->machine->node;
    int gpus = 0, missing = 0, with_cpus = 0;

    for (int i = 0; i < c->ncpus; i++)
        if (node->nnumas > 0)
            compare_mask(c, &c->cpu[i]);
    if (c->machine->ndevs == 0) {
        mu_check_report(c, MU_NCCL_HINT, 0,
                        "%s has no PCI addresses: only CPUs were compared",
                        node->source);
        return;
    }
    for (int e = 0; e < c->doc->nelems; e++) {
        enum mu_check_pci kind;

        if (!mu_xml_elem_is(c->doc, e, "pci"))
            continue;
        kind = mu_check_kind(c, e);
        gpus += kind == MU_CHECK_GPU;
        if (kind == MU_CHECK_GPU || kind == MU_CHECK_NIC)
            compare_device(c, e, kind, &missing);
    }
    compare_sizes(c, gpus, missing);
    for (int i = 0; i < node->nnumas; i++)
        with_cpus += !mu_cpuset_empty(&node->numas[i].cpus);
    if (with_cpus == 1)
        mu_check_report(
            c, MU_NCCL_HINT, 0,
            "%s has one NUMA node: NCCL needs no topology file for CPUs there",
            whose(c));
}
