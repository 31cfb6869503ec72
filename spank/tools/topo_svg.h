/* SPDX-License-Identifier: BSD-3-Clause */
/* topo_svg.h - shared by the files that draw the node
 *
 *   topo_svg.c         the page: title, node, tasks, links
 *   topo_svg_node.c    packages, NUMA nodes, cores, GPUs, NICs
 *   topo_svg_shapes.c  text, boxes, colours of tasks
 */
#ifndef MU_TOPO_SVG_H
#define MU_TOPO_SVG_H

#include "spank/tools/topo.h"

#define MU_SVG_PAD 10
#define MU_SVG_CORE 20    /* side of a core's square */
#define MU_SVG_PER_ROW 16 /* cores in a row */
#define MU_SVG_NUMA_W (MU_SVG_PER_ROW * MU_SVG_CORE + 2 * MU_SVG_PAD)
#define MU_SVG_PER_PACKAGE 4 /* NUMA boxes side by side */

struct mu_svg {
    FILE *out;
    const struct mu_node *node;
    const struct mu_plan *plan; /* or NULL */
};

/* The colour of a task: index of its slot in the plan. Returns buf. */
const char *mu_svg_colour(int task, char buf[8]);

/* Control characters are left out. anchor: start, middle or end. */
void mu_svg_text(const struct mu_svg *d, int x, int y, int size, const char *anchor,
                 const char *string);
void mu_svg_box(const struct mu_svg *d, int x, int y, int w, int h, const char *colour,
                const char *stroke);

/* Draws the packages from y on, or only measures them. Returns the y below. */
int mu_svg_packages(const struct mu_svg *d, int y, bool measure);
/* One line at y: NUMA nodes without CPUs and devices. */
void mu_svg_memory_nodes(const struct mu_svg *d, int y);

#endif
