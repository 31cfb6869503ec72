/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_variables.h - decides the NCCL variables of a step on one node, each with a
 * reason
 *
 * Every variable is the same for all tasks of the node. NCCL merges what its ranks of a
 * node detect, and does not support differences among them.
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

/* Can this version run several ranks on one GPU, as NCCL 2.30 and later (case 024)?
 * True if the version is unknown.
 */
bool mu_nccl_shares_gpus(const char *version);

/* True if two tasks share one GPU, that is one PCI function: by slices or shards. */
bool mu_nccl_gpu_is_shared(const struct mu_node *node, const struct mu_plan *plan);

struct mu_nccl_input {
    const struct mu_node *node;
    const struct mu_plan *plan;
    int nnodes;                         /* of the step */
    const struct mu_net *net;           /* NULL: not read (one node) */
    const struct mu_net_choice *choice; /* NULL as net is */
    const struct mu_hca_choice *hca;
    const struct mu_profile *profile;   /* NULL: none matched */
    const struct mu_platform *platform; /* this machine, for the profile */
    int ras_port; /* of mu_port_hash; 0: NCCL_RAS_ADDR stays unset */
    /* NCCL_RAS_ADDR of a step on the same GPUs, in place of the port, or NULL */
    const char *ras_addr;
    const char *topo_file; /* checked and readable by the tasks, or NULL */
    const char *topo_reason;
    /* the NCCL that tasks will most likely load, NULL not known */
    const struct mu_library *library;
    /* bare metal with AMD processors and no active IOMMU between devices */
    bool direct_dma;
};

/* Append the variables to *out. Those of the profile come first and win, because a
 * vendor has tested its own network.
 */
int mu_nccl_decide(const struct mu_nccl_input *in, struct mu_settings *out,
                   struct mu_err *err);

#endif
