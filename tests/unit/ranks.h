/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks.h - run a test body in n forked ranks that find each other without PMIx
 *
 * Every rank gets a struct mu_backend_env with which a backend can be opened.
 */
#ifndef MU_TEST_RANKS_H
#define MU_TEST_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/backend/backend.h"
#include "runtime/endpoint/endpoint.h"
#include "runtime/tools/fork_ranks.h"

struct ranks_world {
    int n;
    const int *node_of; /* NULL: all on node 0 */
    bool force_tcp;
    double timeout, init_timeout, link_timeout; /* 0: 20 s, 20 s, the default */
    double limit;     /* s, then every rank is killed; 0: 60 */
    int64_t *results; /* NULL, or MU_FORK_RESULTS values: the results at the end */
};

struct ranks_self {
    int rank, size;
    struct mu_backend_env env;
    const pid_t *pids;        /* of all ranks */
    _Atomic int64_t *results; /* see struct mu_fork_rank */
};

/* A body returns 0 when all is well. status[r] gets the exit status of rank r, 128 +
 * signal when it was killed (may be NULL). Returns the number of ranks that did not
 * exit with 0.
 */
typedef int ranks_body(struct ranks_self *self, void *arg);
int ranks_run(const struct ranks_world *world, ranks_body *body, void *arg,
              int *status);

/* [collective] In a body: open the endpoint anew, as in another network namespace; with
 * `first` as in mu_endpoint_open.
 */
int ranks_meet(struct ranks_self *self, const char *first);

/* In a body: print what is wrong, with the rank, and end it. */
#define RANKS_CHECK(self, cond, ...)                                                   \
    do {                                                                               \
        if (!(cond)) {                                                                 \
            ranks_complain((self), __FILE__, __LINE__, #cond, __VA_ARGS__);            \
            return 1;                                                                  \
        }                                                                              \
    } while (0)
void ranks_complain(const struct ranks_self *self, const char *file, int line,
                    const char *cond, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

#endif
