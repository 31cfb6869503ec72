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

static bool differs(struct mu_user_lookup *lookup, const char *name, int right)
{
    const char *value = mu_users_value(lookup, name);
    char text[16];

    snprintf(text, sizeof text, "%d", right);
    return value && strcmp(value, text) != 0;
}

void mu_leftovers_report(struct mu_state *st, spank_t sp)
{
    struct mu_user_lookup lookup = { .st = st, .sp = sp };
    char list[512] = "";

    /* Several sruns of one task each may be ranks that somebody numbers by hand. The
     * first node warns. */
    if (st->step.world < 2 || st->step.nodeid != 0)
        return;
    add(&lookup, "RANK", list, sizeof list);
    if (st->step.world > st->step.world_nodes)
        add(&lookup, "LOCAL_RANK", list, sizeof list);
    if (st->step.world_nodes > 1) {
        add(&lookup, "NODE_RANK", list, sizeof list);
        add(&lookup, "GROUP_RANK", list, sizeof list);
    }
    if (differs(&lookup, "WORLD_SIZE", st->step.world))
        add(&lookup, "WORLD_SIZE", list, sizeof list);
    if (list[0])
        mu_warn(st,
                "srun's environment has %s: all %d tasks get the same value and claim "
                "one rank; unset it before srun",
                list, st->step.world);
}
