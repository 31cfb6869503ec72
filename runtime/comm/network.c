/* SPDX-License-Identifier: BSD-3-Clause */
/* network.c - do all nodes use the same network?
 *
 * The plugin chooses for each node, and users export for each node. NCCL compares
 * nothing: it hangs, or ends with an error that names no cause.
 */
#include "runtime/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FACT_TEXT 64

static const struct fact {
    const char *name; /* of a variable; NULL: the fabric in MUSTER_PLAN */
    bool must;        /* NCCL cannot connect ranks that differ */
    const char *remedy;
} facts[] = {
    { NULL, true,
      "choose devices of one kind: exclude-hca= in muster.conf, NCCL_IB_HCA, or "
      "NCCL_IB_DISABLE=1 for all" },
    { "NCCL_NET", true, "set it to the same value on all nodes" },
    { "NCCL_IB_DISABLE", true, "set it to the same value on all nodes" },
    { "NCCL_ALGO", true, "set it to the same value on all nodes" },
    { "NCCL_PROTO", true, "set it to the same value on all nodes" },
    { "NCCL_IB_GID_INDEX", false,
      "this is right only when these indices belong to one network (RoCE version, "
      "VLAN)" },
};
#define NFACTS (sizeof facts / sizeof facts[0])

struct facts {
    char value[NFACTS][FACT_TEXT]; /* "": unset or unknown */
};

static void collect(const char *fabric, struct facts *own)
{
    const char *net = getenv("NCCL_NET"), *off = getenv("NCCL_IB_DISABLE");

    *own = (struct facts){ 0 };
    for (size_t f = 0; f < NFACTS; f++) {
        const char *value = facts[f].name ? getenv(facts[f].name) : fabric;

        snprintf(own->value[f], FACT_TEXT, "%s", value ? value : "");
    }
    /* A job that names the network itself does not use the fabric that the plugin
     * found.
     */
    if ((net && net[0]) || (off && off[0] && strcmp(off, "0") != 0))
        own->value[0][0] = '\0';
}

/* Write "InfiniBand on ranks 0-3, but Ethernet on ranks 4-7"; false: all are alike. */
static bool differs(const struct mu_world *world, const struct facts *all, size_t f,
                    char *text, size_t len)
{
    int size = world->size;
    bool known = true, same = true;
    char(*line)[MU_CONTRACT_TEXT] = calloc((size_t)size, sizeof *line);
    const char **at = calloc((size_t)size, sizeof *at);

    for (int r = 0; line && at && r < size; r++) {
        const char *value = all[r].value[f];

        known &= value[0] != '\0';
        same &= strcmp(value, all[0].value[f]) == 0;
        if (!facts[f].name)
            snprintf(line[r], sizeof line[r], "RDMA over %s", value);
        else
            snprintf(line[r], sizeof line[r], "%s%s%s", facts[f].name,
                     value[0] ? "=" : " unset", value);
        at[r] = line[r];
    }
    same |= !line || !at || (!facts[f].name && !known);
    if (!same)
        mu_contract_sides(at, size, (const char *const *)world->host_of, text, len);
    free(line);
    free(at);
    return !same;
}

static int compare(struct mu_comm *comm, const struct facts *all, struct mu_err *err)
{
    char text[MU_ERR_TEXT / 2];

    for (size_t f = 0; f < NFACTS; f++) {
        if (!differs(comm->world, all, f, text, sizeof text))
            continue;
        if (facts[f].must) {
            mu_err_set(err, MUSTER_ECONTRACT,
                       "muster_init: the nodes' networks differ: %s; %s", text,
                       facts[f].remedy);
            return mu_comm_refuse(comm, err);
        }
        if (comm->world->rank == 0)
            mu_log(&comm->log, MU_LOG_WARN, "the nodes' networks differ: %s; %s", text,
                   facts[f].remedy);
    }
    return 0;
}

int mu_agree_on_network(struct mu_comm *comm, const char *fabric, struct mu_err *err)
{
    struct mu_gathered gathered;
    struct facts own, *all;
    int rc = -1;

    if (comm->world->nnodes < 2)
        return 0;
    collect(fabric, &own);
    if (mu_gather(comm, "muster_init", &own, sizeof own, &gathered, err) < 0)
        return -1;
    all = calloc((size_t)comm->world->size, sizeof *all);
    for (int r = 0; all && r < comm->world->size; r++)
        if (gathered.len[r] == sizeof *all)
            memcpy(&all[r], gathered.at[r], sizeof *all);
    rc = all ? compare(comm, all, err)
             : mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks",
                          comm->world->size);
    free(all);
    mu_gathered_clear(&gathered);
    return rc;
}
