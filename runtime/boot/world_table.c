/* SPDX-License-Identifier: BSD-3-Clause */
/* world_table.c - who is on which node: make, number, extend, shrink and free the table
 * of ranks
 */
#include "runtime/boot/world.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/array.h"
#include "runtime/muster.h"

struct mu_world *mu_world_new(int rank, int size, const char *job, struct mu_err *err)
{
    struct mu_world *w = calloc(1, sizeof *w);

    if (!w)
        goto fail;
    w->rank = rank;
    w->size = size;
    snprintf(w->job, sizeof w->job, "%s", job);
    w->node_of = calloc((size_t)size, sizeof *w->node_of);
    w->local_of = calloc((size_t)size, sizeof *w->local_of);
    w->host_of = calloc((size_t)size, sizeof *w->host_of);
    w->pid_of = calloc((size_t)size, sizeof *w->pid_of);
    w->address = calloc((size_t)size, sizeof *w->address);
    if (!w->node_of || !w->local_of || !w->host_of || !w->pid_of || !w->address)
        goto fail;
    return w;
fail:
    mu_world_free(w);
    mu_err_set(err, MUSTER_EMEMORY, "out of memory for a world of %d ranks", size);
    return NULL;
}

void mu_world_free(struct mu_world *world)
{
    if (!world)
        return;
    for (int r = 0; world->host_of && r < world->size; r++)
        free(world->host_of[r]);
    free(world->host_of);
    free(world->node_of);
    free(world->local_of);
    free(world->pid_of);
    free(world->address);
    mu_endpoint_close(world->endpoint);
    free(world);
}

/* The nearest rank below r with value[r], -1: none. Neighbours mostly share a node. */
static int last_before(const int *value, int which, int r)
{
    do
        r--;
    while (r >= 0 && value[r] != which);
    return r;
}

void mu_world_number_nodes(struct mu_world *w)
{
    w->nnodes = w->local_size = 0;
    for (int r = 0; r < w->size; r++) {
        /* Until all have their new number, the old one is in local_of. */
        int old = w->node_of[r], before = last_before(w->local_of, old, r);

        w->local_of[r] = old;
        w->node_of[r] = before >= 0 ? w->node_of[before] : w->nnodes++;
    }
    w->node = w->node_of[w->rank];
    for (int r = 0; r < w->size; r++) {
        int before = last_before(w->node_of, w->node_of[r], r);

        w->local_of[r] = before >= 0 ? w->local_of[before] + 1 : 0;
        w->local_size += w->node_of[r] == w->node;
    }
    w->local_rank = w->local_of[w->rank];
}

int mu_world_append(struct mu_world *w, const struct mu_member *member,
                    struct mu_err *err)
{
    int n = w->size;
    char *host = strdup(member->host);

    if (!host || mu_array_extend(&w->node_of, sizeof *w->node_of, n, n + 1) < 0 ||
        mu_array_extend(&w->local_of, sizeof *w->local_of, n, n + 1) < 0 ||
        mu_array_extend(&w->host_of, sizeof *w->host_of, n, n + 1) < 0 ||
        mu_array_extend(&w->pid_of, sizeof *w->pid_of, n, n + 1) < 0 ||
        mu_array_extend(&w->address, sizeof *w->address, n, n + 1) < 0) {
        free(host);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", n + 1);
    }
    w->node_of[n] = member->node;
    w->host_of[n] = host;
    w->pid_of[n] = member->pid;
    w->address[n] = member->address;
    w->size++;
    return 0;
}

void mu_world_shrink(struct mu_world *world, const bool *keep)
{
    int n = 0, me = world->rank;

    for (int r = 0; r < world->size; r++) {
        if (!keep[r]) {
            free(world->host_of[r]);
            continue;
        }
        if (r == me)
            world->rank = n;
        world->node_of[n] = world->node_of[r];
        world->host_of[n] = world->host_of[r];
        world->address[n] = world->address[r];
        world->pid_of[n++] = world->pid_of[r];
    }
    world->size = n;
    mu_world_number_nodes(world);
}
