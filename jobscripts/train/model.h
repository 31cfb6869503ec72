/* SPDX-License-Identifier: BSD-3-Clause */
/* model.h - the shape of a net: its layers and its parameters, without computation */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stddef.h>

#include "runtime/base/err.h"

#define MODEL_LAYERS 8
#define MODEL_PARAMS 16

enum layer_kind {
    LAYER_DENSE, /* y = W x + b; weight is out x in */
    LAYER_CONV,  /* stride 1, zero padding that keeps height and width;
                    weight is out x (in * kernel * kernel) */
    LAYER_POOL,  /* maximum of 2 x 2 */
};

/* Activations are channel, row, column per sample. */
struct layer {
    enum layer_kind kind;
    int in_c, in_h, in_w;
    int out_c, out_h, out_w;
    int kernel;
    int relu;         /* a ReLU follows */
    int weight, bias; /* indices into model.params, -1 without */
};

struct model_param {
    char name[32];
    size_t count;
    int fan_in; /* 0 for a bias: starts at zero */
};

struct model {
    char text[64]; /* "mlp 784-256-256-10" */
    int nlayers, nparams, nclasses;
    size_t nweights; /* elements of all parameters */
    struct layer layers[MODEL_LAYERS];
    struct model_param params[MODEL_PARAMS];
};

/* kind "mlp": rows*cols - hidden - hidden - nclasses; "cnn": two 3x3 convolutions of 16
 * and 32 channels with pooling, then hidden and nclasses. rows and cols a multiple
 * of 4.
 */
int model_build(struct model *model, const char *kind, int rows, int cols, int hidden,
                int nclasses, struct mu_err *err);

size_t layer_in(const struct layer *layer); /* elements per sample */
size_t layer_out(const struct layer *layer);

#endif
