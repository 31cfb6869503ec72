/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.c - muster bench: how fast the ranks of a step, or of this node, move data */
#include "runtime/tools/bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/api/impl.h" /* for the backend, which is measured directly */
#include "runtime/backend/nccl/bench/gpu.h"
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/core/dtype.h"
#include "runtime/tools/forked.h"

static const char usage_text[] =
    "usage: muster bench COLLECTIVE [OPTION]...\n"
    "       muster bench ddp --model NAME [OPTION]...\n"
    "COLLECTIVE: allreduce, allgather, reduce-scatter, broadcast or sendrecv;\n"
    "beside measures how much an all-reduce slows a matrix product down\n"
    "Run it as the tasks of a step (srun --mpi=pmix muster bench allreduce), or with "
    "--ranks\n"
    "on one node without a launcher.\n"
    "  --ranks N        fork N ranks on this node, one for each GPU\n"
    "  --min SIZE, --max SIZE   bytes of the buffer, in steps of 4; default 1K and 1G\n"
    "  --path PATH      auto (default), one-shot, pull, relay, copy, nccl, all\n"
    "  --dtype TYPE     f32 (default), f64, f16, bf16, i32, i64\n"
    "  --batches N      timed batches for median, minimum, maximum; default 11\n"
    "  --graph          capture the calls in a CUDA graph and replay it\n"
    "  --no-check       skip the comparison with a reference\n"
    "  --model NAME     resnet50, gpt2-124m, bert-large, llama-3.2-1b, or a file\n"
    "  --steps N        ddp: timed steps; default 30\n"
    "  --own-grads      ddp: gradients outside the buckets, packed when ready\n"
    "  --tsv            tab-separated values with a header line\n"
    "  --help           print this text\n";

static const char *const kinds[] = { "allreduce", "allgather", "reduce-scatter",
                                     "broadcast", "sendrecv",  "beside",
                                     "ddp",       NULL };
static const char *const dtypes[] = { "f32", "f64", "f16", "bf16", "i32", "i64", NULL };

static int run(struct muster *m, const struct bench_options *options, double init_ms)
{
    struct bench b = { .options = options, .m = m };
    int rc;

    if (strcmp(muster_backend(m), "nccl") != 0) {
        fprintf(stderr, "muster bench: GPUs are needed, but the backend is %s\n",
                muster_backend(m));
        muster_finalize(m);
        return MUSTER_EDEVICE;
    }
    bench_module_open(&b);
    b.stream = mu_gpu_stream();
    bench_print(&b, "# %d x %s, %s, muster %s, muster_init %.0f ms\n", muster_size(m),
                mu_gpu_name(), muster_transport(m), muster_version(), init_ms);
    rc = strcmp(options->kind, "ddp") == 0      ? bench_ddp(&b)
         : strcmp(options->kind, "beside") == 0 ? bench_beside(&b)
                                                : bench_collectives(&b);
    if (muster_finalize(m) != MUSTER_OK && rc == 0)
        rc = MUSTER_EINTERNAL;
    return rc;
}

/* The body of a rank that was forked here. */
static int forked(struct mu_world *world, void *arg)
{
    struct mu_config_env none = { 0 };
    struct mu_config config;
    struct mu_err err = { 0 };
    struct muster *m;
    double from = mu_clock_s();

    none.backend = getenv("MUSTER_BACKEND");
    none.log = getenv("MUSTER_LOG");
    if (mu_config_make(NULL, &none, &config, &err) < 0)
        bench_die(&err);
    if (mu_init_world(&m, &config, world) != MUSTER_OK)
        return muster_report(NULL);
    return run(m, arg, (mu_clock_s() - from) * 1e3);
}

static int launched(const struct bench_options *options)
{
    double from = mu_clock_s();
    struct muster *m;

    if (muster_init(&m, NULL) != MUSTER_OK)
        return muster_report(NULL);
    return run(m, options, (mu_clock_s() - from) * 1e3);
}

static void size_option(const char *what, const char *text, size_t *out)
{
    struct mu_err err = { 0 };
    uint64_t value;

    if (mu_parse_size(what, text, (uint64_t)1 << 40, &value, &err) < 0) {
        fprintf(stderr, "muster bench: %s\n", err.text);
        exit(2);
    }
    *out = value;
}

static int int_option(const char *what, const char *text, long max)
{
    struct mu_err err = { 0 };
    long value;

    if (mu_parse_int(what, text, 1, max, &value, &err) < 0) {
        fprintf(stderr, "muster bench: %s\n", err.text);
        exit(2);
    }
    return (int)value;
}

static void choice_option(const char *what, const char *text, const char *const *words,
                          int *out)
{
    int at = mu_parse_word(text, words);

    if (at < 0) {
        fprintf(stderr, "muster bench: unknown %s '%s'\n%s", what, text, usage_text);
        exit(2);
    }
    *out = at;
}

enum {
    OPT_RANKS = 256,
    OPT_MIN,
    OPT_MAX,
    OPT_PATH,
    OPT_DTYPE,
    OPT_BATCHES,
    OPT_GRAPH,
    OPT_NO_CHECK,
    OPT_MODEL,
    OPT_STEPS,
    OPT_OWN_GRADS,
    OPT_TSV,
};

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, OPT_RANKS },
    { "min", required_argument, NULL, OPT_MIN },
    { "max", required_argument, NULL, OPT_MAX },
    { "path", required_argument, NULL, OPT_PATH },
    { "dtype", required_argument, NULL, OPT_DTYPE },
    { "batches", required_argument, NULL, OPT_BATCHES },
    { "graph", no_argument, NULL, OPT_GRAPH },
    { "no-check", no_argument, NULL, OPT_NO_CHECK },
    { "model", required_argument, NULL, OPT_MODEL },
    { "steps", required_argument, NULL, OPT_STEPS },
    { "own-grads", no_argument, NULL, OPT_OWN_GRADS },
    { "tsv", no_argument, NULL, OPT_TSV },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

static void option(struct bench_options *o, int opt, const char *arg)
{
    int word;

    switch (opt) {
    case OPT_RANKS:
        o->ranks = int_option("--ranks", arg, MU_FORK_MAX);
        break;
    case OPT_MIN:
        size_option("--min", arg, &o->min);
        break;
    case OPT_MAX:
        size_option("--max", arg, &o->max);
        break;
    case OPT_PATH:
        if (strcmp(arg, "auto") != 0 && strcmp(arg, "all") != 0)
            choice_option("--path", arg, mu_algo_names, &word);
        o->path = arg;
        break;
    case OPT_DTYPE:
        choice_option("--dtype", arg, dtypes, &word);
        o->dtype = (enum muster_dtype)word;
        break;
    case OPT_BATCHES:
        o->batches = int_option("--batches", arg, 1000);
        break;
    case OPT_GRAPH:
        o->graph = true;
        break;
    case OPT_NO_CHECK:
        o->check = false;
        break;
    case OPT_MODEL:
        o->model = arg;
        break;
    case OPT_STEPS:
        o->steps = int_option("--steps", arg, 1000);
        break;
    case OPT_OWN_GRADS:
        o->own_grads = true;
        break;
    case OPT_TSV:
        o->tsv = true;
        break;
    case 'h':
        fputs(usage_text, stdout);
        exit(0);
    default:
        fputs(usage_text, stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    struct bench_options o = { .path = "auto",
                               .min = 1024,
                               .max = (size_t)1 << 30,
                               .batches = 11,
                               .steps = 30,
                               .check = true };
    int opt, kind;

    while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1)
        option(&o, opt, optarg);
    if (argc - optind != 1) {
        fputs(usage_text, stderr);
        return 2;
    }
    choice_option("collective", argv[optind], kinds, &kind);
    o.kind = kinds[kind];
    if (o.max < o.min || (strcmp(o.kind, "ddp") == 0) != (o.model != NULL)) {
        fprintf(stderr, "muster bench: %s\n%s",
                o.max < o.min ? "--max is below --min"
                              : "ddp needs --model, and only ddp takes it",
                usage_text);
        return 2;
    }
    return o.ranks ? mu_forked_run(o.ranks, true, 20, forked, &o) : launched(&o);
}
