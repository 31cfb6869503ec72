/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_variables.h - the NCCL variables of a step on one node: few, each with a reason.
 *
 * Every variable here is the same for all tasks of the node: NCCL fuses what its ranks
 * of a node see and does not support differences among them.
 */
#ifndef MU_NCCL_VARIABLES_H
#define MU_NCCL_VARIABLES_H

#include "spank/core/network/hca.h"
#include "spank/core/network/interface.h"
#include "spank/core/node/node.h"
#include "spank/core/plan/plan.h"
#include "spank/core/nccl/profile.h"
#include "spank/core/env/variables.h"

/* A libnccl file with the version in its name, "2.28.9", "?" unknown. */
struct mu_library {
    char path[512];
    char version[32];
};

/* From 2.30 on NCCL can run several ranks on one GPU (case 024). True where the version
 * is not known.
 */
bool mu_nccl_shares_gpus(const char *version);

/* Two tasks have slices of one GPU: the same PCI function. */
bool mu_nccl_gpu_is_shared(const struct mu_node *node, const struct mu_plan *plan);

struct mu_nccl_input {
    const struct mu_node *node;
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
    /* the NCCL that tasks will most likely load, NULL not known */
    const struct mu_library *library;
    /* bare metal with AMD processors, no IOMMU in the way of devices */
    bool direct_dma;
};

/* Append to *out, the profile's variables first (a vendor knows its own network). */
int mu_nccl_decide(const struct mu_nccl_input *in, struct mu_settings *out,
                   struct mu_err *err);

#endif
