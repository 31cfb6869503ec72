/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/core/nccl.h"

#include <stdio.h>
#include <string.h>

/* Two tasks whose GPUs are slices of one physical GPU (same PCI function). */
static bool ranks_share_a_gpu(const struct mu_node *node, const struct mu_plan *plan)
{
    for (int a = 0; a < plan->nslots; a++)
        for (int b = a + 1; b < plan->nslots; b++) {
            const struct mu_slot *x = &plan->slots[a], *y = &plan->slots[b];

            if (x->ngpus && y->ngpus && node->gpus[x->gpu[0]].busid[0] &&
                node->gpus[x->gpu[0]].vendor == MU_VENDOR_NVIDIA &&
                strcmp(node->gpus[x->gpu[0]].busid, node->gpus[y->gpu[0]].busid) == 0)
                return true;
        }
    return false;
}

static int add_network(const struct mu_nccl_input *in, struct mu_settings *out,
                       struct mu_err *err)
{
    char value[64];

    if (in->nnodes < 2 || !in->choice || in->choice->iface < 0 || !in->choice->needed)
        return 0;
    snprintf(value, sizeof value, "=%s", in->net->iface[in->choice->iface].name);
    return mu_settings_add(out, "NCCL_SOCKET_IFNAME", value, in->choice->reason, err);
}

static int add_hcas(const struct mu_nccl_input *in, struct mu_settings *out,
                    struct mu_err *err)
{
    char reason[128];

    if (in->nnodes < 2 || !in->hca || !in->hca->needed || !in->hca->value[0])
        return 0;
    snprintf(
        reason, sizeof reason,
        "%d of %d RDMA devices are active, of one kind and nearest to the step's GPUs",
        in->hca->n, in->node->nnics);
    return mu_settings_add(out, "NCCL_IB_HCA", in->hca->value, reason, err);
}

int mu_nccl_decide(const struct mu_nccl_input *in, struct mu_settings *out,
                   struct mu_err *err)
{
    char value[64];

    if (in->profile && mu_profile_apply(in->profile, in->platform, out, err) < 0)
        return -1;
    if (add_network(in, out, err) < 0 || add_hcas(in, out, err) < 0)
        return -1;
    if (in->ras_port) {
        snprintf(value, sizeof value, "localhost:%d", in->ras_port);
        if (mu_settings_add(
                out, "NCCL_RAS_ADDR", value,
                "two jobs of one user on a node would share the default port", err) < 0)
            return -1;
    }
    if (in->topo_file &&
        mu_settings_add(out, "NCCL_TOPO_FILE", in->topo_file, in->topo_reason, err) < 0)
        return -1;
    if (in->plan && ranks_share_a_gpu(in->node, in->plan))
        return mu_settings_add(
            out, "NCCL_MULTI_RANK_GPU_ENABLE", "1",
            "several tasks use slices of one GPU; needs NCCL 2.30 or "
            "newer",
            err);
    return 0;
}
