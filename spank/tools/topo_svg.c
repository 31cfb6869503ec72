/* SPDX-License-Identifier: BSD-3-Clause */
/* topo_svg.c - a drawing of the node and of the plan on it.
 *
 * lstopo is not used: it can colour cores, but cannot draw tasks, links between GPUs,
 * or machines that are known only from NCCL files or nvidia-smi's text.
 */
#include "spank/tools/topo_svg.h"

#define LEGEND_H 20
#define CELL_W 46
#define CELL_H 18

static void draw_task(const struct mu_svg *d, const struct mu_slot *slot, int y)
{
    char buf[8], line[2048], cpus[512], mems[128];
    size_t used;

    mu_svg_box(d, MU_SVG_PAD, y, 14, 14,
               mu_svg_colour((int)(slot - d->plan->slots), buf), "#333333");
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
    mu_svg_text(d, MU_SVG_PAD + 22, y + 12, 12, "start", line);
}

/* Near paths are darker; NVLink is green. */
static const char *cell_colour(enum mu_nearness path, int nvlinks)
{
    static const char *const shade[] = { "#7aa6d8", "#9dbfe4", "#bdd4ed", "#d6e4f3",
                                         "#e7eef7", "#f6f6f6", "#ffffff" };

    return nvlinks > 0 ? "#8fcf8f" : shade[path];
}

static int draw_links(const struct mu_svg *d, int y)
{
    const struct mu_node *n = d->node;
    char name[32], cell[16];

    for (int c = 0; c < n->ngpus + n->nnics; c++) {
        snprintf(name, sizeof name, "%s%d", c < n->ngpus ? "GPU" : "NIC",
                 c < n->ngpus ? c : c - n->ngpus);
        mu_svg_text(d, MU_SVG_PAD + (c + 1) * CELL_W + CELL_W / 2, y + 12, 10, "middle",
                    name);
    }
    for (int r = 0; r < n->ngpus; r++) {
        int top = y + (r + 1) * CELL_H;

        snprintf(name, sizeof name, "GPU%d", r);
        mu_svg_text(d, MU_SVG_PAD, top + 13, 10, "start", name);
        for (int c = 0; c < n->ngpus + n->nnics; c++) {
            bool gpu = c < n->ngpus;
            int links = gpu ? n->nvlinks[r * n->ngpus + c] : 0;
            enum mu_nearness path = gpu ? n->gpu_gpu[r * n->ngpus + c]
                                        : n->gpu_nic[r * n->nnics + c - n->ngpus];
            int x = MU_SVG_PAD + (c + 1) * CELL_W;

            if (gpu && c == r)
                continue;
            mu_svg_box(d, x, top, CELL_W - 2, CELL_H - 2, cell_colour(path, links),
                       "#cccccc");
            mu_svg_text(d, x + CELL_W / 2 - 1, top + 12, 9, "middle",
                        mu_topo_cell(cell, path, links, n->gpus[r].vendor));
        }
    }
    return y + (n->ngpus + 1) * CELL_H + MU_SVG_PAD;
}

static int width_of(const struct mu_svg *d)
{
    int boxes = MU_SVG_PER_PACKAGE * (MU_SVG_NUMA_W + MU_SVG_PAD) + 4 * MU_SVG_PAD;
    int links = (d->node->ngpus + d->node->nnics + 1) * CELL_W + 2 * MU_SVG_PAD;

    return boxes > links ? boxes : links;
}

void mu_topo_svg(FILE *out, const struct mu_node *node, const struct mu_plan *plan)
{
    struct mu_svg d = { out, node, plan };
    int tasks = plan ? plan->nslots : 0, y = 52;
    int links = node->ngpus > 0 ? (node->ngpus + 1) * CELL_H + 2 * MU_SVG_PAD + 20 : 0;
    int height =
        mu_svg_packages(&d, y, true) + tasks * LEGEND_H + links + 2 * MU_SVG_PAD;
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
    mu_svg_text(&d, MU_SVG_PAD, 26, 16, "start", title);
    mu_svg_memory_nodes(&d, 44);
    y = mu_svg_packages(&d, y, false);
    for (int t = 0; t < tasks; t++, y += LEGEND_H)
        draw_task(&d, &plan->slots[t], y);
    if (node->ngpus > 0) {
        mu_svg_text(&d, MU_SVG_PAD, y + 24, 12, "start", "links");
        draw_links(&d, y + 30);
    }
    fputs("</svg>\n", out);
}
