/* SPDX-License-Identifier: BSD-3-Clause */
/* rank0_node.c - the node that rank 0 runs on: the first of the step, or the first of
 * the user's list (-m arbitrary, SLURM_HOSTFILE). Only srun has that list; it sends the
 * node's name in a variable that passes --export=NONE.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/parse.h"
#include "spank/core/slurm/command_line.h"
#include "spank/core/slurm/hostlist.h"
#include "spank/hw/io/sysfile.h"
#include "spank/plugin/plugin.h"

#define LIST_MAX (1 << 20)

/* The first node of a host file or list, such as "# ours\nn3*2\nn1" or "n[3-4],n1". */
static bool first_node(const char *list, char *out, size_t len)
{
    struct mu_hostlist hosts = { 0 };
    char item[MU_HOST_LEN];
    bool found = false, inside = false;
    size_t n = 0;

    while (isspace((unsigned char)*list) || *list == '#')
        list += *list == '#' ? strcspn(list, "\n") : 1;
    for (; list[n] && (inside || !strchr(",*# \t\r\n", list[n])); n++)
        inside = list[n] == '[' || (inside && list[n] != ']');
    if (n == 0 || n >= sizeof item)
        return false;
    memcpy(item, list, n);
    item[n] = '\0';
    if (mu_hostlist_parse(item, &hosts, NULL) == 0)
        found = mu_copy(out, len, hosts.name[0]);
    mu_hostlist_clear(&hosts);
    return found;
}

static bool is_arbitrary(const char *distribution)
{
    return distribution && strncasecmp(distribution, "arbitrary", 9) == 0;
}

/* srun's precedence: the list on its command line, else the host file, which implies
 * the arbitrary distribution, else the list of sbatch or salloc.
 */
static const char *list_of_srun(int argc, char **argv)
{
    const char *list = mu_args_srun_letter(argc, argv, "nodelist", 6, 'w');
    const char *order = mu_args_srun_letter(argc, argv, "distribution", 5, 'm');

    if (!list && (list = getenv("SLURM_HOSTFILE")))
        return list;
    if (!is_arbitrary(order ? order : getenv("SLURM_DISTRIBUTION")))
        return NULL;
    return list ? list : getenv("SLURM_ARBITRARY_NODELIST");
}

void mu_srun_send_rank0_host(int argc, char **argv)
{
    const char *list = list_of_srun(argc, argv);
    char rank0_host[MU_HOST_LEN], *text = NULL;

    /* As in srun, a list with a slash is the path of a file. A pipe is not read here:
     * srun could not read it a second time. */
    if (list && strchr(list, '/'))
        list = mu_sysfile_text(list, LIST_MAX, &text, NULL) < 0 ? NULL : text;
    if (list && first_node(list, rank0_host, sizeof rank0_host))
        setenv(MU_RANK0_HOST_VARIABLE, rank0_host, 1);
    else
        unsetenv(MU_RANK0_HOST_VARIABLE);
    free(text);
}
