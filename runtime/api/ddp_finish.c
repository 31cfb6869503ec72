/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_finish.c - loss scale, norm and clipping, in and behind sync
 *
 * The squares of a bucket are added up when it is there, while later ones are under
 * way. After the mean every rank has the same bits, so each finds the same norm and the
 * same overflow by itself: a NaN or Inf of one rank is in everybody's sum. Only parts
 * (ZeRO-1) have to be added up among the ranks, in rank order.
 */
#include "runtime/api/ddp.h"

#include <math.h>
#include <string.h>

#include "runtime/core/dtype.h"
#include "runtime/core/numeric.h"
#include "runtime/core/scaler.h"

double mu_ddp_squares(const struct muster_ddp *ddp, int b)
{
    struct muster_shard part;
    double sum = 0;

    if (ddp->shard) {
        muster_ddp_shard(ddp, b, &part);
        return mu_sum_squares(part.grad, part.dtype, part.count);
    }
    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = ddp->bucket[b].param[k];

        if (!ddp->absent[i])
            sum += mu_sum_squares(ddp->param[i].grad, ddp->param[i].dtype,
                                  ddp->param[i].count);
    }
    return sum;
}

static int add_parts(struct muster_ddp *ddp, double *sum, struct mu_err *err)
{
    struct mu_gathered all;
    double mine = *sum;

    if (mu_gather(ddp->m, "the gradient norm", &mine, sizeof mine, &all, err) < 0)
        return -1;
    *sum = 0;
    for (int r = 0; r < ddp->m->world->size; r++) {
        memcpy(&mine, all.at[r], sizeof mine);
        *sum += mine;
    }
    mu_gathered_clear(&all);
    return 0;
}

static int scale_all(struct muster_ddp *ddp, const bool *absent, double factor,
                     struct mu_err *err)
{
    struct muster_shard part;

    for (int i = 0; !ddp->shard && i < ddp->nparams; i++)
        if (!absent[i] && mu_ddp_scale(ddp, i, factor, NULL, err) < 0)
            return -1;
    for (int b = 0; ddp->shard && factor != 1 && b < ddp->plan.nbuckets; b++) {
        struct mu_piece piece;

        muster_ddp_shard(ddp, b, &part);
        piece = (struct mu_piece){ part.grad, 0, part.count };
        if (ddp->m->ops->pack(ddp->m->backend, &piece, 1, part.dtype, part.grad,
                              part.dtype, factor, NULL, err) < 0)
            return -1;
    }
    return 0;
}

/* One factor for both, so that elements are rounded once. */
static int finish(struct muster_ddp *ddp, const bool *absent, double sum,
                  struct muster_finish *f, struct mu_err *err)
{
    double scale = f->scaler ? f->scaler->scale : 1, factor = 1 / scale;

    if (ddp->shard && add_parts(ddp, &sum, err) < 0)
        return -1;
    f->norm = sqrt(sum) * factor;
    f->skip = f->scaler && !isfinite(sum);
    if (f->scaler)
        mu_scaler_step(f->scaler, f->skip);
    if (f->scaler && ddp->hook && ddp->hook->rescale && f->scaler->scale != scale)
        ddp->hook->rescale(ddp, ddp->hook_state, f->scaler->scale / scale);
    if (f->skip)
        return 0;
    if (f->max_norm > 0 && f->norm > f->max_norm && isfinite(f->norm))
        factor *= f->max_norm / f->norm;
    return scale_all(ddp, absent, factor, err);
}

int muster_ddp_sync_with(struct muster_ddp *ddp, struct muster_finish *f, void *stream)
{
    struct mu_err err = { 0 };
    size_t n = (size_t)ddp->nparams;
    double sum = 0;
    bool *absent;
    int rc;

    if (ddp->accumulating || f->max_norm < 0 || (f->scaler && !(f->scaler->scale > 0)))
        return mu_fail(
            ddp->m, MUSTER_EUSAGE,
            "muster_ddp_sync_with: no_sync is on, max_norm is below 0 or the loss "
            "scale is not above 0");
    if (mu_ddp_need_host(ddp, "muster_ddp_sync_with", &err) < 0)
        return mu_fail_err(ddp->m, &err);
    absent = ddp->absent; /* sync forgets it: keep this step's */
    ddp->absent_kept = true;
    ddp->squares = &sum;
    rc = mu_ddp_sync(ddp, stream, &err);
    ddp->squares = NULL;
    if (rc == 0)
        rc = finish(ddp, absent, sum, f, &err);
    ddp->absent_kept = false;
    memset(ddp->absent, 0, n * sizeof *ddp->absent);
    return rc < 0 ? mu_fail_err(ddp->m, &err) : MUSTER_OK;
}
