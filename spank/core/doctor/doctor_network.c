/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_network.c - interfaces that NCCL and gloo should not use */
#include "spank/core/doctor/doctor_list.h"

#include <string.h>

#include "runtime/base/parse.h"

#define AREA "network"

static bool live(const struct mu_iface *iface)
{
    return iface->up && iface->carrier && iface->naddrs > 0;
}

/* Sets *a and *b to addresses of x and y such that *b is in the subnet of *a; false if
 * there are none.
 */
static bool same_subnet(const struct mu_iface *x, const struct mu_iface *y,
                        const struct mu_addr **a, const struct mu_addr **b)
{
    for (int i = 0; i < x->naddrs; i++)
        for (int k = 0; k < y->naddrs; k++)
            if (x->addr[i].global && mu_addr_in(&y->addr[k], &x->addr[i])) {
                *a = &x->addr[i];
                *b = &y->addr[k];
                return true;
            }
    return false;
}

/* Case 029: the kernel sends through the first matching route, whichever interface NCCL
 * was given.
 */
static void check_same_subnet(const struct mu_net *net, struct mu_findings *out)
{
    for (int i = 0; i < net->nifaces; i++)
        for (int k = i + 1; k < net->nifaces; k++) {
            const struct mu_iface *x = &net->iface[i], *y = &net->iface[k];
            const struct mu_addr *a, *b;
            char at[MU_ADDR_TEXT], bt[MU_ADDR_TEXT];

            if (!live(x) || !live(y) || x->loopback || y->loopback ||
                !same_subnet(x, y, &a, &b))
                continue;
            mu_addr_format(a, at, sizeof at);
            mu_addr_format(b, bt, sizeof bt);
            mu_findings_add(out, MU_WARNING, AREA,
                            "put the ports into separate subnets or set up source "
                            "routing; `ip route get PEER` shows which one is used",
                            "%s (%s/%d) and %s (%s/%d) are in one subnet: the kernel "
                            "may send through %s the data meant for %s",
                            x->name, at, a->prefix, y->name, bt, b->prefix, x->name,
                            y->name);
        }
}

/* Case 031 */
static void check_address_on_lo(const struct mu_net *net, struct mu_findings *out)
{
    const struct mu_addr *on_lo = NULL;
    char text[MU_ADDR_TEXT];

    for (int i = 0; i < net->nifaces; i++)
        for (int k = 0; k < net->iface[i].naddrs; k++) {
            if (!net->iface[i].addr[k].global || mu_iface_is_private(&net->iface[i])) {
                if (net->iface[i].loopback && net->iface[i].addr[k].global)
                    on_lo = &net->iface[i].addr[k];
                continue;
            }
            if (live(&net->iface[i]))
                return;
        }
    if (!on_lo)
        return;
    mu_addr_format(on_lo, text, sizeof text);
    mu_findings_add(
        out, MU_ERROR, AREA,
        "use InfiniBand or RoCE, or give a data port or a dummy interface an "
        "address",
        "the only routable address, %s, is on lo: NCCL's socket code does not "
        "support this layout",
        text);
}

/* Case 027: peers cannot connect to an address that two nodes have. */
static void check_shared_address(const struct mu_facts *facts, struct mu_findings *out)
{
    const struct mu_net *net = facts->net;

    for (int i = 0; i < net->nifaces; i++)
        for (int k = 0; k < net->iface[i].naddrs; k++)
            for (int p = 0; p < facts->npeers; p++)
                for (int q = 0; q < facts->peers[p].naddrs; q++) {
                    char text[MU_ADDR_TEXT];

                    if (!net->iface[i].addr[k].global ||
                        !mu_addr_same(&net->iface[i].addr[k], &facts->peers[p].addr[q]))
                        continue;
                    mu_addr_format(&net->iface[i].addr[k], text, sizeof text);
                    mu_findings_add(
                        out, MU_WARNING, AREA,
                        "exclude this interface: name the network to use with "
                        "networks= in muster.conf",
                        "%s on %s is also an address of node %s: peers would "
                        "connect to themselves",
                        text, net->iface[i].name, facts->peers[p].host);
                }
}

/* Case 027, and names copied from another machine: NCCL has no fallback from a list. */
static void check_ifname(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *from, *value = mu_doctor_nccl_value(facts, "NCCL_SOCKET_IFNAME", &from);
    const char *dead = NULL, *names[MU_LIST_NAMES];
    bool others = false; /* than loopback */
    int n = 0, nlive = 0;

    if (!value || strlen(value) < 2)
        return;
    for (int i = 0; facts->net && i < facts->net->nifaces && nlive < MU_LIST_NAMES; i++)
        if (live(&facts->net->iface[i]))
            names[nlive++] = facts->net->iface[i].name;
    mu_list_check("NCCL_SOCKET_IFNAME", value, from, names, nlive, out);
    if (value[0] == '^' && mu_list_takes(value, "lo"))
        mu_findings_add(
            out, MU_WARNING, AREA,
            "name the interface instead (NCCL_SOCKET_IFNAME==eth0), or leave "
            "it to Muster",
            "NCCL_SOCKET_IFNAME=%s allows lo: NCCL uses a given list exactly as it is",
            value);
    for (int i = 0; facts->net && i < facts->net->nifaces; i++) {
        const struct mu_iface *iface = &facts->net->iface[i];

        if (!mu_list_takes(value, iface->name))
            continue;
        n += live(iface);
        others |= live(iface) && !iface->loopback;
        if (!live(iface))
            dead = iface->name;
    }
    if (facts->net && n == 0)
        mu_findings_add(
            out, MU_ERROR, AREA,
            "unset it (Muster chooses the interface on each node), or name the network "
            "with networks= in muster.conf",
            "NCCL_SOCKET_IFNAME=%s (%s) names no interface that can be used "
            "here%s%s%s: NCCL fails with \"no socket interface found\"",
            value, from, dead ? " (" : "", dead ? dead : "",
            dead ? " is down or has no address)" : "");
    if (n > 0 && !others && facts->npeers > 0)
        mu_findings_add(
            out, MU_ERROR, AREA, "unset it: Muster chooses the interface on each node",
            "NCCL_SOCKET_IFNAME=%s (%s) selects loopback alone: ranks of other nodes "
            "cannot connect to it",
            value, from);
}

static const struct mu_iface *find_iface(const struct mu_net *net, const char *name)
{
    for (int i = 0; i < net->nifaces; i++)
        if (strcmp(net->iface[i].name, name) == 0)
            return &net->iface[i];
    return NULL;
}

/* Why gloo cannot use an item of its list; "" if it can. */
static const char *gloo_fault(const struct mu_facts *facts, const char *item)
{
    const struct mu_iface *iface = facts->net ? find_iface(facts->net, item) : NULL;

    if (!item[0])
        return "is an empty name (two commas, or one in front)";
    if (item[0] == '^' || item[0] == '=')
        return "is written for NCCL: gloo has no '^' and no '='";
    if (!facts->net)
        return "";
    if (!iface)
        return "is no interface of this node: gloo compares whole names";
    if (iface->naddrs == 0)
        return "has no address";
    if (!iface->up || !iface->carrier)
        return "is down";
    return iface->loopback && facts->npeers > 0
               ? "is loopback: processes of other nodes cannot connect to it"
               : "";
}

/* Case 067: gloo takes a list of whole names, and fails at the first that it cannot
 * use. PyTorch ignores a value of one character.
 */
static void check_gloo(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *value = mu_facts_env(facts, "GLOO_SOCKET_IFNAME");
    char copy[512], *rest = copy, *item;

    if (!value || strlen(value) < 2 || !mu_copy(copy, sizeof copy, value))
        return;
    while ((item = mu_parse_next(&rest, ','))) {
        const char *fault;

        if (!item[0] && !rest) /* a comma behind the last name */
            return;
        fault = gloo_fault(facts, item);
        if (!fault[0])
            continue;
        mu_findings_add(
            out, MU_ERROR, AREA,
            "name interfaces that are up and have an address "
            "(GLOO_SOCKET_IFNAME=eth0), or unset it",
            "GLOO_SOCKET_IFNAME=%s: '%s' %s; gloo fails (\"unable to find address\" "
            "or a timeout)",
            value, item, fault);
        return;
    }
}

void mu_doctor_network(const struct mu_facts *facts, struct mu_findings *out)
{
    if (facts->net) {
        check_same_subnet(facts->net, out);
        check_address_on_lo(facts->net, out);
        check_shared_address(facts, out);
    }
    check_ifname(facts, out);
    check_gloo(facts, out);
    mu_doctor_rdma(facts, out);
}
