/* SPDX-License-Identifier: BSD-3-Clause */
/* hook_coll.c - the collectives that compressions start for a bucket */
#include "runtime/ddp/ddp.h"

#include "runtime/core/dtype.h"

/* `given`: the elements of this rank that enter the sum. */
static int start_coll(struct muster_ddp *ddp, int b, struct mu_coll *coll, size_t given,
                      struct mu_err *err)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];

    coll->stream = bucket->stream;
    coll->what = bucket->what;
    coll->owner = mu_ddp_owner(ddp, b);
    if (coll->count == 0)
        return 0;
    if (mu_coll_start(ddp->comm, coll, &bucket->started[bucket->nstarted], err) < 0)
        return -1;
    bucket->nstarted++;
    ddp->wire_bytes += given * mu_dtype_size(coll->dtype);
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
    };

    return start_coll(ddp, b, &coll, count, err);
}

int mu_hook_scatter(struct muster_ddp *ddp, int b, enum muster_dtype dtype, char *data,
                    struct mu_err *err)
{
    const struct mu_world *w = ddp->comm->world;
    size_t part = mu_ddp_part(ddp, b);
    struct mu_coll coll = {
        .kind = MU_COLL_REDUCE_SCATTER,
        .dtype = dtype,
        .op = MUSTER_SUM,
        .send = data,
        .recv = data + part * (size_t)w->rank * mu_dtype_size(dtype),
        .count = part,
        .scale = 1,
    };

    return start_coll(ddp, b, &coll, part * (size_t)w->size, err);
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
