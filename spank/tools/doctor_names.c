/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_names.c - reads the nodes of slurm.conf: is this one among them, and which of
 * their names does not resolve here?
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/parse.h"
#include "spank/core/slurm/hostlist.h"
#include "spank/core/slurm/node_addr.h"
#include "spank/hw/live/net_live.h"
#include "spank/tools/doctor_facts.h"

#define NAMES_MAX 1024 /* names that are looked up */
#define VALUE_MAX 8192

struct nodes {
    int n;
    struct node {
        struct mu_node_addr name;
        const char *file;
        int line;
    } node[NAMES_MAX];
};

/* A cloud node has no address before it starts, a future one none at all. */
static bool has_address(const char *line)
{
    char state[64];

    return !mu_slurm_value(line, "State", state, sizeof state) ||
           (strcasecmp(state, "CLOUD") != 0 && strcasecmp(state, "FUTURE") != 0);
}

static void add_line(struct nodes *nodes, const char *file, int number,
                     const char *line, const struct mu_hostlist *names)
{
    for (int i = 0; i < names->n && nodes->n < NAMES_MAX; i++) {
        struct node *node = &nodes->node[nodes->n++];

        node->file = file;
        node->line = number;
        mu_copy(node->name.host, sizeof node->name.host, names->name[i]);
        mu_node_addrs_of_line(line, &node->name, 1);
    }
}

static void read_line(struct mu_doctor_input *in, struct nodes *nodes, const char *file,
                      int number, const char *line)
{
    struct mu_hostlist names = { 0 };
    char value[VALUE_MAX];

    if (!mu_slurm_value(line, "NodeName", value, sizeof value) ||
        strcasecmp(value, "DEFAULT") == 0 || mu_hostlist_parse(value, &names, NULL) < 0)
        return;
    if (in->facts.host && mu_hostlist_find(&names, in->facts.host) >= 0)
        in->facts.gres_elsewhere = false;
    if (has_address(line))
        add_line(nodes, file, number, line, &names);
    mu_hostlist_clear(&names);
}

/* Counts an unresolved name at its line of slurm.conf. */
static void keep(struct mu_facts *facts, const struct node *node)
{
    int n = facts->nunresolved;
    struct mu_unresolved *last = n ? &facts->unresolved[n - 1] : NULL;

    if (last && last->line == node->line && strcmp(last->file, node->file) == 0) {
        last->more++;
        return;
    }
    if (n == MU_UNRESOLVED_MAX)
        return;
    last = &facts->unresolved[facts->nunresolved++];
    last->line = node->line;
    mu_copy(last->file, sizeof last->file, node->file);
    mu_copy(last->node, sizeof last->node, node->name.host);
    mu_copy(last->addr, sizeof last->addr, node->name.addr);
}

static void resolve(struct mu_facts *facts, const struct nodes *nodes)
{
    struct mu_peer *peers = calloc((size_t)nodes->n + 1, sizeof *peers);
    struct mu_err err = { 0 };

    for (int i = 0; peers && i < nodes->n; i++) {
        const struct mu_node_addr *name = &nodes->node[i].name;

        mu_copy(peers[i].host, sizeof peers[i].host,
                name->addr[0] ? name->addr : name->host);
    }
    if (peers && mu_net_resolve(peers, nodes->n, 5, &err) < 0)
        mu_copy(facts->names_late, sizeof facts->names_late, err.text);
    else if (peers)
        for (int i = 0; i < nodes->n; i++)
            if (peers[i].naddrs == 0)
                keep(facts, &nodes->node[i]);
    free(peers);
}

void mu_doctor_names(struct mu_doctor_input *in)
{
    struct nodes *nodes = calloc(1, sizeof *nodes);

    in->facts.gres_elsewhere =
        in->facts.host && !mu_facts_env(&in->facts, "SLURMD_NODENAME");
    for (int i = 0; nodes && i < in->slurm.n; i++) {
        int number = 1;

        for (const char *line = in->slurm.file[i].text; line; number++) {
            read_line(in, nodes, in->slurm.file[i].path, number, line);
            line = strchr(line, '\n');
            line = line ? line + 1 : NULL;
        }
    }
    if (nodes && nodes->n)
        resolve(&in->facts, nodes);
    free(nodes);
}
