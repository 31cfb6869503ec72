/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_write.c - an NCCL topology file from a machine.
 *
 * CPUs, PCI switches and the GPUs and NICs as bare leaves: no <gpu> and no <net>, which
 * NCCL adds for the devices that the job has. Switch ports are paired as NCCL pairs
 * them when it reads sysfs: a device's parent is the bridge two steps up.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/hw/machine/cpulist.h"
#include "spank/hw/machine/machine.h"
#include "spank/hw/nccl/nccl_dialect.h"

#define DEEPEST 64

struct writer {
    FILE *out;
    const struct mu_machine *m;
    int nodes; /* elements written: NCCL reads at most 256 */
    struct mu_err *err;
};

/* Text of a muster="..." attribute; left out where it is too long for NCCL. */
struct notes {
    char text[4096];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void note(struct notes *n, const char *fmt,
                                                       ...)
{
    va_list ap;
    int len;

    if (n->used >= sizeof n->text - 2)
        return;
    if (n->used > 0)
        n->text[n->used++] = ';';
    va_start(ap, fmt);
    len = vsnprintf(n->text + n->used, sizeof n->text - n->used, fmt, ap);
    va_end(ap);
    n->used += len > 0 ? (size_t)len : 0;
}

static void put_notes(struct writer *w, const struct notes *n)
{
    if (n->used > 0 && n->used <= MU_NCCL_STRING_MAX)
        fprintf(w->out, " muster=\"%s\"", n->text);
}

static void indent(struct writer *w, int depth)
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
    int chain[DEEPEST], n = 0, found = 0;

    for (int d = m->dev[dev].parent; d >= 0 && n < DEEPEST; d = m->dev[d].parent)
        if (m->dev[d].kind == MU_PCI_BRIDGE || m->dev[d].kind == MU_PCI_SWITCH)
            chain[n++] = d;
    for (int i = n - 1; i >= 0; i--)
        if (m->dev[chain[i]].kind == MU_PCI_SWITCH || i % 2 == 1)
            out[found++] = chain[i];
    return found;
}

static void put_pci(struct writer *w, int dev, int depth)
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

static void leaf_notes(struct writer *w, int dev)
{
    const struct mu_machine *m = w->m;
    const struct mu_node *node = &m->node;
    const struct mu_place *place = mu_pci_place(m, dev);
    int host = dev, chain[DEEPEST], above = 0, parts = 0;
    struct notes notes = { .used = 0 };
    char text[8192] = "";
    size_t used = 0;

    for (; m->dev[host].parent >= 0; host = m->dev[host].parent)
        if (m->dev[host].kind == MU_PCI_BRIDGE && above < DEEPEST)
            chain[above++] = host;
    note(&notes, "host=%d", host);
    for (int i = above - 1; i >= 0 && used < sizeof text; i--)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                 used ? "/" : "", m->dev[chain[i]].busid);
    if (used)
        note(&notes, "up=%s", text);
    if (!place->known) {
        note(&notes, "known=0");
    } else if (place->numa < 0) {
        note(&notes, "known=1");
        if (place->package >= 0)
            note(&notes, "package=%d", place->package);
    }
    if (place->known &&
        (place->numa < 0 ||
         !mu_cpuset_equal(&place->local, &node->numas[place->numa].cpus))) {
        mu_cpuset_format(&place->local, text, sizeof text);
        note(&notes, "local=%s", text);
    }
    text[0] = '\0';
    used = 0;
    for (int i = 0; i < node->nnics; i++)
        if (strcmp(node->nics[i].busid, m->dev[dev].busid) == 0 && used < sizeof text &&
            node->nics[i].name[0])
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                     used ? "," : "", node->nics[i].name);
    if (used)
        note(&notes, "nics=%s", text);
    for (int i = 0; i < node->ngpus; i++)
        parts += strcmp(node->gpus[i].busid, m->dev[dev].busid) == 0;
    if (parts > 1)
        note(&notes, "parts=%d", parts);
    put_notes(w, &notes);
}

static void put_leaf(struct writer *w, int dev, int depth)
{
    put_pci(w, dev, depth);
    if (w->m->node.core_data) /* an NCCL file has nothing to add */
        leaf_notes(w, dev);
    fputs("/>\n", w->out);
}

/* All leaves of one <cpu>, those behind one switch together. leaf[] is in tree order,
 * so equal switches are neighbours.
 */
static void put_leaves(struct writer *w, const int *leaf, int n)
{
    int open[DEEPEST], nopen = 0, path[DEEPEST];

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

/* Whether threads and stride describe exactly which CPUs form each core; both are those
 * of the first core with the most threads.
 */
static bool strided(const struct mu_node *node, int numa, int *threads, int *stride,
                    const struct mu_cpuset *cpus)
{
    struct mu_node copy = { .ncores = 0 };
    bool same = true;
    int k = 0;

    *threads = *stride = 1;
    for (int i = 0; i < node->ncores; i++)
        if (node->cores[i].numa == numa && node->cores[i].ncpus > *threads) {
            *threads = node->cores[i].ncpus;
            *stride = node->cores[i].cpu[1] - node->cores[i].cpu[0];
        }
    if (mu_cores_add_strided(&copy, cpus, *threads, *stride, numa, -1, NULL) < 0)
        same = false;
    for (int i = 0; i < node->ncores && same; i++) {
        const struct mu_core *core = &node->cores[i];

        if (core->numa != numa)
            continue;
        same = k < copy.ncores && core->ncpus == copy.cores[k].ncpus &&
               memcmp(core->cpu, copy.cores[k].cpu,
                      sizeof core->cpu[0] * (size_t)core->ncpus) == 0;
        k++;
    }
    mu_node_clear(&copy);
    return same;
}

/* Cores per cache where this number is enough (equal groups of neighbours); 0
 * otherwise.
 */
static int cores_per_cache(const struct mu_node *node, int numa)
{
    int n = 0, run = 0, per = 0, last = -2, groups = 0;

    for (int i = 0; i < node->ncores; i++) {
        if (node->cores[i].numa != numa)
            continue;
        if (node->cores[i].cache < 0 || node->cores[i].cache < last)
            return 0;
        if (node->cores[i].cache != last) {
            if (groups == 1)
                per = run;
            if (groups > 0 && run != per)
                return 0;
            groups++;
            run = 0;
            last = node->cores[i].cache;
        }
        run++;
        n++;
    }
    if (groups <= 1)
        return n;
    return run <= per && n <= per * groups ? per : 0;
}

static void note_cores(struct notes *notes, const struct mu_node *node, int numa)
{
    char text[4096] = "";
    size_t used = 0;

    for (int i = 0; i < node->ncores; i++)
        for (int c = 0; node->cores[i].numa == numa && c < node->cores[i].ncpus; c++)
            if (used < sizeof text)
                used += (size_t)snprintf(text + used, sizeof text - used, "%s%d",
                                         c      ? "+"
                                         : used ? ","
                                                : "",
                                         node->cores[i].cpu[c]);
    if (used > 0 && used < MU_NCCL_STRING_MAX / 2)
        note(notes, "cores=%s", text);
}

/* What a core belongs to beside its NUMA node. */
static int package_of(const struct mu_core *core)
{
    return core->package;
}

static int cache_of(const struct mu_core *core)
{
    return core->cache;
}

/* The smallest value above `after` among the node's cores, -1. */
static int next_value(const struct mu_node *node, int numa, int after,
                      int (*value)(const struct mu_core *core))
{
    int next = -1;

    for (int i = 0; i < node->ncores; i++)
        if (node->cores[i].numa == numa && value(&node->cores[i]) > after &&
            (next < 0 || value(&node->cores[i]) < next))
            next = value(&node->cores[i]);
    return next;
}

/* KEY=0:0,4,12/1:1,6 where the cores of one NUMA node have several values. */
static void note_groups(struct notes *notes, const struct mu_node *node, int numa,
                        const char *key, int (*value)(const struct mu_core *core))
{
    char text[4096] = "", list[2048];
    size_t used = 0;
    int groups = 0;

    for (int p = -1; (p = next_value(node, numa, p, value)) >= 0; groups++) {
        struct mu_cpuset set = { { 0 } };

        for (int i = 0; i < node->ncores; i++)
            for (int c = 0; node->cores[i].numa == numa &&
                            value(&node->cores[i]) == p && c < node->cores[i].ncpus;
                 c++)
                mu_cpuset_add(&set, node->cores[i].cpu[c]);
        mu_cpuset_format(&set, list, sizeof list);
        if (used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d:%s",
                                     used ? "/" : "", groups, list);
    }
    if (groups > 1 && used < MU_NCCL_STRING_MAX / 2)
        note(notes, "%s=%s", key, text);
}

static void usable_cpus(const struct mu_node *node, int numa, struct mu_cpuset *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < node->ncores; i++)
        for (int c = 0; node->cores[i].numa == numa && c < node->cores[i].ncpus; c++)
            mu_cpuset_add(out, node->cores[i].cpu[c]);
}

static void cpu_notes(struct writer *w, int numa, const struct mu_cpuset *affinity,
                      const bool *written)
{
    const struct mu_node *node = &w->m->node;
    struct notes notes = { .used = 0 };
    int threads, stride, per_cache = cores_per_cache(node, numa);
    struct mu_cpuset usable;
    char text[8192];
    size_t used = 0;

    if (!node->core_data)
        return;
    usable_cpus(node, numa, &usable);
    if (numa >= 0 && node->numas[numa].package >= 0)
        note(&notes, "package=%d", node->numas[numa].package);
    if (strided(node, numa, &threads, &stride, &usable))
        note(&notes, "smt=%d;stride=%d", threads, stride);
    else
        note_cores(&notes, node, numa);
    note_groups(&notes, node, numa, "packages", package_of);
    if (per_cache > 0)
        note(&notes, "cache=%d", per_cache);
    else
        note_groups(&notes, node, numa, "caches", cache_of);
    if (!mu_cpuset_equal(&usable, affinity)) {
        mu_cpuset_format(&usable, text, sizeof text);
        note(&notes, "usable=%s", text);
    }
    if (numa >= 0 && node->numas[numa].memory == 0)
        note(&notes, "memory=0");
    for (int i = 0; numa >= 0 && node->numa_distance && i < node->nnumas; i++)
        if (written[i] && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d",
                                     used ? "," : "",
                                     node->numa_distance[numa * node->nnumas + i]);
    if (used)
        note(&notes, "distance=%s", text);
    put_notes(w, &notes);
}

static const char *nccl_arch(const char *arch)
{
    if (strcmp(arch, "aarch64") == 0)
        return "arm64";
    return strncmp(arch, "ppc64", 5) == 0 ? "ppc64" : arch;
}

/* One <cpu>; numa -1: cores and devices without a NUMA node. */
static void put_cpu(struct writer *w, int numa, const int *leaf, int n,
                    const bool *written)
{
    const struct mu_machine *m = w->m;
    struct mu_cpuset affinity;
    char mask[8192];

    if (numa >= 0)
        affinity = m->node.numas[numa].cpus;
    else
        usable_cpus(&m->node, -1, &affinity);
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
    cpu_notes(w, numa, &affinity, written);
    fputs(n > 0 ? ">\n" : "/>\n", w->out);
    if (n == 0)
        return;
    put_leaves(w, leaf, n);
    fputs("  </cpu>\n", w->out);
}

static int write_cpus(struct writer *w, int *leaf, bool *written)
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
    usable_cpus(&m->node, -1, &stray);
    if (n > 0 || !mu_cpuset_empty(&stray))
        put_cpu(w, -1, leaf, n, written);
    return 0;
}

int mu_nccl_write(FILE *out, const struct mu_machine *machine, struct mu_err *err)
{
    struct writer w = { out, machine, 1, err };
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
