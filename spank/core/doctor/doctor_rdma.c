/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_rdma.c - RDMA devices: which are used or differ, which lists select none */
#include "spank/core/doctor/doctor_list.h"

#include <string.h>

#define AREA "network"

/* With no device in NCCL_IB_HCA, NCCL continues with sockets and prints no error. */
static void check_hca_list(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *from, *value = mu_doctor_nccl_value(facts, "NCCL_IB_HCA", &from);
    const struct mu_node *node = facts->node;
    const char *names[MU_LIST_NAMES];
    int n = 0, taken = 0;

    for (int i = 0; value && node && i < node->nnics && n < MU_LIST_NAMES; i++) {
        if (!node->nics[i].active || !node->nics[i].name[0] ||
            !mu_nic_has_verbs(&node->nics[i]))
            continue;
        names[n++] = node->nics[i].name;
        taken += mu_list_takes(value, node->nics[i].name);
    }
    if (n > 0)
        mu_list_check_surplus("NCCL_IB_HCA", value, from, names, n, out);
    if (n > 0 && taken == 0)
        mu_findings_add(out, MU_WARNING, AREA,
                        "unset it: Muster lists the devices of each node",
                        "NCCL_IB_HCA=%s (%s) selects none of the %d active RDMA "
                        "devices: NCCL uses sockets instead",
                        value, from, n);
}

/* Case 077: NCCL uses every active device that its list does not exclude. */
static void check_software(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *from, *value = mu_doctor_nccl_value(facts, "NCCL_IB_HCA", &from);
    const struct mu_node *node = facts->node;

    for (int i = 0; i < node->nsoft; i++) {
        const struct mu_nic *nic = &node->soft[i];
        bool taken = nic->active && value && mu_list_takes(value, nic->name);

        mu_findings_add(
            out,
            taken                   ? MU_WARNING
            : nic->active && !value ? MU_HINT
                                    : MU_OK,
            AREA,
            !nic->active || (value && !taken)
                ? ""
                : "name the other devices in NCCL_IB_HCA, as Muster does in steps of "
                  "several nodes, or remove it (rdma link delete)",
            "%s is an RDMA device in software (siw or rxe), %s: %s", nic->name,
            nic->active ? "active" : "down",
            !nic->active ? "it is not used"
            : taken      ? "NCCL_IB_HCA selects it, and it is slow or fails"
            : value      ? "NCCL_IB_HCA leaves it out"
                    : "without NCCL_IB_HCA NCCL uses it, too; it is slow or fails");
    }
}

/* Case 034: one line per device with the reason why it is used or not. */
static void check_hcas(const struct mu_node *node, struct mu_findings *out)
{
    struct mu_alloc all = { 0 };
    struct mu_hca_choice choice;

    for (; all.ngpus < node->ngpus && all.ngpus < MU_GPUS_MAX; all.ngpus++)
        all.gpu_node[all.ngpus] = all.ngpus;
    mu_hca_choose(node, &all, "", &choice);
    for (int i = 0; i < node->nnics && i < MU_GPUS_MAX; i++) {
        const struct mu_nic *nic = &node->nics[i];

        mu_findings_add(out, MU_OK, AREA, "", "%s: %s, %s, %g Gb/s, NUMA %d, %s",
                        nic->name[0] ? nic->name : nic->busid,
                        mu_link_layer_name(nic->layer), nic->active ? "active" : "down",
                        nic->gbits,
                        nic->numa >= 0 ? node->numas[nic->numa].os_index : -1,
                        mu_hca_verdict_name(choice.verdict[i]));
        for (int k = 0; k < i; k++)
            if (nic->guid[0] && strcmp(nic->guid, node->nics[k].guid) == 0)
                mu_findings_add(out, MU_HINT, AREA, "",
                                "%s and %s are ports of one card and share its rate",
                                node->nics[k].name, nic->name);
    }
}

/* Case 035 */
static void check_unused_fabric(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *net = mu_facts_env(facts, "NCCL_NET");
    const char *disable = mu_facts_env(facts, "NCCL_IB_DISABLE");
    int n = 0;
    double gbits = 0;

    for (int i = 0; facts->node && i < facts->node->nnics; i++)
        if (facts->node->nics[i].active) {
            n++;
            if (facts->node->nics[i].gbits > gbits)
                gbits = facts->node->nics[i].gbits;
        }
    if (n &&
        ((net && strcmp(net, "Socket") == 0) || (disable && strcmp(disable, "1") == 0)))
        mu_findings_add(out, MU_WARNING, AREA, "unset it",
                        "%s makes NCCL use sockets, although %d RDMA device%s of up to "
                        "%g Gb/s %s active",
                        net && strcmp(net, "Socket") == 0 ? "NCCL_NET=Socket"
                                                          : "NCCL_IB_DISABLE=1",
                        n, mu_plural(n), gbits, n == 1 ? "is" : "are");
}

void mu_doctor_rdma(const struct mu_facts *facts, struct mu_findings *out)
{
    check_hca_list(facts, out);
    if (facts->node)
        check_hcas(facts->node, out);
    if (facts->node)
        check_software(facts, out);
    check_unused_fabric(facts, out);
}
