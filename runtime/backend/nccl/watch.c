/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - the thread that detects overdue work and errors of the GPU
 *
 * Our kernels store the rank that they wait for in host memory. NCCL has no time limit:
 * events follow its collectives. In captured graphs events cannot be queried, so small
 * kernels before and after each collective count up two counters. It also maps the
 * memory that the programs of the peers allocate (own.c).
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"

#define PERIOD_NS 2000000 /* 2 ms */
#define ERROR_EVERY 50    /* periods between two checks of NCCL's error */

static void report(struct mu_nccl_backend *b, int rank, int status, const char *why)
{
    if (atomic_load(&b->aborted) || atomic_exchange(&b->reported, true))
        return;
    if (b->env.failed)
        b->env.failed(b->env.failed_arg, rank, status, why);
}

static void check_kernels(struct mu_nccl_backend *b)
{
    uint32_t stuck = b->words->stuck;
    char why[256];
    int rank;

    if (stuck == 0 || (int)stuck > b->env.local_size)
        return;
    rank = b->local_ranks[stuck - 1];
    snprintf(why, sizeof(why),
             "rank %d (node %s, GPU %s) has not entered a collective for %.0f s; rank "
             "%d waits for its data",
             rank, b->env.host_of[rank], b->records[rank].pci, b->env.timeout,
             b->env.rank);
    report(b, rank, MUSTER_ETIMEOUT, why);
}

static void check_events(struct mu_nccl_backend *b)
{
    char why[256];

    for (;;) {
        struct mu_watched *w = &b->watched[b->watched_tail % MU_WATCHED];
        cudaError_t rc;

        if (!atomic_load(&w->armed))
            return;
        rc = cudaEventQuery(w->done);
        if (rc == cudaErrorNotReady) {
            if (w->since == 0)
                w->since = mu_clock_s();
            if (mu_clock_s() - w->since <= b->env.timeout)
                return;
            snprintf(why, sizeof(why),
                     "%s is not done after %.0f s on rank %d (node %s)", w->what,
                     b->env.timeout, b->env.rank, b->env.host_of[b->env.rank]);
            report(b, -1, MUSTER_ETIMEOUT, why);
            return;
        }
        if (rc != cudaSuccess) {
            snprintf(why, sizeof(why), "the GPU of rank %d (node %s) failed in %s: %s",
                     b->env.rank, b->env.host_of[b->env.rank], w->what,
                     cudaGetErrorString(rc));
            report(b, b->env.rank, MUSTER_EDEVICE, why);
            return;
        }
        atomic_store(&w->armed, 0);
        b->watched_tail++;
    }
}

static void check_marks(struct mu_nccl_backend *b, uint32_t *seen, double *since)
{
    uint32_t end = b->words->mark_end;
    char why[256];

    if (b->words->mark_begin == end || end != *seen) {
        *seen = end;
        *since = mu_clock_s();
        return;
    }
    if (mu_clock_s() - *since <= b->env.timeout)
        return;
    snprintf(why, sizeof(why),
             "a collective of a captured graph is not done after %.0f s on rank %d "
             "(node %s)",
             b->env.timeout, b->env.rank, b->env.host_of[b->env.rank]);
    report(b, -1, MUSTER_ETIMEOUT, why);
}

static void check_nccl(struct mu_nccl_backend *b)
{
    ncclResult_t state;
    char why[256];

    /* The program asks for its own communicator's errors, and may end it any time. */
    if (!b->comm || b->env.communicator || atomic_load(&b->aborted))
        return;
    state = mu_comm_error(b);
    if (state == ncclSuccess)
        return;
    snprintf(why, sizeof(why), "NCCL failed on rank %d (node %s): %s (%s)", b->env.rank,
             b->env.host_of[b->env.rank], ncclGetErrorString(state),
             ncclGetLastError(b->comm));
    report(b, -1, state == ncclRemoteError ? MUSTER_EPEER : MUSTER_EDEVICE, why);
}

static void *watch(void *arg)
{
    struct mu_nccl_backend *b = arg;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    double since = mu_clock_s();
    uint32_t seen = 0;

    pthread_setname_np(pthread_self(), "muster-watch");
    cudaSetDevice(b->device);
    /* Querying an event must not end a capture that the program has begun. */
    cudaThreadExchangeStreamCaptureMode(&mode);
    for (unsigned i = 0; !atomic_load(&b->stop); i++) {
        nanosleep(&(struct timespec){ .tv_nsec = PERIOD_NS }, NULL);
        if (atomic_load(&b->aborted))
            break;
        check_kernels(b);
        check_events(b);
        check_marks(b, &seen, &since);
        mu_own_poll(b);
        if (i % ERROR_EVERY == 0)
            check_nccl(b);
    }
    return NULL;
}

int mu_watch_start(struct mu_nccl_backend *b, struct mu_err *err)
{
    sigset_t all, before;
    int rc;

    for (int i = 0; i < MU_WATCHED; i++) {
        cudaError_t crc =
            cudaEventCreateWithFlags(&b->watched[i].done, cudaEventDisableTiming);

        if (crc != cudaSuccess)
            return mu_cuda_err(err, crc, "cudaEventCreate");
    }
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    rc = pthread_create(&b->watch, NULL, watch, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return mu_err_set(err, MUSTER_EINTERNAL, "no thread to watch the GPU: %s",
                          strerror(rc));
    b->watching = true;
    return 0;
}

void mu_watch_stop(struct mu_nccl_backend *b)
{
    atomic_store(&b->stop, true);
    if (b->watching)
        pthread_join(b->watch, NULL);
    b->watching = false;
    for (int i = 0; i < MU_WATCHED; i++)
        if (b->watched[i].done)
            cudaEventDestroy(b->watched[i].done);
}

void mu_watch_add(struct mu_nccl_backend *b, const char *what)
{
    struct mu_watched *w = &b->watched[b->watched_head % MU_WATCHED];

    /* All places are in use: their collectives are watched, and later ones cannot be
     * overdue before them.
     */
    if (!b->watching || atomic_load(&w->armed))
        return;
    if (cudaEventRecord(w->done, b->stream) != cudaSuccess)
        return;
    snprintf(w->what, sizeof(w->what), "%s", what ? what : "a collective");
    w->since = 0;
    atomic_store(&w->armed, 1);
    b->watched_head++;
}
