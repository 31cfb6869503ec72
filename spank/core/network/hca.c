/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.c - filter RDMA devices by state, site, link layer and speed, then by distance */
#include "spank/core/network/hca.h"

#include <arpa/inet.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/network/gid_addr.h"

const char *mu_hca_verdict_name(enum mu_hca_verdict verdict)
{
    static const char *const names[] = {
        [MU_HCA_USED] = "used",
        [MU_HCA_DOWN] = "no active port",
        [MU_HCA_EXCLUDED] = "excluded by exclude-hca",
        [MU_HCA_VIRTUAL] = "a virtual function",
        [MU_HCA_LAYER] = "different link layer",
        [MU_HCA_SPEED] = "slower",
        [MU_HCA_GID] = "no RoCE v2 GID with an address that other nodes can reach",
        [MU_HCA_NETWORK] = "not on the chosen network",
        [MU_HCA_CABLE] = "a cable to one other node",
        [MU_HCA_FAR] = "not nearest to any GPU of the step",
    };

    return names[verdict];
}

static bool excluded(const char *name, const char *patterns)
{
    char copy[MU_HCA_LIST], *rest = copy, *item;

    if (!patterns || !patterns[0])
        return false;
    mu_copy(copy, sizeof copy, patterns);
    while ((item = mu_parse_next(&rest, ',')))
        if (item[0] && fnmatch(item, name, 0) == 0)
            return true;
    return false;
}

/* Prefer the faster port, then InfiniBand; on a tie the earlier device stays. */
static bool is_preferred(const struct mu_nic *a, const struct mu_nic *b)
{
    if (a->gbits != b->gbits)
        return a->gbits > b->gbits;
    return a->layer == MU_LINK_IB && b->layer != MU_LINK_IB;
}

/* Virtual functions share the port of a physical function, and on the host they belong
 * to virtual machines. They are used only where no physical function is usable.
 */
static void exclude_virtual(const struct mu_node *node, int nnics,
                            struct mu_hca_choice *out)
{
    bool physical = false;

    for (int i = 0; i < nnics; i++)
        physical |= out->verdict[i] == MU_HCA_USED && !node->nics[i].virtual_fn;
    for (int i = 0; i < nnics; i++)
        if (physical && out->verdict[i] == MU_HCA_USED && node->nics[i].virtual_fn)
            out->verdict[i] = MU_HCA_VIRTUAL;
}

/* A port with link-local GIDs alone is active, but no connection to it succeeds. */
static bool without_address(const struct mu_nic *nic)
{
    return nic->layer == MU_LINK_ETHERNET && nic->gids_known && !mu_gid_any_global(nic);
}

/* Do all reachable addresses of the NIC lie in subnets of at most two nodes? */
static bool is_cable(const struct mu_nic *nic, const struct mu_net *net)
{
    bool cable = false;

    for (int g = 0; g < nic->ngids; g++)
        for (int i = 0; i < net->nifaces; i++)
            for (int k = 0; k < net->iface[i].naddrs; k++) {
                const struct mu_addr *own = &net->iface[i].addr[k];
                struct mu_addr addr;

                mu_gid_addr(&nic->gid[g], &addr);
                if (!addr.global || !mu_addr_same(&addr, own))
                    continue;
                if (own->prefix < (own->family == AF_INET ? 30 : 126))
                    return false;
                cable = true;
            }
    return cable;
}

static bool on_networks(const struct mu_nic *nic, const struct mu_hca_where *where)
{
    return mu_gid_in(nic, where->subnet, where->nsubnets);
}

static bool no_cable(const struct mu_nic *nic, const struct mu_hca_where *where)
{
    return !where->net || !is_cable(nic, where->net);
}

/* If some of the devices left are good, the others that are known not to be get the
 * verdict; returns whether there were good ones.
 */
static bool prefer(const struct mu_node *node, int nnics,
                   bool (*good)(const struct mu_nic *, const struct mu_hca_where *),
                   const struct mu_hca_where *where, enum mu_hca_verdict verdict,
                   struct mu_hca_choice *out)
{
    bool any = false;

    for (int i = 0; i < nnics; i++)
        any |= out->verdict[i] == MU_HCA_USED && good(&node->nics[i], where);
    for (int i = 0; i < nnics && any; i++)
        if (out->verdict[i] == MU_HCA_USED && node->nics[i].gids_known &&
            !good(&node->nics[i], where))
            out->verdict[i] = verdict;
    return any;
}

/* Mark devices that are down, excluded, without an address or virtual; returns the
 * preferred one of the rest, -1 if none is left.
 */
static int screen(const struct mu_node *node, int nnics, const char *exclude,
                  struct mu_hca_choice *out)
{
    int best = -1;

    for (int i = 0; i < nnics; i++) {
        const struct mu_nic *nic = &node->nics[i];

        out->verdict[i] = !nic->active                   ? MU_HCA_DOWN
                          : excluded(nic->name, exclude) ? MU_HCA_EXCLUDED
                          : without_address(nic)         ? MU_HCA_GID
                                                         : MU_HCA_USED;
    }
    exclude_virtual(node, nnics, out);
    for (int i = 0; i < nnics; i++) {
        const struct mu_nic *nic = &node->nics[i];

        if (out->verdict[i] == MU_HCA_USED &&
            (best < 0 || is_preferred(nic, &node->nics[best])))
            best = i;
    }
    return best;
}

/* Of the remaining devices, keep those that are nearest to some GPU of the step. */
static void keep_nearest(const struct mu_node *node, const struct mu_alloc *alloc,
                         int nnics, struct mu_hca_choice *out)
{
    bool near[MU_GPUS_MAX] = { false };

    if (!node->gpu_nic || alloc->ngpus == 0)
        return;
    for (int g = 0; g < alloc->ngpus; g++) {
        const enum mu_nearness *path =
            node->gpu_nic + (size_t)alloc->gpu_node[g] * node->nnics;
        enum mu_nearness best = MU_NEAR_NONE;

        for (int i = 0; i < nnics; i++)
            if (out->verdict[i] == MU_HCA_USED && path[i] < best)
                best = path[i];
        for (int i = 0; i < nnics; i++)
            near[i] |= path[i] == best;
    }
    for (int i = 0; i < nnics; i++)
        if (out->verdict[i] == MU_HCA_USED && !near[i])
            out->verdict[i] = MU_HCA_FAR;
}

static void write_value(const struct mu_node *node, int nnics,
                        struct mu_hca_choice *out)
{
    size_t len = 0;

    for (int i = 0; i < nnics; i++) {
        const struct mu_nic *nic = &node->nics[i];
        char port[16] = "";

        if (out->verdict[i] != MU_HCA_USED)
            continue;
        if (!nic->name[0] || !mu_nic_has_verbs(nic) ||
            len + strlen(nic->name) + sizeof port > sizeof out->value) {
            out->value[0] = '\0';
            return;
        }
        if (nic->port)
            snprintf(port, sizeof port, ":%d", nic->port);
        len += (size_t)snprintf(out->value + len, sizeof out->value - len, "%c%s%s",
                                len ? ',' : '=', nic->name, port);
    }
}

void mu_hca_choose(const struct mu_node *node, const struct mu_alloc *alloc,
                   const char *exclude, const struct mu_hca_where *where,
                   struct mu_hca_choice *out)
{
    int nnics = node->nnics < MU_GPUS_MAX ? node->nnics : MU_GPUS_MAX;
    int best, active = 0;
    bool ports = false;

    *out = (struct mu_hca_choice){ 0 };
    best = screen(node, nnics, exclude, out);
    for (int i = 0; i < nnics && best >= 0; i++) {
        const struct mu_nic *nic = &node->nics[i], *lead = &node->nics[best];

        if (out->verdict[i] != MU_HCA_USED)
            continue;
        if (nic->layer != lead->layer)
            out->verdict[i] = MU_HCA_LAYER;
        else if (nic->gbits != lead->gbits)
            out->verdict[i] = MU_HCA_SPEED;
    }
    if (where && best >= 0 && node->nics[best].layer == MU_LINK_ETHERNET &&
        !prefer(node, nnics, on_networks, where, MU_HCA_NETWORK, out))
        prefer(node, nnics, no_cable, where, MU_HCA_CABLE, out);
    keep_nearest(node, alloc, nnics, out);
    for (int i = 0; i < nnics; i++) {
        active += node->nics[i].active;
        out->n += out->verdict[i] == MU_HCA_USED;
        ports |= out->verdict[i] == MU_HCA_USED && node->nics[i].port;
    }
    if (out->n > 0)
        out->layer = node->nics[best].layer;
    for (int i = 0; i < node->nsoft; i++)
        active += node->soft[i].active;
    out->needed = out->n > 0 && (out->n < active || ports);
    write_value(node, nnics, out);
}
