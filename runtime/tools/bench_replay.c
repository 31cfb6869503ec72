/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_replay.c - the computation of a model's training step, on a GPU */
#include "runtime/tools/bench_replay.h"

#include <stdlib.h>

#include "runtime/backend/nccl/bench/compute.h"
#include "runtime/backend/nccl/bench/gpu.h"

struct layer_work {
    struct bench_replay *r;
    const struct bench_layer *layer;
    void *backward; /* a graph; NULL: nothing to do */
};

struct bench_replay {
    const struct bench_model *model;
    void *const *grad; /* where each gradient is written */
    struct mu_compute *compute;
    void *forward;           /* a graph */
    struct layer_work *work; /* by layer */
    void *stream;
};

static void forward(void *arg)
{
    const struct bench_replay *r = arg;
    const struct bench_model *m = r->model;

    for (int i = 0; i < m->ngemms; i++)
        mu_compute_gemm(r->compute, m->gemm[i].m, m->gemm[i].n, m->gemm[i].k,
                        m->gemm[i].batch);
    for (int i = 0; i < m->npasses; i++)
        mu_compute_pass(r->compute, m->pass[i]);
}

/* Twice the products and passes of its forward, then the layer's gradients. */
static void backward(void *arg)
{
    const struct layer_work *w = arg;
    const struct bench_replay *r = w->r;
    const struct bench_layer *l = w->layer;
    const struct bench_model *m = r->model;

    for (int i = l->gemm + l->ngemms - 1; i >= l->gemm; i--) {
        const struct bench_gemm *g = &m->gemm[i];

        mu_compute_gemm(r->compute, g->m, g->k, g->n, g->batch); /* of the input */
        mu_compute_gemm(r->compute, g->k, g->n, g->m, g->batch); /* of the weight */
    }
    for (int i = 2 * l->npasses - 1; i >= 0; i--)
        mu_compute_pass(r->compute, m->pass[l->pass + i / 2]);
    for (int i = l->param + l->nparams - 1; i >= l->param; i--)
        mu_compute_write(r->compute, r->grad[i], m->param[i].count, m->param[i].dtype);
}

/* Run once before, so that nothing is loaded during the capture. */
static void *captured(void (*fn)(void *arg), void *arg, void *stream)
{
    fn(arg);
    mu_gpu_sync(stream);
    return mu_gpu_capture(fn, arg, 1, stream);
}

struct bench_replay *bench_replay_open(const struct bench_model *model,
                                       void *const *grad, void *stream)
{
    struct bench_replay *r = calloc(1, sizeof *r);

    if (!r || !(r->work = calloc((size_t)model->nlayers + 1, sizeof *r->work)))
        exit(MUSTER_EMEMORY);
    r->model = model;
    r->grad = grad;
    r->stream = stream;
    r->compute = mu_compute_create(model->elements, stream);
    r->forward = captured(forward, r, stream);
    for (int i = 0; i < model->nlayers; i++) {
        const struct bench_layer *l = &model->layer[i];

        r->work[i] = (struct layer_work){ .r = r, .layer = l };
        if (l->ngemms + l->npasses + l->nparams > 0)
            r->work[i].backward = captured(backward, &r->work[i], stream);
    }
    return r;
}

void bench_replay_forward(struct bench_replay *r)
{
    mu_gpu_replay(r->forward, r->stream);
}

void bench_replay_backward(struct bench_replay *r, int layer)
{
    if (r->work[layer].backward)
        mu_gpu_replay(r->work[layer].backward, r->stream);
}

void bench_replay_close(struct bench_replay *r)
{
    mu_gpu_capture_free(r->forward);
    for (int i = 0; i < r->model->nlayers; i++)
        mu_gpu_capture_free(r->work[i].backward);
    mu_compute_destroy(r->compute);
    free(r->work);
    free(r);
}
