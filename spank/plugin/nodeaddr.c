/* SPDX-License-Identifier: BSD-3-Clause */
/* nodeaddr.c - the address at which Slurm reaches a node, read without scontrol and
 * Slurm's library: from SLURM_NODE_ALIASES (cloud nodes) and from slurmd's slurm.conf.
 * Used only for nodes whose names do not resolve.
 */
#include <stdlib.h>

#include "runtime/base/parse.h"
#include "spank/core/slurm/node_addr.h"
#include "spank/hw/live/slurm_files.h"
#include "spank/plugin/plugin.h"

static void read_addrs(const char *path, struct mu_node_addr *list, int n)
{
    struct mu_slurm_files *files = calloc(1, sizeof *files);
    char *rest, *line;

    if (!files)
        return;
    mu_slurm_files_load(path, files);
    for (int i = 0; i < files->n; i++) {
        rest = files->file[i].text;
        while (rest && (line = mu_parse_next(&rest, '\n')))
            mu_node_addrs_of_line(line, list, n);
    }
    mu_slurm_files_clear(files);
    free(files);
}

void mu_node_addrs(void *sp, struct mu_node_addr *list, int n)
{
    char aliases[MU_ENV_TEXT];

    if (mu_item_env(sp, "SLURM_NODE_ALIASES", aliases, sizeof aliases))
        mu_node_addrs_of_aliases(aliases, list, n);
    read_addrs(mu_slurm_conf_path(), list, n);
}
