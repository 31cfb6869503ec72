/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_options.c - the command line of muster bench */
#include "runtime/tools/bench.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/tools/fork_ranks.h"

static const char usage_text[] =
    "usage: muster bench COLLECTIVE [OPTION]...\n"
    "       muster bench --host [COLLECTIVE] [OPTION]...\n"
    "       muster bench ddp --model NAME [OPTION]...\n"
    "       muster bench compare [--host] [--model NAME] [OPTION]...\n"
    "       muster bench pairs [--host] [OPTION]...\n"
    "       muster bench lanes [--host] [OPTION]...\n"
    "       muster bench tune [COLLECTIVE] [OPTION]... >TABLE\n"
    "COLLECTIVE: allreduce, allgather, reduce-scatter, broadcast, alltoall or "
    "sendrecv;\n"
    "beside measures how much an all-reduce slows a matrix product down;\n"
    "compare measures what buckets, overlap and compression gain over DataParallel "
    "and\n"
    "plain DDP, beside what published tutorials report for them;\n"
    "pairs measures latency and bandwidth from each rank to each other one, and "
    "names\n"
    "slow pairs;\n"
    "lanes measures 1, 2, ... pairs of ranks that send between two nodes at once: how\n"
    "many NICs add to the bandwidth;\n"
    "tune prints a table for Muster's tuner plugin of NCCL\n"
    "Run it as the tasks of a step (srun --mpi=pmix muster bench allreduce), or with "
    "--ranks\n"
    "on one node without a launcher.\n"
    "  --host           without GPUs: host memory, over shared memory and TCP; "
    "without\n"
    "                   COLLECTIVE all of them; also reduce, gather, scatter, send "
    "and\n"
    "                   barrier\n"
    "  --ranks N        fork N ranks on this node, one for each GPU\n"
    "  --min SIZE, --max SIZE   bytes of the buffer, in steps of 4; default 1K and "
    "1G,\n"
    "                   with --host 16 and 16M; pairs, lanes: of the "
    "message\n"
    "                   for latency and of that for bandwidth, default 4 and 4M, on "
    "GPUs 64M\n"
    "  --path PATH      auto (default), one-shot, pull, relay, own, copy, nccl, all\n"
    "  --dtype TYPE     f32 (default), f64, f16, bf16, i32, i64\n"
    "  --batches N      timed batches for median, minimum, maximum; default 11\n"
    "  --graph          capture the calls in a CUDA graph and replay it\n"
    "  --no-check       skip the comparison with a reference\n"
    "  --model NAME     resnet50, gpt2-124m, bert-large, llama-3.2-1b, or a file; "
    "compare:\n"
    "                   default resnet50\n"
    "  --steps N        ddp, compare: timed steps; default 30, compare --host 9\n"
    "  --own-grads      ddp: gradients outside the buckets, packed when ready\n"
    "  --limit SECONDS  pairs: of the first message of a pair; default 10\n"
    "  --rating GBS     pairs: what the link is rated; a pair is slow below 60 % of "
    "it\n"
    "  --slow N         pairs: slow is below 1/N of the median bandwidth, or above "
    "1.5 N\n"
    "                   times the median latency; default 2\n"
    "  --svg FILE       pairs: draw the bandwidths into a file\n"
    "  --tsv            tab-separated values with a header line\n"
    "  --help           print this text\n";

static const char *const kinds[] = {
    "allreduce", "allgather", "reduce-scatter", "broadcast", "sendrecv", "reduce",
    "gather",    "scatter",   "alltoall",       "send",      "barrier",  "beside",
    "ddp",       "tune",      "pairs",          "lanes",     "compare",  NULL
};
static const char *const on_host_only[] = { "reduce", "gather",  "scatter",
                                            "send",   "barrier", NULL };
static const char *const dtypes[] = { "f32", "f64", "f16", "bf16", "i32", "i64", NULL };

static void refuse(const char *why, const char *word)
{
    fprintf(stderr, "muster bench: %s%s; see muster bench --help\n", why, word);
    exit(2);
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

static double double_option(const char *what, const char *text, double min, double max)
{
    struct mu_err err = { 0 };
    double value;

    if (mu_parse_double(what, text, min, max, &value, &err) < 0) {
        fprintf(stderr, "muster bench: %s\n", err.text);
        exit(2);
    }
    return value;
}

static void choice_option(const char *what, const char *text, const char *const *words,
                          int *out)
{
    int at = mu_parse_word(text, words);

    if (at < 0) {
        fprintf(stderr, "muster bench: unknown %s '%s'; see muster bench --help\n",
                what, text);
        exit(2);
    }
    *out = at;
}

enum {
    OPT_HOST = 256,
    OPT_RANKS,
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
    OPT_LIMIT,
    OPT_RATING,
    OPT_SLOW,
    OPT_SVG,
    OPT_TSV,
};

static const struct option long_options[] = {
    { "host", no_argument, NULL, OPT_HOST },
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
    { "limit", required_argument, NULL, OPT_LIMIT },
    { "rating", required_argument, NULL, OPT_RATING },
    { "slow", required_argument, NULL, OPT_SLOW },
    { "svg", required_argument, NULL, OPT_SVG },
    { "tsv", no_argument, NULL, OPT_TSV },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

static const char *path_option(const char *arg)
{
    int word;

    if (strcmp(arg, "auto") != 0 && strcmp(arg, "all") != 0)
        choice_option("--path", arg, mu_algo_names, &word);
    return arg;
}

static void option(struct bench_options *o, int opt, const char *arg)
{
    int word;

    switch (opt) {
    case OPT_HOST:
        o->host = true;
        break;
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
        o->path = path_option(arg);
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
    case OPT_LIMIT:
        o->limit = double_option("--limit", arg, 1e-3, 86400);
        break;
    case OPT_SLOW:
        o->pairs.slow = double_option("--slow", arg, 1, 1e6);
        break;
    case OPT_RATING:
        o->pairs.rating = double_option("--rating", arg, 1e-3, 1e6);
        break;
    case OPT_SVG:
        o->svg = arg;
        break;
    case OPT_TSV:
        o->tsv = true;
        break;
    }
}

/* The first option that needs a GPU, or NULL. */
static const char *gpu_option(const struct bench_options *o)
{
    return strcmp(o->path, "auto") != 0 ? "--path"
           : o->graph                   ? "--graph"
           : o->own_grads               ? "--own-grads"
                                        : NULL;
}

static bool is_kind(const struct bench_options *o, const char *kind)
{
    return strcmp(o->kind, kind) == 0;
}

/* Why these options do not go together; NULL: they do. */
static const char *conflict(const struct bench_options *o)
{
    static char text[128];
    bool ddp = is_kind(o, "ddp"), compare = is_kind(o, "compare");
    const char *needs_gpu = gpu_option(o);

    if (o->max < o->min)
        return "--max is below --min";
    if (o->host && (is_kind(o, "beside") || is_kind(o, "tune") || ddp))
        needs_gpu = o->kind;
    if (o->host && needs_gpu) {
        snprintf(text, sizeof text, "%s needs GPUs; leave --host or %s out", needs_gpu,
                 needs_gpu);
        return text;
    }
    if (is_kind(o, "tune") &&
        ((needs_gpu && strcmp(needs_gpu, "--graph") != 0) || o->own_grads || o->tsv ||
         !o->check || o->dtype != MUSTER_F32))
        return "tune takes --ranks, --min, --max, --batches and --graph only";
    if (is_kind(o, "pairs") && (needs_gpu || !o->check || o->dtype != MUSTER_F32))
        return "pairs takes --host, --ranks, --min, --max, --batches, --limit, "
               "--rating, --slow, --svg and --tsv only";
    if (is_kind(o, "lanes") && (needs_gpu || !o->check || o->dtype != MUSTER_F32))
        return "lanes takes --host, --ranks, --max, --batches and --tsv only";
    if (!is_kind(o, "pairs") &&
        (o->limit > 0 || o->pairs.rating > 0 || o->pairs.slow > 0 || o->svg))
        return "--limit, --rating, --slow and --svg belong to pairs";
    if (!o->host && mu_parse_word(o->kind, on_host_only) >= 0) {
        snprintf(text, sizeof text, "%s is measured with --host only", o->kind);
        return text;
    }
    if (compare && (needs_gpu || o->dtype != MUSTER_F32))
        return "compare takes --host, --ranks, --model, --steps, --no-check and --tsv "
               "only";
    if (ddp != (o->model != NULL) && !compare)
        return "ddp needs --model, and only ddp and compare take it";
    return NULL;
}

/* What tune measures. */
static const char *tuned(const char *text)
{
    static const char *const words[] = { "allreduce", "allgather", "reduce-scatter",
                                         "broadcast", NULL };
    int word;

    choice_option("collective of tune", text, words, &word);
    return words[word];
}

static void take_defaults(struct bench_options *o)
{
    bool pairs = is_kind(o, "pairs") || is_kind(o, "lanes"),
         compare = is_kind(o, "compare");

    if (o->steps == 0)
        o->steps = compare && o->host ? 9 : 30;
    if (o->min == 0)
        o->min = pairs ? 4 : o->host ? 16 : 1024;
    if (o->max == 0)
        o->max = (size_t)1 << (pairs ? (o->host ? 22 : 26) : o->host ? 24 : 30);
}

void bench_options_read(int argc, char **argv, struct bench_options *out)
{
    struct bench_options o = { .path = "auto", .batches = 11, .check = true };
    const char *wrong;
    int opt, kind, words;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        if (opt == 'h') {
            fputs(usage_text, stdout);
            exit(0);
        }
        if (opt == '?')
            refuse("this option is unknown or lacks its value: ", argv[optind - 1]);
        option(&o, opt, optarg);
    }
    if (argc == optind && !o.host)
        refuse("give a collective, or --host for all of them in host memory", "");
    words = argc > optind && strcmp(argv[optind], "tune") == 0 ? 2 : 1;
    if (argc - optind > words)
        refuse("a word too many: ", argv[optind + words]);
    o.kind = "all";
    if (optind < argc) {
        choice_option("collective", argv[optind], kinds, &kind);
        o.kind = kinds[kind];
    }
    o.tuned = optind + 1 < argc ? tuned(argv[optind + 1]) : "allreduce";
    take_defaults(&o);
    wrong = conflict(&o);
    if (wrong)
        refuse(wrong, "");
    if (is_kind(&o, "compare") && !o.model)
        o.model = "resnet50";
    o.limit = o.limit > 0 ? o.limit : 10;
    o.pairs.slow = o.pairs.slow > 0 ? o.pairs.slow : MU_PAIR_SLOW;
    *out = o;
}
