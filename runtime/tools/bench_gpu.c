/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_gpu.c - muster bench on GPUs: the program that links CUDA */
#include "runtime/tools/bench.h"
#include "runtime/tools/bench_compare.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/api/impl.h" /* for a limit */
#include "runtime/backend/nccl/bench/gpu.h"

/* ---- Memory ---- */

static void copy(void *to, const void *from, size_t bytes, bool put)
{
    if (put)
        mu_gpu_put(to, from, bytes);
    else
        mu_gpu_get(to, from, bytes);
}

struct wait {
    void *stream;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
};

static void *wait_for_stream(void *arg)
{
    struct wait *w = arg;

    mu_gpu_sync(w->stream);
    pthread_mutex_lock(&w->lock);
    w->done = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Another thread waits: CUDA's own wait has no limit. After a failure it goes on until
 * the process ends.
 */
static bool settle_within(void *stream, double seconds)
{
    struct wait *w = calloc(1, sizeof *w);
    struct timespec until;
    pthread_t thread;
    bool done;

    if (!w)
        return false;
    *w = (struct wait){ .stream = stream,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER };
    if (pthread_create(&thread, NULL, wait_for_stream, w) != 0) {
        free(w);
        return false;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->lock);
    while (!w->done && pthread_cond_timedwait(&w->changed, &w->lock, &until) == 0) {
    }
    done = w->done;
    pthread_mutex_unlock(&w->lock);
    if (done) {
        pthread_join(thread, NULL);
        free(w);
    }
    return done;
}

static bool settle(void *stream, double seconds)
{
    if (seconds < MU_FOREVER)
        return settle_within(stream, seconds);
    mu_gpu_sync(stream);
    return true;
}

static const struct bench_memory memory = {
    .alloc = mu_gpu_alloc, .free = mu_gpu_free, .copy = copy, .settle = settle
};

/* ---- Start ---- */

static int end(struct muster *m, int rc)
{
    return muster_finalize(m) != MUSTER_OK && rc == 0 ? MUSTER_EINTERNAL : rc;
}

static int run(struct muster *m, const struct bench_options *options, double init_ms)
{
    struct bench b = { .options = options, .m = m, .memory = &memory };
    int rc;

    if (strcmp(options->kind, "tune") == 0)
        return end(m, bench_tune(&b));
    if (strcmp(muster_backend(m), "nccl") != 0) {
        fprintf(stderr,
                "muster bench: GPUs are needed, but the backend is %s; --host measures "
                "host memory\n",
                muster_backend(m));
        muster_finalize(m);
        return MUSTER_EDEVICE;
    }
    bench_module_open(&b);
    b.stream = mu_gpu_stream();
    bench_print(&b, "# %d x %s, %s, muster %s, muster_init %.0f ms\n", muster_size(m),
                mu_gpu_name(), muster_transport(m), muster_version(), init_ms);
    rc = strcmp(options->kind, "ddp") == 0       ? bench_ddp(&b)
         : strcmp(options->kind, "compare") == 0 ? bench_compare(&b, &bench_engine_gpu)
         : strcmp(options->kind, "beside") == 0  ? bench_beside(&b)
         : strcmp(options->kind, "pairs") == 0   ? bench_pairs(&b)
         : strcmp(options->kind, "lanes") == 0   ? bench_lanes(&b)
                                                 : bench_collectives(&b);
    return end(m, rc);
}

int main(int argc, char **argv)
{
    struct bench_options options;

    bench_options_read(argc, argv, &options);
    return bench_start(&options, run);
}
