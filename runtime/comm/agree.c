/* SPDX-License-Identifier: BSD-3-Clause */
/* agree.c - compare a contract, or the order of collectives, among the ranks and report
 * where they differ
 */
#include "runtime/comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* Compare the hashes of all ranks: the first index where they differ, or -1. */
static int find_difference(const struct mu_gathered *all, int size, struct mu_err *err)
{
    const uint64_t **hash = calloc((size_t)size, sizeof *hash);
    int *n = calloc((size_t)size, sizeof *n);
    int at = -1;

    if (!hash || !n) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", size);
        goto out;
    }
    for (int r = 0; r < size; r++) {
        uint64_t *copy = malloc(all->len[r] + 1);

        if (!copy) {
            mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", size);
            goto out;
        }
        memcpy(copy, all->at[r], all->len[r]); /* aligned */
        hash[r] = copy;
        n[r] = (int)(all->len[r] / sizeof *copy);
    }
    at = mu_contract_first_difference(hash, n, size);
    if (at < 0)
        mu_err_set(
            err, MUSTER_EINTERNAL,
            "the hashes of the contracts differ, but all of their lines are equal");
out:
    for (int r = 0; hash && r < size; r++)
        free((void *)(uintptr_t)hash[r]);
    free(hash);
    free(n);
    return at;
}

static int refuse_with_sides(struct mu_comm *comm, const char *what,
                             const struct mu_contract *c, int at, struct mu_err *err)
{
    char mine[MU_CONTRACT_TEXT] = "", text[MU_ERR_TEXT];
    struct mu_gathered all;

    if (at < c->n)
        memcpy(mine, c->line[at], sizeof mine);
    if (mu_gather(comm, what, mine, sizeof mine, &all, err) < 0)
        return -1;
    mu_contract_sides((const char *const *)all.at, comm->world->size,
                      (const char *const *)comm->world->host_of, text, sizeof text);
    mu_gathered_clear(&all);
    mu_err_set(err, MUSTER_ECONTRACT, "%s: the ranks differ: %s", what, text);
    return mu_comm_refuse(comm, err);
}

int mu_agree(struct mu_comm *comm, const char *what, const struct mu_contract *contract,
             struct mu_err *err)
{
    uint64_t total = mu_contract_total(contract);
    struct mu_gathered all;
    bool same = true;
    int at;

    if (mu_gather(comm, what, &total, sizeof total, &all, err) < 0)
        return -1;
    for (int r = 0; r < comm->world->size; r++)
        same &=
            all.len[r] == sizeof total && memcmp(all.at[r], &total, sizeof total) == 0;
    mu_gathered_clear(&all);
    if (same)
        return 0;
    if (mu_gather(comm, what, contract->hash,
                  (size_t)contract->n * sizeof *contract->hash, &all, err) < 0)
        return -1;
    at = find_difference(&all, comm->world->size, err);
    mu_gathered_clear(&all);
    return at < 0 ? -1 : refuse_with_sides(comm, what, contract, at, err);
}

uint64_t mu_coll_order(uint64_t order, const struct mu_owner *owner)
{
    uint64_t word = (uint64_t)owner->object << 32 | owner->part;

    order = (order ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    order = (order ^ order >> 29 ^ owner->step) * UINT64_C(0xbf58476d1ce4e5b9);
    return order ^ order >> 32;
}

void mu_comm_order(struct mu_comm *comm, const struct mu_owner *owner)
{
    comm->order = mu_coll_order(comm->order, owner);
    comm->ordered++;
}

int mu_comm_mix(struct mu_comm *comm, const char *what, struct mu_err *err)
{
    struct mu_contract contract = { 0 };
    int rc;

    if (comm->mixes || comm->ops->compares || !comm->control)
        return 0;
    rc = mu_contract_add(&contract, err, "after %llu collectives in the order %016llx",
                         (unsigned long long)comm->ordered,
                         (unsigned long long)comm->order);
    if (rc == 0)
        rc = mu_agree(comm, what, &contract, err);
    mu_contract_clear(&contract);
    if (rc < 0)
        return mu_comm_fail(comm, err); /* some are in flight and will not end */
    comm->mixes = true;
    return 0;
}
