/* SPDX-License-Identifier: BSD-3-Clause */
/* fork_ranks.h - ranks forked on this node, with an exchange in shared memory
 *
 * For benchmarks and tests that run without Slurm and PMIx. forked.h adds a struct
 * mu_world.
 */
#ifndef MU_FORK_RANKS_H
#define MU_FORK_RANKS_H

#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/exchange.h"

#define MU_FORK_MAX 64     /* ranks */
#define MU_FORK_RESULTS 64 /* values */

struct mu_fork_spec {
    int size;        /* 1 to MU_FORK_MAX */
    uint64_t skip;   /* bit r: rank r is not started */
    double limit;    /* s after the start, then all ranks are killed; 0: none */
    double patience; /* s after the first failure, then the rest is killed; 0: none */
};

/* One rank, in its own process. The memory is the harness's. */
struct mu_fork_rank {
    int rank, size;
    const pid_t *pid;         /* by rank, complete; 0: not started */
    const uint8_t *token;     /* MU_TOKEN_LEN random bytes, equal on all ranks */
    _Atomic int64_t *results; /* MU_FORK_RESULTS, shared by all ranks, 0 at the start */
    /* A value is valid on all ranks after the next fence. Until then fetch returns the
     * value before it, and fails at once where there is none. One thread at a time.
     */
    struct mu_exchange exchange;
    struct mu_fork_board *board;
};

struct mu_fork_end {
    int status[MU_FORK_MAX];     /* exit status; 128 + signal when killed */
    double seconds[MU_FORK_MAX]; /* from the start to the end of the rank */
    int killed;                  /* ranks that exceeded limit or patience */
    int64_t results[MU_FORK_RESULTS];
};

/* Run body in each rank, after all are forked. The rank exits with its result, without
 * handlers of atexit, and is killed when its parent dies. `end` may be NULL.
 *
 * Returns 0 when all ranks returned 0, else the status of the first that did not; an
 * exit status counts more than a signal. -1: the ranks could not be started, errno is
 * set and *end is unchanged.
 */
int mu_fork_ranks(const struct mu_fork_spec *spec,
                  int (*body)(struct mu_fork_rank *self, void *arg), void *arg,
                  struct mu_fork_end *end);

/* Memory, all 0, that this process shares with those that it forks later. NULL: errno.
 * Released with munmap.
 */
void *mu_fork_shared(size_t bytes);

#endif
