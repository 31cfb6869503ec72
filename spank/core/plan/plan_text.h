/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_text.h - a plan as text, TSV or MUSTER_PLAN lines; users and golden files see
 * the same table
 */
#ifndef MU_PLAN_TEXT_H
#define MU_PLAN_TEXT_H

#include <stdio.h>

#include "runtime/base/record.h"
#include "spank/core/plan/plan.h"

/* A table with a header and a line per task, aligned for a terminal. */
void mu_show_text(FILE *out, const struct mu_node *node, const struct mu_plan *plan);

/* Header `task gpus cpus mems nics nic_path note`, tab separated; empty is "-". */
void mu_show_tsv(FILE *out, const struct mu_node *node, const struct mu_plan *plan);

/* One task for MUSTER_PLAN. A list of GPUs or NICs that is too long (virtual functions,
 * MIG devices) ends in "...".
 */
void mu_show_record(const struct mu_node *node, const struct mu_slot *slot,
                    struct mu_record *out);

#endif
