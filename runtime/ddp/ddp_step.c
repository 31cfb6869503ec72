/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_step.c - one step: gradients become ready, buckets start, the end waits for them
 */
#include "runtime/ddp/ddp.h"

#include <string.h>

/* False when the gradient was marked before in this step. */
static bool mark(struct muster_ddp *ddp, int i, void *stream)
{
    if (!mu_ready_mark(&ddp->ready, i))
        return false;
    if (ddp->comm->ledger.buckets)
        mu_ddp_ledger_ready(ddp, ddp->plan.place[i].bucket, stream);
    return true;
}

static int start_ready(struct muster_ddp *ddp, struct mu_err *err)
{
    int b;

    while ((b = mu_ready_take(&ddp->ready)) >= 0)
        if (mu_ddp_bucket_start(ddp, b, err) < 0)
            return -1;
    return 0;
}

int mu_ddp_grad_ready(struct muster_ddp *ddp, int i, void *stream, struct mu_err *err)
{
    struct mu_ddp_bucket *bucket;
    struct mu_ddp_rows *rows;

    i = ddp->at[i];
    if (ddp->declined[i])
        return mu_err_set(err, MUSTER_EUSAGE,
                          "gradient of '%s' was already declared absent in this step",
                          ddp->param[i].name);
    if (ddp->weight.nothing)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "gradient of '%s' became ready in a micro-batch of weight 0",
                          ddp->param[i].name);
    if (ddp->accumulating) {
        ddp->used[i] = true;
        return 0;
    }
    rows = ddp->param[i].by_row;
    if (rows && mu_ddp_rows_hold(ddp, i, err) < 0)
        return -1;
    if (rows && rows->held) {
        ddp->used[i] = true;
        return 0;
    }
    bucket = &ddp->bucket[ddp->plan.place[i].bucket];
    if (bucket->has_stream && bucket->stream != stream)
        return mu_err_set(
            err, MUSTER_EUSAGE,
            "gradient of '%s' is on another stream than the rest of its bucket",
            ddp->param[i].name);
    if (!mark(ddp, i, stream))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "gradient of '%s' became ready twice in step %llu",
                          ddp->param[i].name, (unsigned long long)ddp->step);
    ddp->used[i] = true;
    if (ddp->arrival)
        mu_ddp_order_arrived(ddp, i);
    bucket->stream = stream;
    bucket->has_stream = true;
    return start_ready(ddp, err);
}

int mu_ddp_grad_absent(struct muster_ddp *ddp, int i, struct mu_err *err)
{
    i = ddp->at[i];
    if (mu_ddp_begun(ddp, i))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "gradient of '%s' is already ready in this step",
                          ddp->param[i].name);
    /* An earlier micro-batch may have given it a gradient: then that counts. */
    if (!ddp->accumulating)
        ddp->declined[i] = true;
    return 0;
}

/* Start the buckets that have not started in the backward pass: they lack a gradient
 * here, or wait behind one that does.
 */
static int start_rest(struct muster_ddp *ddp, void *stream, struct mu_err *err)
{
    for (int i = 0; i < ddp->nparams; i++) {
        struct mu_ddp_bucket *bucket = &ddp->bucket[ddp->plan.place[i].bucket];

        if (!mark(ddp, i, bucket->has_stream ? bucket->stream : stream) ||
            bucket->has_stream)
            continue;
        bucket->stream = stream;
        bucket->has_stream = true;
    }
    return start_ready(ddp, err);
}

/* Reset the state of the step. */
static void clear_step(struct muster_ddp *ddp)
{
    size_t n = (size_t)ddp->nparams;

    memset(ddp->used, 0, n * sizeof *ddp->used);
    memset(ddp->declined, 0, n * sizeof *ddp->declined);
    memset(ddp->absent, 0, n * sizeof *ddp->absent);
    mu_ready_reset(&ddp->ready);
    if (ddp->nby_row > 0)
        mu_ddp_rows_reset(ddp);
    ddp->weight = (struct mu_weight){ 0 };
    ddp->factor = 1;
    ddp->narrived = 0;
}

/* The joins return: the failure was announced to every rank, and the backend is
 * aborted.
 */
void mu_ddp_drop(void *arg)
{
    struct muster_ddp *ddp = arg;
    struct mu_comm *comm = ddp->comm;

    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        struct mu_ddp_bucket *bucket = &ddp->bucket[b];

        for (int s = 0; s < bucket->nstarted; s++)
            comm->ops->join(comm->backend, bucket->started[s].request, bucket->stream,
                            NULL);
        bucket->nstarted = 0;
        bucket->stream = NULL;
        bucket->has_stream = false;
    }
    clear_step(ddp);
    ddp->accumulating = false;
    mu_ddp_gpu_drop(ddp);
    mu_ddp_ledger_begin(ddp);
}

/* [collective] Agree on what is absent, then start what has not started. Buckets of a
 * compression with two rounds start the second one.
 */
static int start_all(struct muster_ddp *ddp, uint64_t contract, void *stream,
                     struct mu_err *err)
{
    bool has_rows = ddp->nby_row > 0;

    mu_ddp_ledger_sync(ddp, stream);
    if (mu_comm_interrupted(ddp->comm, err) < 0)
        return -1;
    if ((has_rows && mu_ddp_rows_spread(ddp, err) < 0) ||
        mu_ddp_absent_agree(ddp, contract, err) < 0 ||
        (ddp->ready.next < ddp->plan.nbuckets && start_rest(ddp, stream, err) < 0) ||
        (has_rows && mu_ddp_rows_start(ddp, err) < 0))
        return -1;
    for (int k = 0; ddp->hook && ddp->hook->advance && k < ddp->plan.nbuckets; k++)
        if (mu_ddp_bucket_advance(ddp, ddp->ready.order[k], stream, err) < 0)
            return -1;
    return 0;
}

static int finish_all(struct muster_ddp *ddp, bool squares, void *stream,
                      struct mu_err *err)
{
    for (int k = 0; k < ddp->plan.nbuckets; k++) {
        int b = ddp->ready.order[k];

        if (mu_ddp_bucket_finish(ddp, b, stream, err) < 0 ||
            (squares && mu_ddp_norm_add(ddp, b, stream, err) < 0))
            return -1;
    }
    return ddp->screen_marks ? mu_ddp_screened(ddp, stream, err) : 0;
}

int mu_ddp_sync(struct muster_ddp *ddp, struct muster_finish *f, void *stream,
                struct mu_err *err)
{
    if ((f && mu_ddp_norm_begin(ddp, stream, err) < 0) ||
        start_all(ddp, f ? mu_ddp_finish_hash(f) : 0, stream, err) < 0 ||
        finish_all(ddp, f, stream, err) < 0 ||
        mu_ddp_order_exchange(ddp, stream, err) < 0)
        return -1;
    clear_step(ddp);
    ddp->squared = f;
    ddp->step++;
    ddp->comm->syncs++;
    mu_ddp_ledger_step(ddp);
    if (f && mu_ddp_finish(ddp, f, stream, err) < 0)
        return -1;
    /* Adopt the order last: until here the gradients must keep their places. */
    return ddp->adopts ? mu_ddp_order_adopt(ddp, stream, err) : 0;
}

int mu_ddp_no_sync(struct muster_ddp *ddp, bool on, struct mu_err *err)
{
    for (int i = 0; on && i < ddp->nparams; i++)
        if (mu_ddp_begun(ddp, i))
            return mu_err_set(
                err, MUSTER_EUSAGE,
                "muster_ddp_no_sync in the middle of step %llu: gradient of '%s' "
                "is already ready",
                (unsigned long long)ddp->step, ddp->param[i].name);
    ddp->accumulating = on;
    return 0;
}
