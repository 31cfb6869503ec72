/* SPDX-License-Identifier: BSD-3-Clause */
/* rank0_node.c - the node that rank 0 is on: the first of the step, but where tasks
 * follow a list of the user's (-m arbitrary, SLURM_HOSTFILE) the first of that. Only
 * srun knows the list: it tells the nodes by a variable that --export=NONE lets
 * through.
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

/* The first node of a host file or list: "# ours\nn3*2\nn1", "n[3-4],n1". */
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

/* srun's own order: the list on its command line, else the file, which makes the
 * distribution arbitrary by itself, else what sbatch or salloc was given.
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

    /* A list with a slash is the path of a file, as for srun. A pipe is left to srun,
     * which could not read it after this. */
    if (list && strchr(list, '/'))
        list = mu_sysfile_text(list, LIST_MAX, &text, NULL) < 0 ? NULL : text;
    if (list && first_node(list, rank0_host, sizeof rank0_host))
        setenv(MU_RANK0_HOST_VARIABLE, rank0_host, 1);
    else
        unsetenv(MU_RANK0_HOST_VARIABLE);
    free(text);
}
