/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_compare.h - muster bench compare: one exchange of gradients against another
 */
#ifndef MU_BENCH_COMPARE_H
#define MU_BENCH_COMPARE_H

#include <stdbool.h>

#include "runtime/tools/bench.h"
#include "runtime/tools/bench_model.h"

/* What computes the steps of a model. Its functions end the program on failure. */
struct bench_engine {
    /* scaled: the computation takes `us`, which the caller chooses; else the model's
     * own time, and us is 0.
     */
    bool scaled;
    /* Gradient i is written to grad[i]. model and grad are borrowed until close. */
    void *(*open)(struct bench *b, const struct bench_model *model, void *const *grad,
                  double us);
    void (*forward)(void *work); /* the time begins here */
    /* Of one layer; then its gradients are written: 0.5 each. */
    void (*backward)(void *work, int layer);
    double (*end)(void *work); /* wait for all of the step: its us */
    void (*close)(void *work);
};

extern const struct bench_engine bench_engine_host, bench_engine_gpu;

int bench_compare(struct bench *b, const struct bench_engine *engine);

#endif
