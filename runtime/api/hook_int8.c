/* SPDX-License-Identifier: BSD-3-Clause */
/* hook_int8.c - a byte per element, gathered from all ranks and added up by each
 *
 * Bytes with different scales cannot be added on the way, so every rank gets all: 1.016
 * bytes per element and rank, which beats a ring of f32 up to 7 ranks. What rounding
 * took from a gradient is added to the next one.
 */
#include "runtime/api/ddp.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/core/quant.h"

struct int8 {
    char *arena; /* per bucket: mine, then room for all ranks' */
    size_t *at;  /* by bucket */
    float *residual;
    size_t *start; /* by bucket: its first element in residual */
};

static size_t elements(const struct muster_ddp *ddp, int b)
{
    return ddp->plan.bucket[b].bytes / sizeof(float);
}

static size_t bytes_of(const struct muster_ddp *ddp, int b)
{
    return mu_quant_blocks(elements(ddp, b)) * sizeof(struct mu_quant_block);
}

static void int8_close(struct muster_ddp *ddp, void *state)
{
    struct int8 *s = state;

    if (s->arena)
        ddp->m->ops->free(ddp->m->backend, s->arena);
    free(s->residual);
    free(s->start);
    free(s->at);
    free(s);
}

static int int8_open(struct muster_ddp *ddp, void **state, struct mu_err *err)
{
    size_t n = (size_t)ddp->plan.nbuckets + 1, total = 0, all = 0;
    struct int8 *s = calloc(1, sizeof *s);

    if (!s)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
    s->at = calloc(n, sizeof *s->at);
    s->start = calloc(n, sizeof *s->start);
    for (int b = 0; s->at && s->start && b < ddp->plan.nbuckets; b++) {
        s->at[b] = total;
        s->start[b] = all;
        total += bytes_of(ddp, b) * (size_t)(ddp->m->world->size + 1);
        all += elements(ddp, b);
    }
    s->residual = calloc(all + 1, sizeof *s->residual);
    if (!s->at || !s->start || !s->residual)
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
    else
        s->arena = ddp->m->ops->alloc(ddp->m->backend, total + 1, err);
    if (!s->arena) {
        int8_close(ddp, s);
        return -1;
    }
    *state = s;
    return 0;
}

static int int8_start(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct int8 *s = state;
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    size_t len = bytes_of(ddp, b);
    struct mu_coll coll = {
        .kind = MU_COLL_ALLGATHER,
        .dtype = MUSTER_I32, /* a block is 65 words; nothing is computed with them */
        .send = s->arena + s->at[b],
        .recv = s->arena + s->at[b] + len,
        .count = len / sizeof(int32_t),
        .scale = 1,
        .what = bucket->what,
    };

    mu_quant_encode((const float *)bucket->mem, s->residual + s->start[b],
                    elements(ddp, b), (struct mu_quant_block *)(s->arena + s->at[b]));
    if (mu_coll_start(ddp->m, &coll, &bucket->started[0], err) < 0)
        return -1;
    bucket->nstarted = 1;
    ddp->wire_bytes += len;
    return 0;
}

static int int8_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                       struct mu_err *err)
{
    struct int8 *s = state;
    int size = ddp->m->world->size;
    size_t len = bytes_of(ddp, b), n = elements(ddp, b);
    float *out = (float *)ddp->bucket[b].mem;

    memset(out, 0, n * sizeof *out);
    for (int r = 0; r < size; r++) /* in rank order: the same bits everywhere */
        mu_quant_add((const struct mu_quant_block *)(s->arena + s->at[b] +
                                                     len * (size_t)(r + 1)),
                     1.0f / (float)size, out, n);
    return 0;
}

const struct mu_hook_ops mu_hook_int8 = {
    .name = "int8",
    .host_f32 = true,
    .open = int8_open,
    .close = int8_close,
    .start = int8_start,
    .finish = int8_finish,
};
