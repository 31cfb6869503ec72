/* SPDX-License-Identifier: BSD-3-Clause */
/* world.c - choose the way in: PMIx, the variables of torchrun,
 * the program's own exchange, or a world of one
 */
#include "runtime/boot/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does the program's own rank contradict the one that was found before it? */
static int check_program(const struct mu_world *w, const struct muster_exchange *x,
                         struct mu_err *err)
{
    if (!x || (x->rank == w->rank && x->size == w->size))
        return 0;
    return mu_err_set(err, MUSTER_ERENDEZVOUS,
                      "muster_options.exchange has rank %d of %d, but the launcher's "
                      "variables or PMIx rank %d of %d",
                      x->rank, x->size, w->rank, w->size);
}

/* The program's exchange, whatever PMIx or variables give. */
static int open_first(const struct mu_launch *launch, const struct muster_exchange *x,
                      struct mu_world **out, struct mu_err *err)
{
    if (launch->single && x->size > 1)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "MUSTER_SINGLE=1 asks for a world of one rank, but "
                          "muster_options.exchange has rank %d of %d",
                          x->rank, x->size);
    if (mu_world_program(launch, x, out, err) < 0)
        return -1;
    (*out)->own_ranks = true;
    return 0;
}

int mu_world_open(const struct mu_launch *launch,
                  const struct muster_exchange *exchange, struct mu_world **out,
                  struct mu_err *err)
{
    int rc;

    if (exchange && exchange->first)
        return open_first(launch, exchange, out, err);
    rc = launch->single ? 1 : mu_world_pmix(launch, out, err);
    if (rc == 1 && !launch->single)
        rc = mu_world_rdzv(launch, out, err);
    if (rc == 0 && check_program(*out, exchange, err) < 0) {
        mu_world_close(*out);
        return -1;
    }
    if (rc <= 0)
        return rc;
    if (exchange && !launch->single)
        return mu_world_program(launch, exchange, out, err);
    if (mu_launch_check(launch, 0, 0, err) < 0)
        return -1;
    return mu_world_single(out, err);
}

int mu_world_meet(struct mu_world *world, double timeout, struct mu_err *err)
{
    return world->meet ? world->meet(world, timeout, err) : 0;
}

void mu_world_leave(struct mu_world *world)
{
    if (world->leave)
        world->leave(world);
}

void mu_world_close(struct mu_world *world)
{
    if (world)
        world->close(world);
}

void mu_world_abort(struct mu_world *world, int status, const char *why)
{
    if (world->abort)
        world->abort(world, status, why);
    _exit(status);
}
