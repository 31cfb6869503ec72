/* SPDX-License-Identifier: BSD-3-Clause */
/* carry.c - collectives of a program that calls NCCL, on its own memory and streams
 *
 * Our kernels use one set of flags, so they run one after the other, in the order of
 * the calls, which is the same on all ranks. Streams of the program may have ended
 * meanwhile: an event is recorded behind each kernel while its stream is there.
 *
 * A captured graph runs at any time, and beside other streams. So it waits for the
 * event before its first kernel and records it behind the last one, by external nodes,
 * which take part in the order of launches. NCCL does the same for its own.
 *
 * One-shot and own alone are used: they take any alignment, which can differ among the
 * ranks.
 */
#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"

#define POLL 20e-6 /* seconds */

int mu_carry_open(struct mu_nccl_backend *b, struct mu_err *err)
{
    cudaError_t rc = cudaEventCreateWithFlags(&b->behind, cudaEventDisableTiming);

    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, "cudaEventCreate");
}

void mu_carry_close(struct mu_nccl_backend *b)
{
    if (b->behind)
        cudaEventDestroy(b->behind);
    b->behind = NULL;
}

void mu_carry_drain(struct mu_nccl_backend *b)
{
    while (b->carried && cudaEventQuery(b->behind) == cudaErrorNotReady)
        mu_pause(POLL);
}

void mu_carry_report(struct mu_nccl_backend *b)
{
    struct mu_own *o = &b->ours;
    unsigned in_use = 0, held = 0, refused = 0;

    if (!b->carried)
        return;
    for (int slot = 0; o->open && slot < MU_OWN_SLOTS; slot++) {
        pthread_mutex_lock(&o->entries);
        if (o->table.entry[slot].generation & 1) {
            in_use++;
            held += mu_own_held(&o->table, slot);
            refused += o->refused[slot];
        }
        pthread_mutex_unlock(&o->entries);
    }
    if (refused > 0)
        mu_log(b->env.log, MU_LOG_WARN,
               "nccl: CUDA gives the peers of rank %d no handle of %u allocations: "
               "large collectives on them were copied, slower than by NCCL",
               b->env.rank, refused);
    mu_log(
        b->env.log, MU_LOG_DEBUG,
        "nccl: rank %d, %s: %lu calls by one-shot, %lu on mapped memory, %lu of both "
        "captured; mapping is %s: of %u allocations the peers have mapped %u, CUDA "
        "refuses %u",
        b->env.rank, b->env.job, b->calls[MU_ALGO_ONE_SHOT], b->calls[MU_ALGO_OWN],
        b->calls_captured, o->open ? "on" : "off", in_use, held, refused);
}

static cudaError_t launch(struct mu_nccl_backend *b, const struct mu_coll *coll,
                          enum mu_algo algo, struct mu_err *err)
{
    cudaStream_t own = b->stream;
    int rc;

    b->stream = coll->stream;
    rc = mu_nccl_launch(b, coll, algo, NULL, err);
    b->stream = own;
    return rc < 0 ? cudaErrorLaunchFailure : cudaSuccess;
}

/* Handles of streams are given again; their numbers are not. A graph records the event
 * on any stream.
 */
static cudaError_t launch_behind(struct mu_nccl_backend *b, const struct mu_coll *coll,
                                 enum mu_algo algo, struct mu_err *err)
{
    unsigned long long id = 0;
    cudaError_t rc = cudaStreamGetId(coll->stream, &id);

    if (rc == cudaSuccess && b->carried && (b->graphs || id != b->behind_stream))
        rc = cudaStreamWaitEvent(coll->stream, b->behind, 0);
    if (rc == cudaSuccess)
        rc = launch(b, coll, algo, err);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(b->behind, coll->stream);
    if (rc == cudaSuccess) {
        b->behind_stream = id;
        b->carried = true;
    }
    return rc;
}

/* ---- Captured streams ----------------------------------------------------------- */

/* What the next work on a captured stream will wait for. */
struct tip {
    unsigned long long capture;
    cudaGraph_t graph;
    const cudaGraphNode_t *node;
    size_t n;
};

#if CUDART_VERSION >= 13000
#define CAPTURE_INFO(s, status, t)                                                     \
    cudaStreamGetCaptureInfo(s, status, &(t)->capture, &(t)->graph, &(t)->node, NULL,  \
                             &(t)->n)
#define ADD_DEPENDENCY(s, node)                                                        \
    cudaStreamUpdateCaptureDependencies(s, node, NULL, 1,                              \
                                        cudaStreamAddCaptureDependencies)
#define ADD_EDGE(graph, from, to) cudaGraphAddDependencies(graph, from, to, NULL, 1)
#define REMOVE_EDGE(graph, from, to)                                                   \
    cudaGraphRemoveDependencies(graph, from, to, NULL, 1)
#else
#define CAPTURE_INFO(s, status, t)                                                     \
    cudaStreamGetCaptureInfo_v2(s, status, &(t)->capture, &(t)->graph, &(t)->node,     \
                                &(t)->n)
#define ADD_DEPENDENCY(s, node)                                                        \
    cudaStreamUpdateCaptureDependencies(s, node, 1, cudaStreamAddCaptureDependencies)
#define ADD_EDGE(graph, from, to) cudaGraphAddDependencies(graph, from, to, 1)
#define REMOVE_EDGE(graph, from, to) cudaGraphRemoveDependencies(graph, from, to, 1)
#endif

static cudaError_t tip_of(cudaStream_t stream, struct tip *t)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t rc = CAPTURE_INFO(stream, &status, t);

    return rc == cudaSuccess && status != cudaStreamCaptureStatusActive
               ? cudaErrorStreamCaptureInvalidated
               : rc;
}

/* The capture of that id. Threads may capture by turns; one that has lost its place to
 * others waits for the event again.
 */
static struct mu_capture *capture_of(struct mu_nccl_backend *b, unsigned long long id)
{
    struct mu_capture *c;

    for (int i = 0; i < MU_CAPTURES; i++)
        if (b->captures[i].kernel && b->captures[i].id == id)
            return &b->captures[i];
    c = &b->captures[b->next_capture++ % MU_CAPTURES];
    *c = (struct mu_capture){ .id = id };
    return c;
}

static bool is_among(cudaGraphNode_t node, const struct tip *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->node[i] == node)
            return true;
    return false;
}

/* The record moves behind the new kernel, which waits for the one before. The program's
 * next work does not wait for the record.
 */
static cudaError_t record_behind(struct mu_nccl_backend *b, cudaStream_t stream,
                                 struct mu_capture *c)
{
    cudaGraphNode_t before = c->kernel;
    struct tip t = { 0 };
    cudaError_t rc = tip_of(stream, &t);

    if (rc == cudaSuccess && t.n != 1)
        rc = cudaErrorStreamCaptureInvalidated;
    if (rc != cudaSuccess)
        return rc;
    c->kernel = t.node[0];
    if (!c->record)
        return cudaGraphAddEventRecordNode(&c->record, t.graph, &c->kernel, 1,
                                           b->behind);
    rc = REMOVE_EDGE(t.graph, &before, &c->record);
    return rc == cudaSuccess ? ADD_EDGE(t.graph, &c->kernel, &c->record) : rc;
}

static cudaError_t launch_captured(struct mu_nccl_backend *b,
                                   const struct mu_coll *coll, enum mu_algo algo,
                                   struct mu_err *err)
{
    struct mu_capture *c;
    struct tip t = { 0 };
    cudaError_t rc = tip_of(coll->stream, &t);

    if (rc != cudaSuccess)
        return rc;
    c = capture_of(b, t.capture);
    if (!c->kernel)
        rc = cudaStreamWaitEvent(coll->stream, b->behind, cudaEventWaitExternal);
    else if (!is_among(c->kernel, &t))
        rc = ADD_DEPENDENCY(coll->stream, &c->kernel);
    if (rc == cudaSuccess)
        rc = launch(b, coll, algo, err);
    if (rc == cudaSuccess)
        rc = record_behind(b, coll->stream, c);
    if (rc == cudaSuccess)
        b->graphs = b->carried = true;
    return rc;
}

/* ---- A call --------------------------------------------------------------------- */

/* MU_ALGO_NCCL: none of ours. In a graph own copies virtual memory, slower than NCCL.
 * All ranks of a call capture it, or none: NCCL requires that.
 */
static enum mu_algo algo_of(const struct mu_nccl_backend *b, const struct mu_coll *coll,
                            bool mapped, bool captured)
{
    const struct mu_work w = mu_nccl_work(coll);
    size_t element = mu_work_element(&w);

    if (mapped)
        return b->ours.open && mu_own_can(&w) && !(captured && b->ours.for_virtual)
                   ? MU_ALGO_OWN
                   : MU_ALGO_NCCL;
    return w.count <= mu_one_shot_limit(&b->reach, element) / element ? MU_ALGO_ONE_SHOT
                                                                      : MU_ALGO_NCCL;
}

int mu_nccl_carry(struct mu_backend *backend, const struct mu_coll *coll, bool mapped,
                  bool *carried, struct mu_err *err)
{
    struct mu_nccl_backend *b = mu_nccl_of(backend);
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    enum mu_algo algo = MU_ALGO_NCCL;
    bool captured;
    int callers;
    cudaError_t rc;

    *carried = false;
    if (mu_nccl_aborted(b, err) < 0)
        return -1;
    rc = mu_device_enter(b, &callers);
    if (rc == cudaSuccess)
        rc = cudaStreamIsCapturing(coll->stream, &capture);
    captured = capture != cudaStreamCaptureStatusNone;
    if (rc == cudaSuccess)
        algo = algo_of(b, coll, mapped, captured);
    if (algo != MU_ALGO_NCCL)
        rc = captured ? launch_captured(b, coll, algo, err)
                      : launch_behind(b, coll, algo, err);
    mu_device_leave(b, callers);
    *carried = rc == cudaSuccess && algo != MU_ALGO_NCCL;
    if (algo != MU_ALGO_NCCL) {
        b->calls[algo]++;
        b->calls_captured += captured;
    }
    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, coll->what);
}
