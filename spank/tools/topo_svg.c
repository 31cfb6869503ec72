/* SPDX-License-Identifier: BSD-3-Clause */
/* topo_svg.c - a drawing of the node and of the plan on it.
 *
 * lstopo is not used: it can colour cores, but cannot draw tasks, links between GPUs,
 * or machines that are known only from NCCL files or nvidia-smi's text.
 */
#include <math.h>
#include <string.h>

#include "spank/tools/topo.h"

#define CORE 20    /* side of a core's square */
#define PER_ROW 16 /* cores in a row */
#define PAD 10
#define NUMA_W (PER_ROW * CORE + 2 * PAD)
#define DEVICE_H 34
#define PER_PACKAGE 4 /* NUMA boxes side by side */
#define LEGEND_H 20
#define CELL_W 46
#define CELL_H 18
#define NO_TASK "#e8e8e8"

struct drawing {
    FILE *out;
    const struct mu_node *node;
    const struct mu_plan *plan; /* or NULL */
};

/* Steps of the golden angle give neighbouring tasks hues that differ well. */
static const char *colour(int task, char buf[8])
{
    double h = fmod(task * 137.508, 360) / 60, x = 1 - fabs(fmod(h, 2) - 1);
    double rgb[6][3] = { { 1, x, 0 }, { x, 1, 0 }, { 0, 1, x },
                         { 0, x, 1 }, { x, 0, 1 }, { 1, 0, x } };
    const double *c = rgb[(int)h % 6];
    double low = task / 7 % 2 ? 105 : 135; /* a second round is darker */

    snprintf(buf, 8, "#%02x%02x%02x", (int)(low + c[0] * 115), (int)(low + c[1] * 115),
             (int)(low + c[2] * 115));
    return buf;
}

static int task_of_core(const struct drawing *d, const struct mu_core *core)
{
    for (int t = 0; d->plan && t < d->plan->nslots; t++)
        if (mu_core_in(core, &d->plan->slots[t].cpus))
            return t;
    return -1;
}

static int task_of_gpu(const struct drawing *d, int gpu)
{
    for (int t = 0; d->plan && t < d->plan->nslots; t++)
        for (int g = 0; g < d->plan->slots[t].ngpus; g++)
            if (d->plan->slots[t].gpu_node[g] == gpu)
                return t;
    return -1;
}

static const char *fill(int task, char buf[8])
{
    return task < 0 ? NO_TASK : colour(task, buf);
}

static void text(const struct drawing *d, int x, int y, int size, const char *anchor,
                 const char *string)
{
    fprintf(d->out, "<text x=\"%d\" y=\"%d\" font-size=\"%d\" text-anchor=\"%s\">", x,
            y, size, anchor);
    for (; *string; string++)
        switch (*string) {
        case '<':
            fputs("&lt;", d->out);
            break;
        case '>':
            fputs("&gt;", d->out);
            break;
        case '&':
            fputs("&amp;", d->out);
            break;
        default:
            if ((unsigned char)*string >= 32)
                fputc(*string, d->out);
        }
    fputs("</text>\n", d->out);
}

static void box(const struct drawing *d, int x, int y, int w, int h, const char *colour,
                const char *stroke)
{
    fprintf(
        d->out,
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"%s\" "
        "rx=\"2\"/>\n",
        x, y, w, h, colour, stroke);
}

static int count_at(const struct drawing *d, int numa, int *cores)
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

static int numa_height(const struct drawing *d, int numa)
{
    int cores, devices = count_at(d, numa, &cores);

    return 34 + (cores + PER_ROW - 1) / PER_ROW * CORE +
           (devices + 1) / 2 * (DEVICE_H + 4) + PAD;
}

static void draw_core(const struct drawing *d, const struct mu_core *core, int x, int y)
{
    char buf[8], cpu[16];

    box(d, x, y, CORE - 2, CORE - 2, fill(task_of_core(d, core), buf), "#888888");
    snprintf(cpu, sizeof cpu, "%d", core->cpu[0]);
    text(d, x + (CORE - 2) / 2, y + 12, 8, "middle", cpu);
}

static void draw_gpu(const struct drawing *d, int g, int x, int y)
{
    int task = task_of_gpu(d, g);
    char buf[8], line[96];

    box(d, x, y, NUMA_W / 2 - PAD - 2, DEVICE_H, fill(task, buf), "#333333");
    if (task >= 0)
        snprintf(line, sizeof line, "GPU %d: task %d", g, d->plan->slots[task].task);
    else
        snprintf(line, sizeof line, "GPU %d", g);
    text(d, x + 6, y + 14, 11, "start", line);
    text(d, x + 6, y + 28, 10, "start", d->node->gpus[g].label);
}

static bool nic_used(const struct drawing *d, int nic)
{
    for (int t = 0; d->plan && t < d->plan->nslots; t++)
        for (int i = 0; i < d->plan->slots[t].nnics; i++)
            if (d->plan->slots[t].nic[i] == nic)
                return true;
    return false;
}

static void draw_nic(const struct drawing *d, int n, int x, int y)
{
    const struct mu_nic *nic = &d->node->nics[n];

    box(d, x, y, NUMA_W / 2 - PAD - 2, DEVICE_H, "#ffffff",
        nic_used(d, n) ? "#000000" : "#bbbbbb");
    text(d, x + 6, y + 14, 11, "start", mu_topo_nic(nic));
    if (nic->name[0] && nic->busid[0])
        text(d, x + 6, y + 28, 10, "start", nic->busid);
}

static void numa_title(const struct drawing *d, int numa, char *buf, size_t len)
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

static void draw_numa(const struct drawing *d, int numa, int x, int y, int height)
{
    int cores = 0, all, devices = 0, top;
    char title[128];

    count_at(d, numa, &all);
    box(d, x, y, NUMA_W, height, "#f7f7f2", "#999988");
    numa_title(d, numa, title, sizeof title);
    text(d, x + PAD, y + 20, 11, "start", title);
    for (int i = 0; i < d->node->ncores; i++)
        if (d->node->cores[i].numa == numa) {
            draw_core(d, &d->node->cores[i], x + PAD + cores % PER_ROW * CORE,
                      y + 28 + cores / PER_ROW * CORE);
            cores++;
        }
    top = y + 32 + (all + PER_ROW - 1) / PER_ROW * CORE;
    for (int i = 0; i < d->node->ngpus + d->node->nnics; i++) {
        bool gpu = i < d->node->ngpus;
        int index = gpu ? i : i - d->node->ngpus;
        int dx = x + PAD + devices % 2 * (NUMA_W / 2 - PAD + 2);
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

static bool in_package(const struct drawing *d, int numa, int package)
{
    int cores, devices = count_at(d, numa, &cores);

    if (numa < 0)
        return package == -1 && devices + cores > 0;
    return d->node->numas[numa].package == package &&
           (devices > 0 || !mu_cpuset_empty(&d->node->numas[numa].cpus));
}

/* Lists NUMA nodes without CPUs and devices (Grace has dozens) in one line. */
static void draw_memory_nodes(const struct drawing *d, int y)
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
        text(d, PAD, y, 12, "start", line);
}

/* Draws a package with its NUMA nodes; returns the y below it, or y if it is empty. */
static int draw_package(const struct drawing *d, int package, int y, bool measure)
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
            if (n > 0 && n % PER_PACKAGE == 0) {
                row += row_height + PAD;
                row_height = 0;
            }
            if (pass == 1 && !measure)
                draw_numa(d, numa, 2 * PAD + n % PER_PACKAGE * (NUMA_W + PAD), row,
                          numa_height(d, numa));
            if (numa_height(d, numa) > row_height)
                row_height = numa_height(d, numa);
            n++;
        }
        bottom = row + row_height + PAD;
        if (pass == 0 && n > 0) {
            int columns = n < PER_PACKAGE ? n : PER_PACKAGE;

            box(d, PAD, y, columns * (NUMA_W + PAD) + PAD, bottom - y, "#ffffff",
                "#666666");
            if (package >= 0)
                snprintf(title, sizeof title, "package %d", package);
            else
                snprintf(title, sizeof title, "package not known");
            text(d, 2 * PAD, y + 18, 12, "start", title);
        }
    }
    return n > 0 ? bottom + PAD : y;
}

static int draw_packages(const struct drawing *d, int y, bool measure)
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

static void draw_task(const struct drawing *d, const struct mu_slot *slot, int y)
{
    char buf[8], line[2048], cpus[512], mems[128];
    size_t used;

    box(d, PAD, y, 14, 14, colour((int)(slot - d->plan->slots), buf), "#333333");
    mu_cpuset_format(&slot->cpus, cpus, sizeof cpus);
    mu_cpuset_format(&slot->mems, mems, sizeof mems);
    used = (size_t)snprintf(line, sizeof line, "task %d: GPU", slot->task);
    for (int i = 0; i < slot->ngpus && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s %s", i ? "," : "",
                                 d->node->gpus[slot->gpu_node[i]].label);
    if (slot->ngpus == 0)
        used += (size_t)snprintf(line + used, sizeof line - used, " -");
    if (used < sizeof line)
        used += (size_t)snprintf(
            line + used, sizeof line - used, "; CPUs %s; memory %s; NIC",
            cpus[0] ? cpus : "as Slurm set them", mems[0] ? mems : "not bound");
    for (int i = 0; i < slot->nnics && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s %s", i ? "," : "",
                                 mu_topo_nic(&d->node->nics[slot->nic[i]]));
    if (used < sizeof line)
        snprintf(line + used, sizeof line - used, " %s%s%s",
                 mu_nearness_name(slot->nic_path), slot->note[0] ? "; " : "",
                 slot->note);
    text(d, PAD + 22, y + 12, 12, "start", line);
}

/* Near paths are darker; NVLink is green. */
static const char *cell_colour(enum mu_nearness path, int nvlinks)
{
    static const char *const shade[] = { "#7aa6d8", "#9dbfe4", "#bdd4ed", "#d6e4f3",
                                         "#e7eef7", "#f6f6f6", "#ffffff" };

    return nvlinks > 0 ? "#8fcf8f" : shade[path];
}

static int draw_links(const struct drawing *d, int y)
{
    const struct mu_node *n = d->node;
    char name[32], cell[16];

    for (int c = 0; c < n->ngpus + n->nnics; c++) {
        snprintf(name, sizeof name, "%s%d", c < n->ngpus ? "GPU" : "NIC",
                 c < n->ngpus ? c : c - n->ngpus);
        text(d, PAD + (c + 1) * CELL_W + CELL_W / 2, y + 12, 10, "middle", name);
    }
    for (int r = 0; r < n->ngpus; r++) {
        int top = y + (r + 1) * CELL_H;

        snprintf(name, sizeof name, "GPU%d", r);
        text(d, PAD, top + 13, 10, "start", name);
        for (int c = 0; c < n->ngpus + n->nnics; c++) {
            bool gpu = c < n->ngpus;
            int links = gpu ? n->nvlinks[r * n->ngpus + c] : 0;
            enum mu_nearness path = gpu ? n->gpu_gpu[r * n->ngpus + c]
                                        : n->gpu_nic[r * n->nnics + c - n->ngpus];
            int x = PAD + (c + 1) * CELL_W;

            if (gpu && c == r)
                continue;
            box(d, x, top, CELL_W - 2, CELL_H - 2, cell_colour(path, links), "#cccccc");
            text(d, x + CELL_W / 2 - 1, top + 12, 9, "middle",
                 mu_topo_cell(cell, path, links, n->gpus[r].vendor));
        }
    }
    return y + (n->ngpus + 1) * CELL_H + PAD;
}

static int width_of(const struct drawing *d)
{
    int boxes = PER_PACKAGE * (NUMA_W + PAD) + 4 * PAD;
    int links = (d->node->ngpus + d->node->nnics + 1) * CELL_W + 2 * PAD;

    return boxes > links ? boxes : links;
}

void mu_topo_svg(FILE *out, const struct mu_node *node, const struct mu_plan *plan)
{
    struct drawing d = { out, node, plan };
    int tasks = plan ? plan->nslots : 0, y = 52;
    int links = node->ngpus > 0 ? (node->ngpus + 1) * CELL_H + 2 * PAD + 20 : 0;
    int height = draw_packages(&d, y, true) + tasks * LEGEND_H + links + 2 * PAD;
    char title[256];

    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n",
            width_of(&d), height, width_of(&d), height);
    fprintf(out, "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n");
    snprintf(title, sizeof title,
             "%s%s%s: %d core%s, %d NUMA node%s, %d GPU%s, %d NIC%s", node->source,
             node->host[0] ? " " : "", node->host, node->ncores,
             mu_plural(node->ncores), node->nnumas, mu_plural(node->nnumas),
             node->ngpus, mu_plural(node->ngpus), node->nnics, mu_plural(node->nnics));
    text(&d, PAD, 26, 16, "start", title);
    draw_memory_nodes(&d, 44);
    y = draw_packages(&d, y, false);
    for (int t = 0; t < tasks; t++, y += LEGEND_H)
        draw_task(&d, &plan->slots[t], y);
    if (node->ngpus > 0) {
        text(&d, PAD, y + 24, 12, "start", "links");
        draw_links(&d, y + 30);
    }
    fputs("</svg>\n", out);
}
