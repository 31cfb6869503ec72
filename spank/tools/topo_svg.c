/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/tools/topo.h"
void mu_topo_svg(FILE *out, const struct mu_node *node, const struct mu_plan *plan)
{
}
