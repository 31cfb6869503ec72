/* SPDX-License-Identifier: BSD-3-Clause */
/* forked.h - a world of forked ranks without Slurm and PMIx, for tests of the runtime
 *
 * The exchange is that of fork_ranks.h; everything else is what ships: control
 * connections, backend, api. "Nodes" may be several on this machine: ranks of different
 * nodes connect by TCP.
 */
#ifndef TEST_FORKED_H
#define TEST_FORKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "runtime/api/impl.h"
#include "runtime/tools/fork_ranks.h"

struct forked_world {
    int size, nodes;     /* rank r is on node r * nodes / size */
    double timeout;      /* 0: 20 s */
    double init_timeout; /* 0: 20 s */
    bool return_failure, force_tcp;
    int elastic;   /* the least number of ranks to go on with, 0: end */
    unsigned skip; /* bit r: rank r is not started at all */
    size_t first_bucket, bucket_cap;
    const int *netns; /* by node: a network namespace, NULL: this one */
    /* Called by each rank when it listens; arg as for the body. May be NULL. */
    void (*before_meeting)(int rank, void *arg);
};

/* For a world in which small models have several buckets. */
#define SMALL_BUCKETS .first_bucket = 256, .bucket_cap = 512

struct forked_result {
    int status[MU_FORK_MAX];     /* exit status; 128 + signal when killed */
    double seconds[MU_FORK_MAX]; /* from the start until it ended */
    char *text; /* standard error of all, in the order it was written */
};

/* Run body in every rank; its value is the exit status. A rank that is still there
 * after `limit` seconds is killed (137). m is NULL where muster_init failed and body is
 * run nevertheless; arg is the caller's memory as of the fork.
 */
void forked_run(const struct forked_world *w,
                int (*body)(struct muster *m, int rank, void *arg), void *arg,
                double limit, struct forked_result *out);
void forked_clear(struct forked_result *result);
/* Is this line the rank's own report, not a sentence about the end of the job? */
bool forked_is_report(const char *line);
/* The first line about the end of the job that begins with that rank, or NULL. */
const char *forked_sentence(const char *text, int rank);

/* The same with 60 s; the test fails, with `what` and standard error, unless every rank
 * ends with 0.
 */
void forked_well(const char *what, struct forked_world w,
                 int (*body)(struct muster *m, int rank, void *arg), void *arg);

/* Four ranks of an elastic world on two nodes, by shared memory and by TCP: rank 3 is
 * killed in the body, the others end with 0. Each run has bytes of shared memory,
 * all 0, as its arg.
 */
void forked_lose_rank_3(int (*body)(struct muster *m, int rank, void *arg),
                        size_t bytes);

/* In a body: give m a table of functions of its own, for the test to change, that is
 * not called "host": its memory counts as that of a GPU where the backend says so.
 */
struct mu_backend_ops *forked_elsewhere(struct muster *m);

/* In a body: do this in muster_finalize, when all ranks have entered it. */
void forked_before_close(struct muster *m, void (*deed)(void *arg), void *arg);
/* In a body: do this with the next result of a gather among the control connections. At
 * the root the first child has it then, on another rank no child.
 */
void forked_with_result(struct muster *m, void (*deed)(void *arg), void *arg);

/* In a body: [collective] a second world of the ranks of m, by muster_init. */
int forked_second(struct muster *m, struct muster **out);

/* Memory that the forked ranks share with the test. */
void *forked_shared(size_t bytes);
/* In a body: work(arg) runs in a thread of its own. */
void forked_thread(void *(*work)(void *), void *arg);

/* In a body: say what and leave with status 99 unless it holds. */
#define RANK_CHECK(cond)                                                               \
    do {                                                                               \
        if (!(cond)) {                                                                 \
            fprintf(stderr, "%s:%d: rank %d: %s does not hold\n", __FILE__, __LINE__,  \
                    m ? muster_rank(m) : -1, #cond);                                   \
            _exit(99);                                                                 \
        }                                                                              \
    } while (0)
#define RANK_OK(call)                                                                  \
    do {                                                                               \
        if ((call) != MUSTER_OK) {                                                     \
            fprintf(stderr, "%s:%d: rank %d: %s: %s\n", __FILE__, __LINE__,            \
                    muster_rank(m), #call, muster_error(m));                           \
            _exit(98);                                                                 \
        }                                                                              \
    } while (0)

#endif
