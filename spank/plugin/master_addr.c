/* SPDX-License-Identifier: BSD-3-Clause */
/* master_addr.c - checks a MASTER_ADDR of the user's: it stays, right or wrong */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/parse.h"
#include "spank/hw/live/net_live.h"
#include "spank/plugin/plugin.h"

#define LOOK_UP 1.0 /* seconds */

static const char foreign[] = "is no address of rank 0's node";

static bool is_loopback(const struct mu_addr *addr)
{
    static const uint8_t one[16] = { [15] = 1 };

    return addr->family == AF_INET ? addr->byte[0] == 127
                                   : memcmp(addr->byte, one, sizeof one) == 0;
}

/* Slurm's nodes may be daemons of one machine, which meet at loopback. */
static bool loopback_is_right(const struct mu_state *st)
{
    struct mu_addr addr;

    return st->step.nnodes < 2 ||
           (mu_addr_parse(st->network.master_addr, &addr, NULL) == 0 &&
            is_loopback(&addr));
}

/* Is it the name of rank 0's node, and this node has it? Debian's /etc/hosts gives a
 * node's own name the address 127.0.1.1 there; the other nodes resolve it otherwise.
 */
static bool is_own_name(const struct mu_state *st, const char *name)
{
    size_t n = strlen(st->step.host);

    return st->step.is_rank0_host && strncmp(name, st->step.host, n) == 0 &&
           (!name[n] || name[n] == '.');
}

/* Does all of the training run on this node? The tasks of a launcher, and steps whose
 * ranks the user numbers by hand, may join a rank 0 on another node.
 */
static bool is_whole_world(const struct mu_user_lookup *lookup)
{
    const struct mu_state *st = lookup->st;
    struct mu_user_lookup other = { .st = lookup->st, .sp = lookup->sp };

    return st->step.world_nodes == 1 && st->role == MU_ROLE_RANK &&
           !mu_users_value(&other, "WORLD_SIZE");
}

/* A step on one node chooses no network, and has not read the interfaces. */
static bool is_on_this_node(const struct mu_peer *peer)
{
    struct mu_net net = { 0 };
    bool own = mu_net_load_live(&net, NULL) < 0 || mu_net_own_addr(peer, &net);

    mu_net_clear(&net);
    return own;
}

/* Why rank 0 cannot be reached at this address; "" if nothing is wrong. Only rank 0's
 * node can tell its own addresses from others.
 */
static const char *fault(const struct mu_user_lookup *lookup,
                         const struct mu_peer *peer)
{
    const struct mu_state *st = lookup->st;
    int loopback = 0;

    if (peer->naddrs == 0)
        return "does not resolve to an address here";
    if (is_own_name(st, peer->host))
        return "";
    if (is_whole_world(lookup))
        return is_on_this_node(peer) ? "" : foreign;
    if (loopback_is_right(st))
        return "";
    for (int i = 0; i < peer->naddrs; i++)
        loopback += is_loopback(&peer->addr[i]);
    if (loopback == peer->naddrs)
        return "is loopback, but the step has several nodes";
    if (st->step.is_rank0_host && !mu_net_own_addr(peer, &st->network.net))
        return foreign;
    return "";
}

void mu_master_check(struct mu_state *st, struct mu_user_lookup *lookup)
{
    const char *value = mu_users_value(lookup, "MASTER_ADDR"), *why;
    struct mu_peer peer = { .host = "" };
    bool alone;

    if (!st->network.master_known)
        mu_warn(st,
                "MASTER_ADDR is the name %s, which has no address that other nodes can "
                "reach, and slurm.conf has no NodeAddr for it",
                st->network.master_addr);
    if (!value) {
        if (st->opts.verbose == MU_FLAG_YES)
            mu_info(st, "MASTER_ADDR=%s: rank 0's node", st->network.master_addr);
        return;
    }
    if (st->opts.verbose == MU_FLAG_YES)
        mu_info(st,
                "MASTER_ADDR stays %.200s from the environment (Muster would set %s)",
                value, st->network.master_addr);
    if (mu_copy(peer.host, sizeof peer.host, value))
        mu_net_resolve(&peer, 1, LOOK_UP, NULL);
    why = value[0] ? fault(lookup, &peer) : "is empty";
    if (!why[0])
        return;
    /* The script may have set it for other steps, which this task does not join. */
    alone = st->step.world == 1 && why == foreign;
    if (st->opts.strict == MU_FLAG_YES && !alone)
        mu_err_set(&st->failure, EINVAL,
                   "MASTER_ADDR=%.200s %s: unset it, Muster sets %s", value, why,
                   st->network.master_addr);
    else if (st->step.is_rank0_host)
        mu_warn(st,
                "MASTER_ADDR=%.200s %s: %s in vain; unset it, Muster sets %s (rank 0's "
                "node is %s)",
                value, why,
                alone ? "a training of this task alone waits for rank 0"
                      : "ranks will wait for each other",
                st->network.master_addr, st->step.host);
}
