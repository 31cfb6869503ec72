/* SPDX-License-Identifier: BSD-3-Clause */
/* locality.c - where the system does not say near which CPUs a GPU is (a virtual
 * machine), a topology file that root installed may: NCCL's own of /etc/nccl.conf, or
 * the one that nvidia-topologyd writes. A user's file is never parsed here, where the
 * real user id is root.
 */
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/hw/conf_live.h"
#include "spank/hw/node_load.h"
#include "spank/plugin/plugin.h"

#define TOPOLOGYD "/var/run/nvidia-topologyd/virtualTopology.xml"

static bool all_known(const struct mu_node *node)
{
    for (int i = 0; i < node->ngpus; i++)
        if (!node->gpus[i].local_known)
            return false;
    return true;
}

/* Take the locality from one file; what is wrong with it goes into *err. */
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

void mu_locality_complete(struct mu_state *st)
{
    struct mu_conf conf = { 0 };
    const struct mu_conf_line *line;
    const char *paths[2] = { NULL, TOPOLOGYD };
    struct mu_err err = { 0 };

    if (all_known(&st->node))
        return;
    if (mu_conf_load_live(NULL, NULL, "/etc/nccl.conf", &conf, NULL) == 0 &&
        (line = mu_conf_find(&conf, "NCCL_TOPO_FILE")))
        paths[0] = line->value;
    for (int i = 0; i < 2 && !all_known(&st->node); i++) {
        if (!paths[i])
            continue;
        if (adopt(&st->node, paths[i], &err) == 0)
            mu_copy(st->locality_file, sizeof st->locality_file, paths[i]);
        else if (i == 0)
            mu_info(st, "%s does not help with the GPUs' locality: %s", paths[i],
                    err.text);
    }
    mu_conf_clear(&conf);
}
