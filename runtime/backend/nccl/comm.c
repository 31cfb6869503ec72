/* SPDX-License-Identifier: BSD-3-Clause */
/* comm.c - the NCCL communicator: non-blocking, named, every wait with a deadline */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/backend/nccl/nccl.h"
#include "runtime/base/clock.h"

/* NCCL 2.27 has shrinking; 2.28.7 has revoking. Without revoking, kernels that wait for
 * a dead rank would occupy the device until the shrink, so the ranks make a new
 * communicator with new ids. The loaded library may be older than the one of the build.
 */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
#define HAVE_SHRINK 1
#pragma weak ncclCommShrink
#pragma weak ncclCommRevoke
#endif
#define REVOKE_SECONDS 3.0
#define SHRINK_SECONDS 20.0

/* The root thread of one id serves about a thousand ranks in reasonable time. */
#define RANKS_PER_ROOT 1000

int mu_comm_roots(int size)
{
    return (size + RANKS_PER_ROOT - 1) / RANKS_PER_ROOT;
}

static int root_rank(int i, int size)
{
    return (int)((long)i * size / mu_comm_roots(size));
}

bool mu_comm_is_root(int rank, int size)
{
    for (int i = 0; i < mu_comm_roots(size); i++)
        if (root_rank(i, size) == rank)
            return true;
    return false;
}

static int begin_by_id(struct mu_nccl_backend *b, struct mu_err *err)
{
    int n = mu_comm_roots(b->env.size);
    ncclUniqueId *ids = calloc(n, sizeof(*ids));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t rc;

    if (!ids)
        return mu_err_set(err, MUSTER_EMEMORY, "no memory for %d NCCL ids", n);
    for (int i = 0; i < n; i++)
        ids[i] = b->records[root_rank(i, b->env.size)].id;
    config.blocking = 0;
    config.commName = b->env.job;
    rc = ncclCommInitRankScalable(&b->comm, b->env.size, b->env.rank, n, ids, &config);
    free(ids);
    if (rc != ncclSuccess && rc != ncclInProgress)
        return mu_nccl_err(err, b, rc, "ncclCommInitRankScalable");
    return 0;
}

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* ---- Shrinking the communicator of a world that has lost ranks --------------------
 */

void mu_comm_take(struct mu_nccl_backend *b, struct mu_nccl_record *mine)
{
#ifdef HAVE_SHRINK
    struct mu_nccl_backend *parent = mu_nccl_of(b->env.parent);
    int spared = MU_SPARED;

    while (parent && atomic_load(&parent->spared) == MU_REVOKING)
        nap();
    if (!parent || !parent->comm || !ncclCommShrink ||
        !atomic_compare_exchange_strong(&parent->spared, &spared, MU_TAKEN))
        return;
    mine->parent_size = parent->env.size;
    mine->parent_rank = parent->env.rank;
    mine->parent_generation = parent->env.generation;
#endif
}

void mu_comm_spend(struct mu_nccl_backend *b)
{
    int taken = MU_TAKEN;

    if (b->env.parent)
        atomic_compare_exchange_strong(&mu_nccl_of(b->env.parent)->spared, &taken,
                                       MU_SPENT);
}

/* True if every rank offers the same parent, and there are fewer now: no rank has
 * aborted its communicator, has another one or is a newcomer.
 */
static bool can_shrink(const struct mu_nccl_backend *b)
{
    const struct mu_nccl_record *first = &b->records[0];

    for (int r = 0; r < b->env.size; r++)
        if (b->records[r].parent_size == 0 ||
            b->records[r].parent_size != first->parent_size ||
            b->records[r].parent_generation != first->parent_generation ||
            (r > 0 && b->records[r].parent_rank <= b->records[r - 1].parent_rank))
            return false;
    return b->env.parent != NULL && b->env.size < first->parent_size;
}

static int begin_by_shrink(struct mu_nccl_backend *b, struct mu_err *err)
{
#ifdef HAVE_SHRINK
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int *gone = calloc((size_t)b->records[0].parent_size, sizeof(*gone)), n = 0;
    ncclResult_t rc;

    if (!gone)
        return mu_err_set(err, MUSTER_EMEMORY, "no memory for the lost ranks");
    for (int old = 0, r = 0; old < b->records[0].parent_size; old++) {
        if (r < b->env.size && b->records[r].parent_rank == old)
            r++;
        else
            gone[n++] = old;
    }
    config.blocking = 0;
    config.commName = b->env.job;
    /* Collectives that hang in the parent end with it. */
    rc = ncclCommShrink(mu_nccl_of(b->env.parent)->comm, gone, n, &b->comm, &config,
                        NCCL_SHRINK_ABORT);
    free(gone);
    if (rc != ncclSuccess && rc != ncclInProgress)
        return mu_nccl_err(err, b, rc, "ncclCommShrink");
    return mu_comm_wait(
        b, b->env.init_timeout < SHRINK_SECONDS ? b->env.init_timeout : SHRINK_SECONDS,
        "shrinking the NCCL communicator", err);
#else
    return mu_err_set(err, MUSTER_EINTERNAL, "this NCCL cannot shrink");
#endif
}

int mu_comm_begin(struct mu_nccl_backend *b, struct mu_err *err)
{
    int rc;

    b->comm = b->env.communicator;
    if (b->comm)
        return 0;
    if (!can_shrink(b)) {
        mu_comm_spend(b);
        return begin_by_id(b, err);
    }
    rc = begin_by_shrink(b, err);
    mu_comm_spend(b); /* the parent is aborted, not destroyed */
    return rc;
}

int mu_comm_wait(struct mu_nccl_backend *b, double timeout, const char *what,
                 struct mu_err *err)
{
    double end = mu_clock_s() + timeout;

    for (int polls = 0;; polls++) {
        ncclResult_t state = ncclInProgress;
        ncclResult_t rc = ncclCommGetAsyncError(b->comm, &state);

        if (rc != ncclSuccess)
            return mu_nccl_err(err, b, rc, what);
        if (state == ncclSuccess)
            return 0;
        if (state != ncclInProgress)
            return mu_nccl_err(err, b, state, what);
        if (atomic_load(&b->aborted))
            return mu_nccl_aborted(b, err);
        if (b->env.lost && atomic_load(b->env.lost))
            return mu_err_set(err, MUSTER_EPEER, "a rank was lost in %s", what);
        if (mu_clock_s() > end)
            return mu_err_set(err, MUSTER_ETIMEOUT,
                              "%s did not finish within %.0f s: a rank is missing, "
                              "or NCCL_SOCKET_IFNAME names a network that other ranks "
                              "cannot reach",
                              what, timeout);
        /* NCCL works in its own threads, on this core if the task has only one. */
        sched_yield();
        if (polls > 1000)
            nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    }
}

void mu_comm_calls(struct mu_nccl_backend *b)
{
    pthread_mutex_lock(&b->in_call);
}

int mu_comm_called(struct mu_nccl_backend *b, ncclResult_t rc, const char *what,
                   struct mu_err *err)
{
    int result = 0;

    if (rc == ncclInProgress)
        result = mu_comm_wait(b, b->env.timeout, what, err);
    else if (rc != ncclSuccess)
        result = mu_nccl_err(err, b, rc, what);
    pthread_mutex_unlock(&b->in_call);
    return result;
}

ncclResult_t mu_comm_error(struct mu_nccl_backend *b)
{
    ncclResult_t state = ncclSuccess;

    if (pthread_mutex_trylock(&b->in_call) != 0)
        return ncclSuccess;
    if (ncclCommGetAsyncError(b->comm, &state) != ncclSuccess ||
        state == ncclInProgress)
        state = ncclSuccess;
    pthread_mutex_unlock(&b->in_call);
    return state;
}

void mu_comm_abort(struct mu_nccl_backend *b)
{
    if (b->comm && !b->env.communicator)
        ncclCommAbort(b->comm);
}

/* End the collectives under way, keep the communicator. */
static bool revoke(struct mu_nccl_backend *b)
{
    ncclResult_t state = ncclInProgress;
#ifdef HAVE_SHRINK
    double until = mu_clock_s() + REVOKE_SECONDS;

    if (!b->comm || !ncclCommRevoke)
        return false;
    state = ncclCommRevoke(b->comm, NCCL_REVOKE_DEFAULT);
    while (state == ncclInProgress && mu_clock_s() < until) {
        nap();
        if (ncclCommGetAsyncError(b->comm, &state) != ncclSuccess)
            return false;
    }
#endif
    return state == ncclSuccess;
}

void mu_comm_end(struct mu_nccl_backend *b)
{
    if (b->env.elastic && b->env.size > 1)
        atomic_store(&b->spared, revoke(b) ? MU_SPARED : MU_SPENT);
    while (atomic_load(&b->spared) == MU_SPARED || atomic_load(&b->spared) == MU_TAKEN)
        nap();
    mu_comm_abort(b);
}

void mu_comm_close(struct mu_nccl_backend *b)
{
    if (!b->comm)
        return;
    if (b->env.communicator) {
        b->comm = NULL; /* the program's */
        return;
    }
    if (atomic_load(&b->aborted)) {
        b->comm = NULL; /* ncclCommAbort has freed it or hangs: do not touch it */
        return;
    }
    if (ncclCommFinalize(b->comm) == ncclInProgress &&
        mu_comm_wait(b, b->env.init_timeout, "closing the NCCL communicator", NULL) < 0)
        ncclCommAbort(b->comm);
    else
        ncclCommDestroy(b->comm);
    b->comm = NULL;
}
