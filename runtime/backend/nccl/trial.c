/* SPDX-License-Identifier: BSD-3-Clause */
/* trial.c - times of collectives by Muster's ways and by NCCL, in turns, on the memory
 * and the communicator of a program
 */
#include <string.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"

#define WAIT_SECONDS 10.0
#define HOLD_US 400 /* the launches of one turn take less on the host */
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
/* The peers map new memory within milliseconds; until then it is copied. */
#define MAPPING_CALLS 16
#define MAPPING_PAUSE 0.005 /* seconds, behind each */
#define ALIGN 256           /* of a rank's part */

/* One measurement under way. */
struct bench {
    struct mu_nccl_backend *b;
    mu_nccl_call_fn *nccl;
    void *arg;
    char *memory;
    size_t bytes; /* of it */
    cudaEvent_t from, to;
};

/* The largest that can be had, up to `most`. */
static void take_memory(struct bench *t, size_t most)
{
    for (t->bytes = most; t->bytes >= MIB; t->bytes /= 4) {
        if (cudaMalloc((void **)&t->memory, t->bytes) == cudaSuccess)
            return;
        cudaGetLastError();
        t->memory = NULL;
    }
    t->bytes = 0;
}

/* Collective: what all ranks have. */
static int agree(struct bench *t, struct mu_err *err)
{
    size_t all[MU_PEERS];

    if (mu_peers_collect(t->b, "mu.nccl.trial", &t->bytes, sizeof(t->bytes), all, err) <
        0)
        return -1;
    for (int i = 0; i < t->b->env.local_size; i++)
        if (all[i] < t->bytes)
            t->bytes = all[i];
    return 0;
}

/* In place, as NCCL has it. */
static struct mu_coll coll_of(const struct bench *t, const struct mu_trial *trial)
{
    const int rank = t->b->env.rank, n = t->b->env.size;
    const bool moves =
        trial->kind == MU_COLL_ALLGATHER || trial->kind == MU_COLL_BROADCAST;
    struct mu_coll c = { .kind = trial->kind,
                         .dtype = MUSTER_F32,
                         .op = MUSTER_SUM,
                         .send = t->memory,
                         .recv = t->memory,
                         .scale = 1.0,
                         .stream = t->b->stream,
                         .direct = true,
                         .what = "the measurement beside NCCL" };
    size_t bytes = trial->bytes, part = bytes / (size_t)n / ALIGN * ALIGN;

    if (trial->kind == MU_COLL_REDUCE_SCATTER || trial->kind == MU_COLL_ALLGATHER) {
        char *mine = t->memory + part * (size_t)rank;

        bytes = part;
        if (trial->kind == MU_COLL_ALLGATHER)
            c.send = mine;
        else
            c.recv = mine;
    }
    c.count = moves ? bytes : bytes / 4;
    return c;
}

/* One call; *there is false where Muster's way is not. */
static int call(struct bench *t, const struct mu_coll *c, const struct mu_trial *trial,
                bool by_nccl, bool *there, struct mu_err *err)
{
    *there = true;
    if (!by_nccl)
        return mu_nccl_carry((struct mu_backend *)t->b, c, trial->mapped, there, err);
    return t->nccl(t->arg, c) == 0
               ? 0
               : mu_err_set(err, MUSTER_EDEVICE, "NCCL refuses a call of %s", c->what);
}

/* us of one call, of several behind each other. */
static int turn(struct bench *t, const struct mu_trial *trial, bool by_nccl, int calls,
                float *us, struct mu_err *err)
{
    const struct mu_coll c = coll_of(t, trial);
    cudaError_t rc = trial->graph ? mu_hold(HOLD_US, t->b->stream) : cudaSuccess;
    bool there;
    float ms = 0;

    if (rc == cudaSuccess)
        rc = cudaEventRecord(t->from, t->b->stream);
    for (int i = 0; i < calls && rc == cudaSuccess; i++)
        if (call(t, &c, trial, by_nccl, &there, err) < 0)
            return -1;
    if (rc == cudaSuccess)
        rc = cudaEventRecord(t->to, t->b->stream);
    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, c.what);
    if (mu_nccl_wait(t->b, WAIT_SECONDS, err) < 0)
        return -1;
    cudaEventElapsedTime(&ms, t->from, t->to);
    *us = ms * 1000 / (float)calls;
    return 0;
}

static float least(float a, float b)
{
    return a > 0 && a < b ? a : b;
}

/* The least of some turns: other work on the node only adds to a time. */
static int measure(struct bench *t, struct mu_trial *trial, struct mu_err *err)
{
    const struct mu_coll c = coll_of(t, trial);
    const int calls = trial->bytes <= 256 * KIB ? 16 : trial->bytes <= 4 * MIB ? 8 : 3;
    const int turns = trial->bytes <= 4 * MIB ? 5 : 3;
    float us;
    bool there;

    trial->us = trial->nccl_us = 0;
    if (trial->bytes > t->bytes)
        return 0;
    /* The first call makes NCCL's connections for it, and finds out if ours is there.
     */
    if (call(t, &c, trial, false, &there, err) < 0)
        return -1;
    if (!there)
        return 0;
    if (call(t, &c, trial, true, &there, err) < 0 ||
        mu_nccl_wait(t->b, WAIT_SECONDS, err) < 0)
        return -1;
    for (int i = 0; i < turns; i++) {
        if (turn(t, trial, true, calls, &us, err) < 0)
            return -1;
        trial->nccl_us = least(trial->nccl_us, us);
        if (turn(t, trial, false, calls, &us, err) < 0)
            return -1;
        trial->us = least(trial->us, us);
    }
    return 0;
}

/* As many calls on all ranks. */
static int wait_for_mapping(struct bench *t, struct mu_err *err)
{
    const struct mu_trial trial = { .kind = MU_COLL_ALLREDUCE,
                                    .bytes = MIB / 4,
                                    .mapped = true };
    const struct mu_coll c = coll_of(t, &trial);
    bool there = true;

    for (int i = 0; i < MAPPING_CALLS && there; i++) {
        if (call(t, &c, &trial, false, &there, err) < 0 ||
            mu_nccl_wait(t->b, WAIT_SECONDS, err) < 0)
            return -1;
        mu_pause(MAPPING_PAUSE);
    }
    return 0;
}

static int open_bench(struct bench *t, size_t most, struct mu_err *err)
{
    cudaError_t rc = cudaSuccess;

    take_memory(t, most);
    if (agree(t, err) < 0)
        return -1;
    if (t->bytes == 0)
        return 0;
    rc = cudaMemsetAsync(t->memory, 0, t->bytes, t->b->stream);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&t->from);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&t->to);
    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "the measurement beside NCCL");
}

static void close_bench(struct bench *t)
{
    if (t->from)
        cudaEventDestroy(t->from);
    if (t->to)
        cudaEventDestroy(t->to);
    cudaFree(t->memory);
    cudaGetLastError();
}

int mu_nccl_trials(struct mu_backend *backend, struct mu_trial *trials, int n,
                   mu_nccl_call_fn *nccl, void *arg, struct mu_err *err)
{
    struct bench t = { .b = mu_nccl_of(backend), .nccl = nccl, .arg = arg };
    size_t most = 0;
    int rc, callers;

    for (int i = 0; i < n; i++)
        if (trials[i].bytes > most)
            most = trials[i].bytes;
    if (mu_device_enter(t.b, &callers) != cudaSuccess)
        return mu_err_set(err, MUSTER_EDEVICE, "CUDA refuses GPU %d", t.b->device);
    rc = open_bench(&t, most, err);
    if (rc == 0 && t.bytes > 0)
        rc = wait_for_mapping(&t, err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = measure(&t, &trials[i], err);
    close_bench(&t);
    memset(t.b->calls, 0, sizeof(t.b->calls)); /* those of the program are counted */
    mu_device_leave(t.b, callers);
    return rc;
}
