/* SPDX-License-Identifier: BSD-3-Clause */
/* grow.c - muster_grow: check that the world can grow, and that nothing is in flight */
#include "runtime/api/impl.h"

#include "runtime/core/text.h"

static int check(struct muster *m, const int *joined)
{
    if (!joined)
        return mu_fail(m, MUSTER_EUSAGE, "muster_grow needs a place for its result");
    if (m->parent)
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_grow on group '%s': call it on the world",
                       m->group.name);
    if (!m->comm.config.grow[0])
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_grow: start all ranks with MUSTER_GROW=FILE and "
                       "MUSTER_ELASTIC, or set options.grow and options.elastic");
    if (!m->recover.survive)
        return mu_fail(
            m, MUSTER_EUSAGE,
            "muster_grow: this world has begun with one rank: begin with two "
            "or more");
    if (m->handles)
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_grow: wait for %d handle%s of muster_start first",
                       mu_handles(m), mu_plural(mu_handles(m)));
    return MUSTER_OK;
}

int muster_grow(struct muster *m, int *joined)
{
    struct mu_err err = { 0 };
    int n = 0, status = check(m, joined);

    if (status != MUSTER_OK)
        return status;
    *joined = 0;
    if (mu_grow(&m->recover, &n, &err) < 0)
        return mu_fail_err(m, &err);
    *joined = n;
    return MUSTER_OK;
}
