/* SPDX-License-Identifier: BSD-3-Clause */
/* topo_text.c - prints the node as tables */

#include "spank/tools/topo.h"

const char *mu_topo_cell(char buf[16], enum mu_nearness path, int nvlinks, int vendor)
{
    if (nvlinks > 0)
        snprintf(buf, 16, "%s%d", vendor == MU_VENDOR_AMD ? "XGMI" : "NV", nvlinks);
    else
        snprintf(buf, 16, "%s", mu_nearness_name(path));
    return buf;
}

const char *mu_topo_nic(const struct mu_nic *nic)
{
    return nic->name[0] ? nic->name : nic->busid;
}

int mu_topo_nearest(const struct mu_node *node, int gpu, int *nic, int most,
                    enum mu_nearness *path)
{
    const enum mu_nearness *row = node->gpu_nic + gpu * node->nnics;
    int n = 0;

    *path = MU_NEAR_NONE;
    for (int i = 0; i < node->nnics; i++)
        if (row[i] < *path)
            *path = row[i];
    for (int i = 0; i < node->nnics && *path != MU_NEAR_NONE; i++)
        if (row[i] == *path && n < most)
            nic[n++] = i;
    return n;
}

static int count_cpus(const struct mu_node *node)
{
    int n = 0;

    for (int i = 0; i < node->ncores; i++)
        n += node->cores[i].ncpus;
    return n;
}

static const char *cpu_list(const struct mu_cpuset *set, char *buf, size_t len)
{
    mu_cpuset_format(set, buf, len);
    if (!buf[0])
        snprintf(buf, len, "-");
    return buf;
}

static const char *memory(uint64_t bytes, char buf[16])
{
    if (bytes == UINT64_MAX)
        snprintf(buf, 16, "?");
    else
        snprintf(buf, 16, "%.1f GiB", (double)bytes / (1u << 30));
    return buf;
}

static const char *number(int n, char buf[16])
{
    snprintf(buf, 16, n < 0 ? "?" : "%d", n);
    return buf;
}

static int devices_at(const struct mu_node *node, int numa, char *buf, size_t len,
                      bool nics)
{
    int n = 0, total = nics ? node->nnics : node->ngpus;
    size_t used = 0;

    buf[0] = '\0';
    for (int i = 0; i < total; i++) {
        char id[16];

        if ((nics ? node->nics[i].numa : node->gpus[i].numa) != numa)
            continue;
        n++;
        if (used < len)
            used +=
                (size_t)snprintf(buf + used, len - used, "%s%s", used ? "," : "",
                                 nics ? mu_topo_nic(&node->nics[i]) : number(i, id));
    }
    if (n == 0)
        snprintf(buf, len, "-");
    return n;
}

static void numa_table(FILE *out, const struct mu_node *node)
{
    char gpus[512], nics[1024], cpus[8192], mem[16], package[16];

    if (node->nnumas == 0)
        return;
    fprintf(out, "\n%-5s %-8s %-11s %-12s %-20s %s\n", "NUMA", "package", "memory",
            "GPUs", "NICs", "CPUs");
    for (int i = 0; i < node->nnumas; i++) {
        const struct mu_numa *numa = &node->numas[i];

        devices_at(node, i, gpus, sizeof gpus, false);
        devices_at(node, i, nics, sizeof nics, true);
        fprintf(out, "%-5d %-8s %-11s %-12s %-20s %s%s\n", numa->os_index,
                number(numa->package, package), memory(numa->memory, mem), gpus, nics,
                cpu_list(&numa->cpus, cpus, sizeof cpus),
                numa->gpu_memory               ? " (GPU memory)"
                : numa->cpus_elsewhere         ? " (its CPUs are not of this step)"
                : mu_cpuset_empty(&numa->cpus) ? " (memory only)"
                : numa->memory == 0            ? " (no memory)"
                                               : "");
    }
}

static void gpu_table(FILE *out, const struct mu_node *node)
{
    char cpus[8192];

    if (node->ngpus == 0)
        return;
    fprintf(out, "\n%-4s %-16s %-5s %-30s %-5s %s\n", "GPU", "bus id", "NUMA",
            "nearest NICs", "path", "local CPUs");
    for (int i = 0; i < node->ngpus; i++) {
        const struct mu_gpu *gpu = &node->gpus[i];
        char nics[1024] = "-", numa[16];
        int nic[MU_GPUS_MAX], n;
        size_t used = 0;
        enum mu_nearness path;

        n = mu_topo_nearest(node, i, nic, MU_GPUS_MAX, &path);
        for (int k = 0; k < n && used < sizeof nics; k++)
            used += (size_t)snprintf(nics + used, sizeof nics - used, "%s%s",
                                     k ? "," : "", mu_topo_nic(&node->nics[nic[k]]));
        fprintf(out, "%-4d %-16s %-5s %-30s %-5s %s\n", i, gpu->label,
                number(gpu->numa < 0 ? -1 : node->numas[gpu->numa].os_index, numa),
                nics, mu_nearness_name(path),
                gpu->local_known ? cpu_list(&gpu->local, cpus, sizeof cpus)
                                 : "unknown");
        if (gpu->model[0] || gpu->uuid[0])
            fprintf(out, "     %s%s%s\n", gpu->model, gpu->model[0] ? "  " : "",
                    gpu->uuid);
    }
}

static void link_table(FILE *out, const struct mu_node *node)
{
    char cell[16];

    if (node->ngpus < 1 || node->ngpus + node->nnics < 2)
        return;
    fprintf(out, "\n%-6s", "");
    for (int i = 0; i < node->ngpus; i++)
        fprintf(out, " GPU%-4d", i);
    for (int i = 0; i < node->nnics; i++)
        fprintf(out, " NIC%-4d", i);
    fputc('\n', out);
    for (int r = 0; r < node->ngpus; r++) {
        fprintf(out, "GPU%-3d", r);
        for (int c = 0; c < node->ngpus; c++)
            fprintf(out, " %-7s",
                    r == c ? "X"
                           : mu_topo_cell(cell, node->gpu_gpu[r * node->ngpus + c],
                                          node->nvlinks[r * node->ngpus + c],
                                          node->gpus[r].vendor));
        for (int c = 0; c < node->nnics; c++)
            fprintf(out, " %-7s", mu_nearness_name(node->gpu_nic[r * node->nnics + c]));
        fputc('\n', out);
    }
}

static void nic_table(FILE *out, const struct mu_node *node)
{
    if (node->nnics == 0)
        return;
    fprintf(out, "\n%-4s %-16s %-16s %-5s %-11s %-6s %s\n", "NIC", "name", "bus id",
            "NUMA", "layer", "port", "Gb/s");
    for (int i = 0; i < node->nnics; i++) {
        const struct mu_nic *nic = &node->nics[i];
        char numa[16], rate[32] = "?";

        if (nic->gbits > 0)
            snprintf(rate, sizeof rate, "%g", nic->gbits);
        fprintf(out, "%-4d %-16s %-16s %-5s %-11s %-6s %s\n", i,
                nic->name[0] ? nic->name : "-", nic->busid[0] ? nic->busid : "-",
                number(nic->numa < 0 ? -1 : node->numas[nic->numa].os_index, numa),
                nic->layer == MU_LINK_UNKNOWN ? "?" : mu_link_layer_name(nic->layer),
                nic->active ? "up" : "down", rate);
    }
}

/* Prints facts that are easily missed in the tables. */
static void remarks(FILE *out, const struct mu_node *node)
{
    struct mu_cpuset empty = { { 0 } };
    char list[1024], devices[512];
    int unknown = 0, alone = 0;

    for (int i = 0; i < node->ngpus; i++)
        unknown += !node->gpus[i].local_known;
    for (int i = 0; node->ngpus > 0 && i < node->nnumas; i++)
        if (!mu_cpuset_empty(&node->numas[i].cpus) &&
            devices_at(node, i, devices, sizeof devices, false) == 0)
            mu_cpuset_add(&empty, node->numas[i].os_index);
    fputc('\n', out);
    if (!mu_cpuset_empty(&empty) && unknown == 0)
        fprintf(out, "NUMA node%s %s: no GPU there.\n",
                mu_plural(mu_cpuset_count(&empty)),
                cpu_list(&empty, list, sizeof list));
    if (unknown > 0)
        fprintf(out,
                "PCI locality of %d of %d GPU%s unknown%s: CPUs are divided evenly, "
                "memory is not bound.\n",
                unknown, node->ngpus, mu_plural(node->ngpus),
                node->virtual_machine ? " (virtual machine)" : "");
    for (int i = 0; i < node->ngpus; i++) {
        enum mu_nearness path;
        int nic;

        mu_topo_nearest(node, i, &nic, 1, &path);
        alone += path == MU_NEAR_SYS;
    }
    if (alone > 0)
        fprintf(out, "%d of %d GPU%s without a NIC nearer than SYS.\n", alone,
                node->ngpus, mu_plural(node->ngpus));
    if (node->smt_guess)
        fputs("The source lists CPUs in runs of unequal length: each CPU counts as a "
              "core (smt?).\n",
              out);
}

void mu_topo_text(FILE *out, const struct mu_node *node)
{
    int cpus = count_cpus(node);

    fprintf(out, "%s%s%s: %d core%s, %d CPU%s, %d NUMA node%s, %d GPU%s, %d NIC%s%s\n",
            node->source, node->host[0] ? " " : "", node->host, node->ncores,
            mu_plural(node->ncores), cpus, mu_plural(cpus), node->nnumas,
            mu_plural(node->nnumas), node->ngpus, mu_plural(node->ngpus), node->nnics,
            mu_plural(node->nnics), node->virtual_machine ? ", virtual machine" : "");
    numa_table(out, node);
    gpu_table(out, node);
    nic_table(out, node);
    link_table(out, node);
    remarks(out, node);
}
