/* SPDX-License-Identifier: BSD-3-Clause */
/* carry.c - all-reduces of a program that calls NCCL, on its own memory and streams
 *
 * Our kernels use one set of flags, so they run one after the other, in the order of
 * the calls, which is the same on all ranks. Streams of the program may have ended
 * meanwhile: an event is recorded behind each kernel while its stream is there.
 *
 * One-shot alone is used: it takes any alignment, which can differ among the ranks.
 */
#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"
#include "runtime/core/dtype.h"

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

/* Handles of streams are given again; their numbers are not. */
static cudaError_t launch_behind(struct mu_nccl_backend *b, const struct mu_coll *coll,
                                 struct mu_err *err)
{
    cudaStream_t own = b->stream, stream = coll->stream;
    unsigned long long id = 0;
    cudaError_t rc = cudaStreamGetId(stream, &id);

    if (rc == cudaSuccess && b->carried && id != b->behind_stream)
        rc = cudaStreamWaitEvent(stream, b->behind, 0);
    if (rc != cudaSuccess)
        return rc;
    b->stream = stream;
    rc = mu_nccl_launch(b, coll, MU_ALGO_ONE_SHOT, NULL, err) < 0
             ? cudaErrorLaunchFailure
             : cudaEventRecord(b->behind, stream);
    b->stream = own;
    if (rc == cudaSuccess) {
        b->behind_stream = id;
        b->carried = true;
    }
    return rc;
}

__attribute__((visibility("default"))) int mu_nccl_carry(struct mu_backend *backend,
                                                         const struct mu_coll *coll,
                                                         bool *carried,
                                                         struct mu_err *err)
{
    struct mu_nccl_backend *b = mu_nccl_of(backend);
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    size_t element = mu_dtype_size(coll->dtype);
    int before = b->device;
    cudaError_t rc;

    *carried = false;
    if (mu_nccl_aborted(b, err) < 0)
        return -1;
    /* A graph can run beside another one, or beside a later call. */
    rc = cudaStreamIsCapturing(coll->stream, &capture);
    if (rc == cudaSuccess &&
        (capture != cudaStreamCaptureStatusNone ||
         coll->count * element > mu_one_shot_limit(&b->reach, element)))
        return 0;
    if (rc == cudaSuccess)
        rc = cudaGetDevice(&before);
    if (rc == cudaSuccess && before != b->device)
        rc = cudaSetDevice(b->device);
    if (rc == cudaSuccess)
        rc = launch_behind(b, coll, err);
    if (before != b->device)
        cudaSetDevice(before);
    *carried = rc == cudaSuccess;
    return rc == cudaSuccess ? 0 : mu_cuda_err(err, rc, coll->what);
}
