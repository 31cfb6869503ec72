/* SPDX-License-Identifier: BSD-3-Clause */
/* staged.h - collectives on host memory, with their data in GPU memory; for coll_host.c
 */
#ifndef MU_STAGED_H
#define MU_STAGED_H

#include "runtime/comm/comm.h"

struct mu_staged {
    struct mu_coll coll;  /* the caller's */
    struct mu_coll chunk; /* of it, in GPU memory */
    char *memory;
    size_t from, recv_at; /* first element of the chunk; of its recv in memory */
    int n;
    /* By rank, or the parts of a buffer in their order: in the caller's buffers, and
     * those of the chunk, one after another.
     */
    struct mu_part *sends, *recvs, *chunk_sends, *chunk_recvs, parts[];
};

/* Parts of coll differ in size. */
bool mu_has_unequal_parts(const struct mu_coll *coll);
/* Without memory yet. The caller frees it. */
struct mu_staged *mu_staged_new(const struct mu_comm *comm, const struct mu_coll *coll,
                                struct mu_err *err);
/* The chunk is elements from .. from + most - 1 of each part. Returns how many elements
 * it has in memory.
 */
size_t mu_staged_cut(struct mu_staged *s, size_t from, size_t most);
/* Enqueue the copies on the stream of the collective. */
int mu_staged_copy_in(struct mu_comm *comm, struct mu_staged *s, struct mu_err *err);
int mu_staged_copy_out(struct mu_comm *comm, const struct mu_staged *s,
                       struct mu_err *err);

#endif
