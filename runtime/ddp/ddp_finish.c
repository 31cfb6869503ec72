/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_finish.c - loss scale, norm and clipping, in and behind sync
 *
 * The squares of a bucket are added up when it is there, while later ones are under
 * way, by the backend where the gradients are. After the mean every rank has the same
 * bits, and adds them up in the same order, so each finds the same norm and the same
 * overflow by itself: a NaN or Inf of one rank is in everybody's sum. Only parts
 * (ZeRO-1) have to be added up among the ranks, in rank order.
 */
#include "runtime/ddp/ddp.h"

#include <math.h>
#include <string.h>

#include "runtime/core/dtype.h"
#include "runtime/core/scaler.h"

/* The next stretch of bucket b's memory from parameter *k (by offset) on with gradients
 * that some rank has: bytes *from .. *to - 1. What lies between two of them is zero,
 * but for a hook of the user's. False: there is none.
 */
static bool next_run(const struct muster_ddp *ddp, int b, const bool *absent, int *k,
                     size_t *from, size_t *to)
{
    const struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    size_t size = mu_dtype_size(info->dtype);

    while (*k < info->nparams && absent[bucket->param[*k]])
        ++*k;
    if (*k == info->nparams)
        return false;
    *from = ddp->plan.place[bucket->param[*k]].offset;
    do {
        int i = bucket->param[(*k)++];

        *to = ddp->plan.place[i].offset + ddp->param[i].count * size;
    } while (*k < info->nparams && !absent[bucket->param[*k]] &&
             ddp->hook != &mu_hook_user);
    return true;
}

int mu_ddp_squares(struct muster_ddp *ddp, int b, void *stream, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->m->ops;
    enum muster_dtype dtype = ddp->plan.bucket[b].dtype;
    struct muster_shard part;
    size_t from, to;

    if (ddp->shard) {
        muster_ddp_shard(ddp, b, &part);
        return ops->squares(ddp->m->backend, part.grad, part.count, dtype, ddp->sums,
                            stream, err);
    }
    for (int k = 0; next_run(ddp, b, ddp->absent, &k, &from, &to);)
        if (to > from && ops->squares(ddp->m->backend, ddp->bucket[b].mem + from,
                                      (to - from) / mu_dtype_size(dtype), dtype,
                                      ddp->sums, stream, err) < 0)
            return -1;
    return 0;
}

/* Nothing is added up yet; the memory for it is made in the first step that needs it.
 */
static int clear_sums(struct muster_ddp *ddp, void *stream, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->m->ops;

    if (!ddp->sums)
        ddp->sums = ops->alloc(ddp->m->backend, MU_SQUARES * sizeof *ddp->sums, err);
    return ddp->sums ? ops->zero(ddp->m->backend, ddp->sums,
                                 MU_SQUARES * sizeof *ddp->sums, stream, err)
                     : -1;
}

/* Waits for the stream on a GPU: the host must know whether to skip. */
static int read_sums(struct muster_ddp *ddp, void *stream, double *sum,
                     struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->m->ops;
    double sums[MU_SQUARES];

    if (ops->copy(ddp->m->backend, sums, ddp->sums, sizeof sums, stream, err) < 0 ||
        ops->drain(ddp->m->backend, stream, err) < 0)
        return mu_failure_settle(ddp->m, err);
    *sum = 0;
    for (int i = 0; i < MU_SQUARES; i++)
        *sum += sums[i];
    return 0;
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

/* Times factor where the gradients are: the part of a shard, the runs of views, and,
 * from the bucket once more, buffers of the caller.
 */
static int scale_bucket(struct muster_ddp *ddp, int b, const bool *absent,
                        double factor, void *stream, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->m->ops;
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    int n = 0;

    for (int k = 0; k < info->nparams; k++) {
        int i = bucket->param[k];
        size_t offset = ddp->plan.place[i].offset;

        if (!absent[i] && ddp->param[i].count > 0)
            bucket->piece[n++] =
                (struct mu_piece){ ddp->param[i].own ? ddp->param[i].own
                                                     : bucket->mem + offset,
                                   offset, ddp->param[i].count };
    }
    return ops->unpack(ddp->m->backend, bucket->piece, n, info->dtype, bucket->mem,
                       info->dtype, factor, stream, err);
}

static int scale_part(struct muster_ddp *ddp, int b, double factor, void *stream,
                      struct mu_err *err)
{
    struct muster_shard part;
    struct mu_piece piece;

    muster_ddp_shard(ddp, b, &part);
    piece = (struct mu_piece){ part.grad, 0, part.count };
    return ddp->m->ops->pack(ddp->m->backend, &piece, 1, part.dtype, part.grad,
                             part.dtype, factor, stream, err);
}

static int scale_all(struct muster_ddp *ddp, const bool *absent, double factor,
                     void *stream, struct mu_err *err)
{
    for (int b = 0; factor != 1 && b < ddp->plan.nbuckets; b++)
        if ((ddp->shard ? scale_part(ddp, b, factor, stream, err)
                        : scale_bucket(ddp, b, absent, factor, stream, err)) < 0)
            return -1;
    return 0;
}

/* One factor for both, so that elements are rounded once. */
static int finish(struct muster_ddp *ddp, const bool *absent, struct muster_finish *f,
                  void *stream, struct mu_err *err)
{
    double scale = f->scaler ? f->scaler->scale : 1, factor = 1 / scale, sum = 0;

    if (read_sums(ddp, stream, &sum, err) < 0)
        return -1;
    if (ddp->shard && add_parts(ddp, &sum, err) < 0)
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
    return scale_all(ddp, absent, factor, stream, err);
}

int mu_ddp_finish_check(const struct muster_finish *f, const char *call,
                        struct mu_err *err)
{
    if (!f)
        return mu_err_set(err, MUSTER_EUSAGE, "%s: no struct muster_finish was given",
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

/* Ranks that finish otherwise end up with other gradients, so it is compared with what
 * is reduced.
 */
static uint64_t hash_of(const struct muster_finish *f)
{
    double say[3] = { f->max_norm, f->scaler ? f->scaler->scale : 0, 1 };

    return mu_hash(0, say, sizeof say);
}

int mu_ddp_sync_with(struct muster_ddp *ddp, struct muster_finish *f, void *stream,
                     struct mu_err *err)
{
    size_t n = (size_t)ddp->nparams;
    bool *absent;
    int rc;

    if (clear_sums(ddp, stream, err) < 0)
        return -1;
    absent = ddp->absent; /* sync forgets it: keep this step's */
    ddp->absent_kept = true;
    ddp->measuring = true;
    ddp->finishing = hash_of(f);
    rc = mu_ddp_sync(ddp, stream, err);
    ddp->finishing = 0;
    ddp->measuring = false;
    if (rc == 0)
        rc = finish(ddp, absent, f, stream, err);
    if (rc == 0)
        rc = mu_ddp_order_adopt(ddp, stream, err);
    ddp->absent_kept = false;
    memset(ddp->absent, 0, n * sizeof *ddp->absent);
    return rc;
}

int muster_ddp_sync_with(struct muster_ddp *ddp, struct muster_finish *f, void *stream)
{
    struct mu_err err = { 0 };

    if (ddp->accumulating)
        return mu_fail(ddp->m, MUSTER_EUSAGE,
                       "muster_ddp_sync_with while no_sync is on: switch it off before "
                       "the last micro-batch");
    if (mu_ddp_finish_check(f, "muster_ddp_sync_with", &err) < 0 ||
        mu_ddp_sync_with(ddp, f, stream, &err) < 0)
        return mu_fail_err(ddp->m, &err);
    return MUSTER_OK;
}
