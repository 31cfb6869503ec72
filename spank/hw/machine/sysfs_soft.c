/* SPDX-License-Identifier: BSD-3-Clause */
/* sysfs_soft.c - is an RDMA device of /sys/class/infiniband made in software? */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/machine/sysfs.h"

#define CLASS "/sys/class/infiniband"
/* RNICs of hardware; their drivers (iw_cxgb4, erdma) show none of the files below. */
#define CHELSIO 0x1425
#define ALIBABA 0x1ded

static bool has_file(const char *root, const char *name, const char *file)
{
    char buf[256];

    return mu_sysfile_read(root, buf, sizeof buf, CLASS "/%s/%s", name, file) > 0;
}

/* The last part of where a link below the device points; "" without the link. */
static const char *link_end(const char *root, const char *name, const char *link,
                            char *buf, size_t len)
{
    char path[4400];
    ssize_t n;

    snprintf(path, sizeof path, "%s" CLASS "/%s%s", root, name, link);
    n = readlink(path, buf, len - 1);
    buf[n > 0 ? n : 0] = '\0';
    return strrchr(buf, '/') ? strrchr(buf, '/') + 1 : buf;
}

/* An iWARP device of hardware has a revision, a board or firmware; siw has none. */
static bool has_hardware(const char *root, const char *name)
{
    static const char *const files[] = { "hw_rev", "hca_type", "board_id", "fw_ver" };
    char buf[64] = "";
    long vendor;

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (has_file(root, name, files[i]))
            return true;
    mu_sysfile_read(root, buf, sizeof buf, CLASS "/%s/device/vendor", name);
    vendor = strtol(buf, NULL, 16);
    return vendor == CHELSIO || vendor == ALIBABA;
}

bool mu_sysfs_is_soft(const char *root, const char *name)
{
    static const char *const drivers[] = { "rdma_rxe", "siw", NULL };
    char link[1024], type[64];

    if (mu_nic_soft_name(name) || has_file(root, name, "parent") ||
        mu_parse_word(link_end(root, name, "/device/driver", link, sizeof link),
                      drivers) >= 0)
        return true;
    link_end(root, name, "", link, sizeof link);
    if (strstr(link, "/devices/virtual/"))
        return true;
    return mu_sysfile_read(root, type, sizeof type, CLASS "/%s/node_type", name) > 0 &&
           type[0] == '4' && !has_hardware(root, name);
}
