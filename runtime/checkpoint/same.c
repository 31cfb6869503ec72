/* SPDX-License-Identifier: BSD-3-Clause */
/* same.c - do all ranks open, save or load the same? Else a rank would get the weights
 * of another model, or a sharded checkpoint would be complete and useless
 */
#include "runtime/checkpoint/checkpoint.h"

int mu_checkpoint_same_options(const struct muster_checkpoint *c, struct mu_err *err)
{
    struct mu_contract all = { 0 };
    int rc = mu_contract_add(&all, err, "checkpoint '%s'%s of kind '%s'", c->name,
                             c->sharded ? " in shards" : "", c->kind);

    if (rc == 0)
        rc = mu_agree(c->comm, "muster_checkpoint_open", &all, err);
    mu_contract_clear(&all);
    return rc;
}

/* Ranks may have other paths for one folder, so the id is compared in its place. */
static int describe(const struct muster_checkpoint *c, const uint64_t *step,
                    const struct muster_item *items, int nitems,
                    struct mu_contract *all, struct mu_err *err)
{
    int rc = mu_contract_add(all, err, "checkpoint '%s' (opened as %016llx)", c->name,
                             (unsigned long long)c->id);

    if (rc == 0 && step)
        rc = mu_contract_add(all, err, "step %llu", (unsigned long long)*step);
    for (int i = 0; rc == 0 && i < nitems; i++)
        rc = mu_contract_add(
            all, err, "item %d '%s': %llu bytes", i, items[i].name,
            (unsigned long long)(items[i].total ? items[i].total : items[i].bytes));
    return rc;
}

int mu_checkpoint_same(const struct muster_checkpoint *c, const char *call,
                       const uint64_t *step, const struct muster_item *items,
                       int nitems, int rc, struct mu_err *err)
{
    struct mu_contract all = { 0 };
    int64_t hash, least[3];

    if (c->comm->world->size == 1)
        return 0;
    if (rc == 0)
        rc = describe(c, step, items, nitems, &all, err);
    hash = (int64_t)(mu_contract_total(&all) >> 1);
    least[0] = rc;
    least[1] = hash;
    least[2] = -hash; /* the least of these is the greatest hash */
    rc = mu_checkpoint_min(c->comm, least, 3, err);
    if (rc == 0 && least[0] == 0 && least[1] != -least[2])
        rc = mu_agree(c->comm, call, &all, err);
    mu_contract_clear(&all);
    return rc;
}
