/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_xml.c - a machine from an NCCL (or RCCL) topology file or dump.
 *
 * Accepts files as people edit them; nccl_check reports what NCCL itself would refuse.
 * Muster's own files have one more attribute, muster="key=value;...", which NCCL
 * ignores; nccl_dialect.h lists its keys.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/machine/cpulist.h"
#include "spank/hw/nccl/nccl_dialect.h"
#include "spank/hw/nccl/nccl_reader.h"

#define NUMAID_MAX 65535

/* A dump of a multi-node NVLink domain describes several hosts; it is refused. */
static int check_one_host(const struct mu_nccl_reader *r)
{
    char first[64] = "", hash[64];

    for (int e = 0; e < r->doc->nelems; e++) {
        if (!mu_xml_elem_is(r->doc, e, "cpu") ||
            !mu_xml_elem_attr(r->doc, e, "host_hash", hash, sizeof hash))
            continue;
        if (first[0] && strcmp(first, hash) != 0)
            return mu_nccl_fail(r, e, "the file describes a second host: host_hash",
                                hash);
        mu_copy(first, sizeof first, hash);
    }
    return 0;
}

static void read_cpu_ids(struct mu_nccl_reader *r, int elem)
{
    struct mu_machine *m = r->machine;
    char buf[32];
    long n;

    if (m->arch[0])
        return;
    m->cpu_family = m->cpu_model = -1;
    mu_nccl_attr(r, elem, "arch", m->arch, sizeof m->arch);
    mu_nccl_attr(r, elem, "vendor", m->cpu_vendor, sizeof m->cpu_vendor);
    mu_nccl_attr(r, elem, "familyid", buf, sizeof buf);
    if (mu_parse_int("familyid", buf, 0, 65535, &n, NULL) == 0)
        m->cpu_family = (int)n;
    mu_nccl_attr(r, elem, "modelid", buf, sizeof buf);
    if (mu_parse_int("modelid", buf, 0, 65535, &n, NULL) == 0)
        m->cpu_model = (int)n;
}

/* Completes a <cpu> from the machine. As NCCL does, which asks sysfs: where the mask is
 * left out or has no CPU, the CPUs are those of the machine's node. Where the number is
 * left out, it is that of the node which has these CPUs.
 */
static void complete_numa(const struct mu_node *known, long *id, struct mu_cpuset *cpus)
{
    bool masked = !mu_cpuset_empty(cpus);
    struct mu_cpuset here;

    mu_node_cpus(known, &here);
    mu_cpuset_and(&here, cpus);
    for (int i = 0; i < known->nnumas; i++) {
        const struct mu_numa *numa = &known->numas[i];

        if (!masked && numa->os_index == *id)
            *cpus = numa->cpus;
        if (*id < 0 && !mu_cpuset_empty(&here) && mu_cpuset_inside(&here, &numa->cpus))
            *id = numa->os_index;
    }
}

/* The NUMA node, -1 unknown, and the CPUs of a <cpu>. */
static int read_numa(const struct mu_nccl_reader *r, int elem, long *id,
                     struct mu_cpuset *cpus)
{
    char buf[4096], *number;

    mu_nccl_attr(r, elem, "numaid", buf, sizeof buf);
    number = buf + strspn(buf, " \t\n");
    number[strcspn(number, " \t\n")] = '\0';
    if (number[0] && mu_parse_int("numaid", number, -1, NUMAID_MAX, id, NULL) < 0)
        return mu_nccl_fail(r, elem, "numaid is not a NUMA node number:", buf);
    mu_nccl_attr(r, elem, "affinity", buf, sizeof buf);
    if (buf[0] && mu_cpuset_parse_mask(buf, cpus, NULL) < 0)
        return mu_nccl_fail(r, elem, "affinity is not a CPU mask:", buf);
    if (r->known)
        complete_numa(r->known, id, cpus);
    return 0;
}

/* Without a number: CPUs of several nodes are a place, those of all are none. */
static bool is_place(const struct mu_nccl_reader *r, int numa,
                     const struct mu_cpuset *cpus)
{
    struct mu_cpuset all;

    if (numa >= 0 || !r->known || mu_cpuset_empty(cpus))
        return numa >= 0;
    mu_node_cpus(r->known, &all);
    return !mu_cpuset_inside(&all, cpus);
}

/* One <cpu>: a NUMA node, its cores, and the host bridge above its PCI devices. */
static int read_cpu(struct mu_nccl_reader *r, int elem)
{
    struct mu_machine *m = r->machine;
    struct mu_cpuset cpus = { { 0 } }, usable;
    char buf[4096], notes[256];
    struct mu_place *place;
    struct mu_pci_dev *host;
    int numa = -1, package;
    long id = -1;

    mu_nccl_attr(r, elem, "muster", notes, sizeof notes);
    package = (int)mu_nccl_note_number(notes, "package", 0, 65535, -1);
    if (read_numa(r, elem, &id, &cpus) < 0)
        return -1;
    usable = cpus;
    if (mu_nccl_note(notes, "usable", buf, sizeof buf))
        mu_cpuset_parse(buf, &usable, NULL);
    read_cpu_ids(r, elem);
    for (int i = 0; id >= 0 && i < m->node.nnumas; i++)
        if (m->node.numas[i].os_index == id)
            numa = i;
    if (id >= 0 && numa < 0) {
        struct mu_numa *n = mu_add_numa(&m->node, r->err);

        if (!n)
            return -1;
        n->os_index = (int)id;
        n->package = package;
        if (mu_nccl_note_number(notes, "memory", 0, 0, 1) == 0)
            n->memory = 0;
        numa = m->node.nnumas - 1;
    }
    if (numa >= 0)
        mu_cpuset_or(&m->node.numas[numa].cpus, &cpus);
    if (mu_nccl_add_cores(m, notes, &usable, numa, package, r->err) < 0)
        return -1;
    place = mu_add_place(m, r->err);
    host = place ? mu_add_pci(m, r->err) : NULL;
    if (!host)
        return -1;
    place->numa = numa;
    place->package = package;
    place->known = is_place(r, numa, &cpus);
    place->local = cpus;
    host->kind = MU_PCI_HOST;
    host->place = m->nplaces - 1;
    r->dev_of[elem] = m->ndevs - 1;
    r->numa_of[elem] = numa;
    return 0;
}

/* Only CPUs that can be used count as local. */
static void cut_local(struct mu_node *node)
{
    struct mu_cpuset all;

    mu_node_cpus(node, &all);
    for (int i = 0; i < node->ngpus; i++) {
        mu_cpuset_and(&node->gpus[i].local, &all);
        if (!node->gpus[i].local_known)
            memset(&node->gpus[i].local, 0, sizeof node->gpus[i].local);
    }
}

/* A file with one <cpu> without a number describes a machine without NUMA: all CPUs are
 * near. On a machine with several NUMA nodes it places no GPU.
 */
static void flat_machine(struct mu_nccl_reader *r)
{
    struct mu_machine *m = r->machine;
    int cpus = 0;

    if (r->known && mu_node_numas_with_cpus(r->known) > 1)
        return;
    for (int e = 0; e < r->doc->nelems; e++)
        cpus += mu_xml_elem_is(r->doc, e, "cpu");
    for (int i = 0; cpus == 1 && i < m->nplaces; i++)
        m->place[i].known = true;
    for (int i = 0; cpus == 1 && i < m->node.ngpus; i++)
        m->node.gpus[i].local_known = !mu_cpuset_empty(&m->node.gpus[i].local);
}

/* distance=10,12 of our writer: one row per <cpu>, in the order of the elements. */
static int read_distances(struct mu_nccl_reader *r)
{
    struct mu_node *node = &r->machine->node;
    char notes[256], row[256];
    char *rest, *item;
    long n;

    for (int e = 0; e < r->doc->nelems; e++) {
        int column = 0;

        if (r->numa_of[e] < 0)
            continue;
        mu_nccl_attr(r, e, "muster", notes, sizeof notes);
        if (!mu_nccl_note(notes, "distance", row, sizeof row))
            return 0;
        if (!node->numa_distance) {
            node->numa_distance = malloc((size_t)node->nnumas * (size_t)node->nnumas *
                                         sizeof *node->numa_distance);
            if (!node->numa_distance)
                return mu_err_set(r->err, ENOMEM, "no memory for %d NUMA nodes",
                                  node->nnumas);
            for (int i = 0; i < node->nnumas * node->nnumas; i++)
                node->numa_distance[i] = i / node->nnumas == i % node->nnumas ? 10 : 20;
        }
        for (rest = row; (item = mu_parse_next(&rest, ',')) && column < node->nnumas;
             column++)
            if (mu_parse_int("distance", item, 1, 100000, &n, NULL) == 0)
                node->numa_distance[r->numa_of[e] * node->nnumas + column] = (int)n;
    }
    return 0;
}

/* NCCL reads a missing class from sysfs. Muster refuses a file without any class: its
 * plan would have no GPU, without a warning.
 */
static int check_classes(const struct mu_nccl_reader *r)
{
    char text[32];
    int first = -1;

    for (int e = 0; e < r->doc->nelems; e++) {
        if (!mu_xml_elem_is(r->doc, e, "pci"))
            continue;
        if (mu_xml_elem_attr(r->doc, e, "class", text, sizeof text))
            return 0;
        first = first < 0 ? e : first;
    }
    if (first < 0 || r->known || r->machine->node.ngpus > 0 ||
        r->machine->node.ncores == 0)
        return 0;
    return mu_err_set(r->err, EINVAL,
                      "%s: line %d: no <pci> has a class, so GPUs cannot be "
                      "recognised: give them class=\"0x030200\"",
                      r->doc->file, r->doc->elem[first].line);
}

static int read_elements(struct mu_nccl_reader *r)
{
    for (int e = 0; e < r->doc->nelems; e++)
        r->dev_of[e] = r->numa_of[e] = -1;
    if (check_one_host(r) < 0)
        return -1;
    for (int e = 0; e < r->doc->nelems; e++) {
        if (mu_xml_elem_is(r->doc, e, "cpu") &&
            (read_cpu(r, e) < 0 || mu_nccl_read_cpu_nets(r, e) < 0))
            return -1;
        if (mu_xml_elem_is(r->doc, e, "pci") && mu_nccl_read_pci(r, e) < 0)
            return -1;
    }
    if (r->machine->node.nnumas + r->machine->node.ncores + r->machine->ndevs == 0)
        return mu_err_set(r->err, EINVAL, "%s: line %d: the file has no <cpu>",
                          r->doc->file, r->doc->elem[0].line);
    if (check_classes(r) < 0)
        return -1;
    flat_machine(r);
    cut_local(&r->machine->node);
    if (read_distances(r) < 0 || mu_pci_fill_paths(r->machine, r->err) < 0)
        return -1;
    mu_nccl_read_links(r);
    return 0;
}

int mu_read_nccl_xml(const char *name, const char *text, size_t len,
                     const struct mu_node *known, struct mu_machine *machine,
                     struct mu_err *err)
{
    struct mu_xml_doc doc;
    struct mu_nccl_reader r = { &doc, machine, known, NULL, NULL, err };
    int rc = mu_xml_doc_parse(name, text, len, &doc, err);

    if (rc == 0 && doc.nelems > MU_NCCL_ELEMENTS_MAX)
        rc = mu_err_set(err, EINVAL, "%s: line %d: more than %d elements", name,
                        doc.elem[MU_NCCL_ELEMENTS_MAX].line, MU_NCCL_ELEMENTS_MAX);
    if (rc == 0) {
        r.dev_of = calloc((size_t)doc.nelems, sizeof *r.dev_of);
        r.numa_of = calloc((size_t)doc.nelems, sizeof *r.numa_of);
        rc = r.dev_of && r.numa_of
                 ? read_elements(&r)
                 : mu_err_set(err, ENOMEM, "%s: no memory to read it", name);
    }
    if (rc == 0) {
        machine->links_are_max = true;
        mu_copy(machine->node.source, sizeof machine->node.source, "nccl xml");
        rc = mu_machine_finish(machine, err);
        if (rc < 0)
            mu_err_context(err, "%s", name);
    }
    free(r.dev_of);
    free(r.numa_of);
    mu_xml_doc_clear(&doc);
    if (rc < 0)
        mu_machine_clear(machine);
    return rc;
}
