/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_masks.c - what can be wrong with the <cpu> elements of an NCCL topology file,
 * seen from the file alone: numaid, affinity, arch
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/nccl/nccl_check.h"

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

/* The runs of a mask are the first, second, ... threads of the same cores. A run that
 * is shorter than all others by whole hexadecimal digits has lost these digits. A
 * machine with irregular nodes has other runs.
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
        "%d, so %d-%d are missing: the mask may lack digits",
        cpu->numaid, first[odd], first[odd] + length[odd] - 1, length[odd],
        first[whole], first[whole] + length[whole] - 1, length[whole],
        first[odd] + length[odd], first[odd] + length[whole] - 1);
}

/* The mask as NCCL reads it: words from the left, of which each keeps its last eight
 * digits. It ends at the first character that is neither a lower-case digit nor a
 * comma.
 */
static void as_nccl_reads(const char *text, struct mu_cpuset *out)
{
    char kept[4096];
    size_t n = 0, word = 0;

    *out = (struct mu_cpuset){ { 0 } };
    for (; *text && n + 2 < sizeof kept; text++) {
        if (*text != ',' && (!isxdigit((unsigned char)*text) || isupper(*text)))
            break;
        if (*text == ',') {
            word = 0;
        } else if (++word > 8) {
            memmove(kept + n - 8, kept + n - 7, 7);
            n--;
        }
        kept[n++] = *text;
    }
    if (n > 0 && kept[n - 1] == ',')
        kept[n++] = '0'; /* NCCL reads an empty word as 0 */
    kept[n] = '\0';
    if (n > 0)
        mu_cpuset_parse_mask(kept, out, NULL);
}

static void check_dialect(struct mu_check *c, const struct mu_check_cpu *cpu,
                          const char *text)
{
    struct mu_cpuset read;
    char is[256], written[256];

    as_nccl_reads(text, &read);
    if (mu_cpuset_equal(&read, &cpu->mask))
        return;
    mu_check_list(&read, is);
    mu_check_list(&cpu->mask, written);
    mu_check_at(
        c, MU_NCCL_ERROR, cpu->elem,
        "NCCL reads affinity \"%.60s\" as CPUs %s, not %s: write lower-case digits "
        "without 0x, at most eight between commas",
        text, is, written);
}

/* NCCL compares the beginning only; it treats any other text as no arch. */
static void check_arch(struct mu_check *c, int elem)
{
    static const char *const known[] = { "x86_64", "arm64", "ppc64" };
    char arch[64];

    if (!mu_xml_elem_attr(c->doc, elem, "arch", arch, sizeof arch)) {
        mu_check_at(c, MU_NCCL_HINT, elem, "<cpu> has no arch: older NCCL fails");
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(arch, known[i], strlen(known[i])) == 0)
            return;
    mu_check_at(c, MU_NCCL_WARNING, elem,
                "arch \"%.20s\": NCCL recognises x86_64, arm64 and ppc64 only", arch);
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
                    "numaid -1: the file does not name the NUMA node of these devices");
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
    check_dialect(c, cpu, buf);
    check_arch(c, elem);
}

/* Returns true when both have one mask, so that a third copy is reported once. */
static bool check_pair(struct mu_check *c, const struct mu_check_cpu *a,
                       const struct mu_check_cpu *b)
{
    struct mu_cpuset both = b->mask;
    char text[256];

    if (a->numaid >= -1 && a->numaid == b->numaid)
        mu_check_at(c, MU_NCCL_ERROR, b->elem,
                    "a second <cpu> has numaid %d (the first is on line %d)", b->numaid,
                    c->doc->elem[a->elem].line);
    mu_cpuset_and(&both, &a->mask);
    if (!a->has_mask || !b->has_mask || mu_cpuset_empty(&both))
        return false;
    mu_check_list(&both, text);
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

/* CPU 0 is the boot CPU. It belongs to node 0 on every recorded machine of more than
 * one node.
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

/* One node with fewer CPUs than all the others, which are equal: its mask lost some.
 * Not checked where a machine is given to compare with.
 */
static bool check_outlier(struct mu_check *c)
{
    int most = 0, fewest = 0, odd = -1, smaller = 0;

    for (int i = 0; i < c->ncpus; i++)
        if (mu_cpuset_count(&c->cpu[i].mask) > most)
            most = mu_cpuset_count(&c->cpu[i].mask);
    for (int i = 0; i < c->ncpus; i++)
        if (mu_cpuset_count(&c->cpu[i].mask) < most) {
            fewest = mu_cpuset_count(&c->cpu[i].mask);
            smaller++;
            odd = i;
        }
    if (c->machine || c->ncpus < 3 || smaller != 1 || c->cpu[odd].incomplete)
        return c->ncpus >= 3 && smaller == 1 && !c->machine;
    mu_check_at(
        c, MU_NCCL_ERROR, c->cpu[odd].elem,
        "affinity of numaid %d is incomplete: %d CPU%s where every other node has "
        "%d",
        c->cpu[odd].numaid, fewest, mu_plural(fewest), most);
    return true;
}

/* CPUs below the highest one of the file that are in no <cpu>. */
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
    mu_check_list(&gap, text);
    mu_check_at(
        c, c->ncpus == 1 ? MU_NCCL_WARNING : MU_NCCL_HINT, c->cpu[0].elem,
        "no <cpu> has CPUs %s: their NUMA nodes have no devices, or are missing%s",
        text, c->ncpus == 1 ? "; all devices are put on this one node" : "");
}

/* All GPUs of a large machine on one node whose mask is wider than its CPUs. The kernel
 * prints masks as wide as the machine, so other nodes are probably missing.
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
        mu_check_at(c, MU_NCCL_ERROR, 0, "the file has no <cpu>");
    for (int b = 0; b < c->ncpus; b++)
        for (int a = 0; a < b; a++)
            if (check_pair(c, &c->cpu[a], &c->cpu[b]))
                break;
    check_exchanged(c);
    check_gaps(c);
    check_one_node(c);
}
