/* SPDX-License-Identifier: BSD-3-Clause */
/* topo_svg_node.c - packages, NUMA nodes, cores, GPUs and NICs in the drawing */
#include <string.h>

#include "spank/tools/topo_svg.h"

#define DEVICE_H 34
#define NO_TASK "#e8e8e8"

static int task_of_core(const struct mu_svg *d, const struct mu_core *core)
{
    for (int t = 0; d->plan && t < d->plan->nslots; t++)
        if (mu_core_in(core, &d->plan->slots[t].cpus))
            return t;
    return -1;
}

static int task_of_gpu(const struct mu_svg *d, int gpu)
{
    for (int t = 0; d->plan && t < d->plan->nslots; t++)
        for (int g = 0; g < d->plan->slots[t].ngpus; g++)
            if (d->plan->slots[t].gpu_node[g] == gpu)
                return t;
    return -1;
}

static const char *fill(int task, char buf[8])
{
    return task < 0 ? NO_TASK : mu_svg_colour(task, buf);
}

static int count_at(const struct mu_svg *d, int numa, int *cores)
{
    int devices = 0;

    *cores = 0;
    for (int i = 0; i < d->node->ncores; i++)
        *cores += d->node->cores[i].numa == numa;
    for (int i = 0; i < d->node->ngpus; i++)
        devices += d->node->gpus[i].numa == numa;
    for (int i = 0; i < d->node->nnics; i++)
        devices += d->node->nics[i].numa == numa;
    return devices;
}

static int numa_height(const struct mu_svg *d, int numa)
{
    int cores, devices = count_at(d, numa, &cores);

    return 34 + (cores + MU_SVG_PER_ROW - 1) / MU_SVG_PER_ROW * MU_SVG_CORE +
           (devices + 1) / 2 * (DEVICE_H + 4) + MU_SVG_PAD;
}

static void draw_core(const struct mu_svg *d, const struct mu_core *core, int x, int y)
{
    char buf[8], cpu[16];

    mu_svg_box(d, x, y, MU_SVG_CORE - 2, MU_SVG_CORE - 2,
               fill(task_of_core(d, core), buf), "#888888");
    snprintf(cpu, sizeof cpu, "%d", core->cpu[0]);
    mu_svg_text(d, x + (MU_SVG_CORE - 2) / 2, y + 12, 8, "middle", cpu);
}

static void draw_gpu(const struct mu_svg *d, int g, int x, int y)
{
    int task = task_of_gpu(d, g);
    char buf[8], line[96];

    mu_svg_box(d, x, y, MU_SVG_NUMA_W / 2 - MU_SVG_PAD - 2, DEVICE_H, fill(task, buf),
               "#333333");
    if (task >= 0)
        snprintf(line, sizeof line, "GPU %d: task %d", g, d->plan->slots[task].task);
    else
        snprintf(line, sizeof line, "GPU %d", g);
    mu_svg_text(d, x + 6, y + 14, 11, "start", line);
    mu_svg_text(d, x + 6, y + 28, 10, "start", d->node->gpus[g].label);
}

static bool nic_used(const struct mu_svg *d, int nic)
{
    for (int t = 0; d->plan && t < d->plan->nslots; t++)
        for (int i = 0; i < d->plan->slots[t].nnics; i++)
            if (d->plan->slots[t].nic[i] == nic)
                return true;
    return false;
}

static void draw_nic(const struct mu_svg *d, int n, int x, int y)
{
    const struct mu_nic *nic = &d->node->nics[n];

    mu_svg_box(d, x, y, MU_SVG_NUMA_W / 2 - MU_SVG_PAD - 2, DEVICE_H, "#ffffff",
               nic_used(d, n) ? "#000000" : "#bbbbbb");
    mu_svg_text(d, x + 6, y + 14, 11, "start", mu_topo_nic(nic));
    if (nic->name[0] && nic->busid[0])
        mu_svg_text(d, x + 6, y + 28, 10, "start", nic->busid);
}

static void numa_title(const struct mu_svg *d, int numa, char *buf, size_t len)
{
    const struct mu_numa *n = numa < 0 ? NULL : &d->node->numas[numa];
    char cpus[60] = "";

    if (!n) {
        snprintf(buf, len, "no NUMA node known");
        return;
    }
    if (mu_cpuset_format(&n->cpus, cpus, sizeof cpus) >= (int)sizeof cpus)
        memcpy(cpus + sizeof cpus - 4, "...", 4);
    if (n->gpu_memory)
        snprintf(buf, len, "NUMA %d: GPU memory", n->os_index);
    else if (!cpus[0])
        snprintf(buf, len, "NUMA %d: no CPUs", n->os_index);
    else
        snprintf(buf, len, "NUMA %d: CPUs %s", n->os_index, cpus);
}

static void draw_numa(const struct mu_svg *d, int numa, int x, int y, int height)
{
    int cores = 0, all, devices = 0, top;
    char title[128];

    count_at(d, numa, &all);
    mu_svg_box(d, x, y, MU_SVG_NUMA_W, height, "#f7f7f2", "#999988");
    numa_title(d, numa, title, sizeof title);
    mu_svg_text(d, x + MU_SVG_PAD, y + 20, 11, "start", title);
    for (int i = 0; i < d->node->ncores; i++)
        if (d->node->cores[i].numa == numa) {
            draw_core(d, &d->node->cores[i],
                      x + MU_SVG_PAD + cores % MU_SVG_PER_ROW * MU_SVG_CORE,
                      y + 28 + cores / MU_SVG_PER_ROW * MU_SVG_CORE);
            cores++;
        }
    top = y + 32 + (all + MU_SVG_PER_ROW - 1) / MU_SVG_PER_ROW * MU_SVG_CORE;
    for (int i = 0; i < d->node->ngpus + d->node->nnics; i++) {
        bool gpu = i < d->node->ngpus;
        int index = gpu ? i : i - d->node->ngpus;
        int dx = x + MU_SVG_PAD + devices % 2 * (MU_SVG_NUMA_W / 2 - MU_SVG_PAD + 2);
        int dy = top + devices / 2 * (DEVICE_H + 4);

        if ((gpu ? d->node->gpus[index].numa : d->node->nics[index].numa) != numa)
            continue;
        if (gpu)
            draw_gpu(d, index, dx, dy);
        else
            draw_nic(d, index, dx, dy);
        devices++;
    }
}

static bool in_package(const struct mu_svg *d, int numa, int package)
{
    int cores, devices = count_at(d, numa, &cores);

    if (numa < 0)
        return package == -1 && devices + cores > 0;
    return d->node->numas[numa].package == package &&
           (devices > 0 || !mu_cpuset_empty(&d->node->numas[numa].cpus));
}

/* Lists NUMA nodes without CPUs and devices (Grace has dozens) in one line. */
void mu_svg_memory_nodes(const struct mu_svg *d, int y)
{
    struct mu_cpuset gpu = { { 0 } }, other = { { 0 } }, elsewhere = { { 0 } };
    char line[768], list[160];
    int used = 0;

    for (int i = 0; i < d->node->nnumas; i++) {
        const struct mu_numa *n = &d->node->numas[i];
        int cores;

        if (mu_cpuset_empty(&n->cpus) && count_at(d, i, &cores) == 0)
            mu_cpuset_add(n->gpu_memory       ? &gpu
                          : n->cpus_elsewhere ? &elsewhere
                                              : &other,
                          n->os_index);
    }
    mu_cpuset_format(&gpu, list, sizeof list);
    if (list[0])
        used = snprintf(line, sizeof line, "GPU memory: NUMA %s   ", list);
    mu_cpuset_format(&other, list, sizeof list);
    if (list[0])
        used += snprintf(line + used, sizeof line - (size_t)used,
                         "memory only: NUMA %s   ", list);
    mu_cpuset_format(&elsewhere, list, sizeof list);
    if (list[0])
        used += snprintf(line + used, sizeof line - (size_t)used,
                         "CPUs not of this step: NUMA %s", list);
    if (used > 0)
        mu_svg_text(d, MU_SVG_PAD, y, 12, "start", line);
}

/* Draws a package with its NUMA nodes; returns the y below it, or y if it is empty. */
static int draw_package(const struct mu_svg *d, int package, int y, bool measure)
{
    int n = 0, row_height = 0, row, bottom;
    char title[64];

    for (int pass = measure; pass < 2; pass++) {
        n = 0;
        row = y + 26;
        row_height = 0;
        for (int i = 0; i <= d->node->nnumas; i++) {
            int numa = i < d->node->nnumas ? i : -1; /* last: what has no node */

            if (!in_package(d, numa, package))
                continue;
            if (n > 0 && n % MU_SVG_PER_PACKAGE == 0) {
                row += row_height + MU_SVG_PAD;
                row_height = 0;
            }
            if (pass == 1 && !measure)
                draw_numa(d, numa,
                          2 * MU_SVG_PAD +
                              n % MU_SVG_PER_PACKAGE * (MU_SVG_NUMA_W + MU_SVG_PAD),
                          row, numa_height(d, numa));
            if (numa_height(d, numa) > row_height)
                row_height = numa_height(d, numa);
            n++;
        }
        bottom = row + row_height + MU_SVG_PAD;
        if (pass == 0 && n > 0) {
            int columns = n < MU_SVG_PER_PACKAGE ? n : MU_SVG_PER_PACKAGE;

            mu_svg_box(d, MU_SVG_PAD, y,
                       columns * (MU_SVG_NUMA_W + MU_SVG_PAD) + MU_SVG_PAD, bottom - y,
                       "#ffffff", "#666666");
            if (package >= 0)
                snprintf(title, sizeof title, "package %d", package);
            else
                snprintf(title, sizeof title, "package not known");
            mu_svg_text(d, 2 * MU_SVG_PAD, y + 18, 12, "start", title);
        }
    }
    return n > 0 ? bottom + MU_SVG_PAD : y;
}

int mu_svg_packages(const struct mu_svg *d, int y, bool measure)
{
    int last = -2, next;

    for (;;) {
        next = last;
        for (int i = 0; i < d->node->nnumas; i++)
            if (d->node->numas[i].package > last &&
                (next == last || d->node->numas[i].package < next))
                next = d->node->numas[i].package;
        if (last < -1 && in_package(d, -1, -1))
            next = -1;
        if (next == last)
            return y;
        y = draw_package(d, next, y, measure);
        last = next;
    }
}
