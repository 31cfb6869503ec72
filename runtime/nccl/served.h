/* SPDX-License-Identifier: BSD-3-Clause */
/* served.h - the program's communicators that Muster serves, by NCCL's handle
 *
 *   ncclCommInitRank, ncclCommSplit -> id (comm_id.h) -> meeting (meet.h)
 *        -> vote: has the backend -> the backend opens with the meeting as its exchange
 *        -> vote: is open -> limits from a file or a measurement (choose.h)
 *        -> vote: has them -> served
 *   ncclAllReduce, ncclReduceScatter, ncclAllGather, ncclBroadcast
 *        -> eligible (eligible.h) -> the backend's kernel on the program's memory and
 *        stream
 *   ncclCommAbort, ncclCommRevoke, ncclCommDestroy ... -> no longer served
 *
 * A communicator that is not in the table is NCCL's alone.
 */
#ifndef MU_NCCL_SERVED_H
#define MU_NCCL_SERVED_H

#include <stdbool.h>

#include "runtime/backend/backend.h"
#include "runtime/base/log.h"
#include "runtime/nccl/nccl_abi.h"
#include "runtime/nccl/tally.h"

struct mu_served_new {
    void *comm;
    const void *id; /* of the communicator, from the program */
    size_t id_len;
    int rank, size;
    int device; /* CUDA's index, of NCCL's communicator */
};

/* A communicator that NCCL has just made; blocks until its ranks agree, or 1 s where
 * one of them is missing. Not to be served is no error: mu_tally_reason has it.
 */
void mu_served_open(const struct mu_served_new *n, const struct mu_log *log);

struct mu_served_call {
    enum mu_coll_kind kind; /* one of these four */
    void *comm;
    const void *send;
    void *recv;
    size_t count;
    int type, op, root; /* as far as the kind has them */
    void *stream;
};

/* MU_CARRIED: done, *rc is the program's result. Else NCCL has to do it. */
enum mu_fate mu_served_carry(const struct mu_served_call *c, size_t *bytes,
                             mu_nccl_result *rc);
/* The program has registered a symmetric window: NCCL does the rest itself. */
void mu_served_leave(void *comm);
/* The communicator ends. abort: what runs on it ends at once. */
void mu_served_end(void *comm, bool abort);

#endif
