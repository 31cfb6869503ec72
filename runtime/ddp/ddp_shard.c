/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_shard.c - ZeRO-1: parts of buckets, weights in an arena of the same layout */
#include "runtime/ddp/ddp.h"

#include "runtime/core/dtype.h"

int mu_ddp_shard_open(struct muster_ddp *ddp, struct mu_err *err)
{
    size_t total = 0;

    for (int b = 0; b < ddp->plan.nbuckets; b++)
        total += ddp->plan.bucket[b].bytes;
    ddp->weights = ddp->comm->ops->alloc(ddp->comm->backend, total ? total : 1, err);
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

    return info->bytes / mu_dtype_size(info->dtype) / (size_t)ddp->comm->world->size;
}

/* List the parameters of bucket b whose data are not views, as pieces. */
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
    struct mu_comm *comm = ddp->comm;

    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        enum muster_dtype t = ddp->plan.bucket[b].dtype;
        int n = own_pieces(ddp, b);

        if (n > 0 && comm->ops->pack(comm->backend, ddp->bucket[b].piece, n, t,
                                     ddp->bucket[b].weights, t, 1, NULL, err) < 0)
            return -1;
    }
    return 0;
}

struct muster_shard mu_ddp_shard_part(const struct muster_ddp *ddp, int b)
{
    enum muster_dtype dtype = ddp->plan.bucket[b].dtype;
    size_t count = mu_ddp_part(ddp, b);
    size_t at = count * (size_t)ddp->comm->world->rank * mu_dtype_size(dtype);

    return (struct muster_shard){ .dtype = dtype,
                                  .count = count,
                                  .grad = ddp->bucket[b].mem + at,
                                  .data = ddp->bucket[b].weights + at };
}

static int gather_bucket(struct muster_ddp *ddp, int b, struct mu_err *err)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    struct mu_comm *comm = ddp->comm;
    struct muster_shard part = mu_ddp_shard_part(ddp, b);
    struct mu_coll coll = { .kind = MU_COLL_ALLGATHER,
                            .scale = 1,
                            .recv = bucket->weights,
                            .what = "the all-gather of parameters",
                            .owner = mu_ddp_owner(ddp, b) };

    coll.dtype = part.dtype;
    coll.send = part.data;
    coll.count = part.count;
    if (part.count == 0)
        return 0;
    bucket->nstarted = 1;
    return mu_coll_start(comm, &coll, &bucket->started[0], err);
}

int mu_ddp_shard_gather(struct muster_ddp *ddp, struct mu_err *err)
{
    struct mu_comm *comm = ddp->comm;

    for (int b = 0; b < ddp->plan.nbuckets; b++)
        if (gather_bucket(ddp, b, err) < 0)
            return -1;
    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        struct mu_ddp_bucket *bucket = &ddp->bucket[b];
        enum muster_dtype t = ddp->plan.bucket[b].dtype;
        int n;

        if (bucket->nstarted &&
            mu_coll_join(comm, &bucket->started[0], "the all-gather of parameters",
                         NULL, err) < 0)
            return -1;
        bucket->nstarted = 0;
        n = own_pieces(ddp, b);
        if (n > 0 && comm->ops->unpack(comm->backend, bucket->piece, n, t,
                                       bucket->weights, t, 1, NULL, err) < 0)
            return -1;
    }
    return 0;
}
