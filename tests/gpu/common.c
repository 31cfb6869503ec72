/* SPDX-License-Identifier: BSD-3-Clause */
/* common.c - open the NCCL backend in a forked rank, for the GPU tests */
#include "tests/gpu/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_failed(void *arg, int rank, int status, const char *why)
{
    struct rank *r = arg;

    if (r->failed) {
        r->failed(r, rank, status, why);
        return;
    }
    fprintf(stderr, "# rank %d: failed: %s\n", r->world->rank, why);
    r->ops->abort(r->b, status, why);
}

void rank_open(struct rank *r, struct mu_world *world, double timeout)
{
    static struct mu_log log = { .level = MU_LOG_INFO };
    struct mu_err err = { 0 };
    struct mu_backend_env env = {
        .rank = world->rank,
        .size = world->size,
        .local_rank = world->local_rank,
        .local_size = world->local_size,
        .node = world->node,
        .nnodes = world->nnodes,
        .node_of = world->node_of,
        .host_of = (const char *const *)world->host_of,
        .job = world->job,
        .gpus = "",
        .init_timeout = 60,
        .timeout = timeout,
        .exchange = world->exchange,
        .log = &log,
        .failed = on_failed,
        .failed_arg = r,
    };

    if (getenv("MUSTER_LOG") && strcmp(getenv("MUSTER_LOG"), "debug") == 0)
        log.level = MU_LOG_DEBUG;
    r->world = world;
    r->ops = &mu_backend_nccl;
    if (r->ops->open(&env, &r->b, &err) < 0) {
        fprintf(stderr, "# rank %d: %s\n", world->rank, err.text);
        exit(err.code);
    }
    r->stream = mu_gpu_stream();
}

void rank_close(struct rank *r)
{
    r->ops->close(r->b);
    mu_world_close(r->world);
}

void run(struct rank *r, const struct mu_coll *coll)
{
    struct mu_request *request;
    struct mu_err err = { 0 };

    if (r->ops->start(r->b, coll, &request, &err) < 0 ||
        r->ops->join(r->b, request, r->stream, &err) < 0) {
        fprintf(stderr, "# rank %d: %s\n", r->world->rank, err.text);
        exit(err.code ? err.code : 1);
    }
}

void allreduce(struct rank *r, const void *send, void *recv, size_t count,
               enum muster_dtype dtype, enum muster_op op, double scale)
{
    struct mu_coll coll = {
        .kind = MU_COLL_ALLREDUCE,
        .dtype = dtype,
        .op = op,
        .send = send,
        .recv = recv,
        .count = count,
        .scale = scale,
        .stream = r->stream,
        .same_place = r->same_place,
        .what = "a test's all-reduce",
    };

    run(r, &coll);
}
