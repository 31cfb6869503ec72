/* SPDX-License-Identifier: BSD-3-Clause */
/* sysfs_uverbs.c - can this process open the device file of an RDMA device? */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "spank/hw/io/sysfile.h"
#include "spank/hw/machine/sysfs.h"

#define CLASS "/sys/class/infiniband_verbs"

static bool is_of(const char *root, const char *entry, const char *device)
{
    char name[MU_NAME_LEN];

    return mu_sysfile_read(root, name, sizeof name, CLASS "/%.64s/ibdev", entry) > 0 &&
           strcmp(name, device) == 0;
}

/* As libibverbs opens it. */
static int opens(const char *root, const char *file)
{
    char path[4300];
    int fd;

    snprintf(path, sizeof path, "%s%s", root, file);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

int mu_sysfs_uverbs(const char *root, const char *device, char *file, size_t len)
{
    char path[4200];
    struct dirent *entry;
    DIR *dir;

    file[0] = '\0';
    snprintf(path, sizeof path, "%s" CLASS, root);
    dir = opendir(path);
    if (!dir)
        return *root ? -1 : ENODEV;
    while (!file[0] && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' && is_of(root, entry->d_name, device))
            snprintf(file, len, "/dev/infiniband/%.64s", entry->d_name);
    closedir(dir);
    return file[0] ? opens(root, file) : ENODEV;
}
