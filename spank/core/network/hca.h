/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.h - chooses the RDMA devices for NCCL, the same for all tasks of a step.
 *
 * NCCL does not support different NCCL_IB_HCA values among the ranks of a node
 * (NVIDIA/nccl#1478), so the choice is made from all GPUs of the step together.
 */
#ifndef MU_HCA_H
#define MU_HCA_H

#include <stdbool.h>

#include "spank/core/network/interface.h"
#include "spank/core/node/alloc.h"
#include "spank/core/node/node.h"

#define MU_HCA_LIST 1024

enum mu_hca_verdict {
    MU_HCA_USED,
    MU_HCA_DOWN,     /* no active port */
    MU_HCA_EXCLUDED, /* the site's exclude-hca= */
    MU_HCA_VIRTUAL,  /* an SR-IOV function beside physical ones */
    MU_HCA_LAYER,    /* another link layer than the chosen ones */
    MU_HCA_SPEED,    /* slower than the chosen ones */
    MU_HCA_GID,      /* RoCE without an address that other nodes can reach */
    MU_HCA_NETWORK,  /* RoCE on another network than the chosen one */
    MU_HCA_CABLE,    /* RoCE between two nodes alone */
    MU_HCA_FAR,      /* another device is nearer to every GPU of the step */
};

/* "used", "no active port", ... */
const char *mu_hca_verdict_name(enum mu_hca_verdict verdict);

struct mu_hca_choice {
    int n;                                    /* devices used */
    enum mu_hca_verdict verdict[MU_GPUS_MAX]; /* by index into mu_node.nics */
    enum mu_link_layer layer;                 /* of those used */
    /* false: NCCL uses every active device by default, which is the same set */
    bool needed;
    /* "=mlx5_0,mlx4_0:1"; "" when n is 0, a name is unknown, or NCCL does not drive
     * the devices through verbs */
    char value[MU_HCA_LIST];
};

/* What a RoCE port is judged by; all zero: its GIDs alone. */
struct mu_hca_where {
    const struct mu_addr *subnet; /* the site's networks, and the chosen interface's */
    int nsubnets;
    const struct mu_net *net; /* interfaces of this node, NULL unknown */
};

/* Choose among the active devices that match no pattern of `exclude` (comma-separated,
 * with * and ?). A RoCE port whose GID table can be read counts where a RoCE v2 GID is
 * an address that other nodes can reach. Physical functions are preferred to virtual
 * ones. The link layer and the speed of the fastest port are kept (InfiniBand on a
 * tie). Of RoCE ports, those on the networks of `where` (may be NULL) are kept if there
 * are any; else those whose subnet has room for more than two nodes. Of these devices
 * each GPU of the step keeps its nearest, even where all are at MU_NEAR_SYS. An active
 * device in software (mu_node.soft) makes the list necessary: NCCL would use it, too.
 */
void mu_hca_choose(const struct mu_node *node, const struct mu_alloc *alloc,
                   const char *exclude, const struct mu_hca_where *where,
                   struct mu_hca_choice *out);

#endif
