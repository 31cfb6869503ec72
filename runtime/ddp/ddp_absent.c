/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_absent.c - absent-gradient agreement, before the last buckets start: which
 * gradients does no rank have, and do all ranks reduce the same in the same order?
 */
#include "runtime/ddp/ddp.h"

#include <stdlib.h>

#include "runtime/core/text.h"

#define NAMED 8 /* parameters in one warning */

/* Set bit i of bits when this rank lacks the gradient of parameter i, and of
 * `undeclared` (may be NULL) when it has not declared it absent either. Returns how
 * many it lacks.
 */
static int lacking(const struct muster_ddp *ddp, uint8_t *bits, uint8_t *undeclared)
{
    int n = 0;

    for (int i = 0; i < ddp->nparams; i++) {
        uint8_t bit = (uint8_t)(1 << i % 8);

        if (ddp->used[i])
            continue;
        bits[i / 8] |= bit;
        if (undeclared && !ddp->declined[i] &&
            !(ddp->param[i].by_row && ddp->param[i].by_row->given))
            undeclared[i / 8] |= bit;
        n++;
    }
    return n;
}

/* Gradients that no rank has and none declared absent: each rank keeps its old value in
 * its buffer, and an optimizer that uses it lets the models drift apart. Rank 0 warns;
 * with options.require_all each rank gets the error.
 */
static int report_missing(const struct muster_ddp *ddp, const uint8_t *missing,
                          struct mu_err *err)
{
    static const char format[] =
        "no rank has a gradient of %s in step %llu, and none declared it absent: %s. "
        "Call muster_ddp_grad_ready or muster_ddp_grad_absent for it, or register it "
        "as frozen.";
    unsigned long long step = (unsigned long long)ddp->step;
    char names[MU_ERR_TEXT / 2];
    size_t at = 0;
    int n = 0;

    for (int i = 0; i < ddp->nparams; i++)
        if (missing[i / 8] >> i % 8 & 1 && n++ < NAMED)
            mu_text_add(names, sizeof names, &at, "%s'%.40s'", n > 1 ? ", " : "",
                        ddp->param[i].name);
    if (n == 0)
        return 0;
    if (n > NAMED)
        mu_text_add(names, sizeof names, &at, " and %d more", n - NAMED);
    if (ddp->require_all)
        return mu_err_set(err, MUSTER_ECONTRACT, format, names, step,
                          "options.require_all is set");
    if (ddp->comm->world->rank == 0)
        mu_log(&ddp->comm->log, MU_LOG_WARN, format, names, step,
               "each rank keeps the old value in its buffer");
    return 0;
}

/* The order of collectives up to the last bucket of this step: the buckets that have
 * not started follow each other from here on. 0 when the backend compares collectives
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

/* Which gradients does no rank have? A rank that has all of them sends its vote and
 * goes on, because each of them counts somewhere. A rank that lacks some waits for the
 * votes of the others. The votes carry the hashes of what is reduced and in which order
 * it started.
 *
 * Where buckets may have been matched with other collectives, unnoticed by the backend,
 * all ranks wait: a rank may be wrong although its own order is right.
 */
int mu_ddp_absent_agree(struct muster_ddp *ddp, uint64_t contract, struct mu_err *err)
{
    struct mu_control *control = ddp->comm->control;
    uint64_t what[4] = { ddp->plan_hash, ddp->id, ddp->step, contract };
    /* Compare the n-th sync of this rank with the n-th of the others: this finds a rank
     * that syncs two models in another order, although their buckets are equal.
     */
    uint64_t step = ddp->comm->syncs;
    size_t half = (size_t)ddp->nparams / 8 + 1;
    /* With shard an absent gradient is zero on all ranks: parts have no gaps. It is no
     * reason for a warning. Nor is a step without data.
     */
    bool wait,
        first = ddp->step == 0 && (!ddp->shard || ddp->require_all) && !ddp->no_data;
    size_t nbytes = first ? 2 * half : half;
    uint8_t *bits = calloc(nbytes, 1);
    int n, rc = 0;

    if (!bits)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for a bitmap");
    n = lacking(ddp, bits, first ? bits + half : NULL);
    wait = n > 0 || ddp->comm->mixes;
    if (control) {
        const uint64_t order = order_at_end(ddp);
        const uint64_t hashes[2] = { mu_hash(0, what, sizeof what), order };

        if (wait)
            mu_comm_waits(ddp->comm, "the gradients that are absent");
        rc = mu_control_agree(control, step, hashes, bits, wait ? nbytes : 0, err);
        if (wait)
            mu_comm_waits(ddp->comm, NULL);
    }
    for (int i = 0; rc == 0 && i < ddp->nparams; i++) {
        ddp->missing_everywhere[i] = n > 0 && bits[i / 8] >> i % 8 & 1;
        ddp->absent[i] = ddp->missing_everywhere[i] && !ddp->shard;
    }
    if ((control || ddp->require_all) && rc == 0 && n > 0 && first)
        rc = report_missing(ddp, bits + half, err);
    free(bits);
    return rc < 0 ? mu_comm_fail(ddp->comm, err) : 0;
}
