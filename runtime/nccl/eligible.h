/* SPDX-License-Identifier: BSD-3-Clause */
/* eligible.h - which all-reduces Muster carries out
 *
 * Only what NCCL requires to be equal on all ranks decides: size, type and operator.
 * So all ranks decide alike without a message. Addresses, alignment, streams and groups
 * may differ among the ranks, and decide nothing.
 */
#ifndef MU_NCCL_ELIGIBLE_H
#define MU_NCCL_ELIGIBLE_H

#include "runtime/nccl/tally.h"

/* Bytes of the largest all-reduce among so many ranks; 0: never measured, none. */
size_t mu_eligible_most(int ranks);
/* MU_CARRIED, or why NCCL does it. *bytes: of the buffer, 0 for an unknown type. */
enum mu_fate mu_eligible(int ranks, size_t count, int type, int op, size_t *bytes);

#endif
