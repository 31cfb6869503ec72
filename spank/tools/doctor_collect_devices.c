/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_collect_devices.c - GPUs, RDMA devices and interfaces */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/core/node/gid.h"
#include "spank/hw/io/sysfile.h"
#include "spank/hw/machine/sysfs.h"
#include "spank/tools/doctor_collect.h"
#include "spank/tools/run.h"

#define GIDS 16 /* entries of a port's table that are compared */

/* What nvidia-smi reports for each GPU. Current clocks and link generation are left
 * out: they follow the load.
 */
static const char *const gpu_fields[] = {
    "name",
    "vbios_version",
    "persistence_mode",
    "compute_mode",
    "ecc.mode.current",
    "mig.mode.current",
    "power.limit",
    "clocks.max.sm",
    "clocks.max.memory",
    "clocks.applications.graphics",
    "clocks.applications.memory",
    "clocks_throttle_reasons.hw_slowdown",
    "clocks_throttle_reasons.hw_thermal_slowdown",
    "clocks_throttle_reasons.sw_thermal_slowdown",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "memory.total",
    "retired_pages.pending",
    "driver_version",
};
#define GPU_FIELDS (int)(sizeof gpu_fields / sizeof gpu_fields[0])

static void collect_gpu(const struct mu_collector *c, int gpu, char *line)
{
    for (int i = 0; i < GPU_FIELDS; i++) {
        char *value = mu_parse_next(&line, ',');

        if (!value)
            return;
        value += strspn(value, " ");
        if (strcmp(value, "[N/A]") != 0 && strcmp(value, "[Not Supported]") != 0)
            mu_collect(c, value, "gpu.%d.%s", gpu, gpu_fields[i]);
    }
}

static void collect_gpus(const struct mu_collector *c)
{
    char query[1024] = "--query-gpu=", *text = malloc(1 << 16), *rest = text, *line;
    char *argv[] = { (char *)"nvidia-smi", query, (char *)"--format=csv,noheader",
                     NULL };
    int n = 0;

    for (int i = 0; i < GPU_FIELDS; i++)
        snprintf(query + strlen(query), sizeof query - strlen(query), "%s%s",
                 i ? "," : "", gpu_fields[i]);
    if (text && mu_run(argv, 20, text, 1 << 16) == 0) {
        char number[16];

        while ((line = mu_parse_next(&rest, '\n')))
            if (*line)
                collect_gpu(c, n++, line);
        snprintf(number, sizeof number, "%d", n);
        mu_collect(c, number, "gpu.count");
    }
    free(text);
}

/* Names of root/dir in order of the alphabet; the caller frees each and the list. */
static int names_of(const struct mu_collector *c, const char *dir,
                    struct dirent ***list)
{
    char path[512];
    int n;

    snprintf(path, sizeof path, "%.400s%s", c->root, dir);
    n = scandir(path, list, NULL, alphasort);
    return n;
}

static void each_name(const struct mu_collector *c, const char *dir,
                      void (*collect)(const struct mu_collector *c, const char *name))
{
    struct dirent **list;
    int n = names_of(c, dir, &list);

    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.')
            collect(c, list[i]->d_name);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
}

static void collect_from(const struct mu_collector *c, const char *dir,
                         const char *file, const char *area, const char *device)
{
    char path[512];

    snprintf(path, sizeof path, "%.300s/%.100s", dir, file);
    mu_collect_file(c, path, "%s.%s.%s", area, device, strrchr(path, '/') + 1);
}

static const char *gid_kind(const unsigned char *byte)
{
    static const unsigned char v4[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

    if (memcmp(byte, v4, sizeof v4) == 0)
        return "IPv4";
    return byte[0] == 0xfe && (byte[1] & 0xc0) == 0x80 ? "link local" : "IPv6";
}

/* The address in a GID is the port's own; its kind and place should be alike. */
static void collect_gid(const struct mu_collector *c, const char *device, int port,
                        int index)
{
    static const unsigned char none[16];
    unsigned char byte[16];
    char text[128], type[64] = "InfiniBand", value[128];

    if (mu_sysfile_read(c->root, text, sizeof text,
                        "/sys/class/infiniband/%s/ports/%d/gids/%d", device, port,
                        index) <= 0 ||
        !mu_gid_parse(text, byte) || memcmp(byte, none, sizeof none) == 0)
        return;
    mu_sysfile_read(c->root, type, sizeof type,
                    "/sys/class/infiniband/%s/ports/%d/gid_attrs/types/%d", device,
                    port, index);
    snprintf(value, sizeof value, "%s, %s", type, gid_kind(byte));
    mu_collect(c, value, "rdma.%s.port%d.gid%d", device, port, index);
}

static void collect_uverbs(const struct mu_collector *c, const char *name)
{
    char file[128];
    int error = mu_sysfs_uverbs(c->root, name, file, sizeof file);

    if (error >= 0)
        mu_collect(c,
                   !error    ? "opens"
                   : file[0] ? strerror(error)
                             : "none",
                   "rdma.%s.device_file", name);
}

static void collect_rdma(const struct mu_collector *c, const char *name)
{
    static const char *const files[] = { "fw_ver", "board_id", "hca_type", "hw_rev" };
    static const char *const port_files[] = { "state", "phys_state", "rate",
                                              "link_layer" };
    char dir[256], area[64];

    snprintf(dir, sizeof dir, "/sys/class/infiniband/%.64s", name);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        collect_from(c, dir, files[i], "rdma", name);
    collect_uverbs(c, name);
    for (int port = 1; port <= 2; port++) {
        snprintf(dir, sizeof dir, "/sys/class/infiniband/%.64s/ports/%d", name, port);
        snprintf(area, sizeof area, "%.40s.port%d", name, port);
        for (size_t i = 0; i < sizeof port_files / sizeof port_files[0]; i++)
            collect_from(c, dir, port_files[i], "rdma", area);
        for (int i = 0; i < GIDS; i++)
            collect_gid(c, name, port, i);
    }
    snprintf(dir, sizeof dir, "/sys/class/infiniband/%.64s/device", name);
    collect_from(c, dir, "current_link_speed", "rdma", name);
    collect_from(c, dir, "current_link_width", "rdma", name);
}

/* Interfaces of hardware, and those that are made of several. */
static void collect_interface(const struct mu_collector *c, const char *name)
{
    static const char *const files[] = {
        "operstate", "mtu", "speed", "duplex", "bonding/mode", "bonding/slaves"
    };
    char dir[256], path[800], link[512];
    ssize_t n;

    snprintf(dir, sizeof dir, "/sys/class/net/%.64s", name);
    snprintf(path, sizeof path, "%.400s%s/device/driver", c->root, dir);
    n = readlink(path, link, sizeof link - 1);
    snprintf(path, sizeof path, "%.400s%s/bonding", c->root, dir);
    if (n <= 0 && access(path, F_OK) < 0)
        return;
    if (n > 0) {
        link[n] = '\0';
        mu_collect(c, strrchr(link, '/') ? strrchr(link, '/') + 1 : link,
                   "net.%s.driver", name);
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        collect_from(c, dir, files[i], "net", name);
}

/* The model and the link of each GPU, NIC and NVMe disk are facts of its slot. */
static void collect_pci(const struct mu_collector *c, const char *name)
{
    char class[16], speed[64] = "", width[16] = "", id[16] = "", vendor[16] = "",
                    value[128];
    static const char dir[] = "/sys/bus/pci/devices";

    if (mu_sysfile_read(c->root, class, sizeof class, "%s/%s/class", dir, name) <= 0 ||
        (strncmp(class, "0x03", 4) != 0 && strncmp(class, "0x02", 4) != 0))
        return;
    mu_sysfile_read(c->root, vendor, sizeof vendor, "%s/%s/vendor", dir, name);
    mu_sysfile_read(c->root, id, sizeof id, "%s/%s/device", dir, name);
    mu_sysfile_read(c->root, speed, sizeof speed, "%s/%s/max_link_speed", dir, name);
    mu_sysfile_read(c->root, width, sizeof width, "%s/%s/current_link_width", dir,
                    name);
    snprintf(value, sizeof value, "%s:%s%s%s%s%s", vendor, id, *speed ? ", " : "",
             speed, *width ? " x" : "", width);
    mu_collect(c, value, "pci.%s", name);
}

void mu_collect_devices(const struct mu_collector *c)
{
    collect_gpus(c);
    each_name(c, "/sys/bus/pci/devices", collect_pci);
    each_name(c, "/sys/class/infiniband", collect_rdma);
    each_name(c, "/sys/class/net", collect_interface);
}
