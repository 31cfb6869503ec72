/* SPDX-License-Identifier: BSD-3-Clause */
/* comm_id.h - an id for each communicator of the program, the same on all of its ranks
 *
 * That of a new communicator is the program's. One that is split off has its parent's,
 * mixed with the number of the split and the color, which its ranks share.
 */
#ifndef MU_NCCL_COMM_ID_H
#define MU_NCCL_COMM_ID_H

#include <stdbool.h>

#include "runtime/nccl/nccl_abi.h"

/* From any thread. A handle that NCCL gives again has the new id. */
void mu_comm_id_set(void *comm, const struct mu_nccl_id *id);
/* The id of what this split of `comm` makes; the ranks split in one order. False: the
 * id of `comm` is unknown.
 */
bool mu_comm_id_split(void *comm, int color, struct mu_nccl_id *id);
/* The handle ends. */
void mu_comm_id_drop(void *comm);

#endif
