/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp_norm.c - the gradient norm, bucket by bucket
 *
 * The backend adds up the squares of a finished bucket while later ones are in flight.
 * The mean has the same bits on every rank, and each adds in the same order: so all
 * find the same norm and the same overflow, without a message. A NaN or Inf of one rank
 * is in every rank's sum. Only parts (ZeRO-1) are added up among the ranks, in rank
 * order.
 */
#include "runtime/ddp/ddp.h"

#include <string.h>

#include "runtime/core/dtype.h"

/* The next range of bucket b's memory, from parameter *k (by offset) on, with gradients
 * that some rank has: bytes *from .. *to - 1. Between two gradients there are zeros,
 * except with a hook of the user. False: there is no further range.
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

int mu_ddp_norm_add(struct muster_ddp *ddp, int b, void *stream, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    enum muster_dtype dtype = ddp->plan.bucket[b].dtype;
    size_t from, to;

    if (ddp->shard) {
        struct muster_shard part = mu_ddp_shard_part(ddp, b);

        return ops->squares(ddp->comm->backend, part.grad, part.count, dtype, ddp->sums,
                            stream, err);
    }
    for (int k = 0; next_run(ddp, b, ddp->absent, &k, &from, &to);)
        if (to > from && ops->squares(ddp->comm->backend, ddp->bucket[b].mem + from,
                                      (to - from) / mu_dtype_size(dtype), dtype,
                                      ddp->sums, stream, err) < 0)
            return -1;
    return 0;
}

/* Start at zero; the first step that needs the memory allocates it. */
int mu_ddp_norm_begin(struct muster_ddp *ddp, void *stream, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;

    if (!ddp->sums)
        ddp->sums = ops->alloc(ddp->comm->backend, MU_SQUARES * sizeof *ddp->sums, err);
    return ddp->sums ? ops->zero(ddp->comm->backend, ddp->sums,
                                 MU_SQUARES * sizeof *ddp->sums, stream, err)
                     : -1;
}

/* Waits for the stream on a GPU: the host decides whether to skip the step. */
static int read_sums(struct muster_ddp *ddp, void *stream, double *sum,
                     struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    double sums[MU_SQUARES];

    if (ops->copy(ddp->comm->backend, sums, ddp->sums, sizeof sums, stream, err) < 0 ||
        ops->drain(ddp->comm->backend, stream, err) < 0)
        return mu_comm_fail(ddp->comm, err);
    *sum = 0;
    for (int i = 0; i < MU_SQUARES; i++)
        *sum += sums[i];
    return 0;
}

static int add_parts(struct muster_ddp *ddp, double *sum, struct mu_err *err)
{
    struct mu_gathered all;
    double mine = *sum;

    if (mu_gather(ddp->comm, "the sum of the gradient norm", &mine, sizeof mine, &all,
                  err) < 0)
        return -1;
    *sum = 0;
    for (int r = 0; r < ddp->comm->world->size; r++) {
        memcpy(&mine, all.at[r], sizeof mine);
        *sum += mine;
    }
    mu_gathered_clear(&all);
    return 0;
}

int mu_ddp_norm_sum(struct muster_ddp *ddp, void *stream, double *sum,
                    struct mu_err *err)
{
    if (read_sums(ddp, stream, sum, err) < 0)
        return -1;
    return ddp->shard ? add_parts(ddp, sum, err) : 0;
}
