/* SPDX-License-Identifier: BSD-3-Clause */
/* limits.h - the sizes of each collective that Muster carries out, on all ranks */
#ifndef MU_NCCL_LIMITS_H
#define MU_NCCL_LIMITS_H

#include "runtime/backend/backend.h"

enum { MU_LIMITS = 4 }; /* all-reduce, reduce-scatter, all-gather and broadcast */

/* Bytes of the larger buffer. All 0: NCCL does all sizes. */
struct mu_limit {
    size_t one_shot; /* up to here by one-shot */
    size_t from, to; /* and these on memory that the peers map */
    /* Minimum, maximum and sums of integers have one-shot alone: up to here. */
    size_t others;
};

struct mu_limits {
    struct mu_limit of[MU_LIMITS]; /* by enum mu_coll_kind */
};

/* What was measured on H200 GPUs, for ranks that cannot measure. False: nothing was,
 * among so many ranks.
 */
bool mu_limits_known(int ranks, struct mu_limits *out);

#endif
