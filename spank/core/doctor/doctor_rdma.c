/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_rdma.c - RDMA devices: which are used or differ, which lists select none */
#include "spank/core/doctor/doctor_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spank/core/network/gid_addr.h"

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
        mu_list_check("NCCL_IB_HCA", value, from, names, n, out);
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

/* ", RoCE v2 10.1.0.5 (GID 3), fe80::1 (GID 1)"; "" for other ports. */
static void gid_text(const struct mu_nic *nic, char *buf, size_t len)
{
    char text[MU_ADDR_TEXT];
    size_t at = 0;

    buf[0] = '\0';
    for (int i = 0; i < nic->ngids && at < len; i++) {
        struct mu_addr addr;

        mu_gid_addr(&nic->gid[i], &addr);
        mu_addr_format(&addr, text, sizeof text);
        at += (size_t)snprintf(buf + at, len - at, ", %s%s (GID %d)",
                               i ? "" : "RoCE v2 ", text, nic->gid[i].index);
    }
    if (nic->gids_known && nic->ngids == 0)
        snprintf(buf, len, ", no RoCE v2 GID");
}

/* What the plugin would choose for all GPUs; in a step the network that reaches the
 * other nodes is known.
 */
static void choose(const struct mu_facts *facts, struct mu_hca_choice *out)
{
    struct mu_net_choice net = { .iface = -1 };
    struct mu_hca_where where = { .subnet = &net.addr, .net = facts->net };
    struct mu_alloc all = { 0 };

    for (; all.ngpus < facts->node->ngpus && all.ngpus < MU_GPUS_MAX; all.ngpus++)
        all.gpu_node[all.ngpus] = all.ngpus;
    if (facts->net && facts->npeers > 0)
        mu_net_choose(facts->net, NULL, 0, facts->peers, facts->npeers, &net);
    where.nsubnets = net.iface >= 0;
    mu_hca_choose(facts->node, &all, "", &where, out);
}

static void report_no_address(const struct mu_nic *nic, bool others,
                              struct mu_findings *out)
{
    mu_findings_add(out, others ? MU_HINT : MU_WARNING, AREA,
                    "give its interface an address in the network of the other nodes, "
                    "or leave it out: exclude-hca in muster.conf, NCCL_IB_HCA",
                    "%s is active, but has no RoCE v2 GID with an address that other "
                    "nodes can reach: connections over it fail",
                    nic->name);
}

/* Case 034: one line per device with the reason why it is used or not. */
static void check_hcas(const struct mu_facts *facts, const struct mu_hca_choice *choice,
                       struct mu_findings *out)
{
    const struct mu_node *node = facts->node;
    char gids[512];

    for (int i = 0; i < node->nnics && i < MU_GPUS_MAX; i++) {
        const struct mu_nic *nic = &node->nics[i];

        gid_text(nic, gids, sizeof gids);
        mu_findings_add(out, MU_OK, AREA, "", "%s: %s, %s, %g Gb/s, NUMA %d%s, %s",
                        nic->name[0] ? nic->name : nic->busid,
                        mu_link_layer_name(nic->layer), nic->active ? "active" : "down",
                        nic->gbits,
                        nic->numa >= 0 ? node->numas[nic->numa].os_index : -1, gids,
                        mu_hca_verdict_name(choice->verdict[i]));
        if (choice->verdict[i] == MU_HCA_GID)
            report_no_address(nic, choice->n > 0, out);
        for (int k = 0; k < i; k++)
            if (nic->guid[0] && strcmp(nic->guid, node->nics[k].guid) == 0)
                mu_findings_add(out, MU_HINT, AREA, "",
                                "%s and %s are ports of one card and share its rate",
                                node->nics[k].name, nic->name);
    }
}

/* The entry of the table that an index names; NULL: it is not of RoCE v2. */
static const struct mu_gid *gid_at(const struct mu_nic *nic, long index)
{
    for (int i = 0; i < nic->ngids; i++)
        if (nic->gid[i].index == index)
            return &nic->gid[i];
    return NULL;
}

/* The index is one for all devices, but each table has an order of its own. */
static void check_gid_index(const struct mu_facts *facts,
                            const struct mu_hca_choice *choice, struct mu_findings *out)
{
    const char *from, *value = mu_doctor_nccl_value(facts, "NCCL_IB_GID_INDEX", &from);
    char *end = NULL;
    long index = value ? strtol(value, &end, 10) : -1;

    if (index < 0 || end == value || *end)
        return; /* -1: NCCL chooses */
    for (int i = 0; i < facts->node->nnics && i < MU_GPUS_MAX; i++) {
        const struct mu_nic *nic = &facts->node->nics[i];
        const struct mu_gid *gid = gid_at(nic, index);
        char text[MU_ADDR_TEXT] = "no RoCE v2 address", all[512];
        struct mu_addr addr = { 0 };

        if (choice->verdict[i] != MU_HCA_USED || !nic->gids_known)
            continue;
        if (gid) {
            mu_gid_addr(gid, &addr);
            mu_addr_format(&addr, text, sizeof text);
        }
        gid_text(nic, all, sizeof all);
        mu_findings_add(
            out, addr.global ? MU_OK : MU_WARNING, AREA,
            addr.global ? "" : "unset it: NCCL finds the GID of each device",
            "NCCL_IB_GID_INDEX=%s (%s) is %s on %s%s%s", value, from, text, nic->name,
            addr.global ? "" : ", which other nodes cannot reach",
            addr.global ? "" : all);
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

/* Case 078: libibverbs leaves such a device out of its list, without a message. */
static void check_device_files(const struct mu_facts *facts, struct mu_findings *out)
{
    for (int i = 0; i < facts->nclosed; i++) {
        const struct mu_closed_verbs *c = &facts->closed[i];

        mu_findings_add(
            out, MU_WARNING, AREA,
            !c->file[0] ? "load the kernel's module: modprobe ib_uverbs"
            : c->error == EACCES
                ? "rdma-core's udev rules give it mode 0666"
                : "pass the files into the container "
                  "(--device=/dev/infiniband, or bind the folder), and "
                  "allow them where its device rules refuse them",
            "%s is active, but %s%s%s%s: NCCL leaves %s out, and uses sockets where no "
            "other device is left",
            c->nic, c->file[0] ? c->file : "has no device file",
            c->file[0] ? " cannot be opened (" : "", c->why, c->file[0] ? ")" : "",
            c->nic);
    }
}

void mu_doctor_rdma(const struct mu_facts *facts, struct mu_findings *out)
{
    struct mu_hca_choice choice;

    check_hca_list(facts, out);
    if (facts->node) {
        choose(facts, &choice);
        check_hcas(facts, &choice, out);
        check_gid_index(facts, &choice, out);
        check_software(facts, out);
    }
    check_device_files(facts, out);
    check_unused_fabric(facts, out);
}
