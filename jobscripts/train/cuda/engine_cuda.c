/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_cuda.c - the engine on a GPU: cuBLAS and a few kernels, on the default stream
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jobscripts/train/cuda/kernels.h"
#include "jobscripts/train/engine.h"
#include "jobscripts/train/rng.h"

struct engine {
    const struct model *model;
    int wide;    /* double */
    size_t size; /* bytes of an element */
    int batch_max, n;
    cublasHandle_t blas;
    void *weights[MODEL_PARAMS], *momenta[MODEL_PARAMS], *grads[MODEL_PARAMS];
    void *host_weights[MODEL_PARAMS], *host_momenta[MODEL_PARAMS];
    void *act[MODEL_LAYERS + 1], *delta[2], *columns;
    uint8_t *winner[MODEL_LAYERS], *labels;
    uint64_t *index, *host_index;
    double *by_sample, *sums, *host_sums;
    cudaEvent_t summed; /* host_sums has the loss of the last forward */
    struct {
        const struct dataset *data;
        uint8_t *images, *labels;
    } sets[2];  /* on the GPU, copied at the first load */
    int failed; /* a cudaError_t or cublasStatus_t of a launch since the last check */
};

static int cuda_failed(struct engine *e, struct mu_err *err, const char *what)
{
    cudaError_t rc = cudaGetLastError();

    if (rc != cudaSuccess)
        return mu_err_set(err, MUSTER_EDEVICE, "%s: %s", what, cudaGetErrorString(rc));
    if (e && e->failed)
        return mu_err_set(err, MUSTER_EDEVICE, "%s: cuBLAS failed with status %d", what,
                          e->failed);
    return 0;
}

static void *on_gpu(size_t bytes)
{
    void *p = NULL;

    if (cudaMalloc(&p, bytes ? bytes : 1) == cudaSuccess)
        cudaMemset(p, 0, bytes);
    return p;
}

static void *pinned(size_t bytes)
{
    void *p = NULL;

    if (cudaMallocHost(&p, bytes ? bytes : 1) == cudaSuccess)
        memset(p, 0, bytes);
    return p;
}

static void engine_close(struct engine *e)
{
    if (!e)
        return;
    for (int i = 0; i < MODEL_PARAMS; i++) {
        cudaFree(e->weights[i]);
        cudaFree(e->momenta[i]);
        cudaFreeHost(e->host_weights[i]);
        cudaFreeHost(e->host_momenta[i]);
    }
    for (int l = 0; l <= MODEL_LAYERS; l++)
        cudaFree(e->act[l]);
    for (int l = 0; l < MODEL_LAYERS; l++)
        cudaFree(e->winner[l]);
    for (int i = 0; i < 2; i++) {
        cudaFree(e->delta[i]);
        cudaFree(e->sets[i].images);
        cudaFree(e->sets[i].labels);
    }
    cudaFree(e->columns);
    cudaFree(e->labels);
    cudaFree(e->index);
    cudaFree(e->by_sample);
    cudaFree(e->sums);
    cudaFreeHost(e->host_index);
    cudaFreeHost(e->host_sums);
    if (e->summed)
        cudaEventDestroy(e->summed);
    if (e->blas)
        cublasDestroy(e->blas);
    free(e);
}

/* The same weights as on CPUs, in the same order. */
static void weights_start(struct engine *e, uint64_t seed)
{
    struct rng rng = { seed };

    for (int i = 0; i < e->model->nparams; i++) {
        const struct model_param *param = &e->model->params[i];

        for (size_t k = 0; param->fan_in && k < param->count; k++) {
            double value = rng_uniform(&rng, sqrt(6.0 / param->fan_in));

            if (e->wide)
                ((double *)e->host_weights[i])[k] = value;
            else
                ((float *)e->host_weights[i])[k] = (float)value;
        }
    }
}

static int engine_exchange(struct engine *e, int to_host, struct mu_err *err)
{
    for (int i = 0; i < e->model->nparams; i++) {
        size_t bytes = e->model->params[i].count * e->size;

        if (to_host) {
            cudaMemcpy(e->host_weights[i], e->weights[i], bytes,
                       cudaMemcpyDeviceToHost);
            cudaMemcpy(e->host_momenta[i], e->momenta[i], bytes,
                       cudaMemcpyDeviceToHost);
        } else {
            cudaMemcpy(e->weights[i], e->host_weights[i], bytes,
                       cudaMemcpyHostToDevice);
            cudaMemcpy(e->momenta[i], e->host_momenta[i], bytes,
                       cudaMemcpyHostToDevice);
        }
    }
    return cuda_failed(e, err, "weights could not be copied");
}

static void make_room(struct engine *e)
{
    const struct model *m = e->model;
    size_t batch = (size_t)e->batch_max, widest = layer_in(&m->layers[0]), columns = 0;

    for (int i = 0; i < m->nparams; i++) {
        size_t bytes = m->params[i].count * e->size;

        e->weights[i] = on_gpu(bytes);
        e->momenta[i] = on_gpu(bytes);
        e->host_weights[i] = pinned(bytes);
        e->host_momenta[i] = pinned(bytes);
    }
    e->act[0] = on_gpu(batch * widest * e->size);
    for (int l = 0; l < m->nlayers; l++) {
        const struct layer *layer = &m->layers[l];
        size_t out = layer_out(layer);

        e->act[l + 1] = on_gpu(batch * out * e->size);
        if (layer->kind == LAYER_POOL)
            e->winner[l] = on_gpu(batch * out);
        if (layer->kind == LAYER_CONV) {
            size_t need = layer_in(layer) * layer->kernel * layer->kernel;

            columns = need > columns ? need : columns;
        }
        widest = out > widest ? out : widest;
    }
    e->delta[0] = on_gpu(batch * widest * e->size);
    e->delta[1] = on_gpu(batch * widest * e->size);
    e->columns = on_gpu(batch * columns * e->size);
    e->labels = on_gpu(batch);
    e->index = on_gpu(batch * sizeof *e->index);
    e->host_index = pinned(batch * sizeof *e->host_index);
    e->by_sample = on_gpu(batch * 2 * sizeof *e->by_sample);
    e->sums = on_gpu(2 * sizeof *e->sums);
    e->host_sums = pinned(2 * sizeof *e->host_sums);
    cudaEventCreateWithFlags(&e->summed, cudaEventDisableTiming);
}

static int engine_open(const struct model *model, int device, int batch_max,
                       uint64_t seed, int wide, struct engine **out, struct mu_err *err)
{
    struct engine *e = calloc(1, sizeof *e);

    if (!e)
        return mu_err_set(err, MUSTER_EMEMORY, "no memory for the model");
    e->model = model;
    e->wide = wide;
    e->size = wide ? sizeof(double) : sizeof(float);
    e->batch_max = batch_max;
    cudaSetDevice(device);
    e->failed = (int)cublasCreate(&e->blas);
    if (!e->failed)
        make_room(e);
    if (cuda_failed(e, err, "the model does not fit on the GPU") < 0) {
        engine_close(e);
        return -1;
    }
    weights_start(e, seed);
    if (engine_exchange(e, 0, err) < 0) {
        engine_close(e);
        return -1;
    }
    *out = e;
    return 0;
}

static int open_f32(const struct model *model, int device, int batch_max, uint64_t seed,
                    struct engine **out, struct mu_err *err)
{
    return engine_open(model, device, batch_max, seed, 0, out, err);
}

static int open_f64(const struct model *model, int device, int batch_max, uint64_t seed,
                    struct engine **out, struct mu_err *err)
{
    return engine_open(model, device, batch_max, seed, 1, out, err);
}

static void *engine_weights(struct engine *e, int param)
{
    return e->weights[param];
}

static void *engine_host_weights(struct engine *e, int param)
{
    return e->host_weights[param];
}

static void *engine_host_momenta(struct engine *e, int param)
{
    return e->host_momenta[param];
}

static void engine_set_grad(struct engine *e, int param, void *grad)
{
    e->grads[param] = grad;
}

/* The data set stays on the GPU: a step sends indices only. */
static int find_set(struct engine *e, const struct dataset *data, struct mu_err *err)
{
    size_t pixels = (size_t)data->rows * data->cols;
    int i = 0;

    while (i < 2 && e->sets[i].data && e->sets[i].data != data)
        i++;
    if (i == 2)
        return mu_err_set(err, MUSTER_EINTERNAL,
                          "an engine takes two data sets, this is a third");
    if (e->sets[i].data)
        return i;
    e->sets[i].images = on_gpu(data->n * pixels);
    e->sets[i].labels = on_gpu(data->n);
    if (e->sets[i].images && e->sets[i].labels) {
        cudaMemcpy(e->sets[i].images, data->images, data->n * pixels,
                   cudaMemcpyHostToDevice);
        cudaMemcpy(e->sets[i].labels, data->labels, data->n, cudaMemcpyHostToDevice);
    }
    if (cuda_failed(e, err, "the data do not fit on the GPU") < 0)
        return -1;
    e->sets[i].data = data;
    return i;
}

static int engine_load(struct engine *e, const struct dataset *data,
                       const uint64_t *index, int n, struct mu_err *err)
{
    int set = find_set(e, data, err);

    if (set < 0)
        return -1;
    if (n > e->batch_max)
        return mu_err_set(err, MUSTER_EINTERNAL,
                          "a batch of %d samples, but the engine was opened for %d", n,
                          e->batch_max);
    /* The last forward has finished (its loss was awaited), so host_index is free. */
    memcpy(e->host_index, index, (size_t)n * sizeof *index);
    cudaMemcpyAsync(e->index, e->host_index, (size_t)n * sizeof *index,
                    cudaMemcpyHostToDevice, NULL);
    train_gather(e->wide, e->sets[set].images, e->sets[set].labels, e->index, n,
                 data->rows * data->cols, e->act[0], e->labels);
    e->n = n;
    return 0;
}

static void *at(const struct engine *e, void *base, size_t elements)
{
    return (char *)base + elements * e->size;
}

/* Row-major C (m x n) = A B + beta C; A or B transposed when their flag is set. cuBLAS
 * is column major: it computes the transpose of C as B' A'.
 */
static void product(struct engine *e, int ta, int tb, int m, int n, int k,
                    const void *a, int lda, const void *b, int ldb, int beta, void *c,
                    int ldc)
{
    cublasOperation_t oa = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t ob = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t rc;

    if (e->wide) {
        double one = 1, keep = beta;

        rc = cublasDgemm(e->blas, ob, oa, n, m, k, &one, b, ldb, a, lda, &keep, c, ldc);
    } else {
        float one = 1, keep = (float)beta;

        rc = cublasSgemm(e->blas, ob, oa, n, m, k, &one, b, ldb, a, lda, &keep, c, ldc);
    }
    if (rc != CUBLAS_STATUS_SUCCESS)
        e->failed = (int)rc;
}

static void forward_layer(struct engine *e, int i)
{
    const struct layer *l = &e->model->layers[i];
    int in = (int)layer_in(l), out = (int)layer_out(l), area = l->out_h * l->out_w;
    int taps = l->in_c * l->kernel * l->kernel;

    if (l->kind == LAYER_POOL) {
        train_pool(e->wide, e->act[i], e->n, l->in_c, l->in_h, l->in_w, e->act[i + 1],
                   e->winner[i]);
        return;
    }
    if (l->kind == LAYER_DENSE) {
        product(e, 0, 1, e->n, out, in, e->act[i], in, e->weights[l->weight], in, 0,
                e->act[i + 1], out);
    } else {
        train_unroll(e->wide, e->act[i], e->n, l->in_c, l->in_h, l->in_w, l->kernel,
                     e->columns);
        for (int k = 0; k < e->n; k++)
            product(e, 0, 0, l->out_c, area, taps, e->weights[l->weight], taps,
                    at(e, e->columns, (size_t)k * taps * area), area, 0,
                    at(e, e->act[i + 1], (size_t)k * out), area);
    }
    train_bias_relu(e->wide, e->act[i + 1], e->weights[l->bias], e->n, l->out_c, area,
                    l->relu);
}

/* Forward; then copy the loss to the host, asynchronously. */
static void forward(struct engine *e, double scale, void *delta)
{
    for (int i = 0; i < e->model->nlayers; i++)
        forward_layer(e, i);
    train_loss(e->wide, e->act[e->model->nlayers], e->labels, e->n, e->model->nclasses,
               scale, delta, e->by_sample, e->sums);
    cudaMemcpyAsync(e->host_sums, e->sums, 2 * sizeof *e->sums, cudaMemcpyDeviceToHost,
                    NULL);
    cudaEventRecord(e->summed, NULL);
}

static void weight_backward(struct engine *e, int i, void *dy, int add)
{
    const struct layer *l = &e->model->layers[i];
    int in = (int)layer_in(l), out = (int)layer_out(l), area = l->out_h * l->out_w;
    int taps = l->in_c * l->kernel * l->kernel;

    if (l->kind == LAYER_DENSE) {
        product(e, 1, 0, out, in, e->n, dy, out, e->act[i], in, add,
                e->grads[l->weight], in);
        return;
    }
    train_unroll(e->wide, e->act[i], e->n, l->in_c, l->in_h, l->in_w, l->kernel,
                 e->columns);
    for (int k = 0; k < e->n; k++)
        product(e, 0, 1, l->out_c, taps, area, at(e, dy, (size_t)k * out), area,
                at(e, e->columns, (size_t)k * taps * area), area, add || k > 0,
                e->grads[l->weight], taps);
}

static void input_backward(struct engine *e, int i, void *dy, void *dx)
{
    const struct layer *l = &e->model->layers[i];
    int in = (int)layer_in(l), out = (int)layer_out(l), area = l->out_h * l->out_w;
    int taps = l->in_c * l->kernel * l->kernel;

    if (l->kind == LAYER_DENSE) {
        product(e, 0, 0, e->n, in, out, dy, out, e->weights[l->weight], in, 0, dx, in);
    } else if (l->kind == LAYER_POOL) {
        train_unpool(e->wide, dy, e->winner[i], e->n, l->in_c, l->in_h, l->in_w, dx);
    } else {
        for (int k = 0; k < e->n; k++)
            product(e, 1, 0, taps, area, l->out_c, e->weights[l->weight], taps,
                    at(e, dy, (size_t)k * out), area, 0,
                    at(e, e->columns, (size_t)k * taps * area), area);
        train_roll(e->wide, e->columns, e->n, l->in_c, l->in_h, l->in_w, l->kernel, dx);
    }
}

static int engine_train(struct engine *e, double scale, int add,
                        int (*ready)(void *arg, int param), void *arg, double *loss)
{
    void *dy = e->delta[0], *dx = e->delta[1], *swap;

    forward(e, scale, dy);
    for (int i = e->model->nlayers - 1; i >= 0; i--) {
        const struct layer *l = &e->model->layers[i];

        if (l->relu)
            train_relu_backward(e->wide, dy, e->act[i + 1], e->n * layer_out(l));
        if (l->weight >= 0) {
            train_bias_backward(e->wide, dy, e->n, l->out_c, l->out_h * l->out_w, add,
                                e->grads[l->bias]);
            if (ready(arg, l->bias) < 0)
                return -1;
            weight_backward(e, i, dy, add);
            if (ready(arg, l->weight) < 0)
                return -1;
        }
        if (i > 0)
            input_backward(e, i, dy, dx);
        swap = dy;
        dy = dx;
        dx = swap;
    }
    /* Wait for the forward only; the backward and the all-reduce run on. */
    cudaEventSynchronize(e->summed);
    *loss = e->failed ? NAN : e->host_sums[0];
    return 0;
}

static int engine_test(struct engine *e, double *loss, int *correct)
{
    forward(e, 0, NULL);
    cudaEventSynchronize(e->summed);
    *loss = e->failed ? NAN : e->host_sums[0];
    *correct = (int)e->host_sums[1];
    return 0;
}

static void engine_update(struct engine *e, double lr, double momentum, double decay)
{
    for (int i = 0; i < e->model->nparams; i++)
        train_update(e->wide, e->weights[i], e->momenta[i], e->grads[i],
                     e->model->params[i].count, lr, momentum,
                     e->model->params[i].fan_in ? decay : 0);
}

#define TABLE(type, opener)                                                            \
    {                                                                                  \
        .name = "cuBLAS", .dtype = type, .open = opener, .close = engine_close,        \
        .weights = engine_weights, .set_grad = engine_set_grad, .load = engine_load,   \
        .train = engine_train, .test = engine_test, .update = engine_update,           \
        .exchange = engine_exchange, .host_weights = engine_host_weights,              \
        .host_momenta = engine_host_momenta,                                           \
    }

/* Found with dlsym: fp32, fp64. */
__attribute__((visibility("default"))) const struct engine_ops engine_cuda[2] = {
    TABLE(MUSTER_F32, open_f32),
    TABLE(MUSTER_F64, open_f64),
};
