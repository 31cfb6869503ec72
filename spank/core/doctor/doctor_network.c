/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_network.c - interfaces that NCCL should not use, RDMA devices that differ */
#include "spank/core/doctor/doctor.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"

#define AREA "network"
#define NAMES_MAX 256

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

/* The value that NCCL uses, and its source in *from; NULL: none. */
static const char *nccl_value(const struct mu_facts *facts, const char *name,
                              const char **from)
{
    const char *value = mu_facts_env(facts, name);
    const struct mu_conf_line *line =
        facts->nccl_conf && !value ? mu_conf_find(facts->nccl_conf, name) : NULL;

    *from = line ? line->file : "the environment";
    return line ? line->value : value;
}

/* Does NCCL's list select this name? "^" excludes the listed names. "=" compares whole
 * names, otherwise an item is a prefix. A port may follow a colon.
 */
static bool list_takes(const char *list, const char *name)
{
    bool all_but = list[0] == '^', found = false;
    bool whole = list[all_but] == '=';

    for (list += all_but + whole; *list && !found; list += strspn(list, ",")) {
        size_t item = strcspn(list, ","), len = strcspn(list, ":,");

        found = len > 0 && strncmp(list, name, len) == 0 && (!whole || !name[len]);
        list += item;
    }
    return found != all_but;
}

/* A name that the item also selects as a prefix, although it means another one: eth10
 * and the VLAN eth1.100 for eth1. "mlx5" and "ens1" for ens1f0 are meant as prefixes.
 */
static bool is_surplus(const char *item, size_t len, const char *name, bool exists)
{
    if (strncmp(item, name, len) != 0 || !name[len])
        return false;
    return exists || (isdigit((unsigned char)item[len - 1]) &&
                      (isdigit((unsigned char)name[len]) || name[len] == '.'));
}

/* Report the names that a list selects beside those that it means; a '=' before the
 * list makes NCCL compare whole names.
 */
static void check_surplus(const char *variable, const char *value, const char *from,
                          const char *const *names, int n, struct mu_findings *out)
{
    bool all_but = value[0] == '^';
    char surplus[256] = "", todo[200];
    size_t at = 0;

    if (value[all_but] == '=')
        return;
    for (const char *item = value + all_but; *item; item += strspn(item, ",")) {
        size_t len = strcspn(item, ":,");
        bool exists = false;

        for (int i = 0; i < n; i++)
            exists |= strlen(names[i]) == len && strncmp(names[i], item, len) == 0;
        for (int i = 0; i < n && len > 0 && at < sizeof surplus; i++)
            if (is_surplus(item, len, names[i], exists))
                at += (size_t)snprintf(surplus + at, sizeof surplus - at, "%s%s",
                                       at ? ", " : "", names[i]);
        item += strcspn(item, ",");
    }
    if (!at)
        return;
    snprintf(todo, sizeof todo, "write '=' before the names: %s=%s=%.100s", variable,
             all_but ? "^" : "", value + all_but);
    mu_findings_add(out, MU_WARNING, AREA, todo,
                    "%s=%s (%s) also %s %s: NCCL compares beginnings of names",
                    variable, value, from, all_but ? "excludes" : "selects", surplus);
}

/* Case 027, and names copied from another machine: NCCL has no fallback from a list. */
static void check_ifname(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *from, *value = nccl_value(facts, "NCCL_SOCKET_IFNAME", &from);
    const char *dead = NULL, *names[NAMES_MAX];
    int n = 0, nlive = 0;

    if (!value || strlen(value) < 2)
        return;
    for (int i = 0; facts->net && i < facts->net->nifaces && nlive < NAMES_MAX; i++)
        if (live(&facts->net->iface[i]))
            names[nlive++] = facts->net->iface[i].name;
    check_surplus("NCCL_SOCKET_IFNAME", value, from, names, nlive, out);
    if (value[0] == '^' && list_takes(value, "lo"))
        mu_findings_add(
            out, MU_WARNING, AREA,
            "name the interface instead (NCCL_SOCKET_IFNAME==eth0), or leave "
            "it to Muster",
            "NCCL_SOCKET_IFNAME=%s allows lo: NCCL uses a given list exactly as it is",
            value);
    for (int i = 0; facts->net && i < facts->net->nifaces; i++) {
        const struct mu_iface *iface = &facts->net->iface[i];

        if (!list_takes(value, iface->name))
            continue;
        n += live(iface);
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
        const char *fault = gloo_fault(facts, item);

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

/* With no device in NCCL_IB_HCA, NCCL continues with sockets and prints no error. */
static void check_hca_list(const struct mu_facts *facts, struct mu_findings *out)
{
    const char *from, *value = nccl_value(facts, "NCCL_IB_HCA", &from);
    const struct mu_node *node = facts->node;
    const char *names[NAMES_MAX];
    int n = 0, taken = 0;

    for (int i = 0; value && node && i < node->nnics && n < NAMES_MAX; i++) {
        if (!node->nics[i].active || !node->nics[i].name[0] ||
            !mu_nic_has_verbs(&node->nics[i]))
            continue;
        names[n++] = node->nics[i].name;
        taken += list_takes(value, node->nics[i].name);
    }
    if (n > 0)
        check_surplus("NCCL_IB_HCA", value, from, names, n, out);
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
    const char *from, *value = nccl_value(facts, "NCCL_IB_HCA", &from);
    const struct mu_node *node = facts->node;

    for (int i = 0; i < node->nsoft; i++) {
        const struct mu_nic *nic = &node->soft[i];
        bool taken = nic->active && value && list_takes(value, nic->name);

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

void mu_doctor_network(const struct mu_facts *facts, struct mu_findings *out)
{
    if (facts->net) {
        check_same_subnet(facts->net, out);
        check_address_on_lo(facts->net, out);
        check_shared_address(facts, out);
    }
    check_ifname(facts, out);
    check_gloo(facts, out);
    check_hca_list(facts, out);
    if (facts->node)
        check_hcas(facts->node, out);
    if (facts->node)
        check_software(facts, out);
    check_unused_fabric(facts, out);
}
