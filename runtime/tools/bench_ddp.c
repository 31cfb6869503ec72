/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_ddp.c - replay the training step of a model: what its gradient exchange costs
 *
 * Steps without an exchange take turns with steps of Muster, or of Muster restricted to
 * one path. tests/gpu/ddp_twin.py does the same with PyTorch.
 */
#include "runtime/tools/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/base/clock.h"
#include "runtime/core/dtype.h"
#include "runtime/tools/bench_model.h"
#include "runtime/tools/bench_replay.h"

#define STEPS_MAX 1000
#define WARM 5

/* Seconds that the host spends in calls. */
struct host_time {
    double seconds;
    long calls;
};

struct replay {
    struct bench *b;
    struct bench_model model;
    struct bench_replay *work;
    struct muster_ddp *ddp;
    void **grad; /* where each gradient is written */
    void *event[3];
    /* grad_ready that only marks, grad_ready that starts a bucket, sync */
    struct host_time mark, start, sync;
};

static void add_time(struct host_time *t, double from)
{
    t->seconds += mu_clock_s() - from;
    t->calls++;
}

/* The gradients of the layer are ready. */
static void exchange(struct replay *r, const struct bench_layer *l)
{
    for (int i = l->param + l->nparams - 1; i >= l->param; i--) {
        uint64_t wire = muster_ddp_wire_bytes(r->ddp);
        double from = mu_clock_s();

        if (muster_ddp_grad_ready(r->ddp, i, r->b->stream) != MUSTER_OK)
            exit(muster_report(r->b->m));
        add_time(muster_ddp_wire_bytes(r->ddp) == wire ? &r->mark : &r->start, from);
    }
}

/* Run a step: its us, and in *tail those from the last gradient to the end. */
static double step(struct replay *r, bool sync, double *tail)
{
    int n = r->model.nlayers;
    double us;

    mu_gpu_mark(r->event[0], r->b->stream);
    bench_replay_forward(r->work);
    for (int l = n - 1; l >= 0; l--) {
        bench_replay_backward(r->work, l);
        if (sync)
            exchange(r, &r->model.layer[l]);
    }
    mu_gpu_mark(r->event[1], r->b->stream);
    if (sync) {
        double from = mu_clock_s();
        if (muster_ddp_sync(r->ddp, r->b->stream) != MUSTER_OK)
            exit(muster_report(r->b->m));
        add_time(&r->sync, from);
    }
    mu_gpu_mark(r->event[2], r->b->stream);
    us = mu_gpu_span(r->event[0], r->event[2]);
    *tail = mu_gpu_span(r->event[1], r->event[2]);
    return us;
}

/* Times of the slowest rank's steps, us. */
struct times {
    double median, least, most, tail;
};

static struct times slowest(struct replay *r, double *us, double *tail)
{
    int n = r->b->options->steps;
    double median = bench_median(us, n); /* sorts */
    float value[4] = { (float)median, (float)us[0], (float)us[n - 1],
                       (float)bench_median(tail, n) };
    void *here = mu_gpu_alloc(sizeof value);

    mu_gpu_put(here, value, sizeof value);
    if (muster_allreduce(r->b->m, here, 4, MUSTER_F32, MUSTER_MAX, r->b->stream) !=
        MUSTER_OK)
        exit(muster_report(r->b->m));
    mu_gpu_sync(r->b->stream);
    mu_gpu_get(value, here, sizeof value);
    mu_gpu_free(here);
    return (struct times){ value[0], value[1], value[2], value[3] };
}

/*
 * Steps without the exchange and with it take turns. The clock of a GPU falls as it
 * warms up, by more than an exchange costs, and must fall for both.
 */
static void timed(struct replay *r, struct times *without, struct times *with)
{
    double us[2][STEPS_MAX], tail[2][STEPS_MAX];

    for (int i = -WARM; i < r->b->options->steps; i++) {
        int at = i < 0 ? 0 : i;

        if (i == 0)
            r->mark = r->start = r->sync = (struct host_time){ 0 };
        for (int sync = 0; sync < 2; sync++)
            us[sync][at] = step(r, sync == 1, &tail[sync][at]);
    }
    *without = slowest(r, us[0], tail[0]);
    *with = slowest(r, us[1], tail[1]);
}

static void open_replay(struct replay *r)
{
    const struct bench_options *o = r->b->options;
    struct muster *m = r->b->m;
    int n = r->model.nparams;

    r->grad = calloc((size_t)n, sizeof *r->grad);
    if (!r->grad)
        exit(MUSTER_EMEMORY);
    for (int i = 0; o->own_grads && i < n; i++)
        r->model.param[i].grad =
            mu_gpu_alloc(r->model.param[i].count * mu_dtype_size(r->model.dtype));
    if (muster_ddp_create(m, r->model.param, n, NULL, &r->ddp) != MUSTER_OK)
        exit(muster_report(m));
    for (int i = 0; i < n; i++)
        r->grad[i] = muster_ddp_grad(r->ddp, i);
    for (int i = 0; i < 3; i++)
        r->event[i] = mu_gpu_event();
    r->work = bench_replay_open(&r->model, r->grad, r->b->stream);
}

static void close_replay(struct replay *r)
{
    mu_gpu_sync(r->b->stream);
    bench_replay_close(r->work);
    muster_ddp_destroy(r->ddp);
    free(r->grad);
    bench_model_clear(&r->model);
}

/* Each gradient is 0.5 on all ranks, so its mean is. */
static bool right(struct replay *r)
{
    bool ok = true;

    for (int i = 0; i < r->model.nparams && r->b->options->check; i++) {
        unsigned char here[8] = { 0 };
        size_t size = mu_dtype_size(r->model.dtype);
        const unsigned char half_f32[4] = { 0, 0, 0, 0x3f }, half_bf16[2] = { 0, 0x3f };

        if (r->model.param[i].count == 0)
            continue;
        mu_gpu_get(here, (char *)r->grad[i] + (r->model.param[i].count - 1) * size,
                   size);
        if (r->model.dtype == MUSTER_F32)
            ok = ok && memcmp(here, half_f32, 4) == 0;
        if (r->model.dtype == MUSTER_BF16)
            ok = ok && memcmp(here, half_bf16, 2) == 0;
    }
    return ok;
}

static const char *short_name(const char *model)
{
    const char *slash = strrchr(model, '/');

    return slash ? slash + 1 : model;
}

static void row(struct replay *r, const char *what, double alone, struct times t)
{
    bench_print(
        r->b,
        r->b->options->tsv
            ? "%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\n"
            : "%-18s %-17s %10.1f us (%.1f to %.1f)  exposed %8.1f us  tail %7.1f "
              "us  efficiency %6.2f %%\n",
        short_name(r->b->options->model), what, t.median, t.least, t.most,
        t.median - alone, t.tail, 100 * alone / t.median);
}

/* Microseconds of a call. */
static double each(const struct host_time *t)
{
    return t->calls > 0 ? t->seconds * 1e6 / (double)t->calls : 0;
}

/* One path for all buckets that can take it. */
static bool with_path(struct replay *r, const char *path)
{
    struct bench *b = r->b;
    struct times alone, t;
    char what[32];
    bool ok;

    if (bench_force(b, path) < 0)
        return true;
    snprintf(what, sizeof what, "muster, %s", path);
    timed(r, &alone, &t);
    ok = right(r);
    row(r, "without exchange", alone.median, alone);
    row(r, strcmp(path, "auto") == 0 ? "muster" : what, alone.median, t);
    bench_print(
        b,
        "# host: grad_ready %.2f us, %.1f us where it starts a bucket, sync %.1f "
        "us, per bucket %.1f us; %s\n",
        each(&r->mark), each(&r->start), each(&r->sync),
        (r->start.seconds + r->sync.seconds) * 1e6 /
            ((double)r->sync.calls * muster_ddp_buckets(r->ddp)),
        ok ? "gradients right" : "gradients WRONG");
    return ok;
}

int bench_ddp(struct bench *b)
{
    static const char *const paths[] = { "auto", "pull", "copy", "nccl" };
    const char *wanted = b->options->path;
    struct replay r = { .b = b };
    struct mu_err err = { 0 };
    bool ok = true;

    if (bench_model_open(b->options->model, &r.model, &err) < 0)
        bench_die(&err);
    open_replay(&r);
    bench_print(b, "# %s: %d tensor%s, %.1f MB of %s gradients in %d bucket%s%s\n",
                b->options->model, r.model.nparams, mu_plural(r.model.nparams),
                r.model.grad_bytes / 1e6, mu_dtype_name(r.model.dtype),
                muster_ddp_buckets(r.ddp), mu_plural(muster_ddp_buckets(r.ddp)),
                b->options->own_grads ? ", packed" : ", views");
    for (int i = 0; i < 4; i++)
        if (i == 0 || strcmp(wanted, "all") == 0 || strcmp(wanted, paths[i]) == 0)
            ok = with_path(&r, paths[i]) && ok;
    bench_force(b, "auto");
    close_replay(&r);
    return ok ? 0 : 1;
}
