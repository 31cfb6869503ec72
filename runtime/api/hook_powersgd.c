/* SPDX-License-Identifier: BSD-3-Clause */
/* hook_powersgd.c - gradients of matrices as two thin ones
 *
 * For each matrix M, plus what was left of it before: P = M Q is averaged and made
 * orthonormal, then Q = M^T P is averaged; P Q^T is the mean's projection on the space
 * that P spans, and what M has outside of it is left for the next step. Q is kept, so
 * that the steps together do a power iteration. Vectors, and matrices that would not
 * shrink by half, go as they are, together with the P's.
 */
#include "runtime/api/ddp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/compress.h"
#include "runtime/core/numeric.h"

#define DEFAULT_RANK 4

struct matrix {
    struct mu_lowrank shape; /* rank 0: it goes as it is */
    size_t p, q;             /* where they start in the bucket's, floats */
    float *rest;
    bool spoilt; /* NaN or Inf came in this step */
};

struct work {
    float *p, *q; /* of all parameters of the bucket; p also has the plain ones */
    size_t np, nq;
};

struct power {
    struct matrix *matrix; /* by parameter */
    struct work *work;     /* by bucket */
};

static float *gradient(const struct muster_ddp *ddp, int b, int i)
{
    return (float *)(ddp->bucket[b].mem + ddp->plan.place[i].offset);
}

static void restart(const struct matrix *x, const struct work *w, int i)
{
    mu_lowrank_start(&x->shape, (uint64_t)i, w->q + x->q);
}

static void power_close(struct muster_ddp *ddp, void *state)
{
    struct power *s = state;

    for (int i = 0; s->matrix && i < ddp->nparams; i++)
        free(s->matrix[i].rest);
    for (int b = 0; s->work && b < ddp->plan.nbuckets; b++) {
        if (s->work[b].p)
            ddp->m->ops->free(ddp->m->backend, s->work[b].p);
        if (s->work[b].q)
            ddp->m->ops->free(ddp->m->backend, s->work[b].q);
    }
    free(s->matrix);
    free(s->work);
    free(s);
}

static int lay_out(struct muster_ddp *ddp, struct power *s, int i, struct mu_err *err)
{
    const struct mu_ddp_param *p = &ddp->param[i];
    struct matrix *x = &s->matrix[i];
    struct work *w = &s->work[ddp->plan.place[i].bucket];
    int rank = ddp->hook_options.rank ? ddp->hook_options.rank : DEFAULT_RANK;

    if (p->rows > 0 && p->count % p->rows != 0)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "parameter '%s': %zu elements are not %zu rows", p->name,
                          p->count, p->rows);
    x->p = w->np;
    x->q = w->nq;
    x->shape = (struct mu_lowrank){ p->rows, p->rows ? p->count / p->rows : 0, rank };
    if (!mu_lowrank_pays(&x->shape)) {
        x->shape.rank = 0;
        w->np += p->count;
        return 0;
    }
    w->np += x->shape.rows * (size_t)rank;
    w->nq += x->shape.cols * (size_t)rank;
    x->rest = calloc(p->count, sizeof *x->rest);
    return x->rest
               ? 0
               : mu_err_set(err, MUSTER_EMEMORY,
                            "out of memory for the error feedback of '%s'", p->name);
}

static int power_open(struct muster_ddp *ddp, void **state, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->m->ops;
    struct power *s;

    if (ddp->hook_options.rank < 0)
        return mu_err_set(err, MUSTER_EUSAGE, "PowerSGD of rank %d: use 1 or more",
                          ddp->hook_options.rank);
    s = calloc(1, sizeof *s);
    if (!s)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
    s->matrix = calloc((size_t)ddp->nparams + 1, sizeof *s->matrix);
    s->work = calloc((size_t)ddp->plan.nbuckets + 1, sizeof *s->work);
    if (!s->matrix || !s->work) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
        goto fail;
    }
    for (int i = 0; i < ddp->nparams; i++)
        if (lay_out(ddp, s, i, err) < 0)
            goto fail;
    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        struct work *w = &s->work[b];

        w->p = ops->alloc(ddp->m->backend, (w->np + 1) * sizeof(float), err);
        if (!w->p)
            goto fail;
        w->q = ops->alloc(ddp->m->backend, (w->nq + 1) * sizeof(float), err);
        if (!w->q)
            goto fail;
    }
    for (int i = 0; i < ddp->nparams; i++)
        if (s->matrix[i].shape.rank > 0)
            restart(&s->matrix[i], &s->work[ddp->plan.place[i].bucket], i);
    *state = s;
    return 0;
fail:
    power_close(ddp, s);
    return -1;
}

static int power_start(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct power *s = state;
    struct work *w = &s->work[b];

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = ddp->bucket[b].param[k];
        struct matrix *x = &s->matrix[i];
        float *g = gradient(ddp, b, i);
        size_t count = ddp->param[i].count;

        if (ddp->absent[i]) {
            memset(w->p + x->p, 0,
                   sizeof *g *
                       (x->shape.rank ? x->shape.rows * (size_t)x->shape.rank : count));
        } else if (x->shape.rank == 0) {
            memcpy(w->p + x->p, g, count * sizeof *g);
        } else {
            for (size_t e = 0; e < count; e++)
                g[e] += x->rest[e];
            mu_lowrank_left(&x->shape, g, w->q + x->q, w->p + x->p);
        }
    }
    return mu_hook_reduce(ddp, b, MUSTER_F32, MUSTER_SUM, w->p, w->np,
                          1.0 / ddp->m->world->size, err);
}

/* Q of this rank, and what it does not reach. */
static void second_half(struct matrix *x, const struct work *w, int i, const float *m)
{
    size_t nq = x->shape.cols * (size_t)x->shape.rank;

    x->spoilt = !mu_lowrank_orthonormal(&x->shape, (uint64_t)i, w->p + x->p);
    if (x->spoilt) {
        memset(w->q + x->q, 0, nq * sizeof *w->q);
        return;
    }
    mu_lowrank_right(&x->shape, m, w->p + x->p, w->q + x->q);
    memcpy(x->rest, m, x->shape.rows * x->shape.cols * sizeof *m);
    mu_lowrank_subtract(&x->shape, w->p + x->p, w->q + x->q, x->rest);
}

static int power_advance(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct power *s = state;
    struct work *w = &s->work[b];

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = ddp->bucket[b].param[k];

        /* The kept Q of one that is absent everywhere is the same on all ranks: its
         * mean is itself.
         */
        if (!ddp->absent[i] && s->matrix[i].shape.rank > 0)
            second_half(&s->matrix[i], w, i, gradient(ddp, b, i));
    }
    return mu_hook_reduce(ddp, b, MUSTER_F32, MUSTER_SUM, w->q, w->nq,
                          1.0 / ddp->m->world->size, err);
}

/* A step that overflowed must show it, and leave nothing behind. */
static void spoil(struct matrix *x, const struct work *w, int i, float *g)
{
    size_t count = x->shape.rows * x->shape.cols;

    if (!x->spoilt)
        memset(x->rest, 0, count * sizeof *x->rest);
    for (size_t e = 0; e < count; e++)
        g[e] = NAN;
    restart(x, w, i);
}

static int power_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                        struct mu_err *err)
{
    struct power *s = state;
    struct work *w = &s->work[b];

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = ddp->bucket[b].param[k];
        struct matrix *x = &s->matrix[i];
        float *g = gradient(ddp, b, i);
        size_t nq = x->shape.cols * (size_t)x->shape.rank;

        if (ddp->absent[i])
            continue;
        if (x->shape.rank == 0)
            memcpy(g, w->p + x->p, ddp->param[i].count * sizeof *g);
        else if (x->spoilt || mu_first_nonfinite(w->q + x->q, MUSTER_F32, nq) < nq)
            spoil(x, w, i, g);
        else
            mu_lowrank_expand(&x->shape, w->p + x->p, w->q + x->q, g);
    }
    return 0;
}

static int power_keeps(const struct muster_ddp *ddp, void *state, int i,
                       struct muster_item *items)
{
    struct power *s = state;
    struct matrix *x = &s->matrix[i];

    if (x->shape.rank == 0)
        return 0;
    items[0] = mu_ddp_own_item(ddp, x->rest, ddp->param[i].count);
    items[1] = (struct muster_item){
        /* the same on all ranks */
        .data = s->work[ddp->plan.place[i].bucket].q + x->q,
        .bytes = x->shape.cols * (size_t)x->shape.rank * sizeof(float)
    };
    return 2;
}

static int power_rescale(struct muster_ddp *ddp, void *state, double factor,
                         void *stream, struct mu_err *err)
{
    struct power *s = state;

    for (int i = 0; i < ddp->nparams; i++)
        for (size_t k = 0; s->matrix[i].rest && k < ddp->param[i].count; k++)
            s->matrix[i].rest[k] *= (float)factor;
    return 0;
}

const struct mu_hook_ops mu_hook_powersgd = {
    .name = "PowerSGD",
    .f32 = true,
    .host = true,
    .open = power_open,
    .close = power_close,
    .start = power_start,
    .advance = power_advance,
    .finish = power_finish,
    .keeps = power_keeps,
    .rescale = power_rescale,
};
