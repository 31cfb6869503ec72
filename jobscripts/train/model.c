/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobscripts/train/model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

size_t layer_in(const struct layer *layer)
{
    return (size_t)layer->in_c * layer->in_h * layer->in_w;
}

size_t layer_out(const struct layer *layer)
{
    return (size_t)layer->out_c * layer->out_h * layer->out_w;
}

static int param_add(struct model *model, const char *layer, const char *what,
                     size_t count, int fan_in)
{
    struct model_param *param = &model->params[model->nparams];

    snprintf(param->name, sizeof param->name, "%s.%s", layer, what);
    param->count = count;
    param->fan_in = fan_in;
    model->nweights += count;
    return model->nparams++;
}

static struct layer *layer_add(struct model *model, enum layer_kind kind, int in_c,
                               int in_h, int in_w)
{
    struct layer *layer = &model->layers[model->nlayers++];

    *layer = (struct layer){
        .kind = kind, .in_c = in_c, .in_h = in_h, .in_w = in_w, .weight = -1, .bias = -1
    };
    return layer;
}

static void dense_add(struct model *model, const char *name, int in, int out, int relu)
{
    struct layer *layer = layer_add(model, LAYER_DENSE, in, 1, 1);

    layer->out_c = out;
    layer->out_h = layer->out_w = 1;
    layer->relu = relu;
    layer->weight = param_add(model, name, "weight", (size_t)in * out, in);
    layer->bias = param_add(model, name, "bias", out, 0);
}

/* Add a convolution with ReLU, then pooling. */
static void conv_add(struct model *model, const char *name, int in_c, int h, int w,
                     int out_c)
{
    struct layer *layer = layer_add(model, LAYER_CONV, in_c, h, w);
    int fan_in = in_c * 3 * 3;

    layer->kernel = 3;
    layer->out_c = out_c;
    layer->out_h = h;
    layer->out_w = w;
    layer->relu = 1;
    layer->weight = param_add(model, name, "weight", (size_t)fan_in * out_c, fan_in);
    layer->bias = param_add(model, name, "bias", out_c, 0);

    layer = layer_add(model, LAYER_POOL, out_c, h, w);
    layer->out_c = out_c;
    layer->out_h = h / 2;
    layer->out_w = w / 2;
}

int model_build(struct model *model, const char *kind, int rows, int cols, int hidden,
                int nclasses, struct mu_err *err)
{
    int flat = rows * cols;

    if (rows < 4 || cols < 4 || rows % 4 || cols % 4)
        return mu_err_set(err, EINVAL,
                          "images of %d x %d pixels: both numbers must be "
                          "multiples of 4",
                          rows, cols);
    memset(model, 0, sizeof *model);
    model->nclasses = nclasses;
    if (strcmp(kind, "mlp") == 0) {
        dense_add(model, "fc1", flat, hidden, 1);
        dense_add(model, "fc2", hidden, hidden, 1);
        dense_add(model, "fc3", hidden, nclasses, 0);
        snprintf(model->text, sizeof model->text, "mlp %d-%d-%d-%d", flat, hidden,
                 hidden, nclasses);
    } else if (strcmp(kind, "cnn") == 0) {
        conv_add(model, "conv1", 1, rows, cols, 16);
        conv_add(model, "conv2", 16, rows / 2, cols / 2, 32);
        dense_add(model, "fc1", 32 * flat / 16, hidden, 1);
        dense_add(model, "fc2", hidden, nclasses, 0);
        snprintf(model->text, sizeof model->text, "cnn 16c3-p2-32c3-p2-%d-%d", hidden,
                 nclasses);
    } else {
        return mu_err_set(err, EINVAL, "unknown model '%s': use mlp or cnn", kind);
    }
    return 0;
}
