/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_compare_host.c - computes the steps of a model on a CPU
 *
 * The products of a real model would take a CPU minutes. So a step is a fixed amount of
 * arithmetic, and each layer has its share of it by the operations of its products.
 */
#include "runtime/tools/bench_compare.h"

#include <stdlib.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/core/dtype.h"

#define PROBE 2000000L /* operations whose time is measured */

struct host_work {
    const struct bench_model *model;
    void *const *grad;
    long forward;   /* operations */
    long *backward; /* by layer */
    double from;
};

/* A chain: each operation waits for the one before. The compiler cannot leave it out,
 * since a volatile is read and written.
 */
static void operate(long operations)
{
    volatile double kept = 0.5;
    double x = kept;

    for (long i = 0; i < operations; i++)
        x = x * 0.999999 + 1e-6;
    kept = x;
}

/* By the time that this thread had the CPU: the machine may be busy. */
static double operations_per_us(void)
{
    struct timespec from, to;
    double us;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    operate(PROBE);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    us = (double)(to.tv_sec - from.tv_sec) * 1e6 +
         (double)(to.tv_nsec - from.tv_nsec) * 1e-3;
    return us > 0 ? PROBE / us : 0;
}

static double products(const struct bench_model *m, const struct bench_layer *l)
{
    double sum = 0;

    for (int i = l->gemm; i < l->gemm + l->ngemms; i++)
        sum += (double)m->gemm[i].m * m->gemm[i].n * m->gemm[i].k * m->gemm[i].batch;
    return sum;
}

/* A third is the forward pass. Where a model has no products its layers are alike. */
static void *open_work(struct bench *b, const struct bench_model *model,
                       void *const *grad, double us)
{
    struct host_work *w = calloc(1, sizeof *w);
    double total = 0, operations = us > 0 ? us * operations_per_us() : 0;

    (void)b;
    if (!w || !(w->backward = calloc((size_t)model->nlayers + 1, sizeof(long))))
        exit(MUSTER_EMEMORY);
    w->model = model;
    w->grad = grad;
    w->forward = (long)(operations / 3);
    for (int i = 0; i < model->nlayers; i++)
        total += products(model, &model->layer[i]);
    for (int i = 0; i < model->nlayers; i++)
        w->backward[i] = (long)(operations * 2 / 3 *
                                (total > 0 ? products(model, &model->layer[i]) / total
                                           : 1.0 / model->nlayers));
    return w;
}

static void forward(void *work)
{
    struct host_work *w = work;

    w->from = mu_clock_s();
    operate(w->forward);
}

static void backward(void *work, int layer)
{
    const struct host_work *w = work;
    const struct bench_layer *l = &w->model->layer[layer];

    operate(w->backward[layer]);
    for (int i = l->param + l->nparams - 1; i >= l->param; i--) {
        float *grad = w->grad[i];

        for (size_t k = 0; k < w->model->param[i].count; k++)
            grad[k] = 0.5f;
    }
}

static double end(void *work)
{
    const struct host_work *w = work;

    return (mu_clock_s() - w->from) * 1e6;
}

static void close_work(void *work)
{
    struct host_work *w = work;

    free(w->backward);
    free(w);
}

const struct bench_engine bench_engine_host = { .scaled = true,
                                                .open = open_work,
                                                .forward = forward,
                                                .backward = backward,
                                                .end = end,
                                                .close = close_work };
