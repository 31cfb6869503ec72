/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_coll.c - the collectives that a bucket and its compression start */
#include "runtime/ddp/ddp.h"

#include "runtime/core/dtype.h"

int mu_ddp_coll_start(struct muster_ddp *ddp, int b, struct mu_coll *coll, size_t bytes,
                      struct mu_err *err)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];

    coll->what = bucket->what;
    coll->owner = mu_ddp_owner(ddp, b);
    coll->timed = true;
    if (mu_coll_start(ddp->comm, coll, &bucket->started[bucket->nstarted], err) < 0)
        return -1;
    bucket->nstarted++;
    ddp->wire_bytes += bytes;
    return 0;
}

int mu_hook_reduce(struct muster_ddp *ddp, int b, enum muster_dtype dtype,
                   enum muster_op op, void *data, size_t count, double scale,
                   struct mu_err *err)
{
    struct mu_coll coll = {
        .kind = MU_COLL_ALLREDUCE,
        .dtype = dtype,
        .op = op,
        .send = data,
        .recv = data,
        .count = count,
        .scale = scale,
        .stream = ddp->bucket[b].stream,
    };

    return count ? mu_ddp_coll_start(ddp, b, &coll, count * mu_dtype_size(dtype), err)
                 : 0;
}

int mu_hook_scatter(struct muster_ddp *ddp, int b, enum muster_dtype dtype, char *data,
                    struct mu_err *err)
{
    const struct mu_world *w = ddp->comm->world;
    size_t part = mu_ddp_part(ddp, b), bytes = part * mu_dtype_size(dtype);
    struct mu_coll coll = {
        .kind = MU_COLL_REDUCE_SCATTER,
        .dtype = dtype,
        .op = MUSTER_SUM,
        .send = data,
        .recv = data + bytes * (size_t)w->rank,
        .count = part,
        .scale = 1,
        .stream = ddp->bucket[b].stream,
    };

    return part ? mu_ddp_coll_start(ddp, b, &coll, bytes * (size_t)w->size, err) : 0;
}

int mu_ddp_need_host(const struct muster_ddp *ddp, const char *what, struct mu_err *err)
{
    if (ddp->comm->ops->host_memory)
        return 0;
    return mu_err_set(
        err, MUSTER_EUSAGE,
        "%s needs gradients in host memory; the backend %s has them on GPUs", what,
        ddp->comm->ops->name);
}
