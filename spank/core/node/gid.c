/* SPDX-License-Identifier: BSD-3-Clause */
/* gid.c - GIDs of RoCE ports as bytes */
#include "spank/core/node/gid.h"

#include <arpa/inet.h>
#include <string.h>

#include "runtime/base/parse.h"

bool mu_gid_parse(const char *text, uint8_t byte[16])
{
    static const uint8_t empty[16];
    uint8_t gid[16];
    char copy[64];

    mu_copy(copy, sizeof copy, text);
    copy[strcspn(copy, " \t\n")] = '\0';
    if (inet_pton(AF_INET6, copy, gid) != 1 || memcmp(gid, empty, sizeof gid) == 0)
        return false;
    memcpy(byte, gid, sizeof gid);
    return true;
}

const uint8_t *mu_gid_bytes(const struct mu_gid *gid, bool *v4)
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

    *v4 = memcmp(gid->byte, mapped, sizeof mapped) == 0;
    return gid->byte + (*v4 ? sizeof mapped : 0);
}

bool mu_ip_is_global(const uint8_t *b, bool v4)
{
    if (v4)
        return b[0] != 127 && b[0] != 0 && !(b[0] == 169 && b[1] == 254);
    if (b[0] == 0xfe && (b[1] & 0xc0) == 0x80)
        return false;
    for (int i = 0; i < 15; i++)
        if (b[i])
            return true;
    return b[15] > 1;
}

bool mu_gid_any_global(const struct mu_nic *nic)
{
    for (int i = 0; i < nic->ngids; i++) {
        bool v4;
        const uint8_t *byte = mu_gid_bytes(&nic->gid[i], &v4);

        if (mu_ip_is_global(byte, v4))
            return true;
    }
    return false;
}
