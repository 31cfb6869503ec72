/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_model.h - a model's gradient list and compute, from a text file */
#ifndef MU_BENCH_MODEL_H
#define MU_BENCH_MODEL_H

#include <stddef.h>

#include "runtime/base/err.h"
#include "runtime/muster.h"

struct bench_gemm {
    int m, n, k, batch; /* forward: batch products of m x k by k x n */
};

/* Params, products and passes [first, first + n) of the arrays below belong to it. */
struct bench_layer {
    int param, nparams, gemm, ngemms, pass, npasses;
};

/* Layers and parameters in forward order. */
struct bench_model {
    enum muster_dtype dtype; /* of the gradients */
    int nlayers, nparams, ngemms, npasses;
    struct bench_layer *layer;
    struct muster_param *param; /* name, count and dtype are set */
    struct bench_gemm *gemm;
    size_t *pass;    /* elements of bf16 */
    size_t elements; /* of the largest operand of a product or pass */
    size_t grad_bytes;
};

/* Read a file by its path, which has a slash, or by its name in the models' folder.
 * Lines: "dtype f32", "layer NAME", "param NAME COUNT", "gemm M N K BATCH", "pass
 * ELEMENTS", comments from '#'. An error names the line.
 */
int bench_model_open(const char *name, struct bench_model *model, struct mu_err *err);
void bench_model_clear(struct bench_model *model);

#endif
