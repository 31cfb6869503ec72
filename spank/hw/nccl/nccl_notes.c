/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_notes.c - the muster="..." attribute of our own NCCL files: what it holds about
 * cores and the PCI tree; its keys are listed in nccl_dialect.h
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/machine/cpulist.h"
#include "spank/hw/nccl/nccl_dialect.h"

bool mu_nccl_note(const char *notes, const char *key, char *buf, size_t len)
{
    size_t n = strlen(key);

    buf[0] = '\0';
    for (const char *p = notes; *p; p += *p == ';') {
        if (strncmp(p, key, n) == 0 && p[n] == '=') {
            snprintf(buf, len, "%.*s", (int)strcspn(p + n + 1, ";"), p + n + 1);
            return true;
        }
        p += strcspn(p, ";");
    }
    return false;
}

long mu_nccl_note_number(const char *notes, const char *key, long min, long max,
                         long none)
{
    char buf[32];
    long n;

    return mu_nccl_note(notes, key, buf, sizeof buf) &&
                   mu_parse_int(key, buf, min, max, &n, NULL) == 0
               ? n
               : none;
}

/* cores=0+4,1+5: for cores that smt= and stride= cannot describe. */
static int add_listed_cores(struct mu_node *node, char *list,
                            const struct mu_cpuset *cpus, int numa, int package,
                            struct mu_err *err)
{
    char *word, *cpu;
    long n;

    while ((word = mu_parse_next(&list, ','))) {
        struct mu_cpuset set = { { 0 } };

        while ((cpu = mu_parse_next(&word, '+')))
            if (mu_parse_int("cpu", cpu, 0, MU_CPUSET_MAX - 1, &n, NULL) == 0)
                mu_cpuset_add(&set, (int)n);
        mu_cpuset_and(&set, cpus);
        if (mu_cores_add_group(node, &set, numa, package, err) < 0)
            return -1;
    }
    return 0;
}

/* packages= and caches=, 0:0,4,12/1:1,6, for the cores from index `from` on. Numbers
 * are counted within the <cpu>. Several packages in one NUMA node are the whole
 * machine. A cache number is added to the index of the first core, which makes it
 * unique.
 */
static void set_groups(struct mu_node *node, int from, char *list, bool caches)
{
    struct mu_cpuset set;
    char *item, *colon;
    long group;

    while ((item = mu_parse_next(&list, '/'))) {
        colon = strchr(item, ':');
        if (!colon)
            continue;
        *colon = '\0';
        memset(&set, 0, sizeof set);
        if (mu_parse_int("group", item, 0, 65535, &group, NULL) < 0 ||
            mu_cpuset_parse(colon + 1, &set, NULL) < 0)
            continue;
        for (int i = from; i < node->ncores; i++) {
            if (!mu_cpuset_has(&set, node->cores[i].cpu[0]))
                continue;
            if (caches)
                node->cores[i].cache = from + (int)group;
            else
                node->cores[i].package = (int)group;
        }
    }
}

int mu_nccl_add_cores(struct mu_machine *machine, const char *notes,
                      const struct mu_cpuset *cpus, int numa, int package,
                      struct mu_err *err)
{
    struct mu_node *node = &machine->node;
    long threads = mu_nccl_note_number(notes, "smt", 1, MU_CORE_CPUS, 0);
    long stride = mu_nccl_note_number(notes, "stride", 1, MU_CPUSET_MAX, 1);
    long per_cache = mu_nccl_note_number(notes, "cache", 1, 65535, 0);
    int before = node->ncores;
    char listed[256];

    if (mu_nccl_note(notes, "cores", listed, sizeof listed)) {
        node->core_data = true;
        if (add_listed_cores(node, listed, cpus, numa, package, err) < 0)
            return -1;
    } else if (threads > 0) {
        node->core_data = true;
        if (mu_cores_add_strided(node, cpus, (int)threads, (int)stride, numa, package,
                                 err) < 0)
            return -1;
    } else if (mu_cores_add_list(node, cpus, numa, package, err) < 0) {
        return -1;
    }
    if (mu_nccl_note(notes, "packages", listed, sizeof listed))
        set_groups(node, before, listed, false);
    if (mu_nccl_note(notes, "caches", listed, sizeof listed))
        set_groups(node, before, listed, true);
    /* POWER numbers the threads of a core in a row: one run may hold whole cores. */
    if (threads == 0 && strncmp(machine->arch, "ppc64", 5) == 0)
        node->smt_guess = true;
    for (int i = before; per_cache > 0 && i < node->ncores; i++)
        node->cores[i].cache = before + (i - before) / (int)per_cache;
    return 0;
}

/* The bridges that nccl_write.c noted above a device, and the host bridge above them:
 * the same tree as hwloc reports. Returns the parent's index, -1 on error.
 */
int mu_nccl_noted_parent(struct mu_machine *m, const char *notes, int cpu_dev,
                         struct mu_err *err)
{
    const struct mu_place above = *mu_pci_place(m, cpu_dev);
    char chain[256], host_name[MU_BUSID_LEN], local[256];
    int parent = -1;
    char *rest, *item;

    mu_nccl_note(notes, "host", host_name, sizeof host_name);
    for (int i = 0; i < m->ndevs && parent < 0; i++)
        if (m->dev[i].kind == MU_PCI_HOST && strcmp(m->dev[i].busid, host_name) == 0)
            parent = i;
    if (parent < 0) {
        struct mu_place *place = mu_add_place(m, err);
        struct mu_pci_dev *host = place ? mu_add_pci(m, err) : NULL;

        if (!host)
            return -1;
        *place = above;
        if (mu_nccl_note(notes, "local", local, sizeof local))
            mu_cpuset_parse(local, &place->local, NULL);
        if (mu_nccl_note_number(notes, "known", 0, 1, 1) == 0)
            place->numa = -1;
        place->package =
            (int)mu_nccl_note_number(notes, "package", 0, 65535, place->package);
        place->known = mu_nccl_note_number(notes, "known", 0, 1, place->known) == 1;
        host->kind = MU_PCI_HOST;
        host->place = m->nplaces - 1;
        mu_copy(host->busid, sizeof host->busid, host_name);
        parent = m->ndevs - 1;
    }
    mu_nccl_note(notes, "up", chain, sizeof chain);
    for (rest = chain[0] ? chain : NULL; (item = mu_parse_next(&rest, '/'));) {
        int found = -1;

        for (int i = 0; i < m->ndevs && found < 0; i++)
            if (m->dev[i].kind == MU_PCI_BRIDGE && m->dev[i].parent == parent &&
                strcmp(m->dev[i].busid, item) == 0)
                found = i;
        if (found < 0) {
            struct mu_pci_dev *bridge = mu_add_pci(m, err);

            if (!bridge)
                return -1;
            bridge->kind = MU_PCI_BRIDGE;
            bridge->parent = parent;
            mu_copy(bridge->busid, sizeof bridge->busid, item);
            found = m->ndevs - 1;
        }
        parent = found;
    }
    return parent;
}
