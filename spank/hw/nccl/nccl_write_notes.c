/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_write_notes.c - the muster="..." attribute of each <cpu> and <pci>; its keys are
 * in nccl_dialect.h
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "spank/hw/machine/cpulist.h"
#include "spank/hw/nccl/nccl_dialect.h"
#include "spank/hw/nccl/nccl_write.h"

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

static void put_notes(struct mu_nccl_writer *w, const struct notes *n)
{
    if (n->used > 0 && n->used <= MU_NCCL_STRING_MAX)
        fprintf(w->out, " muster=\"%s\"", n->text);
}

void mu_nccl_put_leaf_notes(struct mu_nccl_writer *w, int dev)
{
    const struct mu_machine *m = w->m;
    const struct mu_node *node = &m->node;
    const struct mu_place *place = mu_pci_place(m, dev);
    int host = dev, chain[MU_NCCL_DEEPEST], above = 0, parts = 0;
    struct notes notes = { .used = 0 };
    char text[8192] = "";
    size_t used = 0;

    for (; m->dev[host].parent >= 0; host = m->dev[host].parent)
        if (m->dev[host].kind == MU_PCI_BRIDGE && above < MU_NCCL_DEEPEST)
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

void mu_nccl_usable_cpus(const struct mu_node *node, int numa, struct mu_cpuset *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < node->ncores; i++)
        for (int c = 0; node->cores[i].numa == numa && c < node->cores[i].ncpus; c++)
            mu_cpuset_add(out, node->cores[i].cpu[c]);
}

void mu_nccl_put_cpu_notes(struct mu_nccl_writer *w, int numa,
                           const struct mu_cpuset *affinity, const bool *written)
{
    const struct mu_node *node = &w->m->node;
    struct notes notes = { .used = 0 };
    int threads, stride, per_cache = cores_per_cache(node, numa);
    struct mu_cpuset usable;
    char text[8192];
    size_t used = 0;

    if (!node->core_data)
        return;
    mu_nccl_usable_cpus(node, numa, &usable);
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
