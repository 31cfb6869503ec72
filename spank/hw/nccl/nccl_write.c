/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_write.c - an NCCL topology file from a machine.
 *
 * CPUs, PCI switches and the GPUs and NICs as bare leaves: no <gpu> and no <net>, which
 * NCCL adds for the devices that the job has. Switch ports are paired as NCCL pairs
 * them when it reads sysfs: a device's parent is the bridge two steps up.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/hw/nccl/nccl_dialect.h"
#include "spank/hw/nccl/nccl_write.h"

static void indent(struct mu_nccl_writer *w, int depth)
{
    fprintf(w->out, "%*s", 2 * depth, "");
    w->nodes++;
}

static bool is_leaf(const struct mu_machine *m, int dev)
{
    const struct mu_node *node = &m->node;

    if (m->dev[dev].kind != MU_PCI_DEVICE)
        return false;
    for (int i = 0; i < node->ngpus; i++)
        if (strcmp(node->gpus[i].busid, m->dev[dev].busid) == 0)
            return true;
    for (int i = 0; i < node->nnics; i++)
        if (strcmp(node->nics[i].busid, m->dev[dev].busid) == 0)
            return m->dev[dev].class_id >> 16 != 0x01; /* no disk, from a wrong file */
    return false;
}

/* The switches above a device as NCCL sees them, outermost first; returns how many. */
static int switches(const struct mu_machine *m, int dev, int *out)
{
    int chain[MU_NCCL_DEEPEST], n = 0, found = 0;

    for (int d = m->dev[dev].parent; d >= 0 && n < MU_NCCL_DEEPEST;
         d = m->dev[d].parent)
        if (m->dev[d].kind == MU_PCI_BRIDGE || m->dev[d].kind == MU_PCI_SWITCH)
            chain[n++] = d;
    for (int i = n - 1; i >= 0; i--)
        if (m->dev[chain[i]].kind == MU_PCI_SWITCH || i % 2 == 1)
            out[found++] = chain[i];
    return found;
}

static void put_pci(struct mu_nccl_writer *w, int dev, int depth)
{
    const struct mu_pci_dev *d = &w->m->dev[dev];

    indent(w, depth);
    fprintf(w->out, "<pci busid=\"%s\"", d->busid);
    if (d->class_id)
        fprintf(w->out, " class=\"0x%06x\"", d->class_id);
    if (d->vendor)
        fprintf(w->out,
                " vendor=\"0x%04x\" device=\"0x%04x\" subsystem_vendor=\"0x%04x\" "
                "subsystem_device=\"0x%04x\"",
                d->vendor, d->device, d->subvendor, d->subdevice);
    /* hwloc saves the current rate, which is low on an idle link. Without it NCCL reads
     * sysfs.
     */
    if (w->m->links_are_max && d->link_speed[0] && d->link_width > 0)
        fprintf(w->out, " link_speed=\"%s\" link_width=\"%d\"", d->link_speed,
                d->link_width);
}

static void put_leaf(struct mu_nccl_writer *w, int dev, int depth)
{
    put_pci(w, dev, depth);
    if (w->m->node.core_data) /* an NCCL file has nothing to add */
        mu_nccl_put_leaf_notes(w, dev);
    fputs("/>\n", w->out);
}

/* All leaves of one <cpu>, those behind one switch together. leaf[] is in tree order,
 * so equal switches are neighbours.
 */
static void put_leaves(struct mu_nccl_writer *w, const int *leaf, int n)
{
    int open[MU_NCCL_DEEPEST], nopen = 0, path[MU_NCCL_DEEPEST];

    for (int i = 0; i <= n; i++) {
        int len = i < n ? switches(w->m, leaf[i], path) : 0, same = 0;

        while (same < len && same < nopen && open[same] == path[same])
            same++;
        for (; nopen > same; nopen--)
            fprintf(w->out, "%*s</pci>\n", 2 * (nopen + 1), "");
        for (; nopen < len; nopen++) {
            put_pci(w, path[nopen], nopen + 2);
            fputs(">\n", w->out);
            open[nopen] = path[nopen];
        }
        if (i < n)
            put_leaf(w, leaf[i], nopen + 2);
    }
}

static const char *nccl_arch(const char *arch)
{
    if (strcmp(arch, "aarch64") == 0)
        return "arm64";
    return strncmp(arch, "ppc64", 5) == 0 ? "ppc64" : arch;
}

/* One <cpu>; numa -1: cores and devices without a NUMA node. */
static void put_cpu(struct mu_nccl_writer *w, int numa, const int *leaf, int n,
                    const bool *written)
{
    const struct mu_machine *m = w->m;
    struct mu_cpuset affinity;
    char mask[8192];

    if (numa >= 0)
        affinity = m->node.numas[numa].cpus;
    else
        mu_nccl_usable_cpus(&m->node, -1, &affinity);
    indent(w, 1);
    fprintf(w->out, "<cpu numaid=\"%d\"", numa < 0 ? -1 : m->node.numas[numa].os_index);
    mu_cpuset_format_mask(&affinity, mask, sizeof mask);
    if (strlen(mask) <= MU_NCCL_STRING_MAX &&
        (numa >= 0 || !mu_cpuset_empty(&affinity)))
        fprintf(w->out, " affinity=\"%s\"", mask);
    if (m->arch[0])
        fprintf(w->out, " arch=\"%s\"", nccl_arch(m->arch));
    if (m->cpu_vendor[0])
        fprintf(w->out, " vendor=\"%s\"", m->cpu_vendor);
    if (m->cpu_family >= 0 && m->cpu_model >= 0)
        fprintf(w->out, " familyid=\"%d\" modelid=\"%d\"", m->cpu_family, m->cpu_model);
    mu_nccl_put_cpu_notes(w, numa, &affinity, written);
    fputs(n > 0 ? ">\n" : "/>\n", w->out);
    if (n == 0)
        return;
    put_leaves(w, leaf, n);
    fputs("  </cpu>\n", w->out);
}

static int write_cpus(struct mu_nccl_writer *w, int *leaf, bool *written)
{
    const struct mu_machine *m = w->m;
    struct mu_cpuset stray;
    int n;

    for (int i = 0; i < m->node.nnumas; i++) {
        written[i] = !mu_cpuset_empty(&m->node.numas[i].cpus);
        for (int d = 0; d < m->ndevs; d++)
            written[i] |= is_leaf(m, d) && mu_pci_place(m, d)->numa == i;
    }
    for (int i = 0; i < m->node.nnumas; i++) {
        n = 0;
        for (int d = 0; d < m->ndevs; d++)
            if (is_leaf(m, d) && mu_pci_place(m, d)->numa == i)
                leaf[n++] = d;
        if (written[i])
            put_cpu(w, i, leaf, n, written);
    }
    n = 0;
    for (int d = 0; d < m->ndevs; d++)
        if (is_leaf(m, d) && mu_pci_place(m, d)->numa < 0)
            leaf[n++] = d;
    mu_nccl_usable_cpus(&m->node, -1, &stray);
    if (n > 0 || !mu_cpuset_empty(&stray))
        put_cpu(w, -1, leaf, n, written);
    return 0;
}

int mu_nccl_write(FILE *out, const struct mu_machine *machine, struct mu_err *err)
{
    struct mu_nccl_writer w = { out, machine, 1, err };
    int *leaf;
    bool *written;
    int rc;

    if (machine->ndevs == 0 && machine->node.ngpus > 0)
        return mu_err_set(err, EINVAL,
                          "%s has no PCI addresses: write the NCCL topology file from "
                          "an hwloc XML or on the node itself",
                          machine->node.source);
    if (machine->node.ncores + machine->node.ngpus + machine->node.nnics == 0)
        return mu_err_set(
            err, EINVAL,
            "%s has neither CPUs nor classes of devices: there is nothing to write",
            machine->node.source);
    leaf = calloc((size_t)machine->ndevs + 1, sizeof *leaf);
    written = calloc((size_t)machine->node.nnumas + 1, sizeof *written);
    if (leaf && written) {
        fputs("<system version=\"1\">\n", out);
        rc = write_cpus(&w, leaf, written);
        fputs("</system>\n", out);
    } else {
        rc = mu_err_set(err, ENOMEM, "no memory for %d PCI devices", machine->ndevs);
    }
    if (rc == 0 && w.nodes > MU_NCCL_NODES_MAX)
        rc = mu_err_set(err, EINVAL,
                        "the machine needs %d elements; NCCL reads files of at most %d",
                        w.nodes, MU_NCCL_NODES_MAX);
    free(leaf);
    free(written);
    return rc;
}
