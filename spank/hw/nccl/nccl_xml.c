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
#include "spank/hw/machine/machine.h"
#include "spank/hw/nccl/nccl_dialect.h"
#include "spank/hw/io/xml.h"

#define NUMAID_MAX 65535

struct reader {
    const struct mu_xml_doc *doc;
    struct mu_machine *machine;
    const struct mu_node *known; /* has what the file leaves out; NULL: nothing has */
    int *dev_of;                 /* per element: index into dev[], -1 */
    int *numa_of;                /* per <cpu> element: index into numas[], -1 */
    struct mu_err *err;
};

static int fail(const struct reader *r, int elem, const char *what, const char *value)
{
    return mu_err_set(r->err, EINVAL, "%s: line %d: %s '%.80s'", r->doc->file,
                      r->doc->elem[elem].line, what, value);
}

static void elem_attr(const struct reader *r, int elem, const char *name, char *buf,
                      size_t len)
{
    mu_xml_elem_attr(r->doc, elem, name, buf, len);
}

/* A dump of a multi-node NVLink domain describes several hosts; it is refused. */
static int check_one_host(const struct reader *r)
{
    char first[64] = "", hash[64];

    for (int e = 0; e < r->doc->nelems; e++) {
        if (!mu_xml_elem_is(r->doc, e, "cpu") ||
            !mu_xml_elem_attr(r->doc, e, "host_hash", hash, sizeof hash))
            continue;
        if (first[0] && strcmp(first, hash) != 0)
            return fail(r, e, "the file describes a second host: host_hash", hash);
        mu_copy(first, sizeof first, hash);
    }
    return 0;
}

static void read_cpu_ids(struct reader *r, int elem)
{
    struct mu_machine *m = r->machine;
    char buf[32];
    long n;

    if (m->arch[0])
        return;
    m->cpu_family = m->cpu_model = -1;
    elem_attr(r, elem, "arch", m->arch, sizeof m->arch);
    elem_attr(r, elem, "vendor", m->cpu_vendor, sizeof m->cpu_vendor);
    elem_attr(r, elem, "familyid", buf, sizeof buf);
    if (mu_parse_int("familyid", buf, 0, 65535, &n, NULL) == 0)
        m->cpu_family = (int)n;
    elem_attr(r, elem, "modelid", buf, sizeof buf);
    if (mu_parse_int("modelid", buf, 0, 65535, &n, NULL) == 0)
        m->cpu_model = (int)n;
}

/* As NCCL does, which asks sysfs: the CPUs of a NUMA node whose <cpu> has no affinity,
 * and the class of a <pci> that has none.
 */
static void known_cpus(const struct reader *r, long numaid, struct mu_cpuset *cpus)
{
    for (int i = 0; r->known && i < r->known->nnumas; i++)
        if (r->known->numas[i].os_index == numaid)
            *cpus = r->known->numas[i].cpus;
}

static unsigned known_class(const struct reader *r, const char *busid)
{
    for (int i = 0; r->known && i < r->known->ngpus; i++)
        if (strcmp(r->known->gpus[i].busid, busid) == 0)
            return 0x030200;
    for (int i = 0; r->known && i < r->known->nnics; i++)
        if (strcmp(r->known->nics[i].busid, busid) == 0)
            return r->known->nics[i].layer == MU_LINK_IB ? 0x020700 : 0x020000;
    return 0;
}

/* One <cpu>: a NUMA node, its cores, and the host bridge above its PCI devices. */
static int read_cpu(struct reader *r, int elem)
{
    struct mu_machine *m = r->machine;
    struct mu_cpuset cpus = { { 0 } }, usable;
    char buf[4096], notes[256];
    struct mu_place *place;
    struct mu_pci_dev *host;
    int numa = -1, package;
    long id = -1;

    elem_attr(r, elem, "muster", notes, sizeof notes);
    package = (int)mu_nccl_note_number(notes, "package", 0, 65535, -1);
    if (mu_xml_elem_attr(r->doc, elem, "numaid", buf, sizeof buf) &&
        mu_parse_int("numaid", buf, -1, NUMAID_MAX, &id, NULL) < 0)
        return fail(r, elem, "numaid is not a NUMA node number:", buf);
    if (!mu_xml_elem_attr(r->doc, elem, "affinity", buf, sizeof buf))
        known_cpus(r, id, &cpus);
    else if (mu_cpuset_parse_mask(buf, &cpus, NULL) < 0)
        return fail(r, elem, "affinity is not a CPU mask:", buf);
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
    place->known = numa >= 0;
    place->local = cpus;
    host->kind = MU_PCI_HOST;
    host->place = m->nplaces - 1;
    r->dev_of[elem] = m->ndevs - 1;
    r->numa_of[elem] = numa;
    return 0;
}

static unsigned hex_attr(const struct reader *r, int elem, const char *name)
{
    char buf[32], *end;
    unsigned long n;

    elem_attr(r, elem, name, buf, sizeof buf);
    n = strtoul(buf, &end, 16);
    return *end || end == buf || n > 0xffffffff ? 0 : (unsigned)n;
}

/* Nearest ancestor that stands for a PCI device or host, or -1. */
static int dev_above(const struct reader *r, int elem)
{
    for (elem = r->doc->elem[elem].parent; elem >= 0; elem = r->doc->elem[elem].parent)
        if (r->dev_of[elem] >= 0)
            return r->dev_of[elem];
    return -1;
}

static bool leaf_is_gpu(const struct reader *r, int elem, const struct mu_pci_dev *dev)
{
    unsigned class16 = dev->class_id >> 8;

    if (mu_xml_elem_has(r->doc, elem, "gpu"))
        return true;
    if (dev->vendor)
        return mu_pci_is_gpu(dev->class_id, dev->vendor, dev->device);
    return class16 == 0x0302 || class16 == 0x0380 || class16 == 0x1200;
}

/* Compute devices of the function: from the muster attribute, or the number of <gpu>
 * elements.
 */
static int add_gpus(struct reader *r, int elem, int index, const char *notes)
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

static struct mu_nic *add_nic(struct reader *r, int index, const char *name)
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
static int read_net(struct reader *r, int elem, int index)
{
    char name[MU_NAME_LEN], speed[32];
    struct mu_nic *nic;
    double mbits;

    elem_attr(r, elem, "name", name, sizeof name);
    elem_attr(r, elem, "speed", speed, sizeof speed);
    nic = add_nic(r, index, name);
    if (!nic)
        return -1;
    if (mu_parse_double("speed", speed, 1, 1e9, &mbits, NULL) == 0)
        nic->gbits = mbits / 1000;
    return 0;
}

/* The <net> elements below; a NIC that lists none (files without gpu and net elements)
 * counts once, by its class.
 */
static int add_nics(struct reader *r, int elem, int index, const char *notes)
{
    char names[256], *rest, *item;
    int found = 0;

    for (int e = elem + 1; e < r->doc->nelems && r->doc->elem[e].parent >= elem; e++) {
        if (!mu_xml_elem_is(r->doc, e, "net") || dev_above(r, e) != index)
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

/* NCCL puts a device that no PCI function stands for below the <cpu>: an interface for
 * sockets, which has port 0, and devices that newer releases merged out of several.
 */
static bool is_rdma(const struct reader *r, int elem, const char *name)
{
    char port[16], gdr[8];
    long n;

    elem_attr(r, elem, "port", port, sizeof port);
    elem_attr(r, elem, "gdr", gdr, sizeof gdr);
    return strchr(name, '+') || strcmp(gdr, "1") == 0 ||
           (mu_parse_int("port", port, 1, 255, &n, NULL) == 0);
}

static int read_cpu_nets(struct reader *r, int cpu)
{
    char name[MU_NAME_LEN];

    for (int e = cpu + 1; e < r->doc->nelems && r->doc->elem[e].parent >= cpu; e++) {
        int nic = r->doc->elem[e].parent;

        if (!mu_xml_elem_is(r->doc, e, "net") || !mu_xml_elem_is(r->doc, nic, "nic") ||
            r->doc->elem[nic].parent != cpu)
            continue;
        elem_attr(r, e, "name", name, sizeof name);
        if (name[0] && is_rdma(r, e, name) && read_net(r, e, r->dev_of[cpu]) < 0)
            return -1;
    }
    return 0;
}

static int read_pci(struct reader *r, int elem)
{
    char raw[64], notes[256];
    struct mu_pci_dev *dev;
    int parent = dev_above(r, elem), index;
    bool bridge = mu_xml_elem_has(r->doc, elem, "pci");

    if (parent < 0)
        return fail(r, elem, "a <pci> outside any <cpu>", "");
    elem_attr(r, elem, "busid", raw, sizeof raw);
    elem_attr(r, elem, "muster", notes, sizeof notes);
    if (!bridge && strstr(notes, "host=") &&
        (parent = mu_nccl_noted_parent(r->machine, notes, parent, r->err)) < 0)
        return -1;
    dev = mu_add_pci(r->machine, r->err);
    if (!dev)
        return -1;
    index = r->dev_of[elem] = r->machine->ndevs - 1;
    if (mu_busid_normal(raw, dev->busid, NULL) < 0)
        return fail(r, elem, "busid is not a PCI address:", raw);
    dev->parent = parent;
    dev->class_id = mu_xml_elem_attr(r->doc, elem, "class", raw, sizeof raw)
                        ? hex_attr(r, elem, "class")
                        : known_class(r, dev->busid);
    dev->vendor = hex_attr(r, elem, "vendor");
    dev->device = hex_attr(r, elem, "device");
    dev->subvendor = hex_attr(r, elem, "subsystem_vendor");
    dev->subdevice = hex_attr(r, elem, "subsystem_device");
    elem_attr(r, elem, "link_speed", dev->link_speed, sizeof dev->link_speed);
    elem_attr(r, elem, "link_width", raw, sizeof raw);
    dev->link_width = atoi(raw);
    dev->kind = bridge || dev->class_id >> 8 == 0x0604 ? MU_PCI_SWITCH : MU_PCI_DEVICE;
    if (bridge)
        return 0;
    if (leaf_is_gpu(r, elem, dev) && add_gpus(r, elem, index, notes) < 0)
        return -1;
    return add_nics(r, elem, index, notes);
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
 * near.
 */
static void flat_machine(struct reader *r)
{
    struct mu_machine *m = r->machine;
    int cpus = 0;

    for (int e = 0; e < r->doc->nelems; e++)
        cpus += mu_xml_elem_is(r->doc, e, "cpu");
    for (int i = 0; cpus == 1 && i < m->nplaces; i++)
        m->place[i].known = true;
    for (int i = 0; cpus == 1 && i < m->node.ngpus; i++)
        m->node.gpus[i].local_known = !mu_cpuset_empty(&m->node.gpus[i].local);
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
static void read_links(struct reader *r)
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
        elem_attr(r, e, "target", target, sizeof target);
        elem_attr(r, e, "count", count, sizeof count);
        elem_attr(r, e, "tclass", tclass, sizeof tclass);
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

/* distance=10,12 of our writer: one row per <cpu>, in the order of the elements. */
static int read_distances(struct reader *r)
{
    struct mu_node *node = &r->machine->node;
    char notes[256], row[256];
    char *rest, *item;
    long n;

    for (int e = 0; e < r->doc->nelems; e++) {
        int column = 0;

        if (r->numa_of[e] < 0)
            continue;
        elem_attr(r, e, "muster", notes, sizeof notes);
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
static int check_classes(const struct reader *r)
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

static int read_elements(struct reader *r)
{
    for (int e = 0; e < r->doc->nelems; e++)
        r->dev_of[e] = r->numa_of[e] = -1;
    if (check_one_host(r) < 0)
        return -1;
    for (int e = 0; e < r->doc->nelems; e++) {
        if (mu_xml_elem_is(r->doc, e, "cpu") &&
            (read_cpu(r, e) < 0 || read_cpu_nets(r, e) < 0))
            return -1;
        if (mu_xml_elem_is(r->doc, e, "pci") && read_pci(r, e) < 0)
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
    read_links(r);
    return 0;
}

int mu_read_nccl_xml(const char *name, const char *text, size_t len,
                     const struct mu_node *known, struct mu_machine *machine,
                     struct mu_err *err)
{
    struct mu_xml_doc doc;
    struct reader r = { &doc, machine, known, NULL, NULL, err };
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
