/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_bucket.c - one bucket: fill it, start its all-reduce, take the result out */
#include "runtime/ddp/ddp.h"

#include <stdio.h>

#include "runtime/base/clock.h"
#include "runtime/core/dtype.h"

/* A bucket is hidden when at least this share of all gradients, about a layer, has
 * still to be computed. The last bucket does not count: it is mostly an embedding's,
 * slow to send and without time to compute.
 */
#define BETWEEN_SHARE 40
#define BETWEEN_LEAST ((size_t)16 << 20)

int mu_ddp_scale(struct muster_ddp *ddp, int i, double factor, void *stream,
                 struct mu_err *err)
{
    const struct mu_ddp_param *p = &ddp->param[i];
    struct mu_piece piece = { p->grad, 0, p->count };

    if (factor == 1 || p->count == 0)
        return 0;
    return ddp->comm->ops->pack(ddp->comm->backend, &piece, 1, p->dtype, p->grad,
                                p->dtype, factor, stream, err);
}

/* Copy the gradients in the caller's buffers into the bucket, weighted. A gradient that
 * this rank lacks counts as zero. One that no rank has is not touched.
 */
static int fill(struct muster_ddp *ddp, int b, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    int n = 0;

    if (ddp->screen && mu_ddp_screen(ddp, b, err) < 0)
        return -1;
    for (int k = 0; k < info->nparams; k++) {
        int i = bucket->param[k];
        const struct mu_ddp_param *p = &ddp->param[i];
        size_t offset = ddp->plan.place[i].offset;

        if (ddp->absent[i] || p->count == 0)
            continue;
        if (!ddp->used[i]) {
            if (ops->zero(ddp->comm->backend, bucket->mem + offset,
                          p->count * mu_dtype_size(p->dtype), bucket->stream, err) < 0)
                return -1;
            continue;
        }
        if (p->user_grad)
            bucket->piece[n++] = (struct mu_piece){ p->user_grad, offset, p->count };
        else if (mu_ddp_scale(ddp, i, ddp->factor, bucket->stream, err) < 0)
            return -1;
    }
    if (n == 0)
        return 0;
    return ops->pack(ddp->comm->backend, bucket->piece, n, info->dtype, bucket->mem,
                     info->dtype, ddp->factor, bucket->stream, err);
}

static bool is_hidden(const struct muster_ddp *ddp)
{
    size_t between = mu_ready_between(&ddp->ready);

    return between >= BETWEEN_LEAST && between >= ddp->arena_bytes / BETWEEN_SHARE;
}

static int start_run(struct muster_ddp *ddp, int b, size_t from, size_t to,
                     struct mu_err *err)
{
    const struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    enum muster_dtype dtype = ddp->plan.bucket[b].dtype;
    struct mu_coll coll = {
        .kind = MU_COLL_ALLREDUCE,
        .dtype = dtype,
        .op = MUSTER_SUM,
        .send = bucket->mem + from,
        .recv = bucket->mem + from,
        .count = (to - from) / mu_dtype_size(dtype),
        .scale = 1.0 / ddp->comm->world->size,
        .stream = bucket->stream,
        .hidden = is_hidden(ddp),
        .same_place = true,
        .batch_join = !bucket->has_user_grads && !ddp->squared,
    };

    return from < to ? mu_ddp_coll_start(ddp, b, &coll, to - from, err) : 0;
}

/* Each rank gets the mean of its part, in place. */
static int start_part(struct muster_ddp *ddp, int b, struct mu_err *err)
{
    const struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    const struct mu_world *w = ddp->comm->world;
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    size_t part = mu_ddp_part(ddp, b);
    struct mu_coll coll = {
        .kind = MU_COLL_REDUCE_SCATTER,
        .dtype = info->dtype,
        .op = MUSTER_SUM,
        .send = bucket->mem,
        .recv = bucket->mem + part * (size_t)w->rank * mu_dtype_size(info->dtype),
        .count = part,
        .scale = 1.0 / w->size,
        .stream = bucket->stream,
        .batch_join = !ddp->squared,
    };

    return part ? mu_ddp_coll_start(ddp, b, &coll, info->bytes, err) : 0;
}

int mu_ddp_bucket_start(struct muster_ddp *ddp, int b, struct mu_err *err)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    struct mu_owner owner = mu_ddp_owner(ddp, b);
    size_t from = 0;

    mu_ddp_ledger_launched(ddp, b);
    snprintf(bucket->what, sizeof bucket->what, "bucket %d of step %llu", b,
             (unsigned long long)ddp->step);
    mu_comm_order(ddp->comm, &owner);
    ddp->order = ddp->comm->order;
    if (fill(ddp, b, err) < 0)
        return mu_comm_fail(ddp->comm, err);
    if (bucket->hooked)
        return ddp->hook->start(ddp, ddp->hook_state, b, err);
    if (ddp->shard)
        return start_part(ddp, b, err);
    for (int k = 0; k < info->nparams; k++) {
        int i = bucket->param[k];
        size_t end = k + 1 < info->nparams
                         ? ddp->plan.place[bucket->param[k + 1]].offset
                         : info->bytes;

        if (!ddp->absent[i])
            continue;
        if (start_run(ddp, b, from, ddp->plan.place[i].offset, err) < 0)
            return -1;
        from = end;
    }
    return start_run(ddp, b, from, info->bytes, err);
}

static int join_all(struct muster_ddp *ddp, int b, void *stream, struct mu_err *err)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    struct mu_err more = { 0 };
    int64_t since = ddp->comm->ledger.buckets ? mu_clock_ns() : 0;
    int rc = 0;

    for (int s = 0; s < bucket->nstarted; s++)
        if (mu_coll_join(ddp->comm, &bucket->started[s], bucket->what, stream,
                         rc ? &more : err) < 0)
            rc = -1;
    if (since)
        mu_ddp_ledger_joined(ddp, b, since);
    bucket->nstarted = 0;
    return rc;
}

int mu_ddp_bucket_advance(struct muster_ddp *ddp, int b, void *stream,
                          struct mu_err *err)
{
    if (!ddp->bucket[b].hooked || !ddp->hook->advance)
        return 0;
    if (join_all(ddp, b, stream, err) < 0)
        return -1;
    /* Start the second round on the stream that waited for the first. */
    ddp->bucket[b].stream = stream;
    return ddp->hook->advance(ddp, ddp->hook_state, b, err);
}

int mu_ddp_bucket_finish(struct muster_ddp *ddp, int b, void *stream,
                         struct mu_err *err)
{
    struct mu_comm *comm = ddp->comm;
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];
    int n = 0, rc = join_all(ddp, b, stream, err);

    if (rc == 0 && bucket->hooked)
        rc = ddp->hook->finish(ddp, ddp->hook_state, b, stream, err);
    if (rc == 0 && ddp->nby_row > 0)
        rc = mu_ddp_rows_finish(ddp, b, err);
    bucket->has_stream = false;
    bucket->stream = NULL;
    if (rc < 0 || ddp->shard)
        return rc;
    for (int k = 0; k < info->nparams; k++) {
        int i = bucket->param[k];
        const struct mu_ddp_param *p = &ddp->param[i];

        if (p->user_grad && p->count > 0 && !ddp->absent[i])
            bucket->piece[n++] =
                (struct mu_piece){ p->user_grad, ddp->plan.place[i].offset, p->count };
    }
    if (n == 0)
        return 0;
    return comm->ops->unpack(comm->backend, bucket->piece, n, info->dtype, bucket->mem,
                             info->dtype, 1, stream, err);
}
