/* SPDX-License-Identifier: BSD-3-Clause */
/* interface.c - IP addresses, interfaces, and the choice of one for a step */
#include "spank/core/network/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/array.h"
#include "runtime/base/iface.h"
#include "runtime/base/parse.h"
#include "spank/core/node/gid.h"

void mu_net_clear(struct mu_net *net)
{
    for (int i = 0; i < net->nifaces; i++)
        free(net->iface[i].addr);
    free(net->iface);
    *net = (struct mu_net){ 0 };
}

struct mu_iface *mu_net_add_iface(struct mu_net *net, const char *name)
{
    struct mu_iface *iface;

    if (mu_array_extend(&net->iface, sizeof *iface, net->nifaces, net->nifaces + 1) < 0)
        return NULL;
    iface = &net->iface[net->nifaces++];
    mu_copy(iface->name, sizeof iface->name, name);
    return iface;
}

int mu_iface_add_addr(struct mu_iface *iface, const struct mu_addr *addr)
{
    if (mu_array_extend(&iface->addr, sizeof *addr, iface->naddrs, iface->naddrs + 1) <
        0)
        return -1;
    iface->addr[iface->naddrs++] = *addr;
    return 0;
}

static int addr_bits(const struct mu_addr *addr)
{
    return addr->family == AF_INET ? 32 : 128;
}

int mu_addr_parse(const char *text, struct mu_addr *out, struct mu_err *err)
{
    struct mu_addr addr = { 0 };
    char copy[MU_ADDR_TEXT], *length;
    long prefix;

    if (!mu_copy(copy, sizeof copy, text))
        goto bad;
    length = strchr(copy, '/');
    if (length)
        *length++ = '\0';
    if (inet_pton(AF_INET, copy, addr.byte) == 1)
        addr.family = AF_INET;
    else if (inet_pton(AF_INET6, copy, addr.byte) == 1)
        addr.family = AF_INET6;
    else
        goto bad;
    prefix = addr_bits(&addr);
    if (length && mu_parse_int("a subnet length", length, 0, prefix, &prefix, err) < 0)
        return mu_err_context(err, "'%.80s'", text);
    addr.prefix = (int)prefix;
    addr.global = mu_ip_is_global(addr.byte, addr.family == AF_INET);
    *out = addr;
    return 0;
bad:
    return mu_err_set(err, EINVAL,
                      "'%.80s' is not an address or subnet like 10.1.0.0/16", text);
}

int mu_networks_parse(const char *text, struct mu_addr *out, int *n, struct mu_err *err)
{
    char copy[2048], *rest = copy, *item;

    *n = 0;
    if (!text || !text[0])
        return 0;
    if (!mu_copy(copy, sizeof copy, text))
        return mu_err_set(err, EINVAL, "networks is longer than %zu characters",
                          sizeof copy - 1);
    while ((item = mu_parse_next(&rest, ','))) {
        item += strspn(item, " \t");
        item[strcspn(item, " \t")] = '\0';
        if (*n == MU_NETWORKS_MAX)
            return mu_err_set(err, EINVAL, "networks names more than %d subnets",
                              MU_NETWORKS_MAX);
        if (mu_addr_parse(item, &out[(*n)++], err) < 0)
            return mu_err_context(err, "networks");
    }
    return 0;
}

void mu_addr_format(const struct mu_addr *addr, char *buf, size_t len)
{
    if (!addr->family || !inet_ntop(addr->family, addr->byte, buf, (socklen_t)len))
        snprintf(buf, len, "-");
}

bool mu_addr_in(const struct mu_addr *addr, const struct mu_addr *subnet)
{
    if (addr->family != subnet->family)
        return false;
    for (int bit = 0; bit < subnet->prefix; bit++)
        if ((addr->byte[bit / 8] ^ subnet->byte[bit / 8]) & 0x80 >> bit % 8)
            return false;
    return true;
}

bool mu_addr_same(const struct mu_addr *a, const struct mu_addr *b)
{
    return a->family == b->family && memcmp(a->byte, b->byte, addr_bits(a) / 8) == 0;
}

bool mu_iface_is_private(const struct mu_iface *iface)
{
    static const char *const kinds[] = { "tun", "wireguard", NULL };

    return iface->loopback || mu_parse_word(iface->kind, kinds) >= 0 ||
           mu_iface_reach(iface->name) != MU_IFACE_NETWORK;
}

static bool usable(const struct mu_iface *iface)
{
    return iface->up && iface->carrier;
}

/* The peer has an address in the subnet of `own`. */
static bool reaches(const struct mu_addr *own, const struct mu_peer *peer)
{
    for (int i = 0; i < peer->naddrs; i++)
        if (mu_addr_in(&peer->addr[i], own))
            return true;
    return false;
}

static bool reaches_all(const struct mu_addr *own, const struct mu_peer *peers,
                        int npeers)
{
    for (int i = 0; i < npeers; i++)
        if (!reaches(own, &peers[i]))
            return false;
    return npeers > 0;
}

/* Prefer public to private interfaces, then the faster, then the kernel's order. */
static bool better(const struct mu_net *net, int a, int b)
{
    const struct mu_iface *x = &net->iface[a], *y = &net->iface[b];

    if (mu_iface_is_private(x) != mu_iface_is_private(y))
        return mu_iface_is_private(y);
    if (x->mbits != y->mbits)
        return x->mbits > y->mbits;
    return a < b;
}

/* A search needs an address on one network, or one that reaches all peers. */
struct search {
    const struct mu_net *net;
    const struct mu_addr *network; /* NULL: search by peers */
    const struct mu_peer *peers;
    int npeers;
};

static bool wanted(const struct search *s, const struct mu_addr *addr)
{
    if (!addr->global)
        return false;
    return s->network ? mu_addr_in(addr, s->network)
                      : reaches_all(addr, s->peers, s->npeers);
}

/* The preferred interface with a wanted address, which is stored in *addr; -1: none. */
static int find(const struct search *s, struct mu_addr *addr)
{
    int best = -1;

    for (int i = 0; i < s->net->nifaces; i++) {
        const struct mu_iface *iface = &s->net->iface[i];

        if (!usable(iface) || iface->loopback)
            continue;
        for (int k = 0; k < iface->naddrs; k++)
            if (wanted(s, &iface->addr[k]) && (best < 0 || better(s->net, i, best))) {
                best = i;
                *addr = iface->addr[k];
                break;
            }
    }
    return best;
}

/* NCCL's order of interfaces by name prefix: 0 for ib, 2 for docker and lo ("lom1"
 * too), 1 for all others.
 */
static int nccl_class(const char *name)
{
    if (strncmp(name, "ib", 2) == 0)
        return 0;
    return strncmp(name, "docker", 6) == 0 || strncmp(name, "lo", 2) == 0 ? 2 : 1;
}

/* NCCL chooses `chosen` without a variable if no other usable interface has the same or
 * a lower class. Class 2 is never safe.
 */
static bool nccl_takes(const struct mu_net *net, int chosen)
{
    int class = nccl_class(net->iface[chosen].name);

    for (int i = 0; i < net->nifaces; i++)
        if (i != chosen && usable(&net->iface[i]) && net->iface[i].naddrs &&
            nccl_class(net->iface[i].name) <= class)
            return false;
    return class < 2;
}

/* A global address on lo (BGP to the host) serves a rendezvous, but not NCCL. */
static bool address_on_lo(const struct mu_net *net, struct mu_addr *addr)
{
    for (int i = 0; i < net->nifaces; i++)
        for (int k = 0; net->iface[i].loopback && k < net->iface[i].naddrs; k++)
            if (net->iface[i].addr[k].global) {
                *addr = net->iface[i].addr[k];
                return true;
            }
    return false;
}

static bool public_address(const struct mu_net *net)
{
    for (int i = 0; i < net->nifaces; i++)
        for (int k = 0; k < net->iface[i].naddrs; k++)
            if (usable(&net->iface[i]) && !mu_iface_is_private(&net->iface[i]) &&
                net->iface[i].addr[k].global)
                return true;
    return false;
}

static void explain_none(const struct mu_net *net, const struct mu_peer *peers,
                         int npeers, struct mu_net_choice *out)
{
    char text[MU_ADDR_TEXT];

    for (int i = 0; i < npeers; i++)
        if (!peers[i].naddrs) {
            snprintf(out->reason, sizeof out->reason,
                     "no interface chosen: the name %s does not resolve to an address; "
                     "name the network with networks= in muster.conf",
                     peers[i].host);
            return;
        }
    if (!public_address(net) && address_on_lo(net, &out->addr)) {
        mu_addr_format(&out->addr, text, sizeof text);
        snprintf(out->reason, sizeof out->reason,
                 "the only routable address, %s, is on lo: the rendezvous can use it, "
                 "but NCCL's sockets cannot; give a data port an address or use "
                 "InfiniBand or RoCE",
                 text);
        return;
    }
    snprintf(out->reason, sizeof out->reason,
             "no interface chosen: no interface has a subnet with an address of all %d "
             "nodes; name the network with networks= in muster.conf",
             npeers);
}

void mu_net_choose(const struct mu_net *net, const struct mu_addr *networks,
                   int nnetworks, const struct mu_peer *peers, int npeers,
                   struct mu_net_choice *out)
{
    struct search s = { .net = net, .peers = peers, .npeers = npeers };
    char text[MU_ADDR_TEXT];

    *out = (struct mu_net_choice){ .iface = -1 };
    for (int i = 0; i < nnetworks && out->iface < 0; i++) {
        s.network = &networks[i];
        out->iface = find(&s, &out->addr);
        mu_addr_format(&networks[i], text, sizeof text);
        if (out->iface >= 0)
            snprintf(out->reason, sizeof out->reason,
                     "%s is on %s/%d, entry %d of networks= in muster.conf",
                     net->iface[out->iface].name, text, networks[i].prefix, i + 1);
    }
    if (out->iface < 0) {
        s.network = NULL;
        out->iface = find(&s, &out->addr);
        if (out->iface >= 0)
            snprintf(
                out->reason, sizeof out->reason,
                "%s is the %s interface whose subnet contains all %d nodes of the step",
                net->iface[out->iface].name,
                net->iface[out->iface].mbits ? "fastest" : "first", npeers);
    }
    if (out->iface < 0)
        explain_none(net, peers, npeers, out);
    else
        out->needed = !nccl_takes(net, out->iface);
}

const struct mu_addr *mu_net_peer_addr(const struct mu_peer *peer,
                                       const struct mu_net_choice *choice)
{
    for (int i = 0; choice->addr.family && i < peer->naddrs; i++)
        if (choice->iface >= 0 && mu_addr_in(&peer->addr[i], &choice->addr))
            return &peer->addr[i];
    for (int i = 0; i < peer->naddrs; i++)
        if (peer->addr[i].global)
            return &peer->addr[i];
    return NULL;
}

static bool on_this_node(const struct mu_addr *addr, const struct mu_net *net)
{
    if (addr->family == AF_INET && addr->byte[0] == 127)
        return true;
    for (int i = 0; i < net->nifaces; i++)
        for (int k = 0; k < net->iface[i].naddrs; k++)
            if (mu_addr_same(addr, &net->iface[i].addr[k]))
                return true;
    return false;
}

const struct mu_addr *mu_net_own_addr(const struct mu_peer *own,
                                      const struct mu_net *net)
{
    for (int i = 0; i < own->naddrs; i++)
        if (on_this_node(&own->addr[i], net))
            return &own->addr[i];
    return NULL;
}
