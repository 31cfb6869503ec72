/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/load/locality.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/live/nccl_conf_files.h"
#include "spank/hw/load/node_load.h"
#include "spank/hw/io/sysfile.h"

static bool all_known(const struct mu_node *node)
{
    for (int i = 0; i < node->ngpus; i++)
        if (!node->gpus[i].local_known)
            return false;
    return true;
}

static int adopt(struct mu_node *node, const char *path, struct mu_err *err)
{
    struct mu_node file = { 0 };
    int rc;

    if (mu_check_owner(path, err) < 0 || mu_node_load_file(path, &file, err) < 0)
        return -1;
    rc = mu_node_adopt(node, &file, err);
    mu_node_clear(&file);
    return rc;
}

void mu_locality_complete(struct mu_node *node, const char *root, char *file,
                          size_t len, struct mu_err *why)
{
    struct mu_conf conf = { 0 };
    const struct mu_conf_line *line;
    char etc[1100], path[2][4200] = { "", "" };

    file[0] = '\0';
    if (all_known(node))
        return;
    snprintf(etc, sizeof etc, "%.1000s/etc/nccl.conf", root);
    snprintf(path[1], sizeof path[1], "%.1000s%s", root, MU_TOPOLOGYD_FILE);
    if (mu_conf_load_live(NULL, NULL, etc, &conf, NULL) == 0 &&
        (line = mu_conf_find(&conf, "NCCL_TOPO_FILE")))
        snprintf(path[0], sizeof path[0], "%.1000s%.3000s", root, line->value);
    for (int i = 0; i < 2 && !all_known(node); i++)
        if (path[i][0] && adopt(node, path[i], i ? NULL : why) == 0)
            mu_copy(file, len, path[i]);
    mu_conf_clear(&conf);
}
