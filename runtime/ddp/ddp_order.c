/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_order.c - the order in which gradients arrive, learned in the first synced step
 *
 * Until then the order from the last parameter to the first is assumed. Ranks must
 * start the same buckets in one order, so all adopt rank 0's order between the same two
 * steps: after the sync that has sent it.
 *
 * In an elastic world it is one sync later. When a rank dies in a sync, that sync may
 * count although a survivor has not received the order. Then all survivors learn it
 * anew: the next call of each is MUSTER_ESHRUNK, so none has adopted it.
 *
 * When every gradient of every rank has a buffer of the caller, buckets are cut anew.
 * Views cannot move, and parts and what hooks keep have the layout of the buckets: then
 * only the order in which buckets start changes.
 */
#include "runtime/ddp/ddp.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Has this rank received rank 0's order? A death makes the answer false. */
static bool is_learned(const struct muster_ddp *ddp)
{
    return ddp->learned_in == ddp->comm->generation + 1;
}

void mu_ddp_order_arrived(struct muster_ddp *ddp, int i)
{
    if (!is_learned(ddp))
        ddp->arrival[ddp->narrived++] = i;
}

/* What this rank sends at the end of a sync for the ranks to learn the order; *len 0
 * when they have learned it. The caller frees *message.
 */
static int make_message(struct muster_ddp *ddp, void **message, size_t *len,
                        struct mu_err *err)
{
    struct arrival_header header = { movable(ddp), ddp->narrived };
    bool first = ddp->comm->world->rank == 0;
    size_t bytes = first ? (size_t)ddp->nparams * sizeof *ddp->arrival : 0;
    char *out;

    *message = NULL;
    *len = 0;
    ddp->adopts = ddp->arrival && is_learned(ddp);
    if (!ddp->arrival || ddp->adopts)
        return 0;
    out = malloc(sizeof header + bytes);
    if (!out || (first && complete(ddp, ddp->arrival, ddp->narrived) < 0)) {
        free(out);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for an order");
    }
    memcpy(out, &header, sizeof header);
    if (first)
        memcpy(out + sizeof header, ddp->arrival, bytes);
    *message = out;
    *len = sizeof header + bytes;
    return 0;
}

/* Take rank 0's order from the messages of all ranks. */
static int learn(struct muster_ddp *ddp, const struct mu_gathered *all,
                 struct mu_err *err)
{
    size_t bytes = (size_t)ddp->nparams * sizeof *ddp->arrival;
    struct arrival_header header;

    ddp->movable = true;
    for (int r = ddp->comm->world->size - 1; r >= 0; r--) {
        memcpy(&header, all->at[r], sizeof header);
        ddp->movable &= header.movable != 0;
    }
    ddp->norder_rank0 = header.arrived;
    if (all->len[0] == sizeof header + bytes)
        memcpy(ddp->arrival, (const char *)all->at[0] + sizeof header, bytes);
    if (all->len[0] != sizeof header + bytes ||
        !mu_bucket_is_order(ddp->arrival, ddp->nparams))
        return mu_err_set(err, MUSTER_EINTERNAL,
                          "rank 0 (node %s) sent an order of gradients that does not "
                          "list each one once",
                          ddp->comm->world->host_of[0]);
    ddp->learned_in = ddp->comm->generation + 1;
    ddp->adopts = !ddp->comm->elastic;
    return 0;
}

int mu_ddp_order_exchange(struct muster_ddp *ddp, void *stream, struct mu_err *err)
{
    struct mu_gathered all = { 0 };
    char what[64];
    void *message;
    size_t len;
    int rc;

    snprintf(what, sizeof what, "the end of step %llu", (unsigned long long)ddp->step);
    if (make_message(ddp, &message, &len, err) < 0)
        return -1;
    rc = mu_elastic_commit(ddp->recover, stream, what, message, len, &all, err);
    if (rc == 0 && len > 0 && all.at)
        rc = learn(ddp, &all, err);
    mu_gathered_clear(&all);
    free(message);
    return rc;
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

int mu_ddp_order_adopt(struct muster_ddp *ddp, void *stream, struct mu_err *err)
{
    int rc = 0;

    if (ddp->norder_rank0 > 0)
        rc = adopt(ddp, ddp->movable, stream, err);
    free(ddp->arrival);
    ddp->arrival = NULL;
    ddp->adopts = false;
    mu_ddp_ledger_begin(ddp);
    return rc;
}
