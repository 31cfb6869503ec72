/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/live/platform_live.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/array.h"
#include "runtime/base/parse.h"
#include "spank/hw/io/sysfile.h"

#define PROFILE_TEXT_MAX (256 * 1024)

struct live {
    char root[1024];
    char dmi[256]; /* the field asked for last */
    int nids;
    char (*id)[10]; /* "10de:2330" */
    struct mu_err refused;
};

static const char *live_dmi(void *arg, const char *field)
{
    struct live *live = arg;

    if (strchr(field, '/') || mu_sysfile_read(live->root, live->dmi, sizeof live->dmi,
                                              "/sys/class/dmi/id/%s", field) < 0)
        return NULL;
    return live->dmi;
}

bool mu_platform_direct_dma(const char *root)
{
    char text[4096];

    if (mu_sysfile_read(root, text, sizeof text, "/proc/cpuinfo") < 0 ||
        !strstr(text, "AuthenticAMD"))
        return false;
    /* "identity" is pass-through; without an IOMMU there are no groups */
    return mu_sysfile_read(root, text, sizeof text, "/sys/kernel/iommu_groups/0/type") <
                   0
               ? errno == ENOENT
               : strcmp(text, "identity") == 0;
}

enum mu_gpudirect mu_platform_gpudirect(const char *root)
{
    /* NCCL tests the same files. */
    static const char *const modules[] = {
        "/sys/module/nvidia_peermem/version",
        "/sys/kernel/mm/memory_peers/nv_mem/version",
        "/sys/kernel/mm/memory_peers/nv_mem_nc/version"
    };
    char text[4096];

    if (mu_sysfile_read(root, text, sizeof text, "/proc/driver/nvidia/version") < 0)
        return MU_GPUDIRECT_UNKNOWN;
    if (strstr(text, "Open Kernel Module"))
        return MU_GPUDIRECT_READY;
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (mu_sysfile_read(root, text, sizeof text, "%s", modules[i]) >= 0)
            return MU_GPUDIRECT_READY;
    return MU_GPUDIRECT_NONE;
}

static int live_pci(void *arg, const char *glob)
{
    const struct live *live = arg;
    int n = 0;

    for (int i = 0; i < live->nids; i++)
        n += fnmatch(glob, live->id[i], 0) == 0;
    return n;
}

/* Ports of one device that are active and of this layer. */
static int ports_of(const struct live *live, const char *device, const char *link_layer)
{
    char text[64];
    int n = 0;

    for (int port = 1; port <= 4; port++) {
        long state = mu_sysfile_number(
            live->root, -1, "/sys/class/infiniband/%s/ports/%d/state", device, port);

        if (state == 4 &&
            mu_sysfile_read(live->root, text, sizeof text,
                            "/sys/class/infiniband/%s/ports/%d/link_layer", device,
                            port) >= 0)
            n += strcmp(text, link_layer) == 0;
    }
    return n;
}

static int live_rdma(void *arg, const char *link_layer)
{
    const struct live *live = arg;
    struct dirent *entry;
    char path[2048];
    int n = 0;
    DIR *dir;

    snprintf(path, sizeof path, "%s/sys/class/infiniband", live->root);
    dir = opendir(path);
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            n += ports_of(live, entry->d_name, link_layer);
    if (dir)
        closedir(dir);
    return n;
}

static bool live_exists(void *arg, const char *path)
{
    const struct live *live = arg;
    char full[4096];

    snprintf(full, sizeof full, "%s%s", live->root, path);
    return access(full, F_OK) == 0;
}

static char *live_read(void *arg, const char *path)
{
    struct live *live = arg;
    char full[4096], *text = malloc(PROFILE_TEXT_MAX);
    struct mu_err err = { 0 };

    snprintf(full, sizeof full, "%s%s", live->root, path);
    if (text && mu_owned_read(full, text, PROFILE_TEXT_MAX, &err) >= 0)
        return text;
    if (err.code == EPERM)
        live->refused = err;
    free(text);
    return NULL;
}

static int load_ids(struct live *live)
{
    char path[2048];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", live->root);
    dir = opendir(path);
    if (!dir)
        return 0; /* no PCI bus: no ids */
    while ((entry = readdir(dir))) {
        long vendor, device;

        if (entry->d_name[0] == '.')
            continue;
        vendor = mu_sysfile_number(live->root, -1, "/sys/bus/pci/devices/%s/vendor",
                                   entry->d_name);
        device = mu_sysfile_number(live->root, -1, "/sys/bus/pci/devices/%s/device",
                                   entry->d_name);
        if (vendor < 0 || vendor > 0xffff || device < 0 || device > 0xffff)
            continue;
        if (mu_array_extend(&live->id, sizeof live->id[0], live->nids, live->nids + 1) <
            0)
            break;
        snprintf(live->id[live->nids++], sizeof live->id[0], "%04x:%04x",
                 (unsigned)vendor & 0xffff, (unsigned)device & 0xffff);
    }
    closedir(dir);
    return entry ? -1 : 0;
}

int mu_platform_load(const char *root, struct mu_platform *out, struct mu_err *err)
{
    struct live *live = calloc(1, sizeof *live);

    if (!live || !mu_copy(live->root, sizeof live->root, root) || load_ids(live) < 0) {
        free(live ? live->id : NULL);
        free(live);
        return mu_err_set(err, ENOMEM, "the platform below '%.80s' cannot be read",
                          root);
    }
    *out = (struct mu_platform){ live,      live_dmi,    live_pci,
                                 live_rdma, live_exists, live_read };
    return 0;
}

void mu_platform_unload(struct mu_platform *platform)
{
    struct live *live = platform->arg;

    if (live)
        free(live->id);
    free(live);
    *platform = (struct mu_platform){ 0 };
}

const char *mu_platform_refused(const struct mu_platform *platform)
{
    const struct live *live = platform->arg;

    return live->refused.text;
}

static int is_ini(const struct dirent *entry)
{
    return fnmatch("*.ini", entry->d_name, FNM_PERIOD) == 0;
}

static int load_profile(const char *dir, const char *name, struct mu_profiles *profiles,
                        struct mu_err *err)
{
    char path[4096], *text = malloc(PROFILE_TEXT_MAX);
    int rc;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!text)
        return mu_err_set(err, ENOMEM, "%s: out of memory", path);
    rc = mu_owned_read(path, text, PROFILE_TEXT_MAX, err) < 0
             ? -1
             : mu_profiles_parse(profiles, path, text, err);
    free(text);
    return rc;
}

int mu_profiles_load(const char *dir, struct mu_profiles *profiles, struct mu_err *err)
{
    struct dirent **list;
    int n = scandir(dir, &list, is_ini, alphasort), rc = 0;

    if (n < 0)
        return errno == ENOENT ? 0
                               : mu_err_set(err, errno, "%s: %s", dir, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = load_profile(dir, list[i]->d_name, profiles, err);
        free(list[i]);
    }
    free(list);
    return rc;
}
