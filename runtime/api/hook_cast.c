/* SPDX-License-Identifier: BSD-3-Clause */
/* hook_cast.c - buckets as bf16 or fp16 on the wire, on the host and on GPUs
 *
 * Each rank divides by the number of ranks before it casts: a sum of fp16 gradients
 * that have a mean fits then, where a cast before the division overflows.
 */
#include "runtime/api/ddp.h"

#include <stdlib.h>

#include "runtime/core/dtype.h"

struct cast {
    enum muster_dtype to;
    char *arena;
    size_t *at; /* by bucket, bytes in the arena */
};

static size_t elements(const struct muster_ddp *ddp, int b)
{
    return ddp->plan.bucket[b].bytes / mu_dtype_size(ddp->plan.bucket[b].dtype);
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
    c->arena = ddp->m->ops->alloc(ddp->m->backend, total ? total : 1, err);
    if (!c->arena) {
        free(c->at);
        free(c);
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

static void cast_close(struct muster_ddp *ddp, void *state)
{
    struct cast *c = state;

    ddp->m->ops->free(ddp->m->backend, c->arena);
    free(c->at);
    free(c);
}

static int cast_start(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct cast *c = state;
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    struct muster *m = ddp->m;
    struct mu_piece piece = { bucket->mem, 0, elements(ddp, b) };
    struct mu_coll coll = {
        .kind = MU_COLL_ALLREDUCE,
        .dtype = c->to,
        .op = MUSTER_SUM,
        .send = c->arena + c->at[b],
        .recv = c->arena + c->at[b],
        .count = piece.count,
        .scale = 1,
        .stream = bucket->stream,
        .what = bucket->what,
    };

    if (m->ops->pack(m->backend, &piece, 1, ddp->plan.bucket[b].dtype,
                     c->arena + c->at[b], c->to, 1.0 / m->world->size, bucket->stream,
                     err) < 0 ||
        mu_coll_start(m, &coll, &bucket->started[0], err) < 0)
        return -1;
    bucket->nstarted = 1;
    ddp->wire_bytes += piece.count * mu_dtype_size(c->to);
    return 0;
}

static int cast_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                       struct mu_err *err)
{
    struct cast *c = state;
    struct muster *m = ddp->m;
    struct mu_piece piece = { ddp->bucket[b].mem, 0, elements(ddp, b) };

    return m->ops->unpack(m->backend, &piece, 1, ddp->plan.bucket[b].dtype,
                          c->arena + c->at[b], c->to, 1, stream, err);
}

const struct mu_hook_ops mu_hook_bf16 = {
    .name = "bf16",
    .open = open_bf16,
    .close = cast_close,
    .start = cast_start,
    .finish = cast_finish,
};
const struct mu_hook_ops mu_hook_f16 = {
    .name = "f16",
    .open = open_f16,
    .close = cast_close,
    .start = cast_start,
    .finish = cast_finish,
};
