/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_shard.c - ZeRO-1: parts of buckets, weights in an arena of the same layout */
#include "runtime/ddp/ddp.h"

#include "runtime/core/dtype.h"

int mu_ddp_shard_open(struct muster_ddp *ddp, struct mu_err *err)
{
    size_t total = 0;

    for (int b = 0; b < ddp->plan.nbuckets; b++)
        total += ddp->plan.bucket[b].bytes;
    ddp->weights = ddp->m->ops->alloc(ddp->m->backend, total ? total : 1, err);
    if (!ddp->weights)
        return -1;
    total = 0;
    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        ddp->bucket[b].weights = ddp->weights + total;
        total += ddp->plan.bucket[b].bytes;
    }
    for (int i = 0; i < ddp->nparams; i++) {
        const struct mu_bucket_place *at = &ddp->plan.place[i];

        if (ddp->param[i].data)
            continue;
        ddp->param[i].data = ddp->bucket[at->bucket].weights + at->offset;
        ddp->param[i].data_is_view = true;
    }
    return mu_ddp_shard_load(ddp, err);
}

size_t mu_ddp_part(const struct muster_ddp *ddp, int b)
{
    const struct mu_bucket_info *info = &ddp->plan.bucket[b];

    return info->bytes / mu_dtype_size(info->dtype) / (size_t)ddp->m->world->size;
}

/* The parameters of bucket b that have data of their own, as pieces. */
static int own_pieces(struct muster_ddp *ddp, int b)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    int n = 0;

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        const struct mu_ddp_param *p = &ddp->param[i];

        if (!p->data_is_view && p->count > 0)
            bucket->piece[n++] =
                (struct mu_piece){ p->data, ddp->plan.place[i].offset, p->count };
    }
    return n;
}

int mu_ddp_shard_load(struct muster_ddp *ddp, struct mu_err *err)
{
    struct muster *m = ddp->m;

    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        enum muster_dtype t = ddp->plan.bucket[b].dtype;
        int n = own_pieces(ddp, b);

        if (n > 0 && m->ops->pack(m->backend, ddp->bucket[b].piece, n, t,
                                  ddp->bucket[b].weights, t, 1, NULL, err) < 0)
            return -1;
    }
    return 0;
}

int muster_ddp_shard(const struct muster_ddp *ddp, int k, struct muster_shard *out)
{
    size_t at;

    if (!ddp->shard || k < 0 || k >= ddp->plan.nbuckets)
        return mu_fail(ddp->m, MUSTER_EUSAGE, "muster_ddp_shard: there is no part %d%s",
                       k, ddp->shard ? "" : ": options.shard was not set");
    out->dtype = ddp->plan.bucket[k].dtype;
    out->count = mu_ddp_part(ddp, k);
    at = out->count * (size_t)ddp->m->world->rank * mu_dtype_size(out->dtype);
    out->grad = ddp->bucket[k].mem + at;
    out->data = ddp->bucket[k].weights + at;
    return MUSTER_OK;
}

static int gather_bucket(struct muster_ddp *ddp, int b, struct mu_err *err)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    struct muster *m = ddp->m;
    struct muster_shard part;
    struct mu_coll coll = { .kind = MU_COLL_ALLGATHER,
                            .scale = 1,
                            .recv = bucket->weights,
                            .what = "the all-gather of parameters",
                            .owner = mu_ddp_owner(ddp, b) };

    muster_ddp_shard(ddp, b, &part);
    coll.dtype = part.dtype;
    coll.send = part.data;
    coll.count = part.count;
    if (part.count == 0)
        return 0;
    bucket->nstarted = 1;
    return mu_coll_start(m, &coll, &bucket->started[0], err);
}

int muster_ddp_gather(struct muster_ddp *ddp)
{
    struct muster *m = ddp->m;
    struct mu_err err = { 0 };

    if (!ddp->shard)
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_ddp_gather: options.shard was not set");
    for (int b = 0; b < ddp->plan.nbuckets; b++)
        if (gather_bucket(ddp, b, &err) < 0)
            return mu_fail_err(m, &err);
    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        struct mu_ddp_bucket *bucket = &ddp->bucket[b];
        enum muster_dtype t = ddp->plan.bucket[b].dtype;
        int n;

        if (bucket->nstarted &&
            mu_coll_join(m, &bucket->started[0], "the all-gather of parameters", NULL,
                         &err) < 0)
            return mu_fail_err(m, &err);
        bucket->nstarted = 0;
        n = own_pieces(ddp, b);
        if (n > 0 && m->ops->unpack(m->backend, bucket->piece, n, t, bucket->weights, t,
                                    1, NULL, &err) < 0)
            return mu_fail_err(m, &err);
    }
    return MUSTER_OK;
}
