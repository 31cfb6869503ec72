/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_nodes.h - muster doctor --nodes: compares the nodes of a job
 *
 *   muster doctor --nodes
 *     srun, one task on each node: muster doctor --node-facts      doctor_collect.c
 *       lines of all nodes, or those of a capture                  this file
 *         groups of nodes with equal facts                         spank/core/doctor
 */
#ifndef MU_DOCTOR_NODES_H
#define MU_DOCTOR_NODES_H

#include <stdbool.h>

struct mu_nodes_options {
    const char *capture; /* write the masked facts to this file; NULL: do not */
    const char *replay;  /* compare the facts of this file; NULL: those of the job */
    bool json;
};

/* Returns an exit status: 0 all nodes are alike, 1 some differ or did not answer. */
int mu_doctor_nodes(const struct mu_nodes_options *options);

#endif
