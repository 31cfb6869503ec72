/* SPDX-License-Identifier: BSD-3-Clause */
/* topo.h - shared by the files of muster topo */
#ifndef MU_TOPO_H
#define MU_TOPO_H

#include <stdio.h>

#include "spank/core/plan/plan.h"
#include "spank/hw/machine/machine.h"
#include "spank/tools/tool.h"

void mu_topo_text(FILE *out, const struct mu_node *node);
void mu_topo_json(FILE *out, const struct mu_node *node);

/* Draws the node; with a plan (or NULL), cores have the colour of their task. */
void mu_topo_svg(FILE *out, const struct mu_node *node, const struct mu_plan *plan);

/* The cell of a link table: "NV18", "PIX", ... */
const char *mu_topo_cell(char buf[16], enum mu_nearness path, int nvlinks, int vendor);

/* The name of a NIC as plans print it. */
const char *mu_topo_nic(const struct mu_nic *nic);

/* Writes the indices of a GPU's nearest NICs and returns their number; *path is NONE
 * without a NIC.
 */
int mu_topo_nearest(const struct mu_node *node, int gpu, int *nic, int most,
                    enum mu_nearness *path);

#endif
