/* SPDX-License-Identifier: BSD-3-Clause */
/* open.c - the table of the NCCL backend: open, close, abort in the order of the layers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"

#define ABORT_WAIT 5 /* seconds that close waits for ncclCommAbort */

/* ---- Address records: published by each rank before anything is connected -------- */

static int record_fill(struct mu_nccl_backend *b, struct mu_nccl_record *record,
                       struct mu_err *err)
{
    struct cudaDeviceProp prop;
    int version = 0;
    cudaError_t rc = cudaGetDeviceProperties(&prop, b->device);

    if (rc != cudaSuccess)
        return mu_cuda_err(err, rc, "cudaGetDeviceProperties");
    memcpy(record->uuid, prop.uuid.bytes, sizeof(record->uuid));
    snprintf(record->pci, sizeof(record->pci), "%s", b->pci);
    ncclGetVersion(&version);
    record->nccl = version;
    record->capability = prop.major * 10 + prop.minor;
    mu_comm_take(b, record);
    if (b->env.size > 1 && !b->env.communicator &&
        mu_comm_is_root(b->env.rank, b->env.size)) {
        ncclResult_t nrc = ncclGetUniqueId(&record->id);

        if (nrc != ncclSuccess)
            return mu_nccl_err(err, b, nrc,
                               "no NCCL id (is NCCL_SOCKET_IFNAME an interface here?)");
    }
    return mu_peers_prepare(b, record, err);
}

static int record_fetch(struct mu_nccl_backend *b, int rank, struct mu_err *err)
{
    const struct mu_exchange *x = &b->env.exchange;
    void *value = NULL;
    size_t len = 0;
    int rc = 0;

    if (x->fetch(x->arg, rank, "mu.nccl.record", &value, &len, b->env.init_timeout,
                 err) < 0)
        return -1;
    if (len != sizeof(struct mu_nccl_record))
        rc = mu_err_set(err, MUSTER_ECONTRACT,
                        "rank %d (node %s) runs another version of the nccl backend",
                        rank, b->env.host_of[rank]);
    else
        memcpy(&b->records[rank], value, len);
    free(value);
    if (rc == 0 && b->records[rank].nccl != b->records[b->env.rank].nccl)
        rc = mu_err_set(
            err, MUSTER_ECONTRACT,
            "rank %d (node %s) loaded NCCL %d, rank %d (node %s) NCCL %d: the ranks "
            "must run the same version",
            rank, b->env.host_of[rank], b->records[rank].nccl, b->env.rank,
            b->env.host_of[b->env.rank], b->records[b->env.rank].nccl);
    return rc;
}

static int records_exchange(struct mu_nccl_backend *b, struct mu_err *err)
{
    const struct mu_exchange *x = &b->env.exchange;
    int rank = b->env.rank, local = 0;

    b->records = calloc(b->env.size, sizeof(*b->records));
    b->local_ranks = calloc(b->env.local_size, sizeof(*b->local_ranks));
    if (!b->records || !b->local_ranks)
        return mu_err_set(err, MUSTER_EMEMORY, "no memory for %d ranks", b->env.size);
    for (int r = 0; r < b->env.size; r++)
        if (b->env.node_of[r] == b->env.node && local < b->env.local_size)
            b->local_ranks[local++] = r;
    if (record_fill(b, &b->records[rank], err) < 0)
        return -1;
    if (b->env.size == 1)
        return 0;
    if (x->publish(x->arg, "mu.nccl.record", &b->records[rank],
                   sizeof(struct mu_nccl_record), err) < 0 ||
        x->fence(x->arg, b->env.init_timeout, err) < 0)
        return -1;
    for (int r = 0; r < b->env.size; r++)
        if (r != rank &&
            (b->env.parent || b->env.node_of[r] == b->env.node ||
             mu_comm_is_root(r, b->env.size)) &&
            record_fetch(b, r, err) < 0)
            return -1;
    return mu_device_check(b, err);
}

/* ---- Open and close ------------------------------------------------------------- */

static int open_device(struct mu_nccl_backend *b, struct mu_err *err)
{
    int least, greatest;
    cudaError_t rc;

    if (mu_device_choose(b, err) < 0)
        return -1;
    b->forced = -1;
    rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithPriority(&b->stream, cudaStreamNonBlocking, greatest);
    b->tail = b->stream;
    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "preparing the GPU");
}

static int load_kernels(struct mu_nccl_backend *b, struct mu_err *err)
{
    cudaError_t rc = mu_kernels_load();

    if (rc == cudaErrorNoKernelImageForDevice)
        return mu_err_set(err, MUSTER_EDEVICE,
                          "the nccl backend has no kernels for %s: configure it with "
                          "NVCC_ARCH for this GPU",
                          b->pci);
    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "loading Muster's kernels");
}

static void transport_name(struct mu_nccl_backend *b)
{
    snprintf(b->transport, sizeof(b->transport), "%s",
             b->env.size == 1    ? "one GPU"
             : b->own            ? "GPU peer memory + NCCL"
             : b->env.nnodes > 1 ? "NCCL between nodes"
                                 : "NCCL");
}

static void backend_free(struct mu_nccl_backend *b)
{
    mu_watch_stop(b);
    mu_comm_close(b);
    while (b->arenas)
        mu_nccl_arena_free(b, b->arenas->base);
    mu_nccl_close(b);
    mu_carry_close(b);
    mu_own_close(b);
    mu_peers_close(b);
    if (b->stream)
        cudaStreamDestroy(b->stream);
    cudaGetLastError();
    free(b->records);
    free(b->local_ranks);
    free(b);
}

/* Log the time of one stage of open. */
static double lap(struct mu_nccl_backend *b, double since, const char *what)
{
    double now = mu_clock_s();

    mu_log(b->env.log, MU_LOG_DEBUG, "nccl: %s %.1f ms", what, (now - since) * 1e3);
    return now;
}

static int open_peers(struct mu_nccl_backend *b, double at, struct mu_err *err)
{
    /* NCCL connects in its own thread while this one loads kernels and maps memory. */
    if (mu_comm_begin(b, err) < 0 || load_kernels(b, err) < 0)
        return -1;
    at = lap(b, at, "kernels");
    if (mu_peers_connect(b, err) < 0 || mu_own_open(b, err) < 0)
        return -1;
    if (b->env.communicator && !b->own)
        return mu_err_set(err, MUSTER_EDEVICE,
                          "the ranks cannot map each other's GPU memory");
    at = lap(b, at, "peers mapped");
    if (mu_comm_wait(b, b->env.init_timeout, "opening the NCCL communicator", err) < 0)
        return -1;
    at = lap(b, at, "communicator");
    if (b->env.communicator && mu_carry_open(b, err) < 0)
        return -1;
    if (mu_measure(b, err) < 0)
        return -1;
    lap(b, at, "measured");
    return 0;
}

static int nccl_open(const struct mu_backend_env *env, struct mu_backend **out,
                     struct mu_err *err)
{
    struct mu_nccl_backend *b = calloc(1, sizeof(*b));
    double at = mu_clock_s();

    if (!b)
        return mu_err_set(err, MUSTER_EMEMORY, "no memory for the nccl backend");
    b->env = *env;
    if (open_device(b, err) < 0)
        goto fail;
    at = lap(b, at, "device");
    if (records_exchange(b, err) < 0)
        goto fail;
    at = lap(b, at, "address records");
    if ((env->size > 1 ? open_peers(b, at, err) : load_kernels(b, err)) < 0)
        goto fail;
    mu_comm_spend(b);
    if (mu_watch_start(b, err) < 0)
        goto fail;
    transport_name(b);
    *out = (struct mu_backend *)b;
    return 0;
fail:
    mu_comm_spend(b);
    if (b->words)
        b->words->abort = 1;
    mu_comm_abort(b);
    b->comm = NULL;
    backend_free(b);
    return mu_err_context(err, "nccl");
}

static void nccl_close(struct mu_backend *backend)
{
    struct mu_nccl_backend *b = mu_nccl_of(backend);
    struct timespec until;
    int spared = MU_SPARED;

    if (!b)
        return;
    mu_carry_report(b);
    if (atomic_load(&b->abort_thread)) {
        while (atomic_load(&b->spared) == MU_REVOKING)
            usleep(1000);
        atomic_compare_exchange_strong(&b->spared, &spared, MU_SPENT);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += ABORT_WAIT;
        if (pthread_timedjoin_np(b->aborter, NULL, &until) == 0 && b->quiet)
            backend_free(b);
        else /* kernels may hang on the device: its memory stays until the end */
            mu_watch_stop(b);
        return;
    }
    /* A program's other work on the device is no concern of ours. */
    if (b->env.communicator)
        mu_carry_drain(b);
    else
        mu_nccl_drain(b, NULL, NULL);
    /* No rank unmaps memory that another still uses. */
    if (b->own)
        b->env.exchange.fence(b->env.exchange.arg, b->env.init_timeout, NULL);
    backend_free(b);
}

static void *abort_comm(void *arg)
{
    mu_comm_end(arg);
    return NULL;
}

static void nccl_abort(struct mu_backend *backend, int status, const char *why)
{
    struct mu_nccl_backend *b = mu_nccl_of(backend);

    /* Our kernels first, which needs one store; NCCL's abort can take longer. */
    if (b->words)
        b->words->abort = 1;
    if (atomic_exchange(&b->abort_thread, true))
        return;
    b->abort_status = status;
    snprintf(b->why, sizeof(b->why), "%s", why);
    if (b->env.elastic && b->env.size > 1)
        atomic_store(&b->spared, MU_REVOKING);
    atomic_store(&b->aborted, true);
    if (pthread_create(&b->aborter, NULL, abort_comm, b) != 0) {
        atomic_store(&b->spared, MU_SPENT);
        mu_comm_abort(b);
    }
}

static bool nccl_broken(const struct mu_backend *backend)
{
    const struct mu_nccl_backend *b = mu_nccl_of(backend);

    return atomic_load(&b->aborted);
}

static const char *nccl_transport(const struct mu_backend *backend)
{
    const struct mu_nccl_backend *b = mu_nccl_of(backend);

    return b->transport;
}

static int nccl_device(const struct mu_backend *backend)
{
    const struct mu_nccl_backend *b = mu_nccl_of(backend);

    return b->device;
}

static void *nccl_alloc(struct mu_backend *backend, size_t bytes, struct mu_err *err)
{
    struct mu_nccl_backend *b = mu_nccl_of(backend);
    void *p = NULL;
    int callers;
    cudaError_t rc = mu_device_enter(b, &callers);

    if (rc == cudaSuccess)
        p = mu_nccl_arena_alloc(b, bytes, err);
    else
        mu_cuda_err(err, rc, "cannot use the GPU of this rank");
    mu_device_leave(b, callers);
    return p;
}

static void nccl_free(struct mu_backend *b, void *p)
{
    mu_nccl_arena_free(mu_nccl_of(b), p);
}

static int nccl_adopt(struct mu_backend *b, struct mu_backend *from, struct mu_err *err)
{
    int rc = mu_nccl_arena_adopt(mu_nccl_of(b), mu_nccl_of(from), err);

    if (from)
        mu_own_close(mu_nccl_of(from));
    return rc;
}

static int nccl_start(struct mu_backend *b, const struct mu_coll *coll,
                      struct mu_request **out, struct mu_err *err)
{
    return mu_nccl_start(mu_nccl_of(b), coll, (struct mu_nccl_request **)(void *)out,
                         err);
}

static unsigned nccl_way(const struct mu_backend *b, const struct mu_coll *coll)
{
    return mu_nccl_way((const struct mu_nccl_backend *)(const void *)b, coll);
}

static int nccl_join(struct mu_backend *b, struct mu_request *request, void *stream,
                     struct mu_err *err)
{
    return mu_nccl_join(mu_nccl_of(b), (struct mu_nccl_request *)request, stream, err);
}

static bool nccl_test(struct mu_backend *b, const struct mu_request *request)
{
    return mu_nccl_test(mu_nccl_of(b), (const struct mu_nccl_request *)request);
}

static int nccl_drain(struct mu_backend *b, void *stream, struct mu_err *err)
{
    return mu_nccl_drain(mu_nccl_of(b), stream, err);
}

static int nccl_quiet(struct mu_backend *b, struct mu_err *err)
{
    return mu_nccl_quiet(mu_nccl_of(b), err);
}

static int nccl_idle(struct mu_backend *b, void *stream, struct mu_err *err)
{
    return mu_nccl_idle(mu_nccl_of(b), stream, err);
}

static void *nccl_moment(struct mu_backend *b, void *stream)
{
    return mu_nccl_moment(mu_nccl_of(b), stream);
}

static bool nccl_reached(struct mu_backend *b, void *moment, int64_t *ns)
{
    return mu_nccl_reached(mu_nccl_of(b), moment, ns);
}

static void nccl_forget(struct mu_backend *b, void *moment)
{
    mu_nccl_forget(mu_nccl_of(b), moment);
}

static void nccl_curve(const struct mu_backend *backend, struct mu_curve *out)
{
    const struct mu_nccl_backend *b = mu_nccl_of(backend);
    const unsigned all = 1u << MU_ALGO_ONE_SHOT | 1u << MU_ALGO_PULL |
                         1u << MU_ALGO_RELAY | 1u << MU_ALGO_NCCL;

    mu_algo_curve(&b->table, all, out);
}

__attribute__((visibility("default"))) const struct mu_backend_ops mu_backend_nccl = {
    .name = "nccl",
    .open = nccl_open,
    .close = nccl_close,
    .abort = nccl_abort,
    .broken = nccl_broken,
    .transport = nccl_transport,
    .device = nccl_device,
    .alloc = nccl_alloc,
    .free = nccl_free,
    .adopt = nccl_adopt,
    .way = nccl_way,
    .start = nccl_start,
    .join = nccl_join,
    .test = nccl_test,
    .drain = nccl_drain,
    .quiet = nccl_quiet,
    .idle = nccl_idle,
    .pack = mu_pack_pieces,
    .unpack = mu_unpack_pieces,
    .copy = mu_copy_bytes,
    .zero = mu_zero_bytes,
    .squares = mu_add_squares,
    .find_nonfinite = mu_find_nonfinite_pieces,
    .int8 = mu_int8_tensors,
    .lowrank = mu_lowrank_tensors,
    .is_host = mu_is_host,
    .copy_any = mu_copy_any,
    .alloc_private = mu_alloc_private,
    .free_private = mu_free_private,
    .moment = nccl_moment,
    .reached = nccl_reached,
    .forget = nccl_forget,
    .curve = nccl_curve,
};
