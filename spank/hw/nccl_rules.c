/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_rules.c - what can be wrong in an NCCL topology file, seen from the file alone
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/nccl_check.h"

static void list(const struct mu_cpuset *set, char buf[256])
{
    if (mu_cpuset_format(set, buf, 256) >= 256)
        memcpy(buf + 252, "...", 4);
    if (!buf[0])
        mu_copy(buf, 256, "none");
}

/* Lengths of the runs of the set; returns how many runs (at most `most` are stored). */
static int runs_of(const struct mu_cpuset *set, int *first, int *length, int most)
{
    int n = 0, prev = -2;

    for (int cpu = -1; (cpu = mu_cpuset_next(set, cpu)) >= 0; prev = cpu) {
        if (cpu != prev + 1 && n < most) {
            first[n] = cpu;
            length[n++] = 0;
        }
        if (n > 0)
            length[n - 1]++;
    }
    return n;
}

/* CPUs that another element claims are not missing from this one. */
static bool elsewhere(const struct mu_check *c, const struct mu_check_cpu *cpu,
                      int first, int last)
{
    for (int i = 0; i < c->ncpus; i++)
        for (int k = first; k <= last && &c->cpu[i] != cpu; k++)
            if (c->cpu[i].has_mask && mu_cpuset_has(&c->cpu[i].mask, k))
                return true;
    return false;
}

/* The runs of a mask are the first, second, ... threads of the same cores: one that is
 * shorter than all others by whole digits has lost them. A machine with irregular nodes
 * has other shapes.
 */
static void check_siblings(struct mu_check *c, struct mu_check_cpu *cpu)
{
    int first[8], length[8], shorter = 0, odd = 0, whole = 0, end, lost;
    int n = runs_of(&cpu->mask, first, length, 8);

    for (int i = 1; i < n; i++)
        if (length[i] > length[whole])
            whole = i;
    for (int i = 0; i < n; i++)
        if (length[i] < length[whole]) {
            shorter++;
            odd = i;
        }
    if ((n != 2 && n != 4) || shorter != 1 || cpu->numaid < 0)
        return;
    end = first[odd] + length[odd];
    lost = length[whole] - length[odd];
    if (end % 4 != 0 || lost % 4 != 0 || elsewhere(c, cpu, end, end + lost - 1))
        return;
    cpu->incomplete = true;
    mu_check_at(
        c, MU_NCCL_ERROR, cpu->elem,
        "affinity of numaid %d is incomplete: CPUs %d-%d are %d where %d-%d are "
        "%d, so %d-%d are missing (a digit too few in the mask?)",
        cpu->numaid, first[odd], first[odd] + length[odd] - 1, length[odd],
        first[whole], first[whole] + length[whole] - 1, length[whole],
        first[odd] + length[odd], first[odd] + length[whole] - 1);
}

static void read_cpu(struct mu_check *c, int elem)
{
    struct mu_check_cpu *cpu = &c->cpu[c->ncpus];
    char buf[4096];
    long id;

    if (c->ncpus == MU_CHECK_CPUS) {
        mu_check_at(c, MU_NCCL_ERROR, elem, "more than %d <cpu> elements",
                    MU_CHECK_CPUS);
        return;
    }
    c->ncpus++;
    cpu->elem = elem;
    cpu->numaid = -2;
    if (!mu_xml_elem_attr(c->doc, elem, "numaid", buf, sizeof buf))
        mu_check_at(c, MU_NCCL_ERROR, elem, "<cpu> has no numaid");
    else if (mu_parse_int("numaid", buf, -1, 65535, &id, NULL) < 0)
        mu_check_at(c, MU_NCCL_ERROR, elem, "numaid \"%.40s\" is not a number", buf);
    else
        cpu->numaid = (int)id;
    if (cpu->numaid == -1)
        mu_check_at(c, MU_NCCL_WARNING, elem,
                    "numaid -1: the file does not say where its devices are");
    if (!mu_xml_elem_attr(c->doc, elem, "affinity", buf, sizeof buf)) {
        mu_check_at(c, MU_NCCL_HINT, elem,
                    "no affinity: NCCL takes the CPUs of numaid %d from sysfs",
                    cpu->numaid);
        return;
    }
    if (mu_cpuset_parse_mask(buf, &cpu->mask, NULL) < 0) {
        mu_check_at(c, MU_NCCL_ERROR, elem,
                    "affinity \"%.60s\" is not a mask of hexadecimal words", buf);
        return;
    }
    cpu->has_mask = true;
    if (mu_cpuset_empty(&cpu->mask))
        mu_check_at(c, MU_NCCL_WARNING, elem, "affinity of numaid %d has no CPU",
                    cpu->numaid);
    if (!mu_xml_elem_attr(c->doc, elem, "arch", buf, sizeof buf))
        mu_check_at(c, MU_NCCL_HINT, elem,
                    "<cpu> without arch: older NCCL fails on it");
}

/* Returns true when both have one mask, so that a third copy is told once. */
static bool check_pair(struct mu_check *c, const struct mu_check_cpu *a,
                       const struct mu_check_cpu *b)
{
    struct mu_cpuset both = b->mask;
    char text[256];

    if (a->numaid >= -1 && a->numaid == b->numaid)
        mu_check_at(c, MU_NCCL_ERROR, b->elem, "numaid %d is there twice (line %d)",
                    b->numaid, c->doc->elem[a->elem].line);
    mu_cpuset_and(&both, &a->mask);
    if (!a->has_mask || !b->has_mask || mu_cpuset_empty(&both))
        return false;
    list(&both, text);
    if (mu_cpuset_equal(&a->mask, &b->mask)) {
        mu_check_at(
            c, MU_NCCL_ERROR, b->elem,
            "numaid %d and numaid %d (line %d) have the same affinity, CPUs %s: "
            "one mask copied to several nodes",
            b->numaid, a->numaid, c->doc->elem[a->elem].line, text);
        return true;
    }
    mu_check_at(c, MU_NCCL_ERROR, b->elem,
                "affinity of numaid %d overlaps that of numaid %d (line %d): CPUs %s",
                b->numaid, a->numaid, c->doc->elem[a->elem].line, text);
    return false;
}

/* CPU 0 is the boot CPU and its node is 0 on every machine of more than one node that
 * was ever recorded for this project.
 */
static void check_exchanged(struct mu_check *c)
{
    int zero = -1, holder = -1;

    for (int i = 0; i < c->ncpus; i++) {
        if (c->cpu[i].numaid == 0 && c->cpu[i].has_mask)
            zero = i;
        if (holder < 0 && c->cpu[i].numaid > 0 && mu_cpuset_has(&c->cpu[i].mask, 0))
            holder = i;
    }
    if (zero >= 0 && holder >= 0 && !mu_cpuset_has(&c->cpu[zero].mask, 0))
        mu_check_at(
            c, MU_NCCL_ERROR, c->cpu[zero].elem,
            "CPU 0 is in the affinity of numaid %d (line %d) and not of numaid 0: "
            "the masks (or numaids) of the two are exchanged",
            c->cpu[holder].numaid, c->doc->elem[c->cpu[holder].elem].line);
}

/* One node with fewer CPUs than all the others, which are alike: its mask lost some.
 * Not judged where the machine itself can tell.
 */
static bool check_outlier(struct mu_check *c)
{
    int most = 0, odd = -1, smaller = 0;

    for (int i = 0; i < c->ncpus; i++)
        if (mu_cpuset_count(&c->cpu[i].mask) > most)
            most = mu_cpuset_count(&c->cpu[i].mask);
    for (int i = 0; i < c->ncpus; i++)
        if (mu_cpuset_count(&c->cpu[i].mask) < most) {
            smaller++;
            odd = i;
        }
    if (c->machine || c->ncpus < 3 || smaller != 1 || c->cpu[odd].incomplete)
        return c->ncpus >= 3 && smaller == 1 && !c->machine;
    mu_check_at(
        c, MU_NCCL_ERROR, c->cpu[odd].elem,
        "affinity of numaid %d is incomplete: %d CPUs where every other node has "
        "%d",
        c->cpu[odd].numaid, mu_cpuset_count(&c->cpu[odd].mask), most);
    return true;
}

/* CPUs between those of the file that no <cpu> has. */
static void check_gaps(struct mu_check *c)
{
    struct mu_cpuset all = { { 0 } }, gap = { { 0 } };
    int sizes = 0, first_size = 0, last = -1;
    char text[256];

    for (int i = 0; i < c->ncpus; i++) {
        int n = mu_cpuset_count(&c->cpu[i].mask);

        if (!c->cpu[i].has_mask)
            return;
        mu_cpuset_or(&all, &c->cpu[i].mask);
        if (!first_size)
            first_size = n;
        sizes += n != first_size;
    }
    if (sizes > 0 && !check_outlier(c))
        mu_check_at(c, MU_NCCL_WARNING, c->cpu[0].elem,
                    "the <cpu> elements have different numbers of CPUs");
    for (int cpu = -1; (cpu = mu_cpuset_next(&all, cpu)) >= 0;)
        last = cpu;
    mu_cpuset_add_range(&gap, 0, last);
    mu_cpuset_andnot(&gap, &all);
    if (last < 0 || mu_cpuset_empty(&gap))
        return;
    list(&gap, text);
    mu_check_at(c, c->ncpus == 1 ? MU_NCCL_WARNING : MU_NCCL_HINT, c->cpu[0].elem,
                "CPUs %s are in no affinity: NUMA nodes without devices, or left out%s",
                text, c->ncpus == 1 ? "; all devices are put on this one node" : "");
}

/* All GPUs of a large machine on one node, and a mask written wider than its CPUs: the
 * kernel prints masks as wide as the machine, so other nodes are likely left out.
 */
static void check_one_node(struct mu_check *c)
{
    int gpus = 0, width, last = -1;
    char buf[4096];

    if (c->ncpus != 1 || !c->cpu[0].has_mask)
        return;
    for (int e = 0; e < c->doc->nelems; e++)
        gpus += mu_xml_elem_is(c->doc, e, "pci") && mu_check_kind(c, e) == MU_CHECK_GPU;
    mu_xml_elem_attr(c->doc, c->cpu[0].elem, "affinity", buf, sizeof buf);
    width = (int)(strlen(buf) + 1) / 9 * 32;
    for (int cpu = -1; (cpu = mu_cpuset_next(&c->cpu[0].mask, cpu)) >= 0;)
        last = cpu;
    if (gpus >= 8 && width - last > 32)
        mu_check_at(
            c, MU_NCCL_WARNING, c->cpu[0].elem,
            "all %d GPUs are on numaid %d, whose CPUs end at %d in a mask of %d: "
            "other NUMA nodes are missing, or every device was put on this one",
            gpus, c->cpu[0].numaid, last, width);
}

void mu_check_cpus(struct mu_check *c)
{
    for (int e = 0; e < c->doc->nelems; e++)
        if (mu_xml_elem_is(c->doc, e, "cpu"))
            read_cpu(c, e);
    for (int i = 0; i < c->ncpus; i++)
        if (c->cpu[i].has_mask)
            check_siblings(c, &c->cpu[i]);
    if (c->ncpus == 0)
        mu_check_at(c, MU_NCCL_ERROR, 0, "no <cpu> in it");
    for (int b = 0; b < c->ncpus; b++)
        for (int a = 0; a < b; a++)
            if (check_pair(c, &c->cpu[a], &c->cpu[b]))
                break;
    check_exchanged(c);
    check_gaps(c);
    check_one_node(c);
}

/* dddd:bb:dd.f in lower case: NCCL compares the text with sysfs's. */
static void check_busid(struct mu_check *c, int elem)
{
    char raw[64], normal[MU_BUSID_LEN], other[64];

    if (!mu_xml_elem_attr(c->doc, elem, "busid", raw, sizeof raw)) {
        mu_check_at(c, MU_NCCL_ERROR, elem, "<pci> has no busid");
        return;
    }
    if (mu_busid_normal(raw, normal, NULL) < 0)
        mu_check_at(c, MU_NCCL_ERROR, elem, "busid \"%.40s\" is not a PCI address",
                    raw);
    else if (strcmp(raw, normal) != 0)
        mu_check_at(
            c, MU_NCCL_ERROR, elem,
            "busid \"%.40s\" must be written %s: NCCL compares it with sysfs as "
            "text",
            raw, normal);
    for (int e = 0; e < elem; e++)
        if (mu_xml_elem_is(c->doc, e, "pci") &&
            mu_xml_elem_attr(c->doc, e, "busid", other, sizeof other) &&
            strcmp(raw, other) == 0) {
            mu_check_at(c, MU_NCCL_ERROR, elem, "busid %.40s is there twice (line %d)",
                        raw, c->doc->elem[e].line);
            return;
        }
}

/* GT/s of a link text as NCCL knows them, 0 for others (which it takes as 8 GT/s). */
static double link_rate(const char *text)
{
    static const double known[] = { 2.5, 5, 8, 16, 32, 64 };
    char *end;
    double rate = strtod(text, &end);

    if (strcmp(end, " GT/s") != 0 && strcmp(end, " GT/s PCIe") != 0 &&
        strcmp(end, " GT/s Gen1") != 0)
        return 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (rate > known[i] * 0.99 && rate < known[i] * 1.01)
            return known[i];
    return 0;
}

static void check_link(struct mu_check *c, int elem, enum mu_check_pci kind)
{
    char speed[64], width[32], busid[64];
    long lanes;

    mu_xml_elem_attr(c->doc, elem, "busid", busid, sizeof busid);
    if (mu_xml_elem_attr(c->doc, elem, "link_speed", speed, sizeof speed) && speed[0]) {
        double rate = link_rate(speed);

        if (rate == 0)
            mu_check_at(
                c, MU_NCCL_WARNING, elem,
                "link_speed \"%.40s\" of %s: NCCL does not know it and counts 8 "
                "GT/s",
                speed, busid);
        else if (rate < 8 && kind != MU_CHECK_OTHER)
            mu_check_at(
                c, MU_NCCL_WARNING, elem,
                "link_speed %g GT/s of %s: an idle link's rate? NCCL takes it for "
                "the bandwidth",
                rate, busid);
    }
    if (!mu_xml_elem_attr(c->doc, elem, "link_width", width, sizeof width))
        return;
    if (mu_parse_int("link_width", width, 0, 64, &lanes, NULL) < 0)
        mu_check_at(c, MU_NCCL_ERROR, elem, "link_width \"%.20s\" is not a number",
                    width);
    else if (lanes == 0)
        mu_check_at(c, MU_NCCL_HINT, elem, "link_width 0 of %s: NCCL counts 16 lanes",
                    busid);
}

static void check_class(struct mu_check *c, int elem)
{
    char text[32], *end;

    if (!mu_xml_elem_attr(c->doc, elem, "class", text, sizeof text))
        return;
    strtoul(text, &end, 16);
    if (end == text || *end || strncmp(text, "0x", 2) != 0 || strlen(text) != 8)
        mu_check_at(c, MU_NCCL_ERROR, elem,
                    "class \"%.20s\" is not a PCI class such as 0x030200", text);
}

void mu_check_pcis(struct mu_check *c)
{
    int bare = 0;

    for (int e = 0; e < c->doc->nelems; e++) {
        char text[32];
        enum mu_check_pci kind;

        if (!mu_xml_elem_is(c->doc, e, "pci"))
            continue;
        kind = mu_check_kind(c, e);
        if (mu_check_cpu_of(c, e) < 0)
            mu_check_at(c, MU_NCCL_ERROR, e, "a <pci> outside any <cpu>");
        check_busid(c, e);
        check_class(c, e);
        check_link(c, e, kind);
        bare += !mu_xml_elem_attr(c->doc, e, "class", text, sizeof text);
    }
    if (bare > 0)
        mu_check_at(c, MU_NCCL_HINT, 0,
                    "%d <pci> elements without a class: NCCL takes it from sysfs",
                    bare);
}

/* The GPU (<pci> element) a link element belongs to, or the one with that bus id. */
static int pci_above(const struct mu_check *c, int elem)
{
    while (elem >= 0 && !mu_xml_elem_is(c->doc, elem, "pci"))
        elem = c->doc->elem[elem].parent;
    return elem;
}

static int pci_with(const struct mu_check *c, const char *busid)
{
    char other[64];

    for (int e = 0; e < c->doc->nelems; e++)
        if (mu_xml_elem_is(c->doc, e, "pci") &&
            mu_xml_elem_attr(c->doc, e, "busid", other, sizeof other) &&
            strcmp(busid, other) == 0)
            return e;
    return -1;
}

static bool is_link(const struct mu_check *c, int elem)
{
    return mu_xml_elem_is(c->doc, elem, "nvlink") ||
           mu_xml_elem_is(c->doc, elem, "xgmi");
}

/* Links counted from GPU a to the device with this bus id. */
static long count_between(const struct mu_check *c, int a, const char *busid)
{
    char target[64], count[16];
    long n, total = 0;

    for (int e = a + 1; e < c->doc->nelems && c->doc->elem[e].parent >= a; e++)
        if (is_link(c, e) &&
            mu_xml_elem_attr(c->doc, e, "target", target, sizeof target) &&
            strcmp(target, busid) == 0 &&
            mu_xml_elem_attr(c->doc, e, "count", count, sizeof count) &&
            mu_parse_int("count", count, 0, 100000, &n, NULL) == 0)
            total += n;
    return total;
}

static void check_one_link(struct mu_check *c, int elem)
{
    char target[64], count[16], own[64] = "", tclass[32];
    int gpu = pci_above(c, elem), peer;
    long n, back;

    mu_xml_elem_attr(c->doc, elem, "target", target, sizeof target);
    mu_xml_elem_attr(c->doc, elem, "count", count, sizeof count);
    mu_xml_elem_attr(c->doc, elem, "tclass", tclass, sizeof tclass);
    if (gpu >= 0)
        mu_xml_elem_attr(c->doc, gpu, "busid", own, sizeof own);
    if (mu_parse_int("count", count, 1, 1000, &n, NULL) < 0) {
        mu_check_at(c, MU_NCCL_ERROR, elem, "a link count of \"%.10s\" is impossible",
                    count);
        return;
    }
    if (strcmp(own, target) == 0) {
        mu_check_at(c, MU_NCCL_ERROR, elem,
                    "impossible link: GPU %s has %ld links to itself", own, n);
        return;
    }
    if (strncmp(tclass, "0x0680", 6) == 0 || strcmp(target, "fffffff:ff:ff.0") == 0)
        return; /* a switch, which the file need not list */
    peer = pci_with(c, target);
    if (peer < 0) {
        mu_check_at(c, MU_NCCL_WARNING, elem,
                    "link from %s to %.40s, which is not in "
                    "the file",
                    own, target);
        return;
    }
    back = count_between(c, peer, own);
    if (mu_check_kind(c, peer) == MU_CHECK_GPU && back != count_between(c, gpu, target))
        mu_check_at(c, MU_NCCL_WARNING, elem,
                    "%ld links from %s to %.40s, but %ld back", n, own, target, back);
}

static void check_net(struct mu_check *c, int elem)
{
    char speed[32], name[64];
    double mbits;

    mu_xml_elem_attr(c->doc, elem, "name", name, sizeof name);
    if (mu_xml_elem_attr(c->doc, elem, "speed", speed, sizeof speed) &&
        (mu_parse_double("speed", speed, -1, 1e12, &mbits, NULL) < 0 || mbits > 3.2e6))
        mu_check_at(c, MU_NCCL_WARNING, elem,
                    "speed \"%.20s\" of net %s: the unit is Mb/s", speed, name);
}

void mu_check_links(struct mu_check *c)
{
    for (int e = 0; e < c->doc->nelems; e++) {
        if (is_link(c, e))
            check_one_link(c, e);
        if (mu_xml_elem_is(c->doc, e, "net"))
            check_net(c, e);
    }
}
