/* SPDX-License-Identifier: BSD-3-Clause */
/* hook_int8.c - a byte per element, summed as it is
 *
 * Two all-reduces: the largest magnitude of each block of 256, then integers in steps
 * that all ranks share, so that their sums fit a byte again. That is 1.016 bytes per
 * element in a world of any size. Each rank sending bytes with a scale of its own would
 * round less, but only a gather brings those to everybody: more bytes than f32 from 8
 * ranks on.
 */
#include "runtime/api/ddp.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/core/compress.h"

struct tensor {
    size_t peaks, words; /* where they start in the arenas, elements */
    float *rest;
};

struct int8 {
    struct tensor *tensor; /* by parameter */
    size_t *peaks, *words; /* by bucket, and the total */
    char *arena;           /* peaks, then words */
    float *peak;
    int32_t *word;
};

static void int8_close(struct muster_ddp *ddp, void *state)
{
    struct int8 *s = state;

    for (int i = 0; s->tensor && i < ddp->nparams; i++)
        free(s->tensor[i].rest);
    if (s->arena)
        ddp->m->ops->free(ddp->m->backend, s->arena);
    free(s->tensor);
    free(s->peaks);
    free(s->words);
    free(s);
}

/* Parameters in the order of their buckets, so that a bucket is one run of each arena.
 */
static int lay_out(struct muster_ddp *ddp, struct int8 *s, struct mu_err *err)
{
    size_t peaks = 0, words = 0;

    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        s->peaks[b] = peaks;
        s->words[b] = words;
        for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
            int i = ddp->bucket[b].param[k];
            size_t count = ddp->param[i].count;
            struct tensor *t = &s->tensor[i];

            *t = (struct tensor){ peaks, words, calloc(count + 1, sizeof *t->rest) };
            if (!t->rest)
                return mu_err_set(err, MUSTER_EMEMORY,
                                  "out of memory for the error feedback of '%s'",
                                  ddp->param[i].name);
            peaks += mu_int8_blocks(count);
            words += mu_int8_words(count);
        }
    }
    s->peaks[ddp->plan.nbuckets] = peaks;
    s->words[ddp->plan.nbuckets] = words;
    return 0;
}

static int int8_open(struct muster_ddp *ddp, void **state, struct mu_err *err)
{
    size_t n = (size_t)ddp->plan.nbuckets + 1;
    struct int8 *s;

    if (ddp->m->world->size > MU_INT8_RANKS)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "int8 adds up at most %d ranks in a byte, not %d; use bf16",
                          MU_INT8_RANKS, ddp->m->world->size);
    s = calloc(1, sizeof *s);
    if (!s)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
    s->tensor = calloc((size_t)ddp->nparams + 1, sizeof *s->tensor);
    s->peaks = calloc(n, sizeof *s->peaks);
    s->words = calloc(n, sizeof *s->words);
    if (!s->tensor || !s->peaks || !s->words)
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
    else if (lay_out(ddp, s, err) == 0)
        s->arena = ddp->m->ops->alloc(ddp->m->backend,
                                      4 * (s->peaks[n - 1] + s->words[n - 1]) + 1, err);
    if (!s->arena) {
        int8_close(ddp, s);
        return -1;
    }
    s->peak = (float *)s->arena;
    s->word = (int32_t *)(s->peak + s->peaks[n - 1]);
    *state = s;
    return 0;
}

static int int8_start(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct int8 *s = state;
    const struct mu_ddp_bucket *bucket = &ddp->bucket[b];

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        const struct tensor *t = &s->tensor[i];

        /* Of one that no rank has, whatever is there: nobody looks at it. */
        if (!ddp->absent[i])
            mu_int8_peaks((const float *)(bucket->mem + ddp->plan.place[i].offset),
                          t->rest, ddp->param[i].count, s->peak + t->peaks);
    }
    return mu_hook_reduce(ddp, b, MUSTER_F32, MUSTER_MAX, s->peak + s->peaks[b],
                          s->peaks[b + 1] - s->peaks[b], 1, err);
}

static int int8_advance(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct int8 *s = state;
    const struct mu_ddp_bucket *bucket = &ddp->bucket[b];

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        const struct tensor *t = &s->tensor[i];
        size_t count = ddp->param[i].count;

        if (ddp->absent[i])
            memset(s->word + t->words, 0, mu_int8_words(count) * sizeof *s->word);
        else
            mu_int8_encode((const float *)(bucket->mem + ddp->plan.place[i].offset),
                           t->rest, count, s->peak + t->peaks, ddp->m->world->size,
                           s->word + t->words);
    }
    return mu_hook_reduce(ddp, b, MUSTER_I32, MUSTER_SUM, s->word + s->words[b],
                          s->words[b + 1] - s->words[b], 1, err);
}

static int int8_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                       struct mu_err *err)
{
    struct int8 *s = state;
    const struct mu_ddp_bucket *bucket = &ddp->bucket[b];

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        const struct tensor *t = &s->tensor[i];

        if (!ddp->absent[i])
            mu_int8_decode(s->word + t->words, ddp->param[i].count, s->peak + t->peaks,
                           ddp->m->world->size,
                           (float *)(bucket->mem + ddp->plan.place[i].offset));
    }
    return 0;
}

static int int8_keeps(const struct muster_ddp *ddp, void *state, int i,
                      struct muster_item *items)
{
    struct int8 *s = state;

    items[0] = mu_ddp_own_item(ddp, s->tensor[i].rest, ddp->param[i].count);
    return 1;
}

static void int8_rescale(struct muster_ddp *ddp, void *state, double factor)
{
    struct int8 *s = state;

    for (int i = 0; i < ddp->nparams; i++)
        for (size_t k = 0; k < ddp->param[i].count; k++)
            s->tensor[i].rest[k] *= (float)factor;
}

const struct mu_hook_ops mu_hook_int8 = {
    .name = "int8",
    .host_f32 = true,
    .open = int8_open,
    .close = int8_close,
    .start = int8_start,
    .advance = int8_advance,
    .finish = int8_finish,
    .keeps = int8_keeps,
    .rescale = int8_rescale,
};
