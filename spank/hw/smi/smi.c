/* SPDX-License-Identifier: BSD-3-Clause */
/* smi.c - a machine from the text of nvidia-smi topo -m (or -mp), or from a list of
 * CPUs by NUMA node as NVIDIA's benchmark harness writes it ("0-15&1:16-31&..."). The
 * text has no bus ids, cores or packages; they stay unknown.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/machine/cpulist.h"
#include "spank/hw/machine/machine.h"
#include "spank/hw/smi/smi_text.h"

/* Index of the NUMA node with this OS number, added when new; -1 without memory. */
static int numa_index(struct mu_node *node, int os_index, struct mu_err *err)
{
    struct mu_numa *numa;

    for (int i = 0; i < node->nnumas; i++)
        if (node->numas[i].os_index == os_index)
            return i;
    numa = mu_add_numa(node, err);
    if (!numa)
        return -1;
    numa->os_index = os_index;
    return node->nnumas - 1;
}

static int count_gpus(const struct mu_smi_table *t)
{
    int n = 0;

    for (int i = 0; i < t->ncols; i++)
        n += t->col[i].gpu;
    return n;
}

static bool in_a_row(const struct mu_cpuset *set)
{
    int first = mu_cpuset_next(set, -1), n = mu_cpuset_count(set);

    return n > 0 && mu_cpuset_has(set, first + n - 1) &&
           mu_cpuset_next(set, first + n - 1) < 0;
}

/* A list of several nodes: with memory-only nodes behind ("0,2-17") its first node has
 * the CPUs; a plain range ("0-1") is several nodes with CPUs, none of them nearer.
 */
static int cpu_numa(const struct mu_smi_col *col)
{
    struct mu_cpuset set = col->numas;

    if (!col->numas_given)
        return -1;
    mu_cpuset_remove(&set, col->gpu_numa);
    if (mu_cpuset_count(&set) == 1 || !in_a_row(&set) || col->gpu_numa >= 0)
        return mu_cpuset_next(&set, -1);
    return -1;
}

/* The driver prints every CPU (and every node, or N/A) when the firmware does not
 * report where a GPU is. Then all rows are equal. A machine with one node has equal
 * rows too, but no SYS between its GPUs. A row with one node is taken as it is.
 */
static bool locality_unknown(const struct mu_smi_table *t)
{
    const struct mu_smi_col *first = NULL;
    bool far = false, several = false;

    for (int i = 0; i < t->ncols; i++) {
        if (!t->col[i].gpu)
            continue;
        if (!first)
            first = &t->col[i];
        if (cpu_numa(&t->col[i]) >= 0 ||
            !mu_cpuset_equal(&first->cpus, &t->col[i].cpus))
            return false;
        several |= mu_cpuset_count(&t->col[i].numas) > 1;
        for (int c = 0; c < t->ncols; c++)
            far |= t->col[c].gpu && t->cell[i * t->ncols + c].path == MU_NEAR_SYS;
    }
    return far || several;
}

static int add_numas(struct mu_node *node, const struct mu_smi_col *col, int *index,
                     struct mu_err *err)
{
    int os = cpu_numa(col);

    *index = -1;
    if (os >= 0) {
        *index = numa_index(node, os, err);
        if (*index < 0)
            return -1;
        mu_cpuset_or(&node->numas[*index].cpus, &col->cpus);
    }
    for (int n = -1; os >= 0 && (n = mu_cpuset_next(&col->numas, n)) >= 0;)
        if (numa_index(node, n, err) < 0)
            return -1;
    return col->gpu_numa >= 0 && numa_index(node, col->gpu_numa, err) < 0 ? -1 : 0;
}

static int add_gpus(const struct mu_smi_table *t, struct mu_machine *m,
                    struct mu_err *err)
{
    struct mu_node *node = &m->node;
    bool unknown = locality_unknown(t);

    for (int i = 0; i < t->ncols; i++) {
        const struct mu_smi_col *col = &t->col[i];
        struct mu_gpu *gpu;
        int numa;

        if (!col->gpu)
            continue;
        if (add_numas(node, col, &numa, err) < 0)
            return -1;
        gpu = mu_add_gpu(m, -1, err);
        if (!gpu)
            return -1;
        gpu->vendor = MU_VENDOR_NVIDIA;
        gpu->numa = numa;
        gpu->local_known = !unknown && (col->cpus_given || numa >= 0);
        if (gpu->local_known)
            gpu->local = col->cpus;
        if (mu_cores_add_list(node, &col->cpus, numa, -1, err) < 0)
            return -1;
    }
    for (int i = 0; i < t->ncols; i++)
        for (int n = 0; n < node->nnumas; n++)
            if (node->numas[n].os_index == t->col[i].gpu_numa ||
                (mu_cpuset_empty(&node->numas[n].cpus) &&
                 mu_cpuset_count(&t->col[i].numas) > 1 &&
                 mu_cpuset_has(&t->col[i].numas, node->numas[n].os_index)))
                node->numas[n].gpu_memory = true;
    return 0;
}

static int add_nics(const struct mu_smi_table *t, struct mu_machine *m,
                    struct mu_err *err)
{
    for (int i = 0; i < t->ncols; i++) {
        struct mu_nic *nic;

        if (t->col[i].gpu)
            continue;
        nic = mu_add_nic(m, -1, err);
        if (!nic)
            return -1;
        mu_copy(nic->name, sizeof nic->name, t->col[i].name);
    }
    return 0;
}

/* Under NV# the PCI path is hidden; the NUMA nodes bound it. */
static enum mu_nearness hidden_path(const struct mu_gpu *a, const struct mu_gpu *b)
{
    if (a->numa < 0 || b->numa < 0)
        return MU_NEAR_NONE;
    return a->numa == b->numa ? MU_NEAR_NODE : MU_NEAR_SYS;
}

static void fill_matrices(const struct mu_smi_table *t, struct mu_node *node)
{
    for (int r = 0, g = -1; r < t->ncols; r++) {
        int gpus = 0, nics = 0;

        if (!t->col[r].gpu)
            continue;
        g++;
        for (int c = 0; c < t->ncols; c++) {
            const struct mu_smi_cell *cell = &t->cell[r * t->ncols + c];

            if (!t->col[c].gpu) {
                node->gpu_nic[g * node->nnics + nics++] = cell->path;
                continue;
            }
            node->nvlinks[g * node->ngpus + gpus] = cell->nvlinks;
            node->gpu_gpu[g * node->ngpus + gpus] =
                c == r          ? MU_NEAR_PIX
                : cell->nvlinks ? hidden_path(&node->gpus[g], &node->gpus[gpus])
                                : cell->path;
            gpus++;
        }
    }
}

static int from_table(const struct mu_smi_table *t, struct mu_machine *m,
                      struct mu_err *err)
{
    if (count_gpus(t) == 0)
        return mu_err_set(err, EINVAL, "the table has no GPU");
    if (add_gpus(t, m, err) < 0 || add_nics(t, m, err) < 0 ||
        mu_node_matrices(&m->node, err) < 0)
        return -1;
    fill_matrices(t, &m->node);
    return 0;
}

/* One field per NUMA node between '&', the GPUs near it (if any) before a colon:
 * "0-15,128-143&1:16-31,144-159". Returns the line's number, 0 when there is no such
 * line.
 */
static int numa_config_line(const char *text, char *out, size_t len)
{
    int line = 1;

    for (const char *p = text; *p; line++) {
        size_t n = strcspn(p, "\n");

        if (n > 0 && n < len && memchr(p, '&', n) &&
            strspn(p, "0123456789-,:& ") >= n) {
            memcpy(out, p, n);
            out[n] = '\0';
            return line;
        }
        p += n + (p[n] == '\n');
    }
    return 0;
}

static int config_gpus(struct mu_machine *m, const char *list, struct mu_cpuset *where,
                       int *owner, struct mu_err *err)
{
    struct mu_cpuset gpus;

    if (mu_cpuset_parse(list, &gpus, err) < 0)
        return -1;
    for (int g = -1; (g = mu_cpuset_next(&gpus, g)) >= 0;) {
        if (g >= 1024 || owner[g] >= 0)
            return mu_err_set(err, EINVAL, "GPU %d is listed twice or out of range", g);
        owner[g] = m->node.nnumas - 1;
        mu_cpuset_add(where, g);
    }
    return 0;
}

static int from_numa_config(char *line, struct mu_machine *m, struct mu_err *err)
{
    struct mu_cpuset named = { { 0 } };
    struct mu_node *node = &m->node;
    char *rest = line, *field;
    int owner[1024];

    for (int i = 0; i < 1024; i++)
        owner[i] = -1;
    for (int os = 0; (field = mu_parse_next(&rest, '&')); os++) {
        struct mu_numa *numa = mu_add_numa(node, err);
        char *colon = strchr(field, ':');

        if (!numa)
            return -1;
        numa->os_index = os;
        if (mu_cpuset_parse(colon ? colon + 1 : field, &numa->cpus, err) < 0 ||
            mu_cores_add_list(node, &numa->cpus, os, -1, err) < 0)
            return -1;
        if (colon) {
            *colon = '\0';
            if (config_gpus(m, field, &named, owner, err) < 0)
                return -1;
        }
    }
    for (int g = 0; g < mu_cpuset_count(&named); g++) {
        struct mu_gpu *gpu;

        if (!mu_cpuset_has(&named, g))
            return mu_err_set(err, EINVAL, "GPU %d is missing", g);
        gpu = mu_add_gpu(m, -1, err);
        if (!gpu)
            return -1;
        gpu->numa = owner[g];
        gpu->local = node->numas[owner[g]].cpus;
        gpu->local_known = true;
    }
    return mu_node_matrices(node, err);
}

static int read_clean(const char *name, char *text, struct mu_machine *m,
                      struct mu_err *err)
{
    struct mu_smi_table table = { 0 };
    char config[8192];
    int line, rc;

    mu_smi_strip(text);
    line = numa_config_line(text, config, sizeof config);
    if (line > 0) {
        rc = from_numa_config(config, m, err);
        if (rc == 0)
            rc = mu_machine_finish(m, err);
        return rc < 0 ? mu_err_context(err, "%s: line %d", name, line) : 0;
    }
    if (mu_smi_table_parse(name, text, &table, err) < 0)
        return -1;
    rc = from_table(&table, m, err);
    if (rc == 0)
        rc = mu_machine_finish(m, err);
    if (rc < 0)
        mu_err_context(err, "%s", name);
    mu_smi_table_clear(&table);
    return rc;
}

int mu_read_smi(const char *name, const char *text, size_t len,
                struct mu_machine *machine, struct mu_err *err)
{
    char *copy = malloc(len + 1);
    int rc;

    if (!copy)
        return mu_err_set(err, ENOMEM, "%s: no memory to read it", name);
    memcpy(copy, text, len);
    copy[len] = '\0';
    rc = read_clean(name, copy, machine, err);
    if (rc == 0)
        mu_copy(machine->node.source, sizeof machine->node.source, "nvidia-smi");
    else
        mu_machine_clear(machine);
    free(copy);
    return rc;
}
