/* SPDX-License-Identifier: BSD-3-Clause */
/* hook_int8.c - one byte per element; the bytes are summed
 *
 * Two all-reduces: first the largest magnitude of each block of 256, then integers in
 * steps that all ranks share, so that their sums fit a byte again. That is 1.016 bytes
 * per element in a world of any size.
 *
 * A separate scale on each rank would round less, but needs a gather: from 8 ranks on
 * that sends more bytes than f32.
 */
#include "runtime/ddp/ddp.h"

#include <stdlib.h>

#include "runtime/core/compress.h"

struct tensor {
    size_t peaks, words, rest; /* start in each region of the arena, in elements */
};

struct int8 {
    struct tensor *tensor;       /* by parameter */
    size_t *peaks, *words;       /* by bucket, then the total */
    struct mu_int8_tensor *list; /* the tensors of one bucket, for the backend */
    char *arena;                 /* regions: peaks, words, rounding errors */
    float *peak, *rest;
    int32_t *word;
    size_t left; /* elements of rest */
};

static void int8_close(struct muster_ddp *ddp, void *state)
{
    struct int8 *s = state;

    if (s->arena)
        ddp->comm->ops->free(ddp->comm->backend, s->arena);
    free(s->tensor);
    free(s->peaks);
    free(s->words);
    free(s->list);
    free(s);
}

/* Lay out parameters in the order of their buckets: a bucket is one run of each region.
 */
static void lay_out(struct muster_ddp *ddp, struct int8 *s)
{
    size_t peaks = 0, words = 0;

    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        s->peaks[b] = peaks;
        s->words[b] = words;
        for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
            int i = ddp->bucket[b].param[k];
            size_t count = ddp->param[i].count;

            s->tensor[i] = (struct tensor){ peaks, words, s->left };
            peaks += mu_int8_blocks(count);
            words += mu_int8_words(count);
            s->left += count;
        }
    }
    s->peaks[ddp->plan.nbuckets] = peaks;
    s->words[ddp->plan.nbuckets] = words;
}

static int int8_open(struct muster_ddp *ddp, void **state, struct mu_err *err)
{
    size_t n = (size_t)ddp->plan.nbuckets + 1;
    struct int8 *s;

    if (ddp->comm->world->size > MU_INT8_RANKS)
        return mu_err_set(
            err, MUSTER_EUSAGE,
            "int8 adds up at most %d ranks in a byte, this world has %d; use "
            "bf16",
            MU_INT8_RANKS, ddp->comm->world->size);
    s = calloc(1, sizeof *s);
    if (!s)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
    s->tensor = calloc((size_t)ddp->nparams + 1, sizeof *s->tensor);
    s->list = calloc((size_t)ddp->nparams + 1, sizeof *s->list);
    s->peaks = calloc(n, sizeof *s->peaks);
    s->words = calloc(n, sizeof *s->words);
    if (!s->tensor || !s->list || !s->peaks || !s->words) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
    } else {
        lay_out(ddp, s);
        s->arena = ddp->comm->ops->alloc(
            ddp->comm->backend, 4 * (s->peaks[n - 1] + s->words[n - 1] + s->left) + 1,
            err);
    }
    if (!s->arena) {
        int8_close(ddp, s);
        return -1;
    }
    s->peak = (float *)s->arena;
    s->word = (int32_t *)(s->peak + s->peaks[n - 1]);
    s->rest = (float *)(s->word + s->words[n - 1]);
    *state = s;
    return 0;
}

/* Run one stage in the backend, for the gradients of bucket b that some rank has. The
 * peaks of the others are undefined, and never read.
 */
static int run(struct muster_ddp *ddp, struct int8 *s, int b, enum mu_int8_stage stage,
               void *stream, struct mu_err *err)
{
    const struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    int n = 0;

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        const struct tensor *t = &s->tensor[i];

        if (!ddp->absent[i] && ddp->param[i].count > 0)
            s->list[n++] = (struct mu_int8_tensor){
                (float *)(bucket->mem + ddp->plan.place[i].offset), s->rest + t->rest,
                ddp->param[i].count, s->peak + t->peaks, s->word + t->words
            };
    }
    return n == 0 ? 0
                  : ddp->comm->ops->int8(ddp->comm->backend, stage, s->list, n,
                                         ddp->comm->world->size, stream, err);
}

static int int8_start(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct int8 *s = state;

    if (run(ddp, s, b, MU_INT8_PEAKS, ddp->bucket[b].stream, err) < 0)
        return -1;
    return mu_hook_reduce(ddp, b, MUSTER_F32, MUSTER_MAX, s->peak + s->peaks[b],
                          s->peaks[b + 1] - s->peaks[b], 1, err);
}

static int int8_advance(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct int8 *s = state;
    const struct mu_ddp_bucket *bucket = &ddp->bucket[b];

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        size_t bytes = mu_int8_words(ddp->param[i].count) * sizeof *s->word;

        if (ddp->absent[i] && bytes > 0 &&
            ddp->comm->ops->zero(ddp->comm->backend, s->word + s->tensor[i].words,
                                 bytes, bucket->stream, err) < 0)
            return -1;
    }
    if (run(ddp, s, b, MU_INT8_ENCODE, bucket->stream, err) < 0)
        return -1;
    return mu_hook_reduce(ddp, b, MUSTER_I32, MUSTER_SUM, s->word + s->words[b],
                          s->words[b + 1] - s->words[b], 1, err);
}

static int int8_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                       struct mu_err *err)
{
    return run(ddp, state, b, MU_INT8_DECODE, stream, err);
}

static int int8_keeps(const struct muster_ddp *ddp, void *state, int i,
                      struct muster_item *items)
{
    struct int8 *s = state;

    items[0] = mu_ddp_own_item(ddp, s->rest + s->tensor[i].rest, ddp->param[i].count);
    return 1;
}

static int int8_rescale(struct muster_ddp *ddp, void *state, double factor,
                        void *stream, struct mu_err *err)
{
    struct int8 *s = state;
    struct mu_piece all = { s->rest, 0, s->left };

    return s->left == 0
               ? 0
               : ddp->comm->ops->pack(ddp->comm->backend, &all, 1, MUSTER_F32, s->rest,
                                      MUSTER_F32, factor, stream, err);
}

const struct mu_hook_ops mu_hook_int8 = {
    .name = "int8",
    .f32 = true,
    .open = int8_open,
    .close = int8_close,
    .start = int8_start,
    .advance = int8_advance,
    .finish = int8_finish,
    .keeps = int8_keeps,
    .rescale = int8_rescale,
};
