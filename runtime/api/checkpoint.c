/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint.c - muster_checkpoint_*: call checkpoint/, end in mu_fail_err */
#include "runtime/checkpoint/checkpoint.h"

#include <unistd.h>

#include "runtime/api/impl.h"

int muster_checkpoint_open(struct muster *m, const char *folder,
                           const struct muster_checkpoint_options *options,
                           struct muster_checkpoint **out)
{
    static const struct muster_checkpoint_options defaults;
    struct mu_err err = { 0 };

    if (options && MU_CHECK_RESERVED(m, "muster_checkpoint_open",
                                     muster_checkpoint_options, options) != MUSTER_OK)
        return MUSTER_EUSAGE;
    if (mu_checkpoint_open(&m->comm, folder, options ? options : &defaults, out, &err) <
        0)
        return mu_fail_err(m, &err);
    (*out)->m = m;
    return MUSTER_OK;
}

static int check_items(struct muster_checkpoint *c, const char *call,
                       const struct muster_item *items, int nitems)
{
    int rc = MUSTER_OK;

    for (int i = 0; items && rc == MUSTER_OK && i < nitems; i++)
        rc = MU_CHECK_RESERVED(c->m, call, muster_item, &items[i]);
    return rc;
}

int muster_checkpoint_save(struct muster_checkpoint *c, uint64_t step,
                           const struct muster_item *items, int nitems)
{
    struct mu_err err = { 0 };

    if (getpid() != c->pid)
        return mu_fail(
            c->m, MUSTER_EUSAGE,
            "checkpoint: only the process that opened it may save, and this is a "
            "forked child");
    if (check_items(c, "muster_checkpoint_save", items, nitems) != MUSTER_OK)
        return MUSTER_EUSAGE;
    if (mu_checkpoint_save(c, step, items, nitems, &err) < 0)
        return mu_fail_err(c->m, &err);
    return MUSTER_OK;
}

void muster_checkpoint_copied(struct muster_checkpoint *c)
{
    mu_checkpoint_copied(c);
}

int muster_checkpoint_wait(struct muster_checkpoint *c)
{
    struct mu_err err = { 0 };

    return mu_checkpoint_wait(c, &err) < 0 ? mu_fail_err(c->m, &err) : MUSTER_OK;
}

int muster_checkpoint_load(struct muster_checkpoint *c, const struct muster_item *items,
                           int nitems, uint64_t *step, int *found)
{
    struct mu_err err = { 0 };

    if (check_items(c, "muster_checkpoint_load", items, nitems) != MUSTER_OK)
        return MUSTER_EUSAGE;
    if (mu_checkpoint_load(c, items, nitems, step, found, &err) < 0)
        return mu_fail_err(c->m, &err);
    return MUSTER_OK;
}

/* Wait first, which recovers: the other ranks do not wait for the disk of this rank. */
int muster_checkpoint_close(struct muster_checkpoint *c)
{
    int status;

    if (!c)
        return MUSTER_OK;
    status = muster_checkpoint_wait(c);
    mu_checkpoint_free(c);
    return status;
}

const char *muster_checkpoint_path(const struct muster_checkpoint *c)
{
    return c->path;
}
