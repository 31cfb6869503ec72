/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.c - filter RDMA devices by state, site, link layer and speed, then by distance */
#include "spank/core/network/hca.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"

const char *mu_hca_verdict_name(enum mu_hca_verdict verdict)
{
    static const char *const names[] = {
        [MU_HCA_USED] = "used",
        [MU_HCA_DOWN] = "no active port",
        [MU_HCA_EXCLUDED] = "excluded by exclude-hca",
        [MU_HCA_VIRTUAL] = "a virtual function",
        [MU_HCA_LAYER] = "different link layer",
        [MU_HCA_SPEED] = "slower",
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

/* Mark devices that are down, excluded or virtual; returns the preferred one of the
 * rest, -1 if none is left.
 */
static int screen(const struct mu_node *node, int nnics, const char *exclude,
                  struct mu_hca_choice *out)
{
    int best = -1;

    for (int i = 0; i < nnics; i++) {
        const struct mu_nic *nic = &node->nics[i];

        out->verdict[i] = !nic->active                   ? MU_HCA_DOWN
                          : excluded(nic->name, exclude) ? MU_HCA_EXCLUDED
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
                   const char *exclude, struct mu_hca_choice *out)
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
