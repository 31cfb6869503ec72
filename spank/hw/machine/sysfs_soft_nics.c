/* SPDX-License-Identifier: BSD-3-Clause */
/* sysfs_soft_nics.c - adds the RDMA devices in software, which hang on no PCI device */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/machine/sysfs.h"

#define CLASS "/sys/class/infiniband"

static bool is_listed(const struct mu_node *node, const char *name)
{
    for (int i = 0; i < node->nnics; i++)
        if (strcmp(node->nics[i].name, name) == 0)
            return true;
    return false;
}

int mu_sysfs_soft_nics(const char *root, struct mu_node *node)
{
    char path[4200];
    struct dirent *entry;
    int rc = 0;
    DIR *dir;

    snprintf(path, sizeof path, "%s" CLASS, root);
    dir = opendir(path);
    while (dir && rc == 0 && (entry = readdir(dir))) {
        struct mu_nic nic = { .numa = -1, .package = -1 };

        if (entry->d_name[0] == '.' || is_listed(node, entry->d_name) ||
            !mu_copy(nic.name, sizeof nic.name, entry->d_name) ||
            !mu_sysfs_is_soft(root, nic.name))
            continue;
        mu_sysfs_nic(root, &nic);
        rc = mu_node_add_soft(node, &nic);
    }
    if (dir)
        closedir(dir);
    return rc;
}
