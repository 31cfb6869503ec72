/* SPDX-License-Identifier: BSD-3-Clause */
/* sysfs.c - small reads from /sys and /proc, of this machine or a recorded tree */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/core/node/gid.h"
#include "spank/hw/io/mig.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/machine/sysfs.h"

#define PORTS_MAX 4

/* An empty file counts as missing. */
#define read_text(root, buf, len, ...)                                                 \
    (mu_sysfile_read(root, buf, len, __VA_ARGS__) > 0)

bool mu_sysfs_node_cpus(const char *root, int os_index, struct mu_cpuset *out)
{
    char buf[8192];

    if (read_text(root, buf, sizeof buf, "/sys/devices/system/node/node%d/cpulist",
                  os_index))
        return mu_cpuset_parse(buf, out, NULL) == 0;
    if (read_text(root, buf, sizeof buf, "/sys/devices/system/node/node%d/cpumap",
                  os_index))
        return mu_cpuset_parse_mask(buf, out, NULL) == 0;
    /* An empty cpulist is a newline only: the node exists and has no CPU. */
    if (read_text(root, buf, sizeof buf, "/sys/devices/system/node/node%d/meminfo",
                  os_index)) {
        memset(out, 0, sizeof *out);
        return true;
    }
    return false;
}

void mu_sysfs_isolated(const char *root, struct mu_cpuset *out)
{
    char buf[8192];

    memset(out, 0, sizeof *out);
    if (read_text(root, buf, sizeof buf, "/sys/devices/system/cpu/isolated"))
        mu_cpuset_parse(buf, out, NULL);
}

bool mu_sysfs_field(const char *text, const char *key, char *out, size_t len)
{
    char *rest, *line, *copy = strdup(text);
    bool found = false;

    if (!copy)
        return false;
    for (rest = copy; !found && (line = mu_parse_next(&rest, '\n'));) {
        size_t n = strlen(key);

        if (strncmp(line, key, n) != 0)
            continue;
        line += n;
        line += strspn(line, " \t:");
        found = line[0] && mu_copy(out, len, line);
    }
    free(copy);
    return found;
}

void mu_sysfs_nvidia(const char *root, struct mu_gpu *gpu, int *instances)
{
    struct mu_mig_slice slices[MU_MIG_SLICES];
    char buf[4096], value[MU_NAME_LEN];
    long minor;

    *instances = 0;
    if (!read_text(root, buf, sizeof buf, "/proc/driver/nvidia/gpus/%s/information",
                   gpu->busid))
        return;
    if (mu_sysfs_field(buf, "Model", value, sizeof value))
        mu_copy(gpu->model, sizeof gpu->model, value);
    /* The driver writes question marks for a caller without permission. */
    if (mu_sysfs_field(buf, "GPU UUID", value, sizeof value) && !strchr(value, '?'))
        mu_copy(gpu->uuid, sizeof gpu->uuid, value);
    if (mu_sysfs_field(buf, "Device Minor", value, sizeof value) &&
        mu_parse_int("minor", value, 0, 4095, &minor, NULL) == 0) {
        gpu->minor = (int)minor;
        *instances = mu_mig_slices(root, gpu->minor, slices);
    }
}

int mu_sysfs_nvidia_numa(const char *root, const char *busid)
{
    char buf[4096], value[32];
    long n;

    if (read_text(root, buf, sizeof buf, "/proc/driver/nvidia/gpus/%s/numa_status",
                  busid) &&
        mu_sysfs_field(buf, "Node", value, sizeof value) &&
        mu_parse_int("node", value, 0, 65535, &n, NULL) == 0)
        return (int)n;
    return -1;
}

int mu_sysfs_pci_numa(const char *root, const char *busid)
{
    char buf[32];
    long n;

    if (read_text(root, buf, sizeof buf, "/sys/bus/pci/devices/%s/numa_node", busid) &&
        mu_parse_int("numa_node", buf, 0, 65535, &n, NULL) == 0)
        return (int)n;
    return -1;
}

struct port {
    bool there, active;
    bool unreachable; /* RoCE without an address that other nodes can reach */
    double gbits;
    enum mu_link_layer layer;
};

/* layer: used where the port does not report its own. */
static struct port read_port(const char *root, const char *name, int number,
                             enum mu_link_layer layer)
{
    static const char folder[] = "/sys/class/infiniband/%s/ports/%d/%s";
    struct port port = { .layer = layer };
    char buf[256];
    double rate;

    if (!read_text(root, buf, sizeof buf, folder, name, number, "state"))
        return port;
    port.there = true;
    port.active = buf[0] == '4';
    if (read_text(root, buf, sizeof buf, folder, name, number, "rate")) {
        rate = strtod(buf, NULL);
        if (rate > 0 && rate < 1e6)
            port.gbits = rate;
    }
    if (layer != MU_LINK_OPA && layer != MU_LINK_SLINGSHOT && layer != MU_LINK_EFA &&
        read_text(root, buf, sizeof buf, folder, name, number, "link_layer"))
        port.layer = strcasecmp(buf, "InfiniBand") == 0 ? MU_LINK_IB
                     : strcasecmp(buf, "Ethernet") == 0 ? MU_LINK_ETHERNET
                                                        : MU_LINK_UNKNOWN;
    if (port.active && port.layer == MU_LINK_ETHERNET) {
        struct mu_nic alone = { 0 };

        mu_copy(alone.name, sizeof alone.name, name);
        port.unreachable =
            mu_sysfs_gids(root, number, &alone) && !mu_gid_any_global(&alone);
    }
    return port;
}

static bool better_port(const struct port *a, const struct port *b)
{
    if (a->active != b->active)
        return a->active;
    if (a->unreachable != b->unreachable)
        return b->unreachable;
    if (a->gbits != b->gbits)
        return a->gbits > b->gbits;
    return a->layer == MU_LINK_IB && b->layer != MU_LINK_IB;
}

static bool same_kind(const struct port *a, const struct port *b)
{
    return a->gbits == b->gbits && a->layer == b->layer &&
           a->unreachable == b->unreachable;
}

/* A NIC with two ports may run InfiniBand on one and Ethernet on the other, or have a
 * cable or an address in one only. False: the device has no ports.
 */
static bool read_ports(const char *root, struct mu_nic *nic)
{
    struct port port[PORTS_MAX];
    int best = -1;

    for (int i = 0; i < PORTS_MAX; i++) {
        port[i] = read_port(root, nic->name, i + 1, nic->layer);
        if (port[i].there && (best < 0 || better_port(&port[i], &port[best])))
            best = i;
    }
    if (best < 0)
        return false;
    nic->active = port[best].active;
    nic->gbits = port[best].gbits;
    nic->layer = port[best].layer;
    for (int i = 0; i < PORTS_MAX; i++)
        if (port[i].active && !same_kind(&port[i], &port[best]))
            nic->port = best + 1;
    for (int i = 0; i < PORTS_MAX; i++)
        if (port[i].active && port[i].layer == MU_LINK_ETHERNET &&
            (!nic->port || nic->port == i + 1))
            nic->gids_known |= mu_sysfs_gids(root, i + 1, nic);
    return true;
}

void mu_sysfs_nic(const char *root, struct mu_nic *nic)
{
    char buf[256];
    bool any;
    double rate;

    if (nic->name[0] == '\0' || strchr(nic->name, '/'))
        return;
    any = read_ports(root, nic);
    nic->software = mu_sysfs_is_soft(root, nic->name);
    nic->virtual_fn =
        read_text(root, buf, sizeof buf,
                  "/sys/class/infiniband/%s/device/physfn/vendor", nic->name);
    if (read_text(root, buf, sizeof buf, "/sys/class/infiniband/%s/sys_image_guid",
                  nic->name))
        mu_copy(nic->guid, sizeof nic->guid, buf);
    if (any)
        return;
    if (read_text(root, buf, sizeof buf, "/sys/class/net/%s/operstate", nic->name))
        nic->active = strcmp(buf, "down") != 0;
    if (read_text(root, buf, sizeof buf, "/sys/class/net/%s/speed", nic->name)) {
        rate = strtod(buf, NULL) / 1000;
        if (rate > 0 && rate < 1e6)
            nic->gbits = rate;
    }
}

bool mu_sysfs_virtual(const char *root)
{
    char buf[65536];

    if (read_text(root, buf, sizeof buf, "/sys/hypervisor/type"))
        return true;
    if (!read_text(root, buf, sizeof buf, "/proc/cpuinfo"))
        return false;
    /* x86: the flag; the first processor's lines are enough. */
    for (char *p = buf; (p = strstr(p, "hypervisor")); p++)
        if (p > buf && p[-1] == ' ')
            return true;
    return false;
}

void mu_sysfs_link(const char *root, struct mu_pci_dev *dev)
{
    char buf[64];
    long width;

    if (read_text(root, buf, sizeof buf, "/sys/bus/pci/devices/%s/max_link_speed",
                  dev->busid) &&
        strncmp(buf, "Unknown", 7) != 0)
        mu_copy(dev->link_speed, sizeof dev->link_speed, buf);
    if (read_text(root, buf, sizeof buf, "/sys/bus/pci/devices/%s/max_link_width",
                  dev->busid) &&
        mu_parse_int("", buf, 0, 64, &width, NULL) == 0)
        dev->link_width = (int)width;
}
