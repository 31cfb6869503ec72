/* SPDX-License-Identifier: BSD-3-Clause */
/* place_nic.c - finds the nearest NICs of a task
 *
 * The distance of a task to a NIC is that of its nearest GPU or, without a GPU, of its
 * nearest CPU. All NICs at the least distance are its set. "SYS" with every NIC means
 * that none is nearer than another. A NIC whose port is down stays in the set, because
 * a saved machine must give the same plan. If the ports of a whole set are down, the
 * note has nic-down.
 */
#include "spank/core/plan/place.h"

static enum mu_nearness from_gpus(const struct mu_node *node,
                                  const struct mu_slot *slot, int nic)
{
    enum mu_nearness best = MU_NEAR_NONE;

    for (int i = 0; i < slot->ngpus && node->gpu_nic; i++) {
        enum mu_nearness path = node->gpu_nic[slot->gpu_node[i] * node->nnics + nic];

        if (path < best)
            best = path;
    }
    return best;
}

static enum mu_nearness from_cpus(const struct mu_node *node,
                                  const struct mu_slot *slot, int nic)
{
    const struct mu_nic *n = &node->nics[nic];
    enum mu_nearness best = MU_NEAR_NONE;

    if (n->numa < 0)
        return MU_NEAR_NONE;
    for (int c = 0; c < node->ncores; c++) {
        const struct mu_core *core = &node->cores[c];
        enum mu_nearness path = MU_NEAR_SYS;

        if (core->numa == n->numa)
            path = MU_NEAR_NODE;
        else if (core->package >= 0 && core->package == n->package)
            path = MU_NEAR_PKG;
        if (path < best && mu_core_in(core, &slot->cpus))
            best = path;
    }
    return best;
}

static void note_down(const struct mu_node *node, struct mu_slot *slot)
{
    for (int i = 0; i < slot->nnics; i++)
        if (node->nics[slot->nic[i]].active)
            return;
    if (slot->nnics > 0)
        mu_slot_note(slot, "nic-down");
}

void mu_place_nic(const struct mu_node *node, struct mu_plan *plan)
{
    for (int t = 0; t < plan->nslots; t++) {
        struct mu_slot *slot = &plan->slots[t];

        slot->nic_path = MU_NEAR_NONE;
        slot->nnics = 0;
        for (int nic = 0; nic < node->nnics; nic++) {
            enum mu_nearness path =
                slot->ngpus ? from_gpus(node, slot, nic) : from_cpus(node, slot, nic);

            if (path == MU_NEAR_NONE || path > slot->nic_path)
                continue;
            if (path < slot->nic_path)
                slot->nnics = 0;
            slot->nic_path = path;
            if (slot->nnics < MU_GPUS_MAX)
                slot->nic[slot->nnics++] = nic;
        }
        note_down(node, slot);
    }
}
