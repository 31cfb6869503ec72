/* SPDX-License-Identifier: BSD-3-Clause */
/* sysfs_gid.c - reads the GID table of an RDMA port */
#include <errno.h>
#include <string.h>

#include "spank/core/node/gid.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/machine/sysfs.h"

#define TABLE 256 /* entries of the largest table */
#define GAP 8     /* absent entries that a recorded table may have in a row */
#define PORT "/sys/class/infiniband/%s/ports/%d"

/* The kernel fails to read the type of an empty entry; more may be behind it. A table
 * of empty entries alone is one without an address, not an unknown one.
 */
bool mu_sysfs_gids(const char *root, int port, struct mu_nic *nic)
{
    bool typed = false;
    int absent = 0;

    for (int i = 0; i < TABLE && absent < GAP && nic->ngids < MU_NIC_GIDS; i++) {
        struct mu_gid *gid = &nic->gid[nic->ngids];
        char text[128], type[64];

        if (mu_sysfile_read(root, text, sizeof text, PORT "/gids/%d", nic->name, port,
                            i) <= 0) {
            absent++;
            continue;
        }
        absent = 0;
        errno = 0;
        if (mu_sysfile_read(root, type, sizeof type, PORT "/gid_attrs/types/%d",
                            nic->name, port, i) <= 0) {
            typed |= errno != ENOENT;
            continue;
        }
        typed = true;
        if (!strstr(type, "RoCE v2") || !mu_gid_parse(text, gid->byte))
            continue;
        gid->port = port;
        gid->index = i;
        nic->ngids++;
    }
    return typed;
}
