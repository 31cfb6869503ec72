/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.c - block the host until streams are idle, an abort or a time limit */
#include <math.h>
#include <sched.h>
#include <time.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"

#define ABORT_PATIENCE 5.0 /* seconds that kernels may take to end after an abort */

static int late(const struct mu_nccl_backend *b, struct mu_err *err)
{
    uint32_t stuck = b->words->stuck;
    int rank;

    if (stuck == 0 || (int)stuck > b->env.local_size)
        return mu_err_set(err, MUSTER_ETIMEOUT, "a rank did not take part in time");
    rank = b->local_ranks[stuck - 1];
    return mu_err_set(err, MUSTER_ETIMEOUT,
                      "rank %d (node %s) did not take part in time", rank,
                      b->env.host_of[rank]);
}

/* Poll, because cudaStreamSynchronize does not return from a kernel that hangs in spite
 * of an abort.
 */
static int idle(struct mu_nccl_backend *b, cudaStream_t stream, double end,
                struct mu_err *err)
{
    double aborted_at = 0;

    for (unsigned polls = 0;; polls++) {
        cudaError_t rc = cudaStreamQuery(stream);

        if (rc == cudaSuccess)
            return 0;
        if (rc != cudaErrorNotReady)
            return mu_cuda_err(err, rc, "the GPU failed");
        if (atomic_load(&b->aborted)) {
            if (aborted_at == 0)
                aborted_at = mu_clock_s();
            if (mu_clock_s() - aborted_at > ABORT_PATIENCE)
                return mu_nccl_aborted(b, err);
        }
        if (end < HUGE_VAL && b->env.lost && atomic_load(b->env.lost))
            return mu_err_set(err, MUSTER_EPEER, "a rank was lost");
        if (mu_clock_s() > end)
            return late(b, err);
        if (polls > 2000)
            nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
        else
            sched_yield();
    }
}

int mu_nccl_drain(struct mu_nccl_backend *b, void *stream, struct mu_err *err)
{
    if (idle(b, stream, HUGE_VAL, err) < 0 || idle(b, b->stream, HUGE_VAL, err) < 0)
        return -1;
    return mu_nccl_aborted(b, err);
}

int mu_nccl_quiet(struct mu_nccl_backend *b, struct mu_err *err)
{
    if (mu_nccl_drain(b, b->tail, err) < 0)
        return -1;
    b->quiet = true;
    return 0;
}

int mu_nccl_idle(struct mu_nccl_backend *b, void *stream, struct mu_err *err)
{
    return idle(b, stream, HUGE_VAL, err) < 0 ? -1 : mu_nccl_aborted(b, err);
}

int mu_nccl_wait(struct mu_nccl_backend *b, double timeout, struct mu_err *err)
{
    return idle(b, b->stream, mu_clock_s() + timeout, err);
}
