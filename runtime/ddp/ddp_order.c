/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_order.c - the order in which gradients arrive, learned in the first synced step
 *
 * Until then the order from the last parameter to the first is assumed. Ranks must
 * start the same buckets in one order, so all adopt rank 0's order between the same two
 * steps.
 *
 * When every gradient of every rank has a buffer of the caller, buckets are cut anew.
 * Views cannot move, and parts and what hooks keep have the layout of the buckets: then
 * only the order in which buckets start changes.
 */
#include "runtime/ddp/ddp.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"

/* What each rank sends; rank 0 appends its order as int32. */
struct arrival_header {
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
        if (!ddp->param[i].user_grad)
            return false;
    return !ddp->shard && !ddp->hook;
}

/* Append the parameters that did not arrive in this step, in the assumed order. */
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

/* Copy rank 0's order into ddp->arrival; *move: buckets may be cut anew. Returns how
 * many gradients arrived on rank 0 (0: there is no order to learn), or -1.
 */
static int exchange(struct muster_ddp *ddp, bool *move, struct mu_err *err)
{
    size_t n = (size_t)ddp->nparams, bytes = n * sizeof *ddp->arrival;
    struct arrival_header mine = { movable(ddp), ddp->narrived }, theirs = { 0 };
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
            mu_err_set(err, MUSTER_EINTERNAL,
                       "rank 0 (node %s) sent an order of gradients that does not "
                       "list each one once",
                       ddp->comm->world->host_of[0]);
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
    /* The ranks compare this hash in each step. */
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
