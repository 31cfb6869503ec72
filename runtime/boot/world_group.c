/* SPDX-License-Identifier: BSD-3-Clause */
/* world_group.c - a world of some ranks of another one, over the same endpoints */
#include <stdio.h>
#include <string.h>

#include "runtime/boot/world.h"
#include "runtime/muster.h"

static void group_close(struct mu_world *world)
{
    world->endpoint = NULL; /* the parent's */
    mu_world_free(world);
}

static void group_abort(struct mu_world *world, int status, const char *why)
{
    mu_world_abort(world->impl, status, why);
}

/* In messages a rank of a group has its number in the world too. */
static char *label_of(const struct mu_world *parent, int rank)
{
    char *label = NULL;

    if (parent->close == group_close)
        return strdup(parent->host_of[rank]);
    if (asprintf(&label, "%s, rank %d of the world", parent->host_of[rank], rank) < 0)
        return NULL;
    return label;
}

int mu_world_group(struct mu_world *parent, const int *ranks, int n,
                   uint64_t generation, struct mu_world **out, struct mu_err *err)
{
    struct mu_world *w = mu_world_new(0, n, parent->job, err);

    if (!w)
        return -1;
    w->impl = parent;
    w->generation = generation;
    w->close = group_close;
    w->abort = group_abort;
    memcpy(w->token, parent->token, sizeof w->token);
    for (int r = 0; r < n; r++) {
        if (ranks[r] == parent->rank)
            w->rank = r;
        w->node_of[r] = parent->node_of[ranks[r]];
        w->pid_of[r] = parent->pid_of[ranks[r]];
        w->address[r] = parent->address[ranks[r]];
        w->host_of[r] = label_of(parent, ranks[r]);
        if (!w->host_of[r]) {
            mu_world_free(w);
            return mu_err_set(err, MUSTER_EMEMORY,
                              "out of memory for a group of %d ranks", n);
        }
    }
    mu_world_number_nodes(w);
    w->endpoint = parent->endpoint;
    *out = w;
    return 0;
}
