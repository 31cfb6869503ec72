/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_collect_system.c - the kernel and what it runs on */
#include <mntent.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/node/node.h"
#include "spank/hw/io/sysfile.h"
#include "spank/tools/doctor_collect.h"

static const struct {
    const char *key, *path;
} files[] = {
    { "kernel.release", "/proc/sys/kernel/osrelease" },
    { "kernel.version", "/proc/sys/kernel/version" },
    { "kernel.iommu-groups", "/sys/kernel/iommu_groups/0/type" },
    { "firmware.vendor", "/sys/class/dmi/id/sys_vendor" },
    { "firmware.machine", "/sys/class/dmi/id/product_name" },
    { "firmware.board", "/sys/class/dmi/id/board_name" },
    { "firmware.bios", "/sys/class/dmi/id/bios_version" },
    { "firmware.bios-date", "/sys/class/dmi/id/bios_date" },
    { "cpu.online", "/sys/devices/system/cpu/online" },
    { "cpu.isolated", "/sys/devices/system/cpu/isolated" },
    { "cpu.smt", "/sys/devices/system/cpu/smt/control" },
    { "cpu.boost", "/sys/devices/system/cpu/cpufreq/boost" },
    { "cpu.no-turbo", "/sys/devices/system/cpu/intel_pstate/no_turbo" },
    { "cpu.driver", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver" },
    { "cpu.governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor" },
    { "cpu.clock-most", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq" },
    { "cpu.clock-least", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq" },
    { "cpu.idle-driver", "/sys/devices/system/cpu/cpuidle/current_driver" },
    { "memory.nodes", "/sys/devices/system/node/has_memory" },
    { "memory.huge-pages", "/sys/kernel/mm/transparent_hugepage/enabled" },
    { "memory.huge-pages-defrag", "/sys/kernel/mm/transparent_hugepage/defrag" },
    { "driver.nvidia", "/sys/module/nvidia/version" },
    { "driver.nvidia-peermem", "/sys/module/nvidia_peermem/version" },
    { "driver.gdrcopy", "/sys/module/gdrdrv/version" },
    { "driver.mlx5", "/sys/module/mlx5_core/version" },
    { "driver.efa", "/sys/module/efa/version" },
    { "driver.cxi", "/sys/module/cxi_core/version" },
};

static const char *const sysctls[] = {
    "kernel.numa_balancing",
    "kernel.pid_max",
    "kernel.shmmax",
    "kernel.sched_rt_runtime_us",
    "net.core.busy_poll",
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.conf.all.arp_announce",
    "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_retries2",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syn_retries",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_wmem",
    "vm.max_map_count",
    "vm.nr_hugepages",
    "vm.overcommit_memory",
    "vm.overcommit_ratio",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
};

static void collect_sysctl(const struct mu_collector *c, const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "/proc/sys/%s", name);
    for (char *at = path + 10; *at; at++)
        if (*at == '.')
            *at = '/';
    mu_collect_file(c, path, "sysctl.%s", name);
}

/* The value behind "name<blanks>: " in a text of /proc, up to the line's end. */
static void collect_line(const struct mu_collector *c, const char *file,
                         const char *name, const char *key)
{
    char path[128], *text = NULL, *at;

    snprintf(path, sizeof path, "%.60s%s", c->root, file);
    if (mu_sysfile_text(path, 1 << 20, &text, NULL) < 0)
        return;
    at = strstr(text, name);
    at = at ? strchr(at, ':') : NULL;
    if (at) {
        at += 1 + strspn(at + 1, " \t");
        at[strcspn(at, "\n")] = '\0';
        mu_collect(c, at, "%s", key);
    }
    free(text);
}

/* MemTotal differs by some pages from boot to boot. */
static void collect_memory(const struct mu_collector *c)
{
    char text[256], value[32], *at;

    if (mu_sysfile_read(c->root, text, sizeof text, "/proc/meminfo") <= 0 ||
        !(at = strstr(text, "MemTotal:")))
        return;
    snprintf(value, sizeof value, "%.0f GiB", strtod(at + 9, NULL) / (1 << 20));
    mu_collect(c, value, "memory.size");
}

/* Words of the kernel's command line that matter here; others name disks and hosts. */
static void collect_boot_words(const struct mu_collector *c)
{
    static const char *const names[] = { "iommu",
                                         "intel_iommu",
                                         "amd_iommu",
                                         "iommu.passthrough",
                                         "pci",
                                         "isolcpus",
                                         "nohz_full",
                                         "rcu_nocbs",
                                         "mitigations",
                                         "numa_balancing",
                                         "hugepages",
                                         "default_hugepagesz",
                                         "transparent_hugepage",
                                         "processor.max_cstate",
                                         "intel_idle.max_cstate",
                                         "idle",
                                         "systemd.unified_cgroup_hierarchy" };
    char text[4096], *rest = text, *word;

    if (mu_sysfile_read(c->root, text, sizeof text, "/proc/cmdline") <= 0)
        return;
    while ((word = mu_parse_next(&rest, ' '))) {
        size_t n = strcspn(word, "=");

        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (strlen(names[i]) == n && strncmp(word, names[i], n) == 0)
                mu_collect(c, word[n] ? word + n + 1 : "yes", "boot.%s", names[i]);
    }
}

/* An option of a mount that differs from node to node, or from boot to boot. */
static bool is_own_option(const char *option)
{
    static const char *const own[] = {
        "addr=", "clientaddr=", "mountaddr=", "nr_inodes=", "inode",
        "fd=",   "pipe_ino=",   "lowerdir=",  "upperdir=",  "workdir="
    };

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strncmp(option, own[i], strlen(own[i])) == 0)
            return true;
    return false;
}

/* Mounts that a job may work in: file systems of the network, and memory. */
static bool is_shared(const struct mntent *m)
{
    static const char *const types[] = {
        "nfs",          "nfs4",  "lustre",         "gpfs",     "beegfs",
        "beegfs_nodev", "ceph",  "wekafs",         "cifs",     "9p",
        "panfs",        "pvfs2", "fuse.glusterfs", "virtiofs", NULL
    };

    for (int i = 0; types[i]; i++)
        if (strcmp(m->mnt_type, types[i]) == 0)
            return true;
    return strcmp(m->mnt_dir, "/dev/shm") == 0 || strcmp(m->mnt_dir, "/tmp") == 0 ||
           strcmp(m->mnt_dir, "/dev/hugepages") == 0;
}

/* The size of a tmpfs follows the memory, which differs by some pages. */
static int put_option(char *buf, size_t len, const char *comma, const char *option)
{
    char *end;
    double kib = strncmp(option, "size=", 5) == 0 ? strtod(option + 5, &end) : 0;

    if (kib >= 1 << 20 && strcmp(end, "k") == 0)
        return snprintf(buf, len, "%ssize=%.0fg", comma, kib / (1 << 20));
    return snprintf(buf, len, "%s%s", comma, option);
}

static void collect_mounts(const struct mu_collector *c)
{
    char path[128], line[8192];
    struct mntent m;
    FILE *f;

    snprintf(path, sizeof path, "%.60s/proc/self/mounts", c->root);
    f = setmntent(path, "re");
    while (f && getmntent_r(f, &m, line, sizeof line)) {
        char value[640], *rest = m.mnt_opts, *option;
        size_t at;

        if (!is_shared(&m))
            continue;
        at = (size_t)snprintf(value, sizeof value, "%s %s ", m.mnt_type, m.mnt_fsname);
        for (const char *comma = ""; (option = mu_parse_next(&rest, ',')) &&
                                     at + strlen(option) + 2 < sizeof value;) {
            if (is_own_option(option))
                continue;
            at += (size_t)put_option(value + at, sizeof value - at, comma, option);
            comma = ",";
        }
        mu_collect(c, value, "mount.%s", m.mnt_dir);
    }
    if (f)
        endmntent(f);
}

void mu_collect_system(const struct mu_collector *c)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        mu_collect_file(c, files[i].path, "%s", files[i].key);
    for (size_t i = 0; i < sizeof sysctls / sizeof sysctls[0]; i++)
        collect_sysctl(c, sysctls[i]);
    collect_line(c, "/proc/cpuinfo", "model name", "cpu.model");
    collect_line(c, "/proc/cpuinfo", "microcode", "cpu.microcode");
    collect_memory(c);
    collect_boot_words(c);
    collect_mounts(c);
}
