/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_variables.c - decides the NCCL variables of a step */
#include "spank/core/nccl/nccl_variables.h"

#include <stdio.h>
#include <string.h>

bool mu_nccl_shares_gpus(const char *version)
{
    int major, minor;

    return sscanf(version, "%d.%d", &major, &minor) != 2 || major > 2 ||
           (major == 2 && minor >= 30);
}

bool mu_nccl_gpu_is_shared(const struct mu_node *node, const struct mu_plan *plan)
{
    for (int a = 0; a < plan->nslots; a++)
        for (int b = a + 1; b < plan->nslots; b++) {
            const struct mu_slot *x = &plan->slots[a], *y = &plan->slots[b];

            if (x->ngpus && y->ngpus && node->gpus[x->gpu_node[0]].busid[0] &&
                node->gpus[x->gpu_node[0]].vendor == MU_VENDOR_NVIDIA &&
                strcmp(node->gpus[x->gpu_node[0]].busid,
                       node->gpus[y->gpu_node[0]].busid) == 0)
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
        in->hca->n, in->node->nnics + in->node->nsoft);
    return mu_settings_add(out, "NCCL_IB_HCA", in->hca->value, reason, err);
}

/* By default NCCL uses GPUDirect RDMA up to PXB, that is through switches alone, and
 * copies through host memory otherwise. On AMD processors the host bridge also forwards
 * between its own ports. PHB is therefore set where no GPU of the step has a NIC behind
 * the same switch and each has one below its own host bridge.
 * A virtual machine is excluded, because its flat bus only looks like one bridge. So is
 * a machine with an active IOMMU between the devices.
 * Source: ncclTopoCheckGdr in NCCL's src/graph/paths.cc. NCCL's default for P2P between
 * GPUs already follows the path classes, so no P2P variable is set.
 */
static int add_gdr_level(const struct mu_nccl_input *in, struct mu_settings *out,
                         struct mu_err *err)
{
    int ntasks = 0;

    if (in->nnodes < 2 || !in->plan || !in->direct_dma || in->node->virtual_machine)
        return 0;
    for (int t = 0; t < in->plan->nslots; t++) {
        const struct mu_slot *slot = &in->plan->slots[t];

        if (slot->ngpus == 0)
            continue;
        if (slot->nnics == 0 || slot->nic_path != MU_NEAR_PHB)
            return 0;
        for (int i = 0; i < slot->ngpus; i++)
            if (in->node->gpus[slot->gpu_node[i]].vendor != MU_VENDOR_NVIDIA ||
                in->node->gpus[slot->gpu_node[i]].adopted)
                return 0;
        ntasks++;
    }
    return ntasks == 0
               ? 0
               : mu_settings_add(out, "NCCL_NET_GDR_LEVEL", "PHB",
                                 "every GPU's nearest NIC is below the GPU's host "
                                 "bridge, and NCCL's default ends at switches (PXB)",
                                 err);
}

static int add_ras(const struct mu_nccl_input *in, struct mu_settings *out,
                   struct mu_err *err)
{
    char value[64];

    if (in->ras_addr)
        return mu_settings_add(
            out, "NCCL_RAS_ADDR", in->ras_addr,
            "that of the job's step that runs on the same GPUs, for tools that ask it",
            err);
    if (!in->ras_port)
        return 0;
    snprintf(value, sizeof value, "localhost:%d", in->ras_port);
    return mu_settings_add(
        out, "NCCL_RAS_ADDR", value,
        "two jobs of one user on a node would share the default port", err);
}

int mu_nccl_decide(const struct mu_nccl_input *in, struct mu_settings *out,
                   struct mu_err *err)
{
    /* A profile's values are for the network. Inside one node its algorithm, protocol
     * and channels would only cost time. */
    if (in->profile && in->nnodes > 1 &&
        mu_profile_apply(in->profile, in->platform, out, err) < 0)
        return -1;
    if (add_network(in, out, err) < 0 || add_hcas(in, out, err) < 0)
        return -1;
    if (add_ras(in, out, err) < 0)
        return -1;
    if (in->topo_file &&
        mu_settings_add(out, "NCCL_TOPO_FILE", in->topo_file, in->topo_reason, err) < 0)
        return -1;
    if (add_gdr_level(in, out, err) < 0)
        return -1;
    if (in->plan && mu_nccl_gpu_is_shared(in->node, in->plan) &&
        (!in->library || mu_nccl_shares_gpus(in->library->version)))
        return mu_settings_add(out, "NCCL_MULTI_RANK_GPU_ENABLE", "1",
                               "several tasks share one GPU; needs NCCL 2.30 or newer",
                               err);
    return 0;
}
