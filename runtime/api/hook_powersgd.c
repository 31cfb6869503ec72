/* SPDX-License-Identifier: BSD-3-Clause */
/* hook_powersgd.c - gradients of matrices as two thin ones
 *
 * For each matrix M plus what was lost before: P = M Q is averaged, made orthonormal,
 * and Q = M^T P is averaged; P Q^T is the mean's best guess, what it misses comes back
 * in the next step. Q stays for the next step, so that a few steps do the work of a
 * power iteration. Vectors and matrices that would not shrink by half go as they are,
 * together with the P's.
 */
#include "runtime/api/ddp.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/core/lowrank.h"

#define DEFAULT_RANK 4

struct matrix {
    size_t n, m, r;    /* r 0: it goes as it is */
    size_t at_p, at_q; /* floats in the bucket's p (or plain) and q buffers */
    float *rest;       /* n x m: M while the bucket is under way, then what was lost */
};

struct work {
    float *p, *q; /* of all parameters of the bucket */
    size_t np, nq;
};

struct power {
    struct matrix *matrix; /* by parameter */
    struct work *work;     /* by bucket */
};

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
    x->at_p = w->np;
    x->at_q = w->nq;
    x->n = p->rows;
    x->m = p->rows ? p->count / p->rows : 0;
    if (rank > 0 && mu_lowrank_pays(x->n, x->m, (size_t)rank))
        x->r = (size_t)rank;
    if (x->r == 0) {
        w->np += p->count;
        return 0;
    }
    w->np += x->n * x->r;
    w->nq += x->m * x->r;
    x->rest = calloc(p->count, sizeof *x->rest);
    return x->rest
               ? 0
               : mu_err_set(err, MUSTER_EMEMORY, "out of memory for error feedback");
}

static int power_open(struct muster_ddp *ddp, void **state, struct mu_err *err)
{
    struct power *s = calloc(1, sizeof *s);

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

        w->p = ddp->m->ops->alloc(ddp->m->backend, (w->np + 1) * sizeof(float), err);
        w->q =
            w->p ? ddp->m->ops->alloc(ddp->m->backend, (w->nq + 1) * sizeof(float), err)
                 : NULL;
        if (!w->q)
            goto fail;
        mu_lowrank_random(w->q, w->nq, (unsigned long long)b + 1);
    }
    *state = s;
    return 0;
fail:
    power_close(ddp, s);
    return -1;
}

static int reduce(struct muster_ddp *ddp, int b, float *data, size_t count,
                  struct mu_started *started, struct mu_err *err)
{
    struct mu_coll coll = {
        .kind = MU_COLL_ALLREDUCE,
        .dtype = MUSTER_F32,
        .op = MUSTER_SUM,
        .send = data,
        .recv = data,
        .count = count,
        .scale = 1.0 / ddp->m->world->size,
        .what = ddp->bucket[b].what,
    };

    ddp->wire_bytes += count * sizeof(float);
    return mu_coll_start(ddp->m, &coll, started, err);
}

static int power_start(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct power *s = state;
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    struct work *w = &s->work[b];

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        struct matrix *x = &s->matrix[i];
        const float *g = (const float *)(bucket->mem + ddp->plan.place[i].offset);

        if (x->r == 0) {
            memcpy(w->p + x->at_p, g, ddp->param[i].count * sizeof *g);
            continue;
        }
        for (size_t e = 0; e < x->n * x->m; e++)
            x->rest[e] += g[e];
        mu_lowrank_p(x->rest, x->n, x->m, w->q + x->at_q, x->r, w->p + x->at_p);
    }
    if (reduce(ddp, b, w->p, w->np, &bucket->started[0], err) < 0)
        return -1;
    bucket->nstarted = 1;
    return 0;
}

static int average_q(struct muster_ddp *ddp, struct power *s, int b, struct mu_err *err)
{
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    struct work *w = &s->work[b];
    struct mu_started started;

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        struct matrix *x = &s->matrix[bucket->param[k]];

        if (x->r == 0)
            continue;
        mu_lowrank_orthonormal(w->p + x->at_p, x->n, x->r);
        mu_lowrank_q(x->rest, x->n, x->m, w->p + x->at_p, x->r, w->q + x->at_q);
    }
    if (w->nq == 0)
        return 0;
    if (reduce(ddp, b, w->q, w->nq, &started, err) < 0)
        return -1;
    return mu_coll_join(ddp->m, &started, bucket->what, NULL, err);
}

static int power_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                        struct mu_err *err)
{
    struct power *s = state;
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    struct work *w = &s->work[b];

    if (average_q(ddp, s, b, err) < 0)
        return -1;
    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        struct matrix *x = &s->matrix[i];
        float *g = (float *)(bucket->mem + ddp->plan.place[i].offset);

        if (x->r == 0)
            memcpy(g, w->p + x->at_p, ddp->param[i].count * sizeof *g);
        else
            mu_lowrank_product(w->p + x->at_p, w->q + x->at_q, x->n, x->m, x->r, g,
                               x->rest, x->rest);
    }
    return 0;
}

const struct mu_hook_ops mu_hook_powersgd = {
    .name = "PowerSGD",
    .host_f32 = true,
    .open = power_open,
    .close = power_close,
    .start = power_start,
    .finish = power_finish,
};
