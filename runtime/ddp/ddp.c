/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp.c - register the parameters of a model, lay out its buckets, broadcast it */
#include "runtime/ddp/ddp.h"

#include <stdlib.h>

#include "runtime/core/dtype.h"

static int make(struct muster_ddp *ddp, const struct mu_ddp_request *wanted,
                struct mu_err *err)
{
    const struct muster_ddp_options *options = wanted->options;
    size_t n = (size_t)wanted->nparams + 1;

    if (options->hook)
        ddp->hook_options = *options->hook;
    if (mu_ddp_params_take(ddp, wanted->params, wanted->nparams, err) < 0)
        return -1;
    ddp->factor = 1;
    ddp->screen = options->screen != 0;
    ddp->require_all = options->require_all != 0;
    ddp->shard = options->shard != 0;
    if (ddp->shard && ddp->comm->config.elastic)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "shard and MUSTER_ELASTIC exclude each other: when a rank "
                          "dies, its part of the optimizer state is lost");
    ddp->used = calloc(n, sizeof *ddp->used);
    ddp->declined = calloc(n, sizeof *ddp->declined);
    ddp->absent = calloc(n, sizeof *ddp->absent);
    ddp->missing_everywhere = calloc(n, sizeof *ddp->missing_everywhere);
    if (!ddp->used || !ddp->declined || !ddp->absent || !ddp->missing_everywhere)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d parameters",
                          ddp->nparams);
    ddp->rule = mu_ddp_rule(ddp, options);
    if (mu_ddp_plan_make(ddp, NULL, &ddp->plan, err) < 0 ||
        mu_ddp_params_agree(ddp, options, err) < 0 ||
        (ddp->comm->ddps > 0 &&
         mu_comm_mix(ddp->comm, "the second ddp object", err) < 0))
        return -1;
    /* Only a call that succeeds on all ranks counts. */
    ddp->id = (uint64_t)ddp->comm->ddps++;
    if (mu_ready_init(&ddp->ready, &ddp->plan, err) < 0)
        return -1;
    if (mu_ddp_buckets_make(ddp, err) < 0 ||
        (ddp->shard && mu_ddp_shard_open(ddp, err) < 0))
        return -1;
    if ((options->hook && mu_hook_choose(ddp, err) < 0) ||
        (ddp->screen && mu_ddp_screen_open(ddp, err) < 0))
        return -1;
    return options->fixed_order ? 0 : mu_ddp_order_begin(ddp, err);
}

/* Other ranks, or threads of libmuster, may be writing into the memory that is about to
 * be freed. After a failure the joins return, because comm has announced it to every
 * rank before the error reached this function.
 */
static void await_started(struct muster_ddp *ddp)
{
    struct mu_err err = { 0 };

    for (int b = 0; ddp->bucket && b < ddp->plan.nbuckets; b++) {
        struct mu_ddp_bucket *bucket = &ddp->bucket[b];

        for (int s = 0; s < bucket->nstarted; s++)
            mu_coll_join(ddp->comm, &bucket->started[s], bucket->what, bucket->stream,
                         &err);
        bucket->nstarted = 0;
    }
}

void mu_ddp_destroy(struct muster_ddp *ddp)
{
    if (!ddp)
        return;
    await_started(ddp);
    mu_ddp_gpu_drop(ddp);
    mu_recover_remove(ddp->recover, &ddp->resettable);
    if (ddp->hook)
        ddp->hook->close(ddp, ddp->hook_state);
    mu_ddp_buckets_free(ddp->bucket, ddp->plan.nbuckets);
    if (ddp->arena)
        ddp->comm->ops->free(ddp->comm->backend, ddp->arena);
    if (ddp->weights)
        ddp->comm->ops->free(ddp->comm->backend, ddp->weights);
    if (ddp->sums)
        ddp->comm->ops->free(ddp->comm->backend, ddp->sums);
    if (ddp->screen_marks)
        ddp->comm->ops->free(ddp->comm->backend, ddp->screen_marks);
    mu_ready_clear(&ddp->ready);
    mu_bucket_plan_clear(&ddp->plan);
    free(ddp->arrival);
    mu_ddp_params_clear(ddp);
    free(ddp->kept_name);
    free(ddp->used);
    free(ddp->declined);
    free(ddp->absent);
    free(ddp->missing_everywhere);
    free(ddp);
}

int mu_ddp_create(struct mu_comm *comm, struct mu_recover *recover,
                  const struct mu_ddp_request *wanted, struct muster *m,
                  const struct mu_err *last, struct muster_ddp **out,
                  struct mu_err *err)
{
    struct muster_ddp *ddp = calloc(1, sizeof *ddp);

    if (!ddp)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    ddp->comm = comm;
    ddp->recover = recover;
    ddp->m = m;
    ddp->last = last;
    ddp->grown = comm->grown;
    ddp->resettable = (struct mu_resettable){ .drop = mu_ddp_drop, .arg = ddp };
    if (make(ddp, wanted, err) < 0) {
        mu_ddp_destroy(ddp);
        return -1;
    }
    mu_recover_add(recover, &ddp->resettable);
    *out = ddp;
    return 0;
}

/* Start the broadcasts of all parameters before the first wait. */
static int broadcast_all(struct muster_ddp *ddp, int root, struct mu_started *request,
                         struct mu_err *err)
{
    struct mu_comm *comm = ddp->comm;
    struct mu_err more = { 0 };
    int started = 0, rc = 0;

    for (; started < ddp->nall; started++) {
        const struct mu_ddp_param *p = &ddp->param[started];
        struct mu_coll coll = { .kind = MU_COLL_BROADCAST,
                                .dtype = p->dtype,
                                .send = p->data,
                                .recv = p->data,
                                .count = p->count,
                                .root = root,
                                .scale = 1,
                                .what = p->name,
                                .owner = mu_ddp_owner(ddp, started) };

        if (mu_coll_start(comm, &coll, &request[started], err) < 0) {
            rc = -1;
            break;
        }
    }
    for (int i = 0; i < started; i++)
        if (mu_coll_join(comm, &request[i], ddp->param[i].name, NULL,
                         rc ? &more : err) < 0)
            rc = -1;
    return rc ? rc : comm->ops->drain(comm->backend, NULL, err);
}

int mu_ddp_broadcast(struct muster_ddp *ddp, int root, struct mu_err *err)
{
    struct mu_started *request = calloc((size_t)ddp->nall + 1, sizeof *request);
    int rc;

    if (!request)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    rc = broadcast_all(ddp, root, request, err);
    if (rc == 0 && ddp->shard)
        rc = mu_ddp_shard_load(ddp, err);
    free(request);
    return rc;
}
