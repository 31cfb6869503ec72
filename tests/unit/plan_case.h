/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_case.h - a row of a table of plans: machine, what is owned and asked, the answer
 */
#ifndef PLAN_CASE_H
#define PLAN_CASE_H

#include "spank/core/node/node.h"

struct plan_case {
    const char *name;
    void (*machine)(struct mu_node *node);
    const char *cpus; /* owned; NULL: all */
    const char *gpus; /* owned, places in PCI order; NULL: all */
    const char *mems; /* NUMA nodes whose memory is owned; NULL: all */
    int ntasks, per_task;
    const char *options; /* of --muster; NULL: none */
    const char *want;    /* rows as synth_plan writes them */
    const char *says[4]; /* parts of warnings or infos */
    bool not_as_asked;
};

/* Run n rows as n tests; returns main's exit status. */
int run_plan_cases(const struct plan_case *cases, int n);

#endif
