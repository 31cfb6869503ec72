/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_compare_gpu.c - computes the steps of a model on a GPU */
#include <stdlib.h>

#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/tools/bench_compare.h"
#include "runtime/tools/bench_replay.h"

struct gpu_work {
    struct bench_replay *replay;
    void *stream;
    void *from, *to; /* events */
};

static void *open_work(struct bench *b, const struct bench_model *model,
                       void *const *grad, double us)
{
    /* Events stay for the program's life: they have no end in gpu.h. */
    static void *from, *to;
    struct gpu_work *w = calloc(1, sizeof *w);

    (void)us;
    if (!w)
        exit(MUSTER_EMEMORY);
    from = from ? from : mu_gpu_event();
    to = to ? to : mu_gpu_event();
    *w = (struct gpu_work){ bench_replay_open(model, grad, b->stream), b->stream, from,
                            to };
    return w;
}

static void forward(void *work)
{
    const struct gpu_work *w = work;

    mu_gpu_mark(w->from, w->stream);
    bench_replay_forward(w->replay);
}

static void backward(void *work, int layer)
{
    const struct gpu_work *w = work;

    bench_replay_backward(w->replay, layer);
}

static double end(void *work)
{
    const struct gpu_work *w = work;

    mu_gpu_mark(w->to, w->stream);
    return mu_gpu_span(w->from, w->to);
}

static void close_work(void *work)
{
    struct gpu_work *w = work;

    mu_gpu_sync(w->stream);
    bench_replay_close(w->replay);
    free(w);
}

const struct bench_engine bench_engine_gpu = { .open = open_work,
                                               .forward = forward,
                                               .backward = backward,
                                               .end = end,
                                               .close = close_work };
