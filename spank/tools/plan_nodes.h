/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_nodes.h - muster plan --nodes: how far apart the nodes of a job are, and their
 * order for a ring
 */
#ifndef MU_PLAN_NODES_H
#define MU_PLAN_NODES_H

enum mu_plan_format { MU_PLAN_TEXT, MU_PLAN_TSV, MU_PLAN_JSON };

struct mu_plan_nodes {
    const char *replay;   /* read this measurement; NULL: measure the job's nodes */
    const char *save;     /* write the measurement; NULL: do not */
    const char *hostfile; /* write a host file for srun; NULL: do not */
    int tasks;            /* on each node, for the host file; 0: one for each GPU */
    enum mu_plan_format format;
};

/* Returns an exit status: 1 pairs of nodes did not answer each other. */
int mu_plan_nodes(const struct mu_plan_nodes *options);

#endif
