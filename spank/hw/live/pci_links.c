/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/live/pci_links.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/array.h"
#include "runtime/base/parse.h"
#include "spank/hw/io/sysfile.h"

#define DEV "/sys/bus/pci/devices/%s"
#define ABOVE_MAX 8 /* bridges between a device and its root */

struct out {
    const char *root;
    struct mu_link *link;
    int nlinks;
    struct mu_acs *acs;
    int nacs;
};

static bool seen(const struct out *out, const char *busid)
{
    for (int i = 0; i < out->nlinks; i++)
        if (strcmp(out->link[i].busid, busid) == 0)
            return true;
    return false;
}

/* "16.0 GT/s PCIe"; "Unknown" is 0. */
static double speed(const char *root, const char *busid, const char *which)
{
    char text[64];

    if (mu_sysfile_read(root, text, sizeof text, DEV "/%s_link_speed", busid, which) <
        0)
        return 0;
    return strtod(text, NULL);
}

/* Offset of the ACS capability (id 0x000d) in the extended configuration space, 0 none.
 */
static int find_acs(const uint8_t *space, long len)
{
    int at = 0x100;

    for (int hops = 0; hops < 64 && at >= 0x100 && at + 8 <= len; hops++) {
        uint32_t header = (uint32_t)space[at] | (uint32_t)space[at + 1] << 8 |
                          (uint32_t)space[at + 2] << 16 | (uint32_t)space[at + 3] << 24;

        if ((header & 0xffff) == 0x000d)
            return at;
        at = (int)(header >> 20) & ~3;
    }
    return 0;
}

/* ACS control register bits (PCI Express Base Specification, 7.7.8.3): 2 P2P Request
 * Redirect, 3 P2P Completion Redirect, 4 Upstream Forwarding.
 */
static int add_acs(struct out *out, const char *busid)
{
    struct mu_acs *acs;
    char path[4096];
    uint8_t space[4096];
    long len = -1;
    int fd, at;

    if (mu_array_extend(&out->acs, sizeof *acs, out->nacs, out->nacs + 1) < 0)
        return -1;
    acs = &out->acs[out->nacs++];
    mu_copy(acs->busid, sizeof acs->busid, busid);
    snprintf(path, sizeof path, "%s" DEV "/config", out->root, busid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        len = read(fd, space, sizeof space);
        close(fd);
    }
    acs->readable = len > 256; /* an ordinary user gets 64 bytes, root all */
    at = acs->readable ? find_acs(space, len) : 0;
    acs->redirect = at && space[at + 6] & 0x1c;
    return 0;
}

static int add_link(struct out *out, const char *busid, bool bridge, bool on_root)
{
    struct mu_link *link;

    if (mu_array_extend(&out->link, sizeof *link, out->nlinks, out->nlinks + 1) < 0)
        return -1;
    link = &out->link[out->nlinks++];
    *link = (struct mu_link){ .bridge = bridge, .on_root_bus = on_root };
    mu_copy(link->busid, sizeof link->busid, busid);
    link->speed = speed(out->root, busid, "current");
    link->max_speed = speed(out->root, busid, "max");
    link->width =
        (int)mu_sysfile_number(out->root, 0, DEV "/current_link_width", busid);
    link->max_width =
        (int)mu_sysfile_number(out->root, 0, DEV "/max_link_width", busid);
    return bridge ? add_acs(out, busid) : 0;
}

/* A device and what is above it: the path of its sysfs link names every bridge. */
static int add_device(struct out *out, const char *busid)
{
    char link[4096], target[4096], *rest, *part;
    const char *above[ABOVE_MAX];
    int nabove = 0;
    ssize_t len;

    if (!busid[0] || seen(out, busid))
        return 0;
    snprintf(link, sizeof link, "%s" DEV, out->root, busid);
    len = readlink(link, target, sizeof target - 1);
    if (len < 0)
        return 0;
    target[len] = '\0';
    rest = target;
    while ((part = mu_parse_next(&rest, '/')))
        if (rest && strlen(part) >= 10 && strchr(part, '.') && strchr(part, ':') &&
            nabove < ABOVE_MAX)
            above[nabove++] = part;
    if (add_link(out, busid, false, nabove == 0) < 0)
        return -1;
    for (int i = 0; i < nabove; i++)
        if (!seen(out, above[i]) && add_link(out, above[i], true, false) < 0)
            return -1;
    return 0;
}

int mu_pci_links_load(const char *root, const struct mu_node *node,
                      struct mu_link **links, int *nlinks, struct mu_acs **acs,
                      int *nacs, struct mu_err *err)
{
    struct out out = { .root = root };
    int rc = 0;

    for (int i = 0; rc == 0 && i < node->ngpus; i++)
        rc = add_device(&out, node->gpus[i].busid);
    for (int i = 0; rc == 0 && i < node->nnics; i++)
        rc = add_device(&out, node->nics[i].busid);
    if (rc < 0) {
        free(out.link);
        free(out.acs);
        return mu_err_set(err, ENOMEM, "out of memory for PCI links");
    }
    *links = out.link;
    *nlinks = out.nlinks;
    *acs = out.acs;
    *nacs = out.nacs;
    return 0;
}
