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
#define TURNS_LEAST 3
#define SCREEN_TURNS 5 /* of the first pass over all ways */
#define BATCH_US 20e3
#define WAY_US 250e3              /* of GPU time that a pass of a way may take */
#define HOPELESS 1.3              /* times NCCL's own choice: one turn is enough */
#define RAN_UP ((size_t)16 << 20) /* bytes: a call takes longer than a graph's launch */

struct tune {
    struct bench *b;
    struct mu_tuner_trial *trial;
    struct mu_plain *comm;
    void *send, *recv, *stream, *from, *to;
    void *graph[2]; /* of the way, and of NCCL's own choice */
    double last_us; /* of NCCL's own choice for the way before, on all ranks */
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

/* Fewer over a slow network. */
static int calls_of(const struct tune *t, const struct mu_tune_row *row)
{
    double fit = t->last_us > 0 ? BATCH_US / t->last_us : 40;
    int most = row->bytes > ((size_t)16 << 20)  ? 3
               : row->bytes > ((size_t)1 << 20) ? 10
                                                : 40;

    return fit < 1 ? 1 : fit < most ? (int)fit : most;
}

/* Us of a call. What is enqueued before the first mark brings the GPUs together, and
 * keeps them busy while the host launches what is measured.
 */
static double batch(struct tune *t, const struct mu_tune_row *row, bool own)
{
    struct one_call one = { t, row };
    void *graph = row->form == MU_TUNE_GRAPH ? t->graph[own] : NULL;
    int calls = calls_of(t, row);

    t->trial->own = own;
    if (graph && row->bytes <= RAN_UP)
        mu_gpu_replay(graph, t->stream);
    else
        call(&one);
    mu_gpu_mark(t->from, t->stream);
    if (graph)
        mu_gpu_replay(graph, t->stream);
    for (int i = 0; i < calls && !graph; i++)
        call(&one);
    mu_gpu_mark(t->to, t->stream);
    return mu_gpu_span(t->from, t->to) / calls;
}

/* Capture the calls of both sides; a call of the way is made before. */
static void capture(struct tune *t, const struct mu_tune_row *row)
{
    struct one_call one = { t, row };

    for (int own = 0; own < 2; own++) {
        t->trial->own = own;
        t->graph[own] = mu_gpu_capture(call, &one, calls_of(t, row), t->stream);
    }
}

static void free_graphs(struct tune *t)
{
    for (int own = 0; own < 2; own++) {
        if (t->graph[own])
            mu_gpu_capture_free(t->graph[own]);
        t->graph[own] = NULL;
    }
}

/* The slowest rank's times: all ranks decide alike. A rank that waits for another one
 * is not overdue itself.
 */
static void agree(struct tune *t, struct mu_tune_row *rows, int n)
{
    double us[2 * MU_TUNE_FORMS];

    for (int f = 0; f < n; f++) {
        us[2 * f] = rows[f].us;
        us[2 * f + 1] = rows[f].default_us;
    }
    alarm(0);
    if (muster_allreduce(t->b->m, us, 2 * (size_t)n, MUSTER_F64, MUSTER_MAX, NULL) !=
        MUSTER_OK)
        exit(muster_report(t->b->m));
    alarm(WAY_SECONDS);
    for (int f = 0; f < n; f++) {
        rows[f].us = us[2 * f];
        rows[f].default_us = us[2 * f + 1];
    }
}

/* After the first turn, whose times rows has: how many are worth it. */
static int turns_of(const struct tune *t, const struct mu_tune_row *rows, int n,
                    bool screen)
{
    double most = t->b->options->batches, fit, turn = 0;

    for (int f = 0; f < n; f++) {
        if (rows[f].us > HOPELESS * rows[f].default_us)
            return 1;
        turn += (rows[f].us + rows[f].default_us) * (calls_of(t, rows) + 1);
    }
    if (screen && most > SCREEN_TURNS)
        most = SCREEN_TURNS;
    fit = WAY_US / turn > TURNS_LEAST ? WAY_US / turn : TURNS_LEAST;
    return (int)(fit < most ? fit : most);
}

/* In turns, so that a form, a way and NCCL's own choice see the same neighbours. */
static void take_turns(struct tune *t, struct mu_tune_row *rows, int n, bool screen)
{
    double us[MU_TUNE_FORMS][2][TURNS_MAX];
    int turns = 1;

    for (int i = 0; i < turns; i++) {
        for (int f = 0; f < n; f++)
            for (int k = 0; k < 2; k++) {
                int own = (i + k + 1) % 2;

                us[f][own][i] = batch(t, &rows[f], own);
            }
        if (i > 0)
            continue;
        for (int f = 0; f < n; f++) {
            rows[f].us = us[f][false][0];
            rows[f].default_us = us[f][true][0];
        }
        agree(t, rows, n);
        turns = turns_of(t, rows, n, screen);
    }
    for (int f = 0; f < n; f++) {
        rows[f].us = bench_median(us[f][false], turns);
        rows[f].default_us = bench_median(us[f][true], turns);
    }
    agree(t, rows, n);
}

static int measure(void *arg, struct mu_tune_row *rows, int n, bool screen,
                   struct mu_err *err)
{
    struct tune *t = arg;
    struct one_call one = { t, rows };
    long taken = t->trial->taken;

    (void)err;
    watch(t, rows);
    t->trial->way = (struct mu_tune_span){ rows->func, rows->bytes, rows->bytes,
                                           rows->algo, rows->proto, rows->channels };
    t->trial->own = false;
    call(&one);
    if (t->trial->taken == taken) {
        alarm(0);
        return 1;
    }
    if (rows[n - 1].form == MU_TUNE_GRAPH)
        capture(t, rows);
    take_turns(t, rows, n, screen);
    free_graphs(t);
    t->last_us = rows->default_us;
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
    struct mu_tune_search search = {
        .func = func_of(b->options->tuned),
        .min = (b->options->min + whole - 1) / whole * whole,
        .max = b->options->max,
        .ranks = muster_size(b->m),
        .forms = { [MU_TUNE_STREAM] = !b->options->graph, [MU_TUNE_GRAPH] = true },
        .arg = &t,
        .measure = measure
    };
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
