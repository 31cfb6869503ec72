/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/live/network.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/hw/live/nccl_conf_files.h"
#include "spank/hw/live/net_live.h"
#include "spank/hw/live/platform_live.h"

/* An address that other nodes can reach, unlike the loopback address of a line
 * "127.0.1.1 NAME" in /etc/hosts.
 */
static bool has_global(const struct mu_peer *peer)
{
    for (int i = 0; i < peer->naddrs; i++)
        if (peer->addr[i].global)
            return true;
    return false;
}

static int find_host(const struct mu_network_request *request, const char *name,
                     int missing)
{
    for (int i = 0; name && i < request->nhosts; i++)
        if (strcmp(request->hosts[i], name) == 0)
            return i;
    return missing;
}

/* Ask for other names or addresses of the n peers at[] and resolve these. from_slurm[i]
 * becomes true where this gave peers[i] its address.
 */
static void resolve_others(const struct mu_network_request *request,
                           struct mu_peer *peers, const int *at, int n,
                           bool *from_slurm, struct mu_network *out)
{
    struct mu_node_addr *list = calloc((size_t)n, sizeof *list);
    struct mu_peer *others = calloc((size_t)n, sizeof *others);
    int *of = calloc((size_t)n, sizeof *of), m = 0, helped = 0;

    if (!list || !others || !of)
        goto out;
    for (int k = 0; k < n; k++)
        mu_copy(list[k].host, sizeof list[k].host, peers[at[k]].host);
    request->node_addrs(request->node_addrs_arg, list, n);
    for (int k = 0; k < n; k++)
        if (list[k].addr[0] && strcmp(list[k].addr, list[k].host) != 0) {
            mu_copy(others[m].host, sizeof others[m].host, list[k].addr);
            of[m++] = at[k];
        }
    if (m > 0)
        mu_net_resolve(others, m, request->timeout, NULL);
    for (int k = 0; k < m; k++) {
        if (others[k].naddrs == 0)
            continue;
        memcpy(peers[of[k]].addr, others[k].addr, sizeof others[k].addr);
        peers[of[k]].naddrs = others[k].naddrs;
        from_slurm[of[k]] = true;
        if (helped++ == 0)
            snprintf(out->fallback, sizeof out->fallback,
                     "the name %s resolves to no address that other nodes can reach; "
                     "its NodeAddr %s in slurm.conf is used",
                     peers[of[k]].host, others[k].host);
    }
    if (helped > 1)
        snprintf(out->fallback + strlen(out->fallback),
                 sizeof out->fallback - strlen(out->fallback),
                 ", and likewise for %d more node%s", helped - 1,
                 mu_plural(helped - 1));
out:
    free(list);
    free(others);
    free(of);
}

/* Take the addresses of this node's interfaces where its own name resolves to loopback
 * ("127.0.1.1 NAME" in /etc/hosts) or not at all. The address that the other nodes
 * resolve is among them.
 */
static void resolve_self(struct mu_peer *own, struct mu_network *out)
{
    const int room = sizeof own->addr / sizeof own->addr[0];
    const struct mu_net *net = &out->net;
    int n = 0;

    for (int i = 0; i < net->nifaces; i++) {
        const struct mu_iface *iface = &net->iface[i];

        if (!iface->up || !iface->carrier || mu_iface_is_private(iface))
            continue;
        for (int k = 0; k < iface->naddrs && n < room; k++)
            if (iface->addr[k].global)
                own->addr[n++] = iface->addr[k];
    }
    if (n == 0)
        return;
    own->naddrs = n;
    if (!out->fallback[0])
        snprintf(out->fallback, sizeof out->fallback,
                 "the name %s resolves to no address that other nodes can reach; the "
                 "addresses of this node's interfaces are used",
                 own->host);
}

/* True: peers[rank0] has the address at which Slurm reaches it, and no better one. */
static bool resolve(const struct mu_network_request *request, struct mu_peer *peers,
                    int rank0, struct mu_network *out, struct mu_err *late)
{
    int self = find_host(request, request->self, -1);
    int *at = calloc((size_t)request->nhosts, sizeof *at), n = 0;
    bool *from_slurm = calloc((size_t)request->nhosts, sizeof *from_slurm),
         slurms = false;

    mu_net_resolve(peers, request->nhosts, request->timeout, late);
    for (int i = 0; at && i < request->nhosts; i++)
        if (!has_global(&peers[i]))
            at[n++] = i;
    if (n > 0 && from_slurm && request->node_addrs)
        resolve_others(request, peers, at, n, from_slurm, out);
    /* Slurm's address takes precedence, since the other nodes use it. */
    if (self >= 0 && from_slurm && !from_slurm[self] && !has_global(&peers[self]))
        resolve_self(&peers[self], out);
    slurms = from_slurm && from_slurm[rank0] && !has_global(&peers[rank0]);
    free(at);
    free(from_slurm);
    return slurms;
}

/* Interface, and rank 0's address on its network. */
static int choose_network(const struct mu_network_request *request,
                          const struct mu_addr *networks, int nnetworks,
                          struct mu_network *out, struct mu_err *err)
{
    struct mu_peer *peers = calloc((size_t)request->nhosts, sizeof *peers);
    const struct mu_addr *master;
    struct mu_err late = { 0 };
    int rank0 = find_host(request, request->rank0_host, 0);
    bool by_slurm;

    if (!peers)
        return mu_err_set(err, ENOMEM, "out of memory for %d nodes", request->nhosts);
    for (int i = 0; i < request->nhosts; i++)
        mu_copy(peers[i].host, sizeof peers[i].host, request->hosts[i]);
    if (mu_net_load_live(&out->net, err) < 0) {
        free(peers);
        return -1;
    }
    by_slurm = resolve(request, peers, rank0, out, &late);
    mu_net_choose(&out->net, networks, nnetworks, peers, request->nhosts, &out->choice);
    if (late.text[0] && out->choice.iface < 0)
        snprintf(out->choice.reason, sizeof out->choice.reason, "%.500s", late.text);
    master = mu_net_peer_addr(&peers[rank0], &out->choice);
    /* It is not a global one if Slurm's nodes are daemons of one machine. */
    if (!master && by_slurm)
        master = &peers[rank0].addr[0];
    out->master_known = master != NULL;
    if (master)
        mu_addr_format(master, out->master_addr, sizeof out->master_addr);
    free(peers);
    return 0;
}

/* PyTorch's gloo resolves the node's own name (gethostname) and listens at the first
 * address that it can bind to, or at loopback. It sends that address to the other
 * ranks. Where they cannot reach it, rendezvous fails whatever MASTER_ADDR is.
 */
static int add_gloo(const struct mu_network_request *request, struct mu_network *out,
                    struct mu_err *err)
{
    char reason[192], text[MU_ADDR_TEXT] = "no address of this node";
    struct mu_peer own = { .host = "" };
    const struct mu_addr *addr;

    if (request->nhosts < 2 || out->choice.iface < 0 ||
        gethostname(own.host, sizeof own.host - 1) < 0)
        return 0;
    mu_net_resolve(&own, 1, request->timeout, NULL);
    addr = mu_net_own_addr(&own, &out->net);
    if (addr && addr->global)
        return 0;
    if (addr)
        mu_addr_format(addr, text, sizeof text);
    snprintf(reason, sizeof reason,
             "gloo uses the address of the node's own name, and %.64s resolves to %s",
             own.host, text);
    return mu_settings_add(&out->settings, "GLOO_SOCKET_IFNAME",
                           out->net.iface[out->choice.iface].name, reason, err);
}

static int load_profiles(const struct mu_network_request *request,
                         struct mu_profiles *profiles, struct mu_err *err)
{
    if (request->site_profile_dir &&
        mu_profiles_load(request->site_profile_dir, profiles, err) < 0)
        return -1;
    if (request->profile_dir)
        return mu_profiles_load(request->profile_dir, profiles, err);
    return 0;
}

/* RoCE ports are judged by the site's networks and by that of the chosen interface. */
static void choose_hcas(const struct mu_network_request *request,
                        const struct mu_addr *networks, int nnetworks,
                        struct mu_network *out)
{
    struct mu_addr subnet[MU_NETWORKS_MAX + 1];
    struct mu_hca_where where = { .subnet = subnet,
                                  .nsubnets = nnetworks,
                                  .net = out->net.nifaces ? &out->net : NULL };

    for (int i = 0; i < nnetworks; i++)
        subnet[i] = networks[i];
    if (out->choice.iface >= 0)
        subnet[where.nsubnets++] = out->choice.addr;
    mu_hca_choose(request->node, request->alloc, request->exclude_hca, &where,
                  &out->hca);
}

static int decide_nccl(const struct mu_network_request *request, struct mu_network *out,
                       struct mu_err *err)
{
    struct mu_nccl_input in = {
        .node = request->node,
        .plan = request->plan,
        .nnodes = request->nhosts,
        .net = &out->net,
        .choice = &out->choice,
        .hca = &out->hca,
        .ras_port = request->ras_port,
        .ras_addr = request->ras_addr,
        .library = request->library,
        .direct_dma = strcmp(request->node->source, "this node") == 0 &&
                      mu_platform_direct_dma(request->root ? request->root : "")
    };
    static const char topo_name[] = "NCCL_TOPO_FILE";
    struct mu_profiles profiles = { 0 };
    struct mu_platform platform = { 0 };
    struct mu_conf conf = { 0 };
    struct mu_err unread = { 0 };
    int rc = -1;

    if (load_profiles(request, &profiles, err) < 0 ||
        mu_platform_load(request->root ? request->root : "", &platform, err) < 0)
        goto out;
    in.platform = &platform;
    in.profile = mu_profiles_match(&profiles, &platform);
    if (in.profile)
        mu_copy(out->platform, sizeof out->platform, in.profile->name);
    mu_conf_load_live(request->conf_file, request->home, "/etc/nccl.conf", &conf,
                      &unread);
    if (request->topo &&
        !(request->user && request->user(request->user_arg, topo_name)) &&
        !mu_conf_find(&conf, topo_name))
        request->topo(request->topo_arg, out->platform, &in.topo_file, &in.topo_reason);
    if (mu_nccl_decide(&in, &out->settings, err) < 0)
        goto out;
    mu_copy(out->refused, sizeof out->refused, mu_platform_refused(&platform));
    mu_copy(out->unread, sizeof out->unread, unread.text);
    mu_settings_resolve(&out->settings, request->user, request->user_arg, &conf);
    rc = 0;
out:
    mu_conf_clear(&conf);
    mu_profiles_clear(&profiles);
    mu_platform_unload(&platform);
    return rc;
}

int mu_network_decide(const struct mu_network_request *request, struct mu_network *out,
                      struct mu_err *err)
{
    struct mu_addr networks[MU_NETWORKS_MAX];
    int nnetworks;

    *out = (struct mu_network){ .choice = { .iface = -1 } };
    if (request->nhosts < 1)
        return mu_err_set(err, EINVAL, "the step has no nodes");
    mu_copy(out->master_addr, sizeof out->master_addr,
            request->hosts[find_host(request, request->rank0_host, 0)]);
    if (mu_networks_parse(request->networks, networks, &nnetworks, err) < 0)
        return -1;
    if (request->nhosts == 1) {
        mu_copy(out->master_addr, sizeof out->master_addr, "127.0.0.1");
        out->master_known = true;
        mu_copy(out->choice.reason, sizeof out->choice.reason,
                "the step has one node: no network is needed");
    } else if (choose_network(request, networks, nnetworks, out, err) < 0) {
        return -1;
    }
    if (request->nccl)
        choose_hcas(request, networks, nnetworks, out);
    if ((request->gloo && add_gloo(request, out, err) < 0) ||
        (request->nccl && decide_nccl(request, out, err) < 0)) {
        mu_network_clear(out);
        return -1;
    }
    if (!request->nccl)
        mu_settings_resolve(&out->settings, request->user, request->user_arg, NULL);
    return 0;
}

void mu_network_clear(struct mu_network *network)
{
    mu_net_clear(&network->net);
}
