/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_finish.c - after a step: loss scale and clipping */
#include "runtime/ddp/ddp.h"

#include <math.h>

#include "runtime/core/scaler.h"

/* Multiply by factor where the gradients are: the part of a shard, the views, or the
 * caller's buffers, from the bucket. Skip what was missing_everywhere in the last sync.
 */
static int scale_bucket(struct muster_ddp *ddp, int b, double factor, void *stream,
                        struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    int n = 0;

    for (int k = 0; k < info->nparams; k++) {
        int i = bucket->param[k];
        size_t offset = ddp->plan.place[i].offset;

        if (!ddp->missing_everywhere[i] && ddp->param[i].count > 0)
            bucket->piece[n++] =
                (struct mu_piece){ ddp->param[i].user_grad ? ddp->param[i].user_grad
                                                           : bucket->mem + offset,
                                   offset, ddp->param[i].count };
    }
    return ops->unpack(ddp->comm->backend, bucket->piece, n, info->dtype, bucket->mem,
                       info->dtype, factor, stream, err);
}

static int scale_part(struct muster_ddp *ddp, int b, double factor, void *stream,
                      struct mu_err *err)
{
    struct muster_shard part = mu_ddp_shard_part(ddp, b);
    struct mu_piece piece = { part.grad, 0, part.count };

    return ddp->comm->ops->pack(ddp->comm->backend, &piece, 1, part.dtype, part.grad,
                                part.dtype, factor, stream, err);
}

static int scale_all(struct muster_ddp *ddp, double factor, void *stream,
                     struct mu_err *err)
{
    for (int b = 0; factor != 1 && b < ddp->plan.nbuckets; b++)
        if ((ddp->shard ? scale_part(ddp, b, factor, stream, err)
                        : scale_bucket(ddp, b, factor, stream, err)) < 0)
            return -1;
    return 0;
}

/* One factor for loss scale and clipping, so that elements are rounded once. */
int mu_ddp_finish(struct muster_ddp *ddp, struct muster_finish *f, void *stream,
                  struct mu_err *err)
{
    double scale = f->scaler ? f->scaler->scale : 1, factor = 1 / scale, sum = 0;

    if (mu_ddp_norm_sum(ddp, stream, &sum, err) < 0)
        return -1;
    f->norm = sqrt(sum) * factor;
    f->skip = f->scaler && !isfinite(sum);
    if (f->scaler)
        mu_scaler_step(f->scaler, f->skip);
    if (f->scaler && ddp->hook && ddp->hook->rescale && f->scaler->scale != scale &&
        ddp->hook->rescale(ddp, ddp->hook_state, f->scaler->scale / scale, stream,
                           err) < 0)
        return -1;
    if (f->skip)
        return 0;
    if (f->max_norm > 0 && f->norm > f->max_norm && isfinite(f->norm))
        factor *= f->max_norm / f->norm;
    return scale_all(ddp, factor, stream, err);
}

int mu_ddp_finish_check(const struct muster_finish *f, const char *call,
                        struct mu_err *err)
{
    if (!f)
        return mu_err_set(err, MUSTER_EUSAGE, "%s: the struct muster_finish is NULL",
                          call);
    if (!(f->max_norm >= 0))
        return mu_err_set(err, MUSTER_EUSAGE, "%s: max_norm is %g, use 0 or more", call,
                          f->max_norm);
    if (f->scaler && !(f->scaler->scale > 0 && isfinite(f->scaler->scale)))
        return mu_err_set(err, MUSTER_EUSAGE,
                          "%s: the loss scale is %g, use a number above 0", call,
                          f->scaler->scale);
    return 0;
}

uint64_t mu_ddp_finish_hash(const struct muster_finish *f)
{
    double terms[3] = { f->max_norm, f->scaler ? f->scaler->scale : 0, 1 };

    return mu_hash(0, terms, sizeof terms);
}
