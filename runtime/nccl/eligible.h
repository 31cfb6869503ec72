/* SPDX-License-Identifier: BSD-3-Clause */
/* eligible.h - which all-reduces Muster carries out
 *
 * Only what NCCL requires to be equal on all ranks decides: size, type and operator,
 * and in the backend (carry.c) whether the call is captured.
 * So all ranks decide alike without a message. Addresses, alignment, streams and groups
 * may differ among the ranks, and decide nothing.
 */
#ifndef MU_NCCL_ELIGIBLE_H
#define MU_NCCL_ELIGIBLE_H

#include <stdbool.h>

#include "runtime/muster.h"
#include "runtime/nccl/tally.h"

/* An all-reduce as the backend has it. */
struct mu_eligible {
    size_t bytes; /* of the buffer, 0 for an unknown type */
    enum muster_dtype dtype;
    enum muster_op op;
    bool mean;
    bool mapped; /* on memory that the peers map, else by one-shot */
};

/* Has any all-reduce among so many ranks been measured? */
bool mu_eligible_ranks(int ranks);
/* MU_CARRIED, or why NCCL does it; out->bytes is valid in any case. */
enum mu_fate mu_eligible(int ranks, size_t count, int type, int op,
                         struct mu_eligible *out);

#endif
