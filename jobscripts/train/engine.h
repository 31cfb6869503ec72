/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.h - forward, backward and update, behind one table of functions
 *
 * The training loop calls neither BLAS nor CUDA. An engine holds the weights, their
 * momenta and the activations of one batch; the loop decides where gradients are
 * stored.
 */
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include <stdint.h>

#include "jobscripts/train/data.h"
#include "jobscripts/train/model.h"
#include "runtime/muster.h"

struct engine;

/* err->code is a muster_status. */
struct engine_ops {
    const char *name; /* for the banner: "OpenBLAS on CPUs" */
    enum muster_dtype dtype;

    /* Weights from seed (equal on every rank), momenta zero. model is borrowed; device
     * is a CUDA index, ignored on CPUs; batch_max is the largest batch of a call.
     */
    int (*open)(const struct model *model, int device, int batch_max, uint64_t seed,
                struct engine **out, struct mu_err *err);
    void (*close)(struct engine *engine);

    void *(*weights)(struct engine *engine, int param); /* where the engine computes */
    void (*set_grad)(struct engine *engine, int param, void *grad);

    /* Make samples index[0..n-1] of data the batch of the calls below. */
    int (*load)(struct engine *engine, const struct dataset *data,
                const uint64_t *index, int n, struct mu_err *err);

    /* Forward and backward over the batch: gradients of scale * (sum of losses), added
     * to the stored ones when `add`, else stored. Calls ready(arg, param) as soon as
     * the gradient of that parameter is complete, last layer first; it returns 0, or -1
     * to stop. *loss is the unscaled sum.
     */
    int (*train)(struct engine *engine, double scale, int add,
                 int (*ready)(void *arg, int param), void *arg, double *loss);
    /* Forward only. */
    int (*test)(struct engine *engine, double *loss, int *correct);

    /* ZeRO-1: the weights of a parameter move to `weights` (borrowed). Only its
     * elements from .. to - 1 are updated and have momenta. NULL: the engine cannot do
     * that.
     */
    int (*shard)(struct engine *engine, int param, void *weights, size_t from,
                 size_t to, struct mu_err *err);

    /* v = momentum v + gradient + decay w; w = w - lr v */
    void (*update)(struct engine *engine, double lr, double momentum, double decay);

    /* Host copies of weights and momenta for checkpoint and checks: copy them there
     * (to_host != 0) or back; then host_weights and host_momenta point to them.
     */
    int (*exchange)(struct engine *engine, int to_host, struct mu_err *err);
    void *(*host_weights)(struct engine *engine, int param);
    void *(*host_momenta)(struct engine *engine, int param);
};

extern const struct engine_ops engine_cpu_f32;
extern const struct engine_ops engine_cpu_f64;

/* BLAS threads: OMP_NUM_THREADS or OPENBLAS_NUM_THREADS, else one. Call once before an
 * engine is opened; returns the number.
 */
int engine_cpu_threads(void);

#endif
