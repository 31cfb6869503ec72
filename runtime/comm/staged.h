/* SPDX-License-Identifier: BSD-3-Clause */
/* staged.h - collectives on host memory, with their data in GPU memory; for coll_host.c
 */
#ifndef MU_STAGED_H
#define MU_STAGED_H

#include "runtime/comm/comm.h"

struct mu_staged {
    struct mu_coll coll;  /* the caller's */
    struct mu_coll chunk; /* of it, in GPU memory */
    char *memory;         /* of the chunk */
    size_t from, recv_at; /* first element of the chunk; of its recv in memory */
    /* Of a collective that is only started: memory for all chunks, and what they have
     * started but for the last, whose is the caller's.
     */
    char *lent;
    struct mu_started *earlier;
    size_t most, chunk_bytes; /* elements of a part in a chunk; its bytes in memory */
    int chunks;
    int n;
    /* By rank, or the parts of a buffer in their order: in the caller's buffers, and
     * those of the chunk, one after another. A collective that has started reads its
     * chunk's until it is joined.
     */
    struct mu_part *sends, *recvs, *chunk_sends, *chunk_recvs, *parts;
    bool at_once; /* all chunks are under way together */
};

/* Parts of coll differ in size. */
bool mu_has_unequal_parts(const struct mu_coll *coll);
/* Chunks have up to `most` elements of each part. Without memory yet. */
struct mu_staged *mu_staged_new(const struct mu_comm *comm, const struct mu_coll *coll,
                                size_t most, bool at_once, struct mu_err *err);
void mu_staged_delete(struct mu_staged *s);
/* From now on the chunk is number k, in s->memory. Returns its bytes there. */
size_t mu_staged_cut(struct mu_staged *s, int k);
/* Enqueue the copies on the stream of the collective. */
int mu_staged_copy_in(struct mu_comm *comm, struct mu_staged *s, struct mu_err *err);
int mu_staged_copy_out(struct mu_comm *comm, const struct mu_staged *s,
                       struct mu_err *err);

#endif
