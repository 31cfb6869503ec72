/* SPDX-License-Identifier: BSD-3-Clause */
/* gid_addr.c - GIDs of RoCE ports as addresses in networks */
#include "spank/core/network/gid_addr.h"

#include <arpa/inet.h>

void mu_gid_addr(const struct mu_gid *gid, struct mu_addr *out)
{
    char text[MU_ADDR_TEXT];
    bool v4;
    const uint8_t *byte = mu_gid_bytes(gid, &v4);

    inet_ntop(v4 ? AF_INET : AF_INET6, byte, text, sizeof text);
    mu_addr_parse(text, out, NULL); /* sets the scope, too */
}

bool mu_gid_in(const struct mu_nic *nic, const struct mu_addr *subnet, int n)
{
    for (int i = 0; i < nic->ngids; i++) {
        struct mu_addr addr;

        mu_gid_addr(&nic->gid[i], &addr);
        for (int k = 0; addr.global && k < n; k++)
            if (mu_addr_in(&addr, &subnet[k]))
                return true;
    }
    return false;
}
