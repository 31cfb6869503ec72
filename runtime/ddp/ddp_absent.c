/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_absent.c - before the last buckets start: which gradients does no rank have, and
 * do all ranks reduce the same, in the same order?
 */
#include "runtime/ddp/ddp.h"

#include <stdlib.h>

#include "runtime/core/text.h"

#define NAMED 8 /* parameters in one warning */

/* Bit i: this rank lacks the gradient of parameter i; in the second half (NULL: not
 * asked) it has not declared it absent either. Returns how many it lacks.
 */
static int lacking(const struct muster_ddp *ddp, uint8_t *bits, uint8_t *undeclared)
{
    int n = 0;

    for (int i = 0; i < ddp->nparams; i++) {
        uint8_t bit = (uint8_t)(1 << i % 8);

        if (ddp->used[i])
            continue;
        bits[i / 8] |= bit;
        if (undeclared && !ddp->declined[i])
            undeclared[i / 8] |= bit;
        n++;
    }
    return n;
}

/* Those that no rank had and none declared absent: each rank keeps what is in its own
 * buffer, and an optimizer that uses it lets the models drift apart.
 */
static void warn_of_missing(const struct muster_ddp *ddp, const uint8_t *missing)
{
    char names[MU_ERR_TEXT / 2];
    size_t at = 0;
    int n = 0;

    for (int i = 0; i < ddp->nparams; i++)
        if (missing[i / 8] >> i % 8 & 1 && n++ < NAMED)
            mu_text_add(names, sizeof names, &at, "%s'%.40s'", n > 1 ? ", " : "",
                        ddp->param[i].name);
    if (n == 0)
        return;
    if (n > NAMED)
        mu_text_add(names, sizeof names, &at, " and %d more", n - NAMED);
    mu_log(
        &ddp->comm->log, MU_LOG_WARN,
        "no rank has a gradient of %s in step %llu, and none declared it absent: each "
        "rank keeps the old value in its buffer. Call muster_ddp_grad_ready or "
        "muster_ddp_grad_absent for it, or register it as frozen.",
        names, (unsigned long long)ddp->step);
}

/* The order of collectives up to the last bucket of this step, all of which follow each
 * other from here on where they have not started. 0 where the backend compares them
 * one by one, with a better message.
 */
static uint64_t order_at_end(const struct muster_ddp *ddp)
{
    uint64_t order = ddp->comm->order;

    if (ddp->comm->ops->compares)
        return 0;
    if (ddp->ready.next == ddp->plan.nbuckets)
        return ddp->order;
    for (int k = ddp->ready.next; k < ddp->plan.nbuckets; k++) {
        struct mu_owner owner = mu_ddp_owner(ddp, ddp->ready.order[k]);

        order = mu_coll_order(order, &owner);
    }
    return order;
}

/* May a bucket of this step have met a collective that is not its own, without the
 * backend's finding out? Then there was another one since the sync before, or the step
 * has begun before that.
 */
static bool may_have_met(const struct muster_ddp *ddp)
{
    const struct mu_comm *comm = ddp->comm;
    int started = ddp->ready.next;

    return !comm->ops->compares &&
           (comm->ordered - comm->ordered_synced != (uint64_t)started ||
            (started > 0 && ddp->began <= comm->ordered_synced));
}

/* Which gradients does no rank have? A rank that has all of them need not know, since
 * each of them counts somewhere; so it only posts and goes on, and a rank that lacks
 * some waits for the posts of the others. The hashes of what is reduced, and in which
 * order it started, ride along.
 */
int mu_ddp_absent_agree(struct muster_ddp *ddp, uint64_t contract, struct mu_err *err)
{
    struct mu_control *control = ddp->comm->control;
    uint64_t what[4] = { ddp->plan_hash, ddp->id, ddp->step, contract };
    /* The n-th sync of this rank against the n-th of the others: so a rank that takes
     * two models in another order is found, though their buckets be alike.
     */
    uint64_t step = ddp->comm->syncs;
    size_t half = (size_t)ddp->nparams / 8 + 1;
    /* Parts have no holes: there an absent gradient is zero on all ranks. */
    bool wait, first = ddp->step == 0 && !ddp->shard;
    size_t nbytes = first ? 2 * half : half;
    uint8_t *bits = calloc(nbytes, 1);
    int n, rc = 0;

    if (!bits)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for a bitmap");
    n = lacking(ddp, bits, first ? bits + half : NULL);
    wait = n > 0 || may_have_met(ddp);
    if (control)
        rc = mu_control_agree_post(control, step, mu_hash(0, what, sizeof what),
                                   order_at_end(ddp), bits, wait ? nbytes : 0, err);
    if (control && rc == 0 && wait)
        rc = mu_control_agree_wait(control, step, bits, nbytes, err);
    for (int i = 0; rc == 0 && i < ddp->nparams; i++) {
        ddp->nobody[i] = n > 0 && bits[i / 8] >> i % 8 & 1;
        ddp->absent[i] = ddp->nobody[i] && !ddp->shard;
    }
    if (control && rc == 0 && n > 0 && first && ddp->comm->world->rank == 0)
        warn_of_missing(ddp, bits + half);
    free(bits);
    return rc < 0 ? mu_comm_fail(ddp->comm, err) : 0;
}
