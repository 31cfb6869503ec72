/* SPDX-License-Identifier: BSD-3-Clause */
/* comm.c - the NCCL communicator: non-blocking, named, every wait with a deadline */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/backend/nccl/nccl.h"

/* One id's root thread serves about a thousand ranks in reasonable time. */
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

int mu_comm_begin(struct mu_backend *b, struct mu_err *err)
{
    int n = mu_comm_roots(b->env.size);
    ncclUniqueId *ids = calloc(n, sizeof(*ids));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t rc;

    if (!ids)
        return mu_err_set(err, MUSTER_EMEMORY, "no memory for %d NCCL ids", n);
    for (int i = 0; i < n; i++)
        ids[i] = b->cards[root_rank(i, b->env.size)].id;
    config.blocking = 0;
    config.commName = b->env.job;
    rc = ncclCommInitRankScalable(&b->comm, b->env.size, b->env.rank, n, ids, &config);
    free(ids);
    if (rc != ncclSuccess && rc != ncclInProgress)
        return mu_nccl_err(err, b, rc, "ncclCommInitRankScalable");
    return 0;
}

int mu_comm_wait(struct mu_backend *b, double timeout, const char *what,
                 struct mu_err *err)
{
    double end = mu_now() + timeout;

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
        if (mu_now() > end)
            return mu_err_set(
                err, MUSTER_ETIMEOUT,
                "%s did not finish within %.0f s: a rank did not take part, "
                "or NCCL_SOCKET_IFNAME names a network that the others do "
                "not reach",
                what, timeout);
        if (polls > 5000)
            sched_yield();
        if (polls > 20000)
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
}

void mu_comm_abort(struct mu_backend *b)
{
    if (b->comm)
        ncclCommAbort(b->comm);
}

void mu_comm_close(struct mu_backend *b)
{
    if (!b->comm)
        return;
    if (atomic_load(&b->aborted)) {
        b->comm = NULL; /* ncclCommAbort has freed it, or hangs: leave it */
        return;
    }
    if (ncclCommFinalize(b->comm) == ncclInProgress &&
        mu_comm_wait(b, b->env.init_timeout, "closing the NCCL communicator", NULL) < 0)
        ncclCommAbort(b->comm);
    else
        ncclCommDestroy(b->comm);
    b->comm = NULL;
}
