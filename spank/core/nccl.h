/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl.h - the NCCL variables of a step on one node: few, each with a reason.
 *
 * Every variable here is the same for all tasks of the node: NCCL fuses what its ranks
 * of a node see and does not support differences among them.
 */
#ifndef MU_NCCL_H
#define MU_NCCL_H

#include "spank/core/alloc.h"
#include "spank/core/hca.h"
#include "spank/core/net.h"
#include "spank/core/node.h"
#include "spank/core/plan.h"
#include "spank/core/profile.h"
#include "spank/core/settings.h"

struct mu_nccl_input {
    const struct mu_node *node;
    const struct mu_alloc *alloc;
    const struct mu_plan *plan;
    int nnodes;                         /* of the step */
    const struct mu_net *net;           /* NULL: not looked at (one node) */
    const struct mu_net_choice *choice; /* NULL likewise */
    const struct mu_hca_choice *hca;
    const struct mu_profile *profile;   /* NULL: none matched */
    const struct mu_platform *platform; /* this machine, for the profile */
    int ras_port;                       /* of mu_port_hash; 0: leave it */
    const char *topo_file;              /* checked and readable by the tasks, or NULL */
    const char *topo_reason;
};

/* Append to *out, the profile's variables first (a vendor knows its own network). */
int mu_nccl_decide(const struct mu_nccl_input *in, struct mu_settings *out,
                   struct mu_err *err);

#endif
