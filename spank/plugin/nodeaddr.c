/* SPDX-License-Identifier: BSD-3-Clause */
/* nodeaddr.c - the address at which Slurm reaches a node, without scontrol and without
 * Slurm's library: SLURM_NODE_ALIASES (cloud nodes), else the slurm.conf that slurmd
 * gave to slurmstepd. Read only for nodes whose names do not resolve.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "spank/core/node_addr.h"
#include "spank/plugin/plugin.h"

#define CONF_TEXT (4 << 20)
#define DEPTH 3 /* of included files */

/* slurmd's own configuration: SLURM_CONF of this process comes from it, not from the
 * job. */
static const char *slurm_conf(void)
{
    const char *path = getenv("SLURM_CONF");

    return path && path[0] == '/' ? path : "/etc/slurm/slurm.conf";
}

/* An included file's path: relative ones are meant from slurm.conf's folder. */
static bool beside(const char *file, char *out, size_t len)
{
    const char *conf = slurm_conf(), *slash = strrchr(conf, '/');

    if (file[0] == '/')
        return mu_copy(out, len, file);
    return (size_t)snprintf(out, len, "%.*s/%s", (int)(slash - conf), conf, file) < len;
}

static void look_in(const char *path, struct mu_node_addr *list, int n, int depth)
{
    char *text = NULL, *rest, *line, file[1024], next[2048];

    if (mu_read_small(path, CONF_TEXT, &text, NULL) < 0)
        return;
    mu_slurm_conf_join(text);
    rest = text;
    while ((line = mu_parse_next(&rest, '\n'))) {
        if (!mu_slurm_include_of_line(line, file, sizeof file))
            mu_node_addrs_of_line(line, list, n);
        else if (depth < DEPTH && beside(file, next, sizeof next))
            look_in(next, list, n, depth + 1);
    }
    free(text);
}

void mu_node_addrs(void *sp, struct mu_node_addr *list, int n)
{
    char aliases[MU_ENV_TEXT];

    if (mu_item_env(sp, "SLURM_NODE_ALIASES", aliases, sizeof aliases))
        mu_node_addrs_of_aliases(aliases, list, n);
    look_in(slurm_conf(), list, n, 0);
}
