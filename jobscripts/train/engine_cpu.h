/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_cpu.h - the engine on CPUs, compiled once for float and once for double
 *
 * The including file defines REAL (the type), GEMM (cblas_sgemm or cblas_dgemm), OPS
 * (name of the table), DTYPE and EXP/LOG.
 */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jobscripts/train/engine.h"
#include "jobscripts/train/rng.h"

/* Mean and deviation of Fashion-MNIST's training pixels, scaled to 0..1. */
#define PIXEL_MEAN 0.2860
#define PIXEL_SDEV 0.3530

struct engine {
    const struct model *model;
    int batch_max, n;
    REAL *weights[MODEL_PARAMS], *momenta[MODEL_PARAMS], *grads[MODEL_PARAMS];
    /* 1: the weights belong to the caller */
    int borrowed[MODEL_PARAMS];
    size_t from[MODEL_PARAMS], to[MODEL_PARAMS]; /* the elements that are updated */
    REAL *act[MODEL_LAYERS +
              1]; /* act[l] is the input of layer l, act[nlayers] the scores */
    /* gradients of the activations: of the output and the input of the current layer */
    REAL *delta[2];
    uint8_t *winner[MODEL_LAYERS]; /* pooling: index of the largest of the four */
    REAL *columns, *dcolumns; /* one sample unrolled for a convolution, its gradient */
    uint8_t *labels;
};

static void engine_close(struct engine *e)
{
    if (!e)
        return;
    for (int i = 0; i < MODEL_PARAMS; i++) {
        if (!e->borrowed[i])
            free(e->weights[i]);
        free(e->momenta[i]);
    }
    for (int l = 0; l < MODEL_LAYERS; l++) {
        free(e->act[l]);
        free(e->winner[l]);
    }
    free(e->act[MODEL_LAYERS]);
    free(e->delta[0]);
    free(e->delta[1]);
    free(e->columns);
    free(e->dcolumns);
    free(e->labels);
    free(e);
}

static void *room(size_t count, size_t size, int *failed)
{
    void *p = NULL;

    if (count == 0)
        count = 1;
    if (count > SIZE_MAX / size || posix_memalign(&p, 64, count * size)) {
        *failed = 1;
        return NULL;
    }
    memset(p, 0, count * size);
    return p;
}

/* He's bound for layers with ReLU behind them: sqrt(6 / fan_in). */
static void weights_start(struct engine *e, uint64_t seed)
{
    struct rng rng = { seed };

    for (int i = 0; i < e->model->nparams; i++) {
        const struct model_param *param = &e->model->params[i];

        if (param->fan_in)
            for (size_t k = 0; k < param->count; k++)
                e->weights[i][k] = (REAL)rng_uniform(&rng, sqrt(6.0 / param->fan_in));
    }
}

static int engine_open(const struct model *model, int device, int batch_max,
                       uint64_t seed, struct engine **out, struct mu_err *err)
{
    struct engine *e = calloc(1, sizeof *e);
    size_t widest = layer_in(&model->layers[0]), columns = 0;
    int failed = !e;

    (void)device;
    if (failed)
        goto out;
    e->model = model;
    e->batch_max = batch_max;
    for (int i = 0; i < model->nparams; i++) {
        e->weights[i] = room(model->params[i].count, sizeof(REAL), &failed);
        e->momenta[i] = room(model->params[i].count, sizeof(REAL), &failed);
        e->to[i] = model->params[i].count;
    }
    e->act[0] = room(batch_max * widest, sizeof(REAL), &failed);
    for (int l = 0; l < model->nlayers; l++) {
        const struct layer *layer = &model->layers[l];
        size_t size = layer_out(layer);

        e->act[l + 1] = room(batch_max * size, sizeof(REAL), &failed);
        if (layer->kind == LAYER_POOL)
            e->winner[l] = room(batch_max * size, 1, &failed);
        if (layer->kind == LAYER_CONV) {
            size_t need = layer_in(layer) * layer->kernel * layer->kernel;

            columns = need > columns ? need : columns;
        }
        widest = size > widest ? size : widest;
    }
    e->delta[0] = room(batch_max * widest, sizeof(REAL), &failed);
    e->delta[1] = room(batch_max * widest, sizeof(REAL), &failed);
    e->columns = room(columns, sizeof(REAL), &failed);
    e->dcolumns = room(columns, sizeof(REAL), &failed);
    e->labels = room(batch_max, 1, &failed);
    if (!failed)
        weights_start(e, seed);
out:
    if (failed) {
        engine_close(e);
        return mu_err_set(err, MUSTER_EMEMORY,
                          "no memory for the model '%s' with batch %d", model->text,
                          batch_max);
    }
    *out = e;
    return 0;
}

static void *engine_weights(struct engine *e, int param)
{
    return e->weights[param];
}

static void *engine_momenta(struct engine *e, int param)
{
    return e->momenta[param];
}

static void engine_set_grad(struct engine *e, int param, void *grad)
{
    e->grads[param] = grad;
}

static int engine_shard(struct engine *e, int param, void *weights, size_t from,
                        size_t to, struct mu_err *err)
{
    int failed = 0;
    REAL *momenta = room(to - from, sizeof(REAL), &failed);

    if (failed)
        return mu_err_set(err, MUSTER_EMEMORY, "no memory for the ZeRO-1 part of '%s'",
                          e->model->params[param].name);
    memcpy(weights, e->weights[param], e->model->params[param].count * sizeof(REAL));
    if (!e->borrowed[param])
        free(e->weights[param]);
    free(e->momenta[param]);
    e->weights[param] = weights;
    e->momenta[param] = momenta;
    e->borrowed[param] = 1;
    e->from[param] = from;
    e->to[param] = to;
    return 0;
}

static int engine_exchange(struct engine *e, int to_host, struct mu_err *err)
{
    return 0; /* they are already in host memory */
}

static int engine_load(struct engine *e, const struct dataset *data,
                       const uint64_t *index, int n, struct mu_err *err)
{
    size_t pixels = (size_t)data->rows * data->cols;

    if (n > e->batch_max)
        return mu_err_set(err, MUSTER_EINTERNAL,
                          "a batch of %d samples, but the engine was opened for %d", n,
                          e->batch_max);
    for (int k = 0; k < n; k++) {
        const uint8_t *from = data->images + index[k] * pixels;
        REAL *to = e->act[0] + k * pixels;

        for (size_t p = 0; p < pixels; p++)
            to[p] = ((REAL)from[p] / 255 - (REAL)PIXEL_MEAN) / (REAL)PIXEL_SDEV;
        e->labels[k] = data->labels[index[k]];
    }
    e->n = n;
    return 0;
}

static void bias_relu(REAL *y, const REAL *bias, size_t n, size_t channels, size_t area,
                      int relu)
{
    for (size_t k = 0; k < n; k++)
        for (size_t c = 0; c < channels; c++, y += area)
            for (size_t p = 0; p < area; p++) {
                REAL v = y[p] + bias[c];

                y[p] = relu && v < 0 ? 0 : v;
            }
}

/* columns[(c, dy, dx)][y, x] = image[c][y + dy - half][x + dx - half], 0 outside. */
static void unroll(const struct layer *l, const REAL *image, REAL *columns)
{
    int half = l->kernel / 2;

    for (int c = 0; c < l->in_c; c++, image += l->in_h * l->in_w)
        for (int dy = -half; dy <= half; dy++)
            for (int dx = -half; dx <= half; dx++)
                for (int y = 0; y < l->in_h; y++) {
                    int inside = y + dy >= 0 && y + dy < l->in_h;
                    const REAL *row = image + (inside ? (y + dy) * l->in_w : 0);

                    for (int x = 0; x < l->in_w; x++)
                        *columns++ =
                            inside && x + dx >= 0 && x + dx < l->in_w ? row[x + dx] : 0;
                }
}

/* The transpose of unroll: add every column back to the pixel it came from. */
static void roll(const struct layer *l, const REAL *columns, REAL *image)
{
    int half = l->kernel / 2;

    memset(image, 0, layer_in(l) * sizeof *image);
    for (int c = 0; c < l->in_c; c++, image += l->in_h * l->in_w)
        for (int dy = -half; dy <= half; dy++)
            for (int dx = -half; dx <= half; dx++)
                for (int y = 0; y < l->in_h; y++, columns += l->in_w) {
                    if (y + dy < 0 || y + dy >= l->in_h)
                        continue;
                    for (int x = 0; x < l->in_w; x++)
                        if (x + dx >= 0 && x + dx < l->in_w)
                            image[(y + dy) * l->in_w + x + dx] += columns[x];
                }
}

static void pool(const struct layer *l, const REAL *in, REAL *out, uint8_t *winner)
{
    for (int c = 0; c < l->in_c; c++, in += l->in_h * l->in_w)
        for (int y = 0; y < l->out_h; y++)
            for (int x = 0; x < l->out_w; x++) {
                const REAL *at = in + 2 * y * l->in_w + 2 * x;
                uint8_t best = 0;

                for (uint8_t k = 1; k < 4; k++)
                    if (at[(k >> 1) * l->in_w + (k & 1)] >
                        at[(best >> 1) * l->in_w + (best & 1)])
                        best = k;
                *winner++ = best;
                *out++ = at[(best >> 1) * l->in_w + (best & 1)];
            }
}

static void unpool(const struct layer *l, const REAL *dout, const uint8_t *winner,
                   REAL *din)
{
    memset(din, 0, layer_in(l) * sizeof *din);
    for (int c = 0; c < l->in_c; c++, din += l->in_h * l->in_w)
        for (int y = 0; y < l->out_h; y++)
            for (int x = 0; x < l->out_w; x++, winner++)
                din[(2 * y + (*winner >> 1)) * l->in_w + 2 * x + (*winner & 1)] =
                    *dout++;
}

static void forward_layer(struct engine *e, int i)
{
    const struct layer *l = &e->model->layers[i];
    int in = (int)layer_in(l), out = (int)layer_out(l), area = l->out_h * l->out_w;
    int taps = l->in_c * l->kernel * l->kernel;
    REAL *x = e->act[i], *y = e->act[i + 1];

    switch (l->kind) {
    case LAYER_DENSE:
        GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, e->n, out, in, 1, x, in,
             e->weights[l->weight], in, 0, y, out);
        break;
    case LAYER_CONV:
        for (int k = 0; k < e->n; k++) {
            unroll(l, x + (size_t)k * in, e->columns);
            GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, l->out_c, area, taps, 1,
                 e->weights[l->weight], taps, e->columns, area, 0, y + (size_t)k * out,
                 area);
        }
        break;
    case LAYER_POOL:
        for (int k = 0; k < e->n; k++)
            pool(l, x + (size_t)k * in, y + (size_t)k * out,
                 e->winner[i] + (size_t)k * out);
        return;
    }
    bias_relu(y, e->weights[l->bias], (size_t)e->n, (size_t)l->out_c, (size_t)area,
              l->relu);
}

static void forward(struct engine *e)
{
    for (int i = 0; i < e->model->nlayers; i++)
        forward_layer(e, i);
}

/* Softmax and cross entropy. Returns the sum of losses; when delta is given it gets
 * scale * (probability - target).
 */
static double loss_of(struct engine *e, REAL *delta, REAL scale, int *correct)
{
    int classes = e->model->nclasses;
    double sum = 0;

    *correct = 0;
    for (int k = 0; k < e->n; k++) {
        const REAL *score = e->act[e->model->nlayers] + (size_t)k * classes;
        int best = 0;
        REAL total = 0;

        for (int c = 1; c < classes; c++)
            if (score[c] > score[best])
                best = c;
        for (int c = 0; c < classes; c++)
            total += EXP(score[c] - score[best]);
        sum += (double)(LOG(total) + score[best] - score[e->labels[k]]);
        *correct += best == e->labels[k];
        for (int c = 0; delta && c < classes; c++)
            delta[(size_t)k * classes + c] =
                scale * (EXP(score[c] - score[best]) / total - (c == e->labels[k]));
    }
    return sum;
}

static void bias_backward(const struct engine *e, const struct layer *l, const REAL *dy,
                          int add)
{
    size_t area = (size_t)l->out_h * l->out_w;
    REAL *db = e->grads[l->bias];

    if (!add)
        memset(db, 0, l->out_c * sizeof *db);
    for (int k = 0; k < e->n; k++)
        for (int c = 0; c < l->out_c; c++, dy += area)
            for (size_t p = 0; p < area; p++)
                db[c] += dy[p];
}

static void dense_backward(struct engine *e, int i, const REAL *dy, int add)
{
    const struct layer *l = &e->model->layers[i];
    int in = (int)layer_in(l), out = (int)layer_out(l);

    GEMM(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, e->n, 1, dy, out, e->act[i],
         in, add, e->grads[l->weight], in);
}

static void conv_backward(struct engine *e, int i, const REAL *dy, int add)
{
    const struct layer *l = &e->model->layers[i];
    int area = l->out_h * l->out_w, taps = l->in_c * l->kernel * l->kernel;

    for (int k = 0; k < e->n; k++) {
        unroll(l, e->act[i] + k * layer_in(l), e->columns);
        GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, l->out_c, taps, area, 1,
             dy + k * layer_out(l), area, e->columns, area, add || k > 0,
             e->grads[l->weight], taps);
    }
}

/* Compute the gradient of the input of a layer from dy, that of its output. */
static void input_backward(struct engine *e, int i, const REAL *dy, REAL *dx)
{
    const struct layer *l = &e->model->layers[i];
    int in = (int)layer_in(l), out = (int)layer_out(l), area = l->out_h * l->out_w;
    int taps = l->in_c * l->kernel * l->kernel;

    if (l->kind == LAYER_DENSE) {
        GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, e->n, in, out, 1, dy, out,
             e->weights[l->weight], in, 0, dx, in);
        return;
    }
    for (int k = 0; k < e->n; k++) {
        const REAL *from = dy + (size_t)k * out;
        REAL *to = dx + (size_t)k * in;

        if (l->kind == LAYER_POOL) {
            unpool(l, from, e->winner[i] + (size_t)k * out, to);
            continue;
        }
        GEMM(CblasRowMajor, CblasTrans, CblasNoTrans, taps, area, l->out_c, 1,
             e->weights[l->weight], taps, from, area, 0, e->dcolumns, area);
        roll(l, e->dcolumns, to);
    }
}

static int engine_train(struct engine *e, double scale, int add,
                        int (*ready)(void *arg, int param), void *arg, double *loss)
{
    REAL *dy = e->delta[0], *dx = e->delta[1], *swap;
    int correct;

    forward(e);
    *loss = loss_of(e, dy, (REAL)scale, &correct);
    for (int i = e->model->nlayers - 1; i >= 0; i--) {
        const struct layer *l = &e->model->layers[i];
        size_t size = e->n * layer_out(l);

        for (size_t p = 0; l->relu && p < size; p++)
            if (e->act[i + 1][p] <= 0)
                dy[p] = 0;
        if (l->weight >= 0) {
            bias_backward(e, l, dy, add);
            if (ready(arg, l->bias) < 0)
                return -1;
            if (l->kind == LAYER_DENSE)
                dense_backward(e, i, dy, add);
            else
                conv_backward(e, i, dy, add);
            if (ready(arg, l->weight) < 0)
                return -1;
        }
        if (i > 0)
            input_backward(e, i, dy, dx);
        swap = dy;
        dy = dx;
        dx = swap;
    }
    return 0;
}

static int engine_test(struct engine *e, double *loss, int *correct)
{
    forward(e);
    *loss = loss_of(e, NULL, 0, correct);
    return 0;
}

static void engine_update(struct engine *e, double lr, double momentum, double decay)
{
    for (int i = 0; i < e->model->nparams; i++) {
        REAL *w = e->weights[i],
             *v = e->momenta[i]; /* of the elements from .. to - 1 */
        const REAL *g = e->grads[i];
        /* Biases have no weight decay, as is usual. */
        REAL d = e->model->params[i].fan_in ? (REAL)decay : 0;

        for (size_t k = e->from[i]; k < e->to[i]; k++, v++) {
            *v = (REAL)momentum * *v + g[k] + d * w[k];
            w[k] -= (REAL)lr * *v;
        }
    }
}

const struct engine_ops OPS = {
    .name = "OpenBLAS",
    .dtype = DTYPE,
    .open = engine_open,
    .close = engine_close,
    .weights = engine_weights,
    .set_grad = engine_set_grad,
    .load = engine_load,
    .train = engine_train,
    .test = engine_test,
    .shard = engine_shard,
    .update = engine_update,
    .exchange = engine_exchange,
    .host_weights = engine_weights,
    .host_momenta = engine_momenta,
};
