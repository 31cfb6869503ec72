/* SPDX-License-Identifier: BSD-3-Clause */
/* measure.c - times of the algorithms at start-up, equal on all ranks
 *
 * Each size runs a few times in a row on zeros. The buffer is a receive area of an
 * algorithm that is not being measured, and stays zero (the lines are followed by the
 * parts). NCCL is measured too, so its connections exist before the first step.
 */
#include <string.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"

#define REPEATS 4
#define MEASURE_BYTES ((size_t)6 << 20)
#define HOLD_US 60
#define HOLD_NCCL_US 1500
#define KIB ((size_t)1 << 10)

static const size_t sizes[MU_ALGOS][MU_ALGO_POINTS] = {
    [MU_ALGO_ONE_SHOT] = { 4 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB },
    [MU_ALGO_PULL] = { 512 * KIB, 2048 * KIB, 12288 * KIB, 49152 * KIB },
    [MU_ALGO_OWN] = { 512 * KIB, 2048 * KIB, 12288 * KIB, 49152 * KIB },
    [MU_ALGO_RELAY] = { 64 * KIB, 512 * KIB, 2048 * KIB, 6144 * KIB },
    [MU_ALGO_NCCL] = { 64 * KIB, 2048 * KIB, 12288 * KIB, 49152 * KIB },
};

static void coll_fill(struct mu_nccl_backend *b, enum mu_algo algo, size_t bytes,
                      struct mu_coll *coll, struct mu_places *places)
{
    const struct mu_reach *r = &b->reach;

    *coll = (struct mu_coll){
        .kind = MU_COLL_ALLREDUCE,
        .dtype = MUSTER_F32,
        .op = MUSTER_SUM,
        .count = bytes / 4,
        .scale = 1.0,
        .what = "the start-up measurement",
    };
    for (int i = 0; i < r->n; i++) {
        places->peer[i] = r->lines[i];
        places->there[i] = b->control_there[i] + (r->lines[r->rank] - b->control);
    }
    coll->recv = algo == MU_ALGO_PULL || algo == MU_ALGO_OWN || algo == MU_ALGO_NCCL
                     ? r->lines[r->rank]
                     : b->measure_buffer;
    coll->send = coll->recv;
}

/* *call_us: host time of one call. */
static int time_point(struct mu_nccl_backend *b, enum mu_algo algo, size_t bytes,
                      cudaEvent_t *between, float *us, float *call_us,
                      struct mu_err *err)
{
    struct mu_coll coll;
    struct mu_places places;
    cudaError_t rc = cudaSuccess;
    double from;
    float ms = 0;

    coll_fill(b, algo, bytes, &coll, &places);
    if (algo == MU_ALGO_NCCL && !b->nccl_warm &&
        mu_nccl_launch(b, &coll, algo, &places, err) < 0)
        return -1; /* the first call makes NCCL's connections */
    b->nccl_warm = true;
    /* All launches are enqueued before the first one begins, so that host time does not
     * count.
     */
    rc = mu_hold(algo == MU_ALGO_NCCL ? HOLD_NCCL_US : HOLD_US, b->stream);
    from = mu_clock_s();
    for (int i = 0; i <= REPEATS && rc == cudaSuccess; i++) {
        if (mu_nccl_launch(b, &coll, algo, &places, err) < 0)
            return -1;
        if (i == 0) /* the first of each size warms up */
            rc = cudaEventRecord(between[0], b->stream);
    }
    *call_us = (float)((mu_clock_s() - from) * 1e6 / (REPEATS + 1));
    if (rc == cudaSuccess)
        rc = cudaEventRecord(between[1], b->stream);
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, "the start-up measurement");
    if (mu_nccl_wait(b, b->env.init_timeout, err) < 0)
        return -1;
    cudaEventElapsedTime(&ms, between[0], between[1]);
    *us = ms * 1000 / REPEATS;
    return 0;
}

/* Use the slowest rank's times on all ranks: different tables would make them choose
 * different algorithms.
 */
static int agree(struct mu_nccl_backend *b, struct mu_err *err)
{
    float flat[MU_ALGOS][MU_ALGO_POINTS + 1];
    const size_t n = sizeof flat / sizeof flat[0][0];
    const struct mu_work greatest = { .send = b->scratch,
                                      .recv = b->scratch,
                                      .count = n,
                                      .dtype = MUSTER_F32,
                                      .op = MUSTER_MAX,
                                      .scale = 1.0 };
    cudaError_t rc;

    for (int p = 0; p < MU_ALGOS; p++) {
        memcpy(flat[p], b->table.curve[p].us, sizeof b->table.curve[p].us);
        flat[p][MU_ALGO_POINTS] = b->table.curve[p].call_us;
    }
    rc = cudaMemcpyAsync(b->scratch, flat, sizeof flat, cudaMemcpyHostToDevice,
                         b->stream);
    if (rc == cudaSuccess)
        rc = mu_one_shot(&b->reach, &greatest, 1, 256, b->stream);
    if (rc == cudaSuccess)
        rc = cudaMemcpyAsync(flat, b->scratch, sizeof flat, cudaMemcpyDeviceToHost,
                             b->stream);
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, "agreeing on the start-up measurement");
    if (mu_nccl_wait(b, b->env.init_timeout, err) < 0)
        return -1;
    for (int p = 0; p < MU_ALGOS; p++) {
        memcpy(b->table.curve[p].us, flat[p], sizeof b->table.curve[p].us);
        b->table.curve[p].call_us = flat[p][MU_ALGO_POINTS];
    }
    return 0;
}

static int measure_algo(struct mu_nccl_backend *b, enum mu_algo algo,
                        cudaEvent_t *between, struct mu_err *err)
{
    struct mu_algo_curve *curve = &b->table.curve[algo];
    float call_us;

    for (int i = 0; i < MU_ALGO_POINTS; i++) {
        size_t bytes = sizes[algo][i];

        if ((algo == MU_ALGO_ONE_SHOT && bytes > mu_one_shot_limit(&b->reach, 4)) ||
            (algo == MU_ALGO_RELAY && !mu_relay_fits(&b->reach, bytes)) ||
            (algo == MU_ALGO_OWN && !b->ours.open))
            break;
        curve->bytes[i] = (float)bytes;
        if (time_point(b, algo, bytes, between, &curve->us[i], &call_us, err) < 0)
            return -1;
        if (i == 0 || call_us < curve->call_us)
            curve->call_us = call_us;
        curve->n = i + 1;
    }
    return 0;
}

/* From now on, the time limit is that of collectives. */
static void ready(struct mu_nccl_backend *b)
{
    b->reach.limit_ns = (uint64_t)(b->env.timeout * 1e9);
    b->words->stuck = 0;
}

int mu_measure(struct mu_nccl_backend *b, struct mu_err *err)
{
    /* Algorithms that use the relay's area as zeros precede the relay. */
    static const enum mu_algo order[] = { MU_ALGO_NCCL, MU_ALGO_PULL, MU_ALGO_OWN,
                                          MU_ALGO_ONE_SHOT, MU_ALGO_RELAY };
    cudaEvent_t between[2] = { NULL, NULL };
    cudaError_t crc;
    int rc = -1;

    if (!b->own)
        return 0;
    if (b->env.communicator) { /* the choice is fixed: the same bits in each run */
        ready(b);
        return 0;
    }
    crc = cudaMalloc(&b->measure_buffer, MEASURE_BYTES);
    if (crc == cudaSuccess)
        crc = cudaMemsetAsync(b->measure_buffer, 0, MEASURE_BYTES, b->stream);
    for (int i = 0; i < 2 && crc == cudaSuccess; i++)
        crc = cudaEventCreate(&between[i]);
    if (crc != cudaSuccess) {
        mu_cuda_err(err, crc, "the start-up measurement");
        goto out;
    }
    for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++)
        if (measure_algo(b, order[k], between, err) < 0)
            goto out;
    rc = agree(b, err);
    ready(b);
out:
    for (int i = 0; i < 2; i++)
        if (between[i])
            cudaEventDestroy(between[i]);
    cudaFree(b->measure_buffer);
    b->measure_buffer = NULL;
    return rc;
}
