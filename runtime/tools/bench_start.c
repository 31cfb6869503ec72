/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_start.c - the ranks of muster bench: those of a step, or forked here */
#include "runtime/tools/bench.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/api/impl.h" /* for a world that exists */
#include "runtime/base/clock.h"
#include "runtime/tools/forked.h"

struct start {
    const struct bench_options *options;
    struct muster_options world;
    bench_run *run;
};

/* The body of a rank that was forked here. */
static int forked(struct mu_world *world, void *arg)
{
    const struct start *start = arg;
    struct mu_config_env env = { 0 };
    struct mu_config config;
    struct mu_err err = { 0 };
    struct muster *m;
    double from = mu_clock_s();

    env.backend = getenv("MUSTER_BACKEND");
    env.transport = getenv("MUSTER_TRANSPORT");
    env.log = getenv("MUSTER_LOG");
    env.map_memory = getenv("MUSTER_MAP_MEMORY");
    if (mu_config_make(&start->world, &env, &config, &err) < 0)
        bench_die(&err);
    if (mu_init_world(&m, &config, world) != MUSTER_OK)
        return muster_report(NULL);
    return start->run(m, start->options, (mu_clock_s() - from) * 1e3);
}

static int launched(const struct start *start)
{
    double from = mu_clock_s();
    struct muster *m;

    if (muster_init(&m, &start->world) != MUSTER_OK)
        return muster_report(NULL);
    return start->run(m, start->options, (mu_clock_s() - from) * 1e3);
}

int bench_start(const struct bench_options *options, bench_run *run)
{
    /* tune has a communicator of NCCL of its own. */
    bool host = options->host || strcmp(options->kind, "tune") == 0;
    struct start start = { .options = options,
                           .world.backend = host ? "host" : NULL,
                           .run = run };

    if (strcmp(options->path, "own") == 0 || strcmp(options->path, "all") == 0)
        setenv("MUSTER_MAP_MEMORY", "1", 0);
    return options->ranks
               ? mu_forked_run(options->ranks, !options->host, 20, forked, &start)
               : launched(&start);
}
