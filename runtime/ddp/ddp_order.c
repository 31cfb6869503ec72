/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_order.c - the order in which gradients arrive, learned in the first synced step
 *
 * Until then it is taken to be from the last parameter to the first. Ranks must start
 * the same buckets in one order, so rank 0's is taken, by all ranks between the same
 * two steps. Where every gradient of every rank has a buffer of the caller, buckets are
 * cut anew. Views cannot move, and parts and what hooks keep lie as the buckets do:
 * there only the order in which buckets start follows.
 */
#include "runtime/ddp/ddp.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"

/* What each rank sends; behind it, from rank 0, its order as int32. */
struct note {
    int32_t movable, arrived;
};

int mu_ddp_order_begin(struct muster_ddp *ddp, struct mu_err *err)
{
    ddp->arrival = calloc((size_t)ddp->nparams + 1, sizeof *ddp->arrival);
    return ddp->arrival ? 0
                        : mu_err_set(err, MUSTER_EMEMORY,
                                     "out of memory for the order of %d gradients",
                                     ddp->nparams);
}

static bool movable(const struct muster_ddp *ddp)
{
    for (int i = 0; i < ddp->nparams; i++)
        if (!ddp->param[i].own)
            return false;
    return !ddp->shard && !ddp->hook;
}

/* Those that did not come in this step are expected last, in the order as before. */
static int complete(const struct muster_ddp *ddp, int *order, int arrived)
{
    bool *there = calloc((size_t)ddp->nparams + 1, sizeof *there);

    for (int k = 0; there && k < arrived; k++)
        there[order[k]] = true;
    for (int i = ddp->nparams - 1; there && i >= 0; i--)
        if (!there[i])
            order[arrived++] = i;
    free(there);
    return there ? 0 : -1;
}

/* Rank 0's order into ddp->arrival; *move: buckets may be cut anew. Returns how many
 * gradients rank 0 had, 0: there is no order to learn, or -1.
 */
static int exchange(struct muster_ddp *ddp, bool *move, struct mu_err *err)
{
    size_t n = (size_t)ddp->nparams, bytes = n * sizeof *ddp->arrival;
    struct note mine = { movable(ddp), ddp->narrived }, theirs = { 0 };
    bool first = ddp->comm->world->rank == 0;
    char *message = malloc(sizeof mine + bytes);
    struct mu_gathered all;
    int arrived = -1;

    if (!message || (first && complete(ddp, ddp->arrival, ddp->narrived) < 0)) {
        free(message);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for an order");
    }
    memcpy(message, &mine, sizeof mine);
    memcpy(message + sizeof mine, ddp->arrival, bytes);
    if (mu_gather(ddp->comm, "the exchange of the gradient order", message,
                  sizeof mine + (first ? bytes : 0), &all, err) < 0) {
        free(message);
        return -1;
    }
    *move = true;
    for (int r = 0; r < ddp->comm->world->size; r++) {
        memcpy(&theirs, all.at[r], sizeof theirs);
        *move &= theirs.movable != 0;
        if (r == 0)
            arrived = theirs.arrived;
    }
    if (all.len[0] == sizeof mine + bytes)
        memcpy(ddp->arrival, (const char *)all.at[0] + sizeof mine, bytes);
    if (all.len[0] != sizeof mine + bytes ||
        !mu_bucket_is_order(ddp->arrival, ddp->nparams))
        arrived =
            mu_err_set(err, MUSTER_EINTERNAL, "rank 0 sent an invalid gradient order");
    mu_gathered_clear(&all);
    free(message);
    return arrived;
}

static int adopt(struct muster_ddp *ddp, bool move, void *stream, struct mu_err *err)
{
    if (move && mu_ddp_buckets_remake(ddp, ddp->arrival, stream, err) < 0)
        return -1;
    if (!move)
        mu_bucket_starts(&ddp->plan, ddp->arrival, ddp->ready.order);
    /* What the ranks compare in each step. */
    ddp->plan_hash = mu_hash(ddp->plan_hash, ddp->ready.order,
                             (size_t)ddp->plan.nbuckets * sizeof *ddp->ready.order);
    for (int b = 0; b < ddp->plan.nbuckets; b++)
        ddp->plan_hash = mu_hash(ddp->plan_hash, &ddp->plan.bucket[b].bytes,
                                 sizeof ddp->plan.bucket[b].bytes);
    return 0;
}

int mu_ddp_order_exchange(struct muster_ddp *ddp, struct mu_err *err)
{
    if (!ddp->arrival)
        return 0;
    ddp->norder_rank0 = exchange(ddp, &ddp->movable, err);
    return ddp->norder_rank0 < 0 ? -1 : 0;
}

int mu_ddp_order_adopt(struct muster_ddp *ddp, void *stream, struct mu_err *err)
{
    int rc = 0;

    if (!ddp->arrival)
        return 0;
    if (ddp->norder_rank0 > 0)
        rc = adopt(ddp, ddp->movable, stream, err);
    free(ddp->arrival);
    ddp->arrival = NULL;
    ddp->times.begin = mu_clock_s();
    return rc;
}
