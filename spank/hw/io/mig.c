/* SPDX-License-Identifier: BSD-3-Clause */
/* mig.c - see mig.h */
#include "spank/hw/io/mig.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "spank/hw/io/sysfile.h"

#define FOLDER "%s/proc/driver/nvidia/capabilities/gpu%d/mig"
#define GPUS 128

/* The N of a name "<prefix>N"; -1: another name. */
static int number_of(const char *name, const char *prefix)
{
    size_t len = strlen(prefix);
    long n;

    return strncmp(name, prefix, len) == 0 &&
                   mu_parse_int("", name + len, 0, 65535, &n, NULL) == 0
               ? (int)n
               : -1;
}

/* "DeviceFileMinor: 30" of an access file. */
static int cap_of(const char *folder)
{
    static const char key[] = "DeviceFileMinor:";
    char text[256];
    const char *at;

    if (mu_sysfile_read("", text, sizeof text, "%s/access", folder) <= 0 ||
        !(at = strstr(text, key)))
        return 0;
    return (int)strtol(at + sizeof key - 1, NULL, 10);
}

static int add_instances(const char *folder, int gi, struct mu_mig_slice *list, int n)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);

    while (dir && n < MU_MIG_SLICES && (entry = readdir(dir))) {
        char path[4600];
        int ci = number_of(entry->d_name, "ci");

        if (ci < 0)
            continue;
        snprintf(path, sizeof path, "%s/ci%d", folder, ci);
        list[n++] = (struct mu_mig_slice){ gi, ci, cap_of(folder), cap_of(path) };
    }
    if (dir)
        closedir(dir);
    return n;
}

static int by_number(const void *a, const void *b)
{
    const struct mu_mig_slice *x = a, *y = b;

    return x->gi != y->gi ? x->gi - y->gi : x->ci - y->ci;
}

int mu_mig_slices(const char *root, int minor, struct mu_mig_slice *list)
{
    char folder[4300], below[4500];
    struct dirent *entry;
    int n = 0;
    DIR *dir;

    snprintf(folder, sizeof folder, FOLDER, root, minor);
    dir = opendir(folder);
    while (dir && n < MU_MIG_SLICES && (entry = readdir(dir))) {
        int gi = number_of(entry->d_name, "gi");

        if (gi < 0)
            continue;
        snprintf(below, sizeof below, "%s/gi%d", folder, gi);
        n = add_instances(below, gi, list, n);
    }
    if (dir)
        closedir(dir);
    qsort(list, (size_t)n, sizeof *list, by_number);
    return n;
}

int mu_mig_cut(const char *root)
{
    struct mu_mig_slice list[MU_MIG_SLICES];
    char path[4200];

    snprintf(path, sizeof path, "%s/proc/driver/nvidia", root);
    if (access(path, F_OK) < 0)
        return -1;
    for (int minor = 0; minor < GPUS; minor++)
        if (mu_mig_slices(root, minor, list) > 0)
            return 1;
    return 0;
}

/* A slice needs the files of both instances. An unknown file refuses nothing. */
static bool cap_opens(const char *root, int cap)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/dev/nvidia-caps/nvidia-cap%d", root, cap);
    return cap == 0 || access(path, R_OK) == 0;
}

int mu_mig_openable(const char *root, int minor)
{
    struct mu_mig_slice list[MU_MIG_SLICES];
    int n = mu_mig_slices(root, minor, list), open = 0;

    for (int i = 0; i < n; i++)
        open += cap_opens(root, list[i].gi_cap) && cap_opens(root, list[i].ci_cap);
    return n > 0 ? open : -1;
}
