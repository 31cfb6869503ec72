/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_table.c - the table of origins: open, extend, settle, close */
#include "runtime/boot/survive_impl.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/array.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

static void drop_waiting(struct mu_survive *s)
{
    for (int i = 0; i < s->nwaiting; i++)
        mu_net_drop(&s->waiting[i].fd);
    free(s->waiting);
    s->waiting = NULL;
    s->nwaiting = 0;
}

static void drop_all(struct mu_survive *s)
{
    for (int o = 0; o < s->n; o++) {
        mu_net_drop(&s->fd[o]);
        mu_net_drop(&s->old_fd[o]);
    }
    drop_waiting(s);
}

static void in_child(struct mu_forkable *f)
{
    drop_all((void *)((char *)f - offsetof(struct mu_survive, fork)));
}

int mu_survive_extend(struct mu_survive *s, int n, struct mu_err *err)
{
    int have = s->n;

    if (mu_array_extend(&s->at, sizeof *s->at, have, n) < 0 ||
        mu_array_extend(&s->fate, sizeof *s->fate, have, n) < 0 ||
        mu_array_extend(&s->origin_of, sizeof *s->origin_of, have, n) < 0 ||
        mu_array_extend(&s->fd, sizeof *s->fd, have, n) < 0 ||
        mu_array_extend(&s->old_fd, sizeof *s->old_fd, have, n) < 0 ||
        mu_array_extend(&s->blind, sizeof *s->blind, have, n) < 0 ||
        mu_array_extend(&s->suspect, sizeof *s->suspect, have, n) < 0)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", n);
    for (int o = have; o < n; o++) {
        s->fd[o] = s->old_fd[o] = -1;
        s->origin_of[s->size++] = o;
    }
    s->n = n;
    return 0;
}

int mu_survive_new(const struct mu_world *world, struct mu_survive **out,
                   struct mu_err *err)
{
    struct mu_survive *s = calloc(1, sizeof *s);

    if (!s)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    s->world = world;
    s->endpoint = world->endpoint;
    memcpy(s->token, world->token, sizeof s->token);
    s->fork.in_child = in_child;
    mu_fork_enter(&s->fork);
    *out = s;
    return 0;
}

int mu_survive_open(const struct mu_world *world, struct mu_survive **out,
                    struct mu_err *err)
{
    struct mu_survive *s;

    if (mu_survive_new(world, &s, err) < 0)
        return -1;
    if (mu_survive_extend(s, world->size, err) < 0) {
        mu_survive_close(s);
        return -1;
    }
    s->me = world->rank;
    memcpy(s->at, world->address, (size_t)s->n * sizeof *s->at);
    *out = s;
    return 0;
}

void mu_survive_close(struct mu_survive *s)
{
    if (!s)
        return;
    mu_fork_leave(&s->fork);
    drop_all(s);
    mu_published_clear(&s->published);
    free(s->newcomer);
    free(s->at);
    free(s->fate);
    free(s->origin_of);
    free(s->fd);
    free(s->old_fd);
    free(s->blind);
    free(s->suspect);
    free(s);
}

void mu_survive_settle(struct mu_survive *s)
{
    int n = 0;

    for (int r = 0; r < s->size; r++)
        if (s->fate[s->origin_of[r]].life == MU_LIVES)
            s->origin_of[n++] = s->origin_of[r];
    s->size = n;
}
