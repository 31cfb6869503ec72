/* SPDX-License-Identifier: BSD-3-Clause */
/* leftovers.c - warns of rank variables in the environment from which srun started the
 * step. Each task would get the same value, so that all of them claim one rank.
 */
#include <stdio.h>
#include <string.h>

#include "spank/core/env/task_env.h"
#include "spank/plugin/plugin.h"

/* Appends "NAME=VALUE" if the tasks will see a value that is not Muster's. */
static void add(struct mu_user_lookup *lookup, const char *name, char *list, size_t len)
{
    const struct mu_state *st = lookup->st;
    const char *value = mu_users_value(lookup, name);
    size_t at = strlen(list);

    /* What an outer Muster set, and a program changed since, is written anew. */
    if (value && !(st->role == MU_ROLE_RANK && mu_env_set_lists(st->step.set, name)))
        snprintf(list + at, len - at, "%s%s=%.40s", at ? ", " : "", name, value);
}

/* The same unless the value is `right`, which is that of every task. */
static void add_unless(struct mu_user_lookup *lookup, const char *name, int right,
                       char *list, size_t len)
{
    const char *value = mu_users_value(lookup, name);
    char text[16];

    snprintf(text, sizeof text, "%d", right);
    if (value && strcmp(value, text) != 0)
        add(lookup, name, list, len);
}

void mu_leftovers_report(struct mu_state *st, spank_t sp)
{
    static const char *const of_node[] = { "NODE_RANK", "GROUP_RANK" };
    struct mu_user_lookup lookup = { .st = st, .sp = sp };
    char list[512] = "";

    /* Several sruns of one task each may be ranks that the user numbers by hand. The
     * first node warns. */
    if (st->step.world < 2 || st->step.nodeid != 0)
        return;
    add(&lookup, "RANK", list, sizeof list);
    if (st->step.world > st->step.world_nodes)
        add(&lookup, "LOCAL_RANK", list, sizeof list);
    else
        add_unless(&lookup, "LOCAL_RANK", 0, list, sizeof list);
    for (int i = 0; i < 2; i++)
        if (st->step.world_nodes > 1)
            add(&lookup, of_node[i], list, sizeof list);
        else
            add_unless(&lookup, of_node[i], 0, list, sizeof list);
    add_unless(&lookup, "WORLD_SIZE", st->step.world, list, sizeof list);
    /* A launcher's script may name its workers so. */
    if (st->role != MU_ROLE_LAUNCHER)
        add_unless(&lookup, "LOCAL_WORLD_SIZE", st->step.nlocal, list, sizeof list);
    if (list[0])
        mu_warn(st,
                "srun's environment has %s: all %d tasks get the same value and claim "
                "one rank; unset it before srun",
                list, st->step.world);
}
