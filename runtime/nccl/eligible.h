/* SPDX-License-Identifier: BSD-3-Clause */
/* eligible.h - which collectives Muster carries out
 *
 * Only what NCCL requires to be equal on all ranks decides: function, size, type and
 * operator, and in the backend (carry.c) whether the call is captured.
 * So all ranks decide alike without a message. Addresses, alignment, streams and groups
 * may differ among the ranks, and decide nothing.
 */
#ifndef MU_NCCL_ELIGIBLE_H
#define MU_NCCL_ELIGIBLE_H

#include <stdbool.h>

#include "runtime/backend/backend.h"
#include "runtime/muster.h"
#include "runtime/nccl/limits.h"
#include "runtime/nccl/tally.h"

/* A collective as the backend has it. */
struct mu_eligible {
    size_t bytes; /* of the larger buffer, 0 for an unknown type */
    size_t count; /* elements, of all-gather and broadcast bytes */
    enum muster_dtype dtype;
    enum muster_op op;
    bool mean;
    bool mapped; /* on memory that the peers map, else by one-shot */
};

/* MU_CARRIED, or why NCCL does it; out->bytes is valid in any case. kind: all-reduce,
 * reduce-scatter, all-gather or broadcast. count, type, op: NCCL's; op of sums alone.
 */
enum mu_fate mu_eligible(const struct mu_limits *most, enum mu_coll_kind kind,
                         int ranks, size_t count, int type, int op,
                         struct mu_eligible *out);

#endif
