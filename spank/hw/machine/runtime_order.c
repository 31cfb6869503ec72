/* SPDX-License-Identifier: BSD-3-Clause */
/* runtime_order.c - see runtime_order.h */
#include "spank/hw/machine/runtime_order.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/machine/sysfs.h"

#define KFD_NODES 256
#define KFD_FOLDER "/sys/class/kfd/kfd/topology/nodes/%d"

/* A GPU of the KFD driver; partitions of one function have the same address. */
struct kfd_gpu {
    unsigned domain, bus, dev;
    int render; /* N of /dev/dri/renderDN, -1 unknown */
};

static bool kfd_number(const char *text, const char *key, long *out)
{
    char value[32];

    return mu_sysfs_field(text, key, value, sizeof value) &&
           mu_parse_int("", value, 0, 0xffffffffL, out, NULL) == 0;
}

static bool kfd_has_node(const char *root, int node)
{
    char path[4200];

    snprintf(path, sizeof path, "%s" KFD_FOLDER, root, node);
    return access(path, F_OK) == 0;
}

/* KFD's location_id is bus << 8 | device << 3 | function in its low 16 bits; above are
 * the partition's number. Function bits too hold the partition in CPX mode. Processors
 * have 0. Of a device that a cgroup hides the driver gives no properties.
 */
static bool kfd_gpu(const char *root, int node, struct kfd_gpu *gpu)
{
    long location, domain, render;
    char buf[4096];

    if (mu_sysfile_read(root, buf, sizeof buf, KFD_FOLDER "/properties", node) <= 0 ||
        !kfd_number(buf, "location_id ", &location) || location == 0 ||
        !kfd_number(buf, "domain ", &domain))
        return false;
    gpu->domain = (unsigned)domain;
    gpu->bus = (unsigned)location >> 8 & 0xff;
    gpu->dev = (unsigned)location >> 3 & 0x1f;
    gpu->render =
        kfd_number(buf, "drm_render_minor ", &render) && render > 0 ? (int)render : -1;
    return true;
}

/* In the order of the driver, which is ROCr's. */
static int kfd_gpus(const char *root, struct kfd_gpu *list)
{
    int n = 0;

    for (int i = 0; i < KFD_NODES && kfd_has_node(root, i); i++)
        n += kfd_gpu(root, i, &list[n]);
    return n;
}

static bool has_busid(const struct kfd_gpu *gpu, const char *busid)
{
    unsigned domain, bus, dev, func;

    return sscanf(busid, "%x:%x:%x.%x", &domain, &bus, &dev, &func) == 4 &&
           gpu->domain == domain && gpu->bus == bus && gpu->dev == dev;
}

int mu_kfd_parts(const char *root, const char *busid)
{
    struct kfd_gpu list[KFD_NODES];
    int n = kfd_gpus(root, list), parts = 0;

    for (int i = 0; i < n; i++)
        parts += has_busid(&list[i], busid);
    return parts;
}

/* The partitions of one function are numbered as the driver counts them. */
static void number_amd(const char *root, struct mu_node *node)
{
    struct kfd_gpu list[KFD_NODES];
    int n = kfd_gpus(root, list);

    for (int k = 0; k < n; k++)
        for (int i = 0; i < node->ngpus; i++) {
            struct mu_gpu *gpu = &node->gpus[i];

            if (gpu->vendor != MU_VENDOR_AMD || gpu->runtime_nth > 0 ||
                !has_busid(&list[k], gpu->busid))
                continue;
            gpu->runtime_nth = k + 1;
            gpu->minor = list[k].render;
            break;
        }
}

/* The names "<prefix>N" of a folder: how many there are, and the last one's number. */
static int numbered(const char *folder, const char *prefix, long *last)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);
    int n = 0;

    while (dir && n < 1024 && (entry = readdir(dir)))
        n +=
            strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
            mu_parse_int("", entry->d_name + strlen(prefix), 0, 65535, last, NULL) == 0;
    if (dir)
        closedir(dir);
    return n;
}

/* The xe driver has a folder for each tile, i915 a folder of engines for each. */
static void number_intel(const char *root, struct mu_gpu *gpu)
{
    char device[4200], folder[4300];
    long render = -1, card = -1, number;

    snprintf(device, sizeof device, "%s/sys/bus/pci/devices/%s", root, gpu->busid);
    gpu->tiles = numbered(device, "tile", &number);
    snprintf(folder, sizeof folder, "%s/drm", device);
    if (numbered(folder, "renderD", &render) == 1)
        gpu->minor = (int)render;
    if (gpu->tiles > 0 || numbered(folder, "card", &card) != 1)
        return;
    snprintf(folder, sizeof folder, "%s/drm/card%ld/gt", device, card);
    gpu->tiles = numbered(folder, "gt", &number);
}

void mu_runtime_order(const char *root, struct mu_node *node)
{
    number_amd(root, node);
    for (int i = 0; i < node->ngpus; i++)
        if (node->gpus[i].vendor == MU_VENDOR_INTEL && node->gpus[i].busid[0])
            number_intel(root, &node->gpus[i]);
}
