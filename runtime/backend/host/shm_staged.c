/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_staged.c - collectives on private memory: it passes through the slots in rounds
 *
 * Stage what others need, reduce our part, copy the other ranks' parts out. Staging is
 * one round ahead, copying one behind, so that no rank waits for the one just before
 * it.
 */
#include <string.h>

#include "runtime/backend/host/shm.h"

size_t mu_shm_chunk_elements(const struct mu_shm *shm, const struct mu_host_request *rq)
{
    size_t bytes = MU_SHM_SLOT / (size_t)shm->nlocal / 64 * 64;

    return bytes / rq->esize;
}

/* Chunk `round` of the part of `local`, in elements of the vector. */
static struct mu_span chunk_of(const struct mu_shm *shm,
                               const struct mu_host_request *rq, int local,
                               uint64_t round)
{
    struct mu_span part = mu_host_part(&rq->coll, shm->nlocal, local);
    size_t each = mu_shm_chunk_elements(shm, rq), skip = each * round;

    if (skip > part.n)
        skip = part.n;
    part.at += skip;
    part.n = part.n - skip < each ? part.n - skip : each;
    return part;
}

static char *chunk_slot(const struct mu_shm *shm, const struct mu_host_request *rq,
                        int owner, int part, uint64_t round)
{
    return mu_shm_slot(shm, owner, rq->base + round) +
           (size_t)part * mu_shm_chunk_elements(shm, rq) * rq->esize;
}

/* Stage the input of this round that other ranks need. */
static void stage(struct mu_host_backend *b, struct mu_host_request *rq, uint64_t round)
{
    struct mu_shm *shm = b->shm;
    const struct mu_coll *c = &rq->coll;

    for (int i = 0; i < shm->nlocal; i++) {
        struct mu_span chunk = chunk_of(shm, rq, i, round);
        size_t at = chunk.at;

        if (c->kind == MU_COLL_ALLGATHER   ? i != shm->me
            : c->kind == MU_COLL_BROADCAST ? c->root != b->env.rank
                                           : i == shm->me)
            continue;
        if (c->kind == MU_COLL_ALLGATHER)
            at -= (size_t)i * c->count; /* send holds our part alone */
        memcpy(chunk_slot(shm, rq, shm->me, i, round),
               (const char *)c->send + at * rq->esize, chunk.n * rq->esize);
    }
    mu_shm_advance(shm, MU_STAGED, 1);
}

/* Sum our part, keep it, and leave it in our slot for the other ranks. */
static void reduce(struct mu_host_backend *b, struct mu_host_request *rq,
                   uint64_t round)
{
    struct mu_shm *shm = b->shm;
    struct mu_coll *c = &rq->coll;
    struct mu_span chunk = chunk_of(shm, rq, shm->me, round);
    bool has_root = c->kind == MU_COLL_REDUCE, root = c->root == b->env.rank;
    size_t at = chunk.at;
    int ndst = 0;

    if (c->kind == MU_COLL_ALLREDUCE || c->kind == MU_COLL_REDUCE_SCATTER || has_root) {
        for (int i = 0; i < shm->nlocal; i++)
            shm->src[i] = i == shm->me ? (const char *)c->send + at * rq->esize
                                       : chunk_slot(shm, rq, i, shm->me, round);
        if (c->kind == MU_COLL_REDUCE_SCATTER)
            at -= (size_t)shm->me * c->count;
        if (!has_root || root)
            shm->dst[ndst++] = (char *)c->recv + at * rq->esize;
        if (c->kind == MU_COLL_ALLREDUCE || (has_root && !root))
            shm->dst[ndst++] = chunk_slot(shm, rq, shm->me, shm->me, round);
        mu_elements_reduce(c->dtype, c->op, c->scale, shm->src, shm->nlocal, shm->dst,
                           ndst, chunk.n);
    } else if (c->kind == MU_COLL_ALLGATHER) {
        size_t from = at - (size_t)shm->me * c->count;

        if ((char *)c->recv + at * rq->esize !=
            (const char *)c->send + from * rq->esize)
            memmove((char *)c->recv + at * rq->esize,
                    (const char *)c->send + from * rq->esize, chunk.n * rq->esize);
    }
    mu_shm_advance(shm, MU_REDUCED, 1);
}

static void copy_out(struct mu_host_backend *b, struct mu_host_request *rq,
                     uint64_t round)
{
    struct mu_shm *shm = b->shm;
    const struct mu_coll *c = &rq->coll;

    bool gets = c->kind != MU_COLL_REDUCE_SCATTER &&
                (c->kind != MU_COLL_REDUCE || c->root == b->env.rank);

    for (int i = 0; i < shm->nlocal && gets; i++) {
        struct mu_span chunk = chunk_of(shm, rq, i, round);
        int owner = i;

        if (c->kind == MU_COLL_BROADCAST)
            for (owner = 0; shm->rank_of[owner] != c->root;)
                owner++;
        if (owner != shm->me)
            memcpy((char *)c->recv + chunk.at * rq->esize,
                   chunk_slot(shm, rq, owner, i, round), chunk.n * rq->esize);
    }
    mu_shm_advance(shm, MU_COPIED, 1);
}

enum { STAGE, REDUCE, COPY };

/* rq->round counts 0 .. nrounds: in step k, stage round k + 1 (before the first step
 * round 0), reduce round k, copy round k - 1 out.
 */
int mu_shm_staged_progress(struct mu_host_backend *b, struct mu_host_request *rq)
{
    struct mu_shm *shm = b->shm;
    uint64_t k = rq->round;

    switch (rq->phase) {
    case STAGE:
        for (uint64_t next = k == 0 ? 0 : k + 1; next <= k + 1 && next < rq->nrounds;
             next++) {
            uint64_t round = rq->base + next;

            /* The slot is free when all ranks have copied its previous contents. */
            if (k == 0 &&
                next <
                    atomic_load(&mu_shm_mailbox_of(shm, shm->me)->counter[MU_STAGED]) -
                        rq->base)
                continue;
            if (round >= MU_SHM_NSLOTS &&
                !mu_shm_reached(shm, MU_COPIED, round - MU_SHM_NSLOTS + 1))
                return MU_WAITS;
            stage(b, rq, next);
        }
        rq->phase = REDUCE;
        /* fall through */
    case REDUCE:
        if (k < rq->nrounds) {
            if (!mu_shm_reached(shm, MU_STAGED, rq->base + k + 1))
                return MU_WAITS;
            reduce(b, rq, k);
        }
        rq->phase = COPY;
        /* fall through */
    default:
        if (k > 0) {
            if (!mu_shm_reached(shm, MU_REDUCED, rq->base + k))
                return MU_WAITS;
            copy_out(b, rq, k - 1);
        }
        rq->phase = STAGE;
        if (++rq->round <= rq->nrounds)
            return MU_MORE;
        shm->rounds += rq->nrounds;
        return MU_FINISHED;
    }
}
