/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_tune.c - muster bench tune: measures the ways of NCCL and prints a table for
 * Muster's tuner plugin
 *
 * The plugin itself makes NCCL take a way, in one communicator (tuner_trial.h), so that
 * a way and NCCL's own choice take turns within milliseconds.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/backend/nccl/bench/plain.h"
#include "runtime/core/tune_search.h"
#include "runtime/core/tuner_trial.h"
#include "runtime/tools/bench.h"

#define PLUGIN MUSTER_LIBDIR "/libnccl-tuner-muster.so"
#ifndef WAY_SECONDS    /* a test has less patience */
#define WAY_SECONDS 60 /* a way that takes longer at a size ends the program */
#endif
#define TURNS_MAX 1000
#define HOPELESS 1.3 /* times NCCL's own choice: one turn is enough */

struct tune {
    struct bench *b;
    struct mu_tuner_trial *trial;
    struct mu_plain *comm;
    void *send, *recv, *stream, *from, *to;
};

/* ---- A way that hangs ------------------------------------------------------------ */

static char overdue[256];

static void on_alarm(int signal)
{
    (void)signal;
    if (write(STDERR_FILENO, overdue, strlen(overdue)) < 0)
        _exit(MUSTER_EINTERNAL);
    _exit(MUSTER_ETIMEOUT);
}

static void watch(const struct tune *t, const struct mu_tune_row *row)
{
    snprintf(overdue, sizeof overdue,
             "muster bench: rank %d: %s of %llu bytes by %s %s with %d channels takes "
             "longer than %d s; leave the size out with --min or --max\n",
             muster_rank(t->b->m), mu_tune_func_name(row->func),
             (unsigned long long)row->bytes, mu_tune_algo_name(row->algo),
             mu_tune_proto_name(row->proto), row->channels, WAY_SECONDS);
    alarm(WAY_SECONDS);
}

/* ---- One way --------------------------------------------------------------------- */

struct one_call {
    struct tune *t;
    const struct mu_tune_row *row;
};

static void call(void *arg)
{
    const struct one_call *c = arg;

    mu_plain_call(c->t->comm, c->row->func, c->t->send, c->t->recv, c->row->bytes,
                  c->t->stream);
}

/* Us of a call. The call before the first mark switches the way, and brings the GPUs
 * together. In a graph no call waits for the host to launch it; the first replay moves
 * the graph to the GPU.
 */
static double batch(struct tune *t, const struct mu_tune_row *row, bool own)
{
    struct one_call one = { t, row };
    void *graph = NULL;
    double us;
    int calls = row->bytes > ((size_t)16 << 20)  ? 3
                : row->bytes > ((size_t)1 << 20) ? 10
                                                 : 40;

    t->trial->own = own;
    call(&one);
    if (t->b->options->graph) {
        graph = mu_gpu_capture(call, &one, calls, t->stream);
        mu_gpu_replay(graph, t->stream);
    }
    mu_gpu_mark(t->from, t->stream);
    if (graph)
        mu_gpu_replay(graph, t->stream);
    for (int i = 0; i < calls && !graph; i++)
        call(&one);
    mu_gpu_mark(t->to, t->stream);
    us = mu_gpu_span(t->from, t->to) / calls;
    if (graph)
        mu_gpu_capture_free(graph);
    return us;
}

/* The slowest rank's times: all ranks decide alike. */
static void agree(struct tune *t, double *us, double *default_us)
{
    double both[2] = { *us, *default_us };

    if (muster_allreduce(t->b->m, both, 2, MUSTER_F64, MUSTER_MAX, NULL) != MUSTER_OK)
        exit(muster_report(t->b->m));
    *us = both[0];
    *default_us = both[1];
}

static int measure(void *arg, struct mu_tune_row *row, struct mu_err *err)
{
    struct tune *t = arg;
    long taken = t->trial->taken;
    double us[TURNS_MAX], own[TURNS_MAX];
    int n = t->b->options->batches;

    (void)err;
    watch(t, row);
    t->trial->way = (struct mu_tune_span){ .algo = row->algo,
                                           .proto = row->proto,
                                           .channels = row->channels };
    batch(t, row, false);
    if (t->trial->taken == taken) {
        alarm(0);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        own[i] = batch(t, row, true);
        us[i] = batch(t, row, false);
        if (i > 0)
            continue;
        row->us = us[0];
        row->default_us = own[0];
        agree(t, &row->us, &row->default_us);
        if (row->us > HOPELESS * row->default_us)
            n = 1;
    }
    row->us = bench_median(us, n);
    row->default_us = bench_median(own, n);
    agree(t, &row->us, &row->default_us);
    alarm(0);
    return 0;
}

/* ---- The table ------------------------------------------------------------------- */

static int refuse(const struct tune *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static int refuse(const struct tune *t, const char *fmt, ...)
{
    va_list ap;

    if (muster_rank(t->b->m) == 0) {
        fputs("muster bench: ", stderr);
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputc('\n', stderr);
    }
    return 2;
}

/* Before the first communicator: NCCL then loads the same library. */
static int open_trial(struct tune *t)
{
    const char *path = getenv("NCCL_TUNER_PLUGIN");
    void *library;

    if (getenv("NCCL_ALGO") || getenv("NCCL_PROTO"))
        return refuse(
            t, "NCCL_ALGO and NCCL_PROTO decide what tune is to measure; unset them");
    path = path && strchr(path, '/') ? path : PLUGIN;
    library = dlopen(path, RTLD_NOW);
    t->trial = library ? dlsym(library, MU_TUNER_TRIAL) : NULL;
    if (!t->trial)
        return refuse(t,
                      "%s is not this Muster's tuner plugin: %s; name it in "
                      "NCCL_TUNER_PLUGIN",
                      path, dlerror());
    setenv("NCCL_TUNER_PLUGIN", path, 1);
    t->trial->on = true;
    t->trial->own = true;
    return 0;
}

static void open_comm(struct tune *t)
{
    struct muster *m = t->b->m;
    _Alignas(8) char id[MU_PLAIN_ID] = { 0 };
    int devices = mu_gpu_count();

    if (devices == 0) {
        fprintf(stderr, "muster bench: CUDA shows no GPU to rank %d\n", muster_rank(m));
        exit(MUSTER_EDEVICE);
    }
    if (muster_rank(m) == 0)
        mu_plain_id(id);
    if (muster_broadcast(m, id, sizeof id / 4, MUSTER_I32, 0, NULL) != MUSTER_OK)
        exit(muster_report(m));
    t->comm = mu_plain_open(devices > 1 ? muster_local_rank(m) % devices : 0,
                            muster_rank(m), muster_size(m), id);
    t->stream = mu_gpu_stream();
    t->from = mu_gpu_event();
    t->to = mu_gpu_event();
    t->send = mu_gpu_alloc(t->b->options->max);
    t->recv = mu_gpu_alloc(t->b->options->max);
    mu_gpu_set(t->send, t->b->options->max / 4, MUSTER_F32, 0, t->stream);
    mu_gpu_set(t->recv, t->b->options->max / 4, MUSTER_F32, 0, t->stream);
}

static int print_table(const struct tune *t, const struct mu_tune *table)
{
    char *text = mu_tune_format(table), *summary = mu_tune_summary(table);
    int rc = text && summary ? 0 : MUSTER_EMEMORY;

    if (rc == 0)
        bench_print(t->b, "%s%s", text, summary);
    free(summary);
    free(text);
    return rc;
}

static int func_of(const char *collective)
{
    return strcmp(collective, "allgather") == 0        ? MU_TUNE_ALLGATHER
           : strcmp(collective, "reduce-scatter") == 0 ? MU_TUNE_REDUCE_SCATTER
           : strcmp(collective, "broadcast") == 0      ? MU_TUNE_BROADCAST
                                                       : MU_TUNE_ALLREDUCE;
}

int bench_tune(struct bench *b)
{
    const size_t whole = 4 * (size_t)muster_size(b->m); /* elements of each rank */
    struct tune t = { .b = b };
    struct mu_tune_search search = { .func = func_of(b->options->tuned),
                                     .min =
                                         (b->options->min + whole - 1) / whole * whole,
                                     .max = b->options->max,
                                     .ranks = muster_size(b->m),
                                     .arg = &t,
                                     .measure = measure };
    struct mu_err err = { 0 };
    struct mu_tune table;
    int rc;

    if (search.ranks == 1)
        return refuse(&t, "one rank moves no data; start two, with srun or --ranks");
    if (search.min > search.max)
        return refuse(&t, "--max is less than an element of each rank, %zu bytes",
                      whole);
    if ((rc = open_trial(&t)) != 0)
        return rc;
    signal(SIGALRM, on_alarm);
    open_comm(&t);
    search.nccl = mu_plain_release();
    search.nodes = t.trial->nodes;
    if (search.nodes == 0)
        mu_err_set(&err, ENOTSUP,
                   "NCCL %d.%d.%d did not load the tuner plugin; interfaces for tuners "
                   "begin with 2.21",
                   search.nccl / 10000, search.nccl / 100 % 100, search.nccl % 100);
    if (search.nodes == 0 || mu_tune_search(&search, &table, &err) < 0)
        bench_die(&err);
    rc = print_table(&t, &table);
    mu_tune_clear(&table);
    mu_gpu_sync(t.stream);
    mu_plain_close(t.comm);
    return rc;
}
