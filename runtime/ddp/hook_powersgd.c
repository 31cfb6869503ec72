/* SPDX-License-Identifier: BSD-3-Clause */
/* hook_powersgd.c - gradients of matrices as two low-rank factors
 *
 * For each matrix M, with the error of the last step added: P = M Q is averaged and
 * made orthonormal, then Q = M^T P is averaged. P Q^T is the projection of the mean on
 * the space that P spans. The rest of M is the error that the next step adds. Q is
 * kept, so that the steps together do a power iteration.
 *
 * Vectors, and matrices that would not shrink by half, are sent uncompressed together
 * with the P's. The backend does the arithmetic, where the gradients are.
 */
#include "runtime/ddp/ddp.h"

#include <stdlib.h>

#include "runtime/core/compress.h"
#include "runtime/core/dtype.h"

#define DEFAULT_RANK 4

struct matrix {
    struct mu_lowrank shape;         /* rank 0: sent uncompressed */
    size_t p, q, rest, parts, index; /* start in each region of the arena */
};

/* Start of the run of a bucket in each region. p also has the uncompressed ones. */
struct run {
    size_t p, np, q, nq;
};

struct power {
    struct matrix *matrix; /* by parameter */
    struct run *run;       /* by bucket */
    struct mu_lowrank_tensor *list;
    char *arena;
    size_t np, nq, nrest, nparts, nmatrices; /* elements of the regions */
    float *p, *q, *own, *rest, *parts;
    uint32_t *spoilt;
};

static void power_close(struct muster_ddp *ddp, void *state)
{
    struct power *s = state;

    if (s->arena)
        ddp->comm->ops->free(ddp->comm->backend, s->arena);
    free(s->matrix);
    free(s->run);
    free(s->list);
    free(s);
}

/* Regions and the runs of buckets begin at multiples of 256 bytes; in floats. */
static size_t line(size_t n)
{
    return (n + 63) / 64 * 64;
}

static int lay_out(struct muster_ddp *ddp, struct power *s, int i, size_t *parts,
                   struct mu_err *err)
{
    const struct mu_ddp_param *p = &ddp->param[i];
    struct matrix *x = &s->matrix[i];
    int rank = ddp->hook_options.rank ? ddp->hook_options.rank : DEFAULT_RANK;

    if (p->rows > 0 && p->count % p->rows != 0)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "parameter '%s': %zu elements do not make %zu rows", p->name,
                          p->count, p->rows);
    *x = (struct matrix){ { p->rows, p->rows ? p->count / p->rows : 0, rank },
                          s->np,
                          s->nq,
                          s->nrest,
                          *parts,
                          s->nmatrices };
    if (!mu_lowrank_pays(&x->shape, mu_dtype_size(p->dtype))) {
        x->shape.rank = 0;
        s->np += p->count;
        return 0;
    }
    s->np += x->shape.rows * (size_t)rank;
    s->nq += x->shape.cols * (size_t)rank;
    s->nrest += p->count;
    *parts += mu_lowrank_parts(&x->shape, p->dtype);
    s->nmatrices++;
    return 0;
}

/* Lay out parameters in the order of their buckets: a bucket is one run of P and of Q.
 * Buckets work in `parts` one after the other, so they share it.
 */
static int lay_out_all(struct muster_ddp *ddp, struct power *s, struct mu_err *err)
{
    for (int b = 0; b < ddp->plan.nbuckets; b++) {
        struct run *run = &s->run[b];
        size_t parts = 0;

        *run = (struct run){ .p = s->np, .q = s->nq };
        for (int k = 0; k < ddp->plan.bucket[b].nparams; k++)
            if (lay_out(ddp, s, ddp->bucket[b].param[k], &parts, err) < 0)
                return -1;
        run->np = s->np - run->p;
        run->nq = s->nq - run->q;
        s->np = line(s->np);
        s->nq = line(s->nq);
        s->nparts = parts > s->nparts ? parts : s->nparts;
    }
    return 0;
}

/* Set the Q's of the first step. */
static int begin(struct muster_ddp *ddp, struct power *s, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    float *q = malloc(s->nq * sizeof *q + 1);
    int rc;

    if (!q)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
    for (int i = 0; i < ddp->nparams; i++)
        if (s->matrix[i].shape.rank > 0)
            mu_lowrank_start(&s->matrix[i].shape, (uint64_t)i, q + s->matrix[i].q);
    rc = ops->copy(ddp->comm->backend, s->q, q, s->nq * sizeof *q, NULL, err);
    if (rc == 0)
        rc = ops->drain(ddp->comm->backend, NULL, err);
    free(q);
    return rc;
}

static int power_open(struct muster_ddp *ddp, void **state, struct mu_err *err)
{
    struct power *s;

    if (ddp->hook_options.rank < 0)
        return mu_err_set(err, MUSTER_EUSAGE, "PowerSGD of rank %d: use 1 or more",
                          ddp->hook_options.rank);
    s = calloc(1, sizeof *s);
    if (!s)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
    s->matrix = calloc((size_t)ddp->nparams + 1, sizeof *s->matrix);
    s->list = calloc((size_t)ddp->nparams + 1, sizeof *s->list);
    s->run = calloc((size_t)ddp->plan.nbuckets + 1, sizeof *s->run);
    if (!s->matrix || !s->list || !s->run) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory for compression");
        goto fail;
    }
    if (lay_out_all(ddp, s, err) < 0)
        goto fail;
    s->arena =
        ddp->comm->ops->alloc(ddp->comm->backend,
                              sizeof(float) * (s->np + 2 * s->nq + line(s->nrest) +
                                               line(s->nparts) + s->nmatrices + 1),
                              err);
    if (!s->arena)
        goto fail;
    s->p = (float *)s->arena;
    s->q = s->p + s->np;
    s->own = s->q + s->nq;
    s->rest = s->own + s->nq;
    s->parts = s->rest + line(s->nrest);
    s->spoilt = (uint32_t *)(s->parts + line(s->nparts));
    if (begin(ddp, s, err) < 0)
        goto fail;
    *state = s;
    return 0;
fail:
    power_close(ddp, s);
    return -1;
}

/* Run one stage in the backend, for the matrices of bucket b that some rank has. */
static int run_stage(struct muster_ddp *ddp, struct power *s, int b,
                     enum mu_lowrank_stage stage, void *stream, struct mu_err *err)
{
    const struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    int n = 0;

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        const struct matrix *x = &s->matrix[i];

        if (!ddp->absent[i] && x->shape.rank > 0)
            s->list[n++] = (struct mu_lowrank_tensor){
                .shape = x->shape,
                .seed = (uint64_t)i,
                .kind = ddp->param[i].dtype,
                .g = (float *)(bucket->mem + ddp->plan.place[i].offset),
                .g16 = (uint16_t *)(bucket->mem + ddp->plan.place[i].offset),
                .rest = s->rest + x->rest,
                .p = s->p + x->p,
                .q = s->q + x->q,
                .own = s->own + x->q,
                .parts = s->parts + x->parts,
                .spoilt = s->spoilt + x->index,
            };
    }
    return n == 0 ? 0
                  : ddp->comm->ops->lowrank(ddp->comm->backend, stage, s->list, n,
                                            stream, err);
}

/* Copy the uncompressed gradients to their places among the P's, or back. */
static int move_plain(struct muster_ddp *ddp, struct power *s, int b, bool back,
                      void *stream, struct mu_err *err)
{
    const struct mu_backend_ops *ops = ddp->comm->ops;
    struct mu_ddp_bucket *bucket = &ddp->bucket[b];
    int n = 0;

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        const struct matrix *x = &s->matrix[i];

        if (!ddp->absent[i] && x->shape.rank == 0 && ddp->param[i].count > 0)
            bucket->piece[n++] =
                (struct mu_piece){ bucket->mem + ddp->plan.place[i].offset,
                                   x->p * sizeof(float), ddp->param[i].count };
    }
    if (n == 0)
        return 0;
    return back
               ? ops->unpack(ddp->comm->backend, bucket->piece, n,
                             ddp->plan.bucket[b].dtype, s->p, MUSTER_F32, 1, stream,
                             err)
               : ops->pack(ddp->comm->backend, bucket->piece, n,
                           ddp->plan.bucket[b].dtype, s->p, MUSTER_F32, 1, stream, err);
}

static int power_start(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct power *s = state;
    const struct run *run = &s->run[b];
    const struct mu_ddp_bucket *bucket = &ddp->bucket[b];

    for (int k = 0; k < ddp->plan.bucket[b].nparams; k++) {
        int i = bucket->param[k];
        const struct matrix *x = &s->matrix[i];
        size_t count =
            x->shape.rank ? x->shape.rows * (size_t)x->shape.rank : ddp->param[i].count;

        if (ddp->absent[i] && count > 0 &&
            ddp->comm->ops->zero(ddp->comm->backend, s->p + x->p, count * sizeof *s->p,
                                 bucket->stream, err) < 0)
            return -1;
    }
    if (move_plain(ddp, s, b, false, bucket->stream, err) < 0 ||
        run_stage(ddp, s, b, MU_LOWRANK_LEFT, bucket->stream, err) < 0)
        return -1;
    return mu_hook_reduce(ddp, b, MUSTER_F32, MUSTER_SUM, s->p + run->p, run->np,
                          1.0 / ddp->comm->world->size, err);
}

/* The kept Q of a matrix that is absent everywhere is equal on all ranks, and so is its
 * mean.
 */
static int power_advance(struct muster_ddp *ddp, void *state, int b, struct mu_err *err)
{
    struct power *s = state;
    const struct run *run = &s->run[b];

    if (run_stage(ddp, s, b, MU_LOWRANK_RIGHT, ddp->bucket[b].stream, err) < 0)
        return -1;
    return mu_hook_reduce(ddp, b, MUSTER_F32, MUSTER_SUM, s->q + run->q, run->nq,
                          1.0 / ddp->comm->world->size, err);
}

static int power_finish(struct muster_ddp *ddp, void *state, int b, void *stream,
                        struct mu_err *err)
{
    if (move_plain(ddp, state, b, true, stream, err) < 0)
        return -1;
    return run_stage(ddp, state, b, MU_LOWRANK_FINISH, stream, err);
}

static int power_keeps(const struct muster_ddp *ddp, void *state, int i,
                       struct muster_item *items)
{
    struct power *s = state;
    const struct matrix *x = &s->matrix[i];

    if (x->shape.rank == 0)
        return 0;
    items[0] = mu_ddp_own_item(ddp, s->rest + x->rest, ddp->param[i].count);
    items[1] = (struct muster_item){ .data = s->q + x->q, /* equal on all ranks */
                                     .bytes = x->shape.cols * (size_t)x->shape.rank *
                                              sizeof(float) };
    return 2;
}

static int power_rescale(struct muster_ddp *ddp, void *state, double factor,
                         void *stream, struct mu_err *err)
{
    struct power *s = state;
    struct mu_piece all = { s->rest, 0, s->nrest };

    return s->nrest == 0
               ? 0
               : ddp->comm->ops->pack(ddp->comm->backend, &all, 1, MUSTER_F32, s->rest,
                                      MUSTER_F32, factor, stream, err);
}

const struct mu_hook_ops mu_hook_powersgd = {
    .name = "PowerSGD",
    .floats = true,
    .open = power_open,
    .close = power_close,
    .start = power_start,
    .advance = power_advance,
    .finish = power_finish,
    .keeps = power_keeps,
    .rescale = power_rescale,
};
