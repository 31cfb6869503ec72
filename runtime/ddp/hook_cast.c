/* SPDX-License-Identifier: BSD-3-Clause */
/* hook_cast.c - buckets sent as bf16 or fp16, on the host and on GPUs
 *
 * Each rank divides by the number of ranks before it casts: gradients whose mean fits
 * fp16 then overflow neither in the cast nor in the sum.
 */
#include "runtime/ddp/ddp.h"

#include <stdlib.h>

#include "runtime/core/dtype.h"

struct cast {
    enum muster_dtype to;
    char *arena;
    size_t *at; /* by bucket: offset in the arena, bytes */
};

static size_t elements(const struct muster_ddp *ddp, int b)
{
    return ddp->plan.bucket[b].bytes / mu_dtype_size(ddp->plan.bucket[b].dtype);
}

static void cast_close(struct muster_ddp *ddp, void *state)
{
    struct cast *c = state;

    if (c->arena)
        ddp->comm->ops->free(ddp->comm->backend, c->arena);
    free(c->at);
    free(c);
}

static int cast_open(struct muster_ddp *ddp, enum muster_dtype to, void **state,
                     struct mu_err *err)
{
    struct cast *c = calloc(1, sizeof *c);
    size_t total = 0;

    if (c)
        c->at = calloc((size_t)ddp->plan.nbuckets + 1, sizeof *c->at);
    if (!c || !c->at) {
        free(c);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
    }
    c->to = to;
    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        c->at[b] = total;
        total += (elements(ddp, b) * mu_dtype_size(to) + MU_BUCKET_ALIGN - 1) /
                 MU_BUCKET_ALIGN * MU_BUCKET_ALIGN;
    }
    c->arena = ddp->comm->ops->alloc(ddp->comm->backend, total ? total : 1, err);
    if (!c->arena) {
        cast_close(ddp, c);
        return -1;
    }
    *state = c;
    return 0;
}

static int open_bf16(struct muster_ddp *ddp, void **state, struct mu_err *err)
{
    return cast_open(ddp, MUSTER_BF16, state, err);
}

static int open_f16(struct muster_ddp *ddp, void **state, struct mu_err *err)
{
    return cast_open(ddp, MUSTER_F16, state, err);
}

/* List the gradients of the bucket that some rank has, with their places in its narrow
 * copy. The gaps hold zeros or an earlier step; they are never read.
 */
static int pieces_of(struct muster_ddp *ddp, const struct cast *c, int b)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    size_t wide = mu_dtype_size(ddp->plan.bucket[b].dtype);
    int n = 0;

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        size_t offset = ddp->plan.place[i].offset;

        if (!ddp->absent[i] && ddp->param[i].count > 0)
            bucket->piece[n++] =
                (struct mu_piece){ bucket->mem + offset,
                                   offset / wide * mu_dtype_size(c->to),
                                   ddp->param[i].count };
    }
    return n;
}

/* List the part of this rank; its padding is zero. */
static int own_part(struct muster_ddp *ddp, const struct cast *c, int b)
{
    size_t part = mu_ddp_part(ddp, b), at = part * (size_t)ddp->comm->world->rank;
    size_t wide = mu_dtype_size(ddp->plan.bucket[b].dtype);

    ddp->bucket[b].piece[0] = (struct mu_piece){ ddp->bucket[b].mem + at * wide,
                                                 at * mu_dtype_size(c->to), part };
    return 1;
}

static int cast_start(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct cast *c = state;
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    struct mu_comm *comm = ddp->comm;
    int n = pieces_of(ddp, c, b);

    if (comm->ops->pack(comm->backend, bucket->piece, n, ddp->plan.bucket[b].dtype,
                        c->arena + c->at[b], c->to, 1.0 / comm->world->size,
                        bucket->stream, err) < 0)
        return -1;
    if (ddp->shard)
        return mu_hook_scatter(ddp, b, c->to, c->arena + c->at[b], err);
    return mu_hook_reduce(ddp, b, c->to, MUSTER_SUM, c->arena + c->at[b],
                          elements(ddp, b), 1, err);
}

static int cast_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                       struct mu_err *err)
{
    struct cast *c = state;
    struct mu_comm *comm = ddp->comm;
    int n = ddp->shard ? own_part(ddp, c, b) : pieces_of(ddp, c, b);

    return comm->ops->unpack(comm->backend, ddp->bucket[b].piece, n,
                             ddp->plan.bucket[b].dtype, c->arena + c->at[b], c->to, 1,
                             stream, err);
}

const struct mu_hook_ops mu_hook_bf16 = {
    .name = "bf16",
    .open = open_bf16,
    .close = cast_close,
    .start = cast_start,
    .finish = cast_finish,
};
const struct mu_hook_ops mu_hook_f16 = {
    .name = "fp16",
    .open = open_f16,
    .close = cast_close,
    .start = cast_start,
    .finish = cast_finish,
};
