/* SPDX-License-Identifier: BSD-3-Clause */
/* iface.c - what the name of a network interface shows about its addresses */
#include "runtime/base/iface.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *prefix;
    enum mu_iface_reach reach;
} names[] = {
    { "docker", MU_IFACE_BRIDGE },    { "br-", MU_IFACE_BRIDGE },
    { "virbr", MU_IFACE_BRIDGE },     { "vnet", MU_IFACE_BRIDGE },
    { "veth", MU_IFACE_BRIDGE },      { "cni", MU_IFACE_BRIDGE },
    { "cali", MU_IFACE_BRIDGE },      { "cilium", MU_IFACE_BRIDGE },
    { "kube-", MU_IFACE_BRIDGE },     { "podman", MU_IFACE_BRIDGE },
    { "lxcbr", MU_IFACE_BRIDGE },     { "lxdbr", MU_IFACE_BRIDGE },
    { "incus", MU_IFACE_BRIDGE },     { "tmfifo_net", MU_IFACE_BRIDGE },
    { "flannel", MU_IFACE_TUNNEL },   { "wg", MU_IFACE_TUNNEL },
    { "tun", MU_IFACE_TUNNEL },       { "tap", MU_IFACE_TUNNEL },
    { "tailscale", MU_IFACE_TUNNEL }, { "zt", MU_IFACE_TUNNEL },
};

enum mu_iface_reach mu_iface_reach(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(name, names[i].prefix, strlen(names[i].prefix)) == 0)
            return names[i].reach;
    return MU_IFACE_NETWORK;
}
