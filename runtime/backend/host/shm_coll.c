/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_coll.c - the collectives of one domain
 *
 * small   the entry holds the payload: every rank enters, then computes. One wait.
 * arena   the arena holds all buffers. All-reduce: each rank sums its part of all
 *         buffers and stores it into all; other collectives: each rank reads what it
 *         needs from its peers. Two waits, no copy.
 * staged  private memory passes through the slots: shm_staged.c
 *
 * A reduce is an all-reduce whose result only the root stores. shm_exchange.c has the
 * exchanges.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/backend/host/cores.h"
#include "runtime/backend/host/shm.h"

enum { UNDECIDED, SMALL, ARENA, STAGED, EXCHANGE };

/* Bytes of one buffer between two checks of the lock and the events. */
#define PIECE ((size_t)1 << 20)
static bool is_small(const struct mu_shm *shm, const struct mu_host_request *rq)
{
    return mu_host_payload(rq, shm->nlocal) <= MU_SHM_SMALL;
}

/* The ranks store their sums into the recv of this one. */
static bool stores_into(const struct mu_coll *c, int rank)
{
    return c->kind == MU_COLL_ALLREDUCE ||
           (c->kind == MU_COLL_REDUCE && c->root == rank);
}

/* ---- Entering ---- */

static void fill_place(const struct mu_host_backend *b,
                       const struct mu_host_request *rq, struct mu_shm_place *p)
{
    const struct mu_coll *c = &rq->coll;
    size_t bytes = c->count * rq->esize, n = (size_t)b->shm->nlocal;
    size_t sends = c->kind == MU_COLL_REDUCE_SCATTER ? n * bytes : bytes;

    *p = (struct mu_shm_place){ 0 };
    p->arena = mu_host_arena_offset(b, c->send, sends, &p->send_at, &p->send_block);
    /* Other ranks store into recv only in all-reduce, and in reduce at the root. */
    if (p->arena && stores_into(c, b->env.rank))
        p->arena = mu_host_arena_offset(b, c->recv, bytes, &p->recv_at, &p->recv_block);
    /* A block of the root alone is not mapped by the others. */
    if (p->arena && c->kind == MU_COLL_REDUCE && c->root == b->env.rank)
        p->arena = p->recv_block == p->send_block;
}

/* Peers may still read the entry that this one replaces. Their counters are read only
 * when the last look does not suffice: that is a transfer from core to core.
 */
static bool has_room(struct mu_shm *shm, uint64_t seq)
{
    uint64_t least = UINT64_MAX;

    if (seq < shm->room)
        return true;
    for (int i = 0; i < shm->nlocal; i++) {
        uint64_t done = atomic_load(&mu_shm_mailbox_of(shm, i)->counter[MU_DONE]);

        least = done < least ? done : least;
    }
    shm->room = least + MU_SHM_DEPTH;
    return seq < shm->room || mu_shm_reached(shm, MU_DONE, seq - MU_SHM_DEPTH + 1);
}

bool mu_shm_post(struct mu_host_backend *b, struct mu_host_request *rq)
{
    struct mu_shm *shm = b->shm;
    struct mu_coll *c = &rq->coll;
    struct mu_shm_entry *e = mu_shm_entry_of(shm, shm->me, rq->seq);
    size_t payload = mu_host_payload(rq, shm->nlocal);

    if (!has_room(shm, rq->seq))
        return false;
    mu_host_request_settle(b, rq);
    if (rq->seq == 0)
        mu_cores_own(&mu_shm_mailbox_of(shm, shm->me)->cores[MU_AT_ENTRY]);
    e->call = mu_host_request_signature(rq);
    if (c->kind == MU_COLL_EXCHANGE) {
        mu_shm_exchange_post(b, rq, e->small);
    } else if (!is_small(shm, rq)) {
        fill_place(b, rq, &e->place);
        rq->exposed = e->place.arena && stores_into(c, b->env.rank);
    } else if (payload && (c->kind != MU_COLL_BROADCAST || c->root == b->env.rank)) {
        memcpy(e->small, c->send, payload);
    }
    mu_shm_enter(shm, rq->seq);
    return true;
}

/* Every rank has entered: compare the collectives. */
static bool entries_agree(struct mu_host_backend *b, const struct mu_host_request *rq)
{
    struct mu_shm *shm = b->shm;
    char why[MU_FAILURE_TEXT];

    for (int i = 0; i < shm->nlocal; i++) {
        int rank = shm->rank_of[i];

        if (i == shm->me ||
            mu_host_request_agrees(b, rq, rank, &mu_shm_entry_of(shm, i, rq->seq)->call,
                                   why, sizeof why))
            continue;
        mu_engine_fail(b, MUSTER_ECONTRACT, rank, true, "%s", why);
        return false;
    }
    return true;
}

/* ---- Small ---- */

static void small_compute(struct mu_host_backend *b, struct mu_host_request *rq)
{
    struct mu_shm *shm = b->shm;
    struct mu_coll *c = &rq->coll;
    size_t bytes = c->count * rq->esize;
    size_t at = c->kind == MU_COLL_REDUCE_SCATTER ? (size_t)shm->me * bytes : 0;

    if (c->kind == MU_COLL_BARRIER || bytes == 0)
        return;
    for (int i = 0; i < shm->nlocal; i++) {
        const char *from = mu_shm_entry_of(shm, i, rq->seq)->small;

        shm->src[i] = from + at;
        if (c->kind == MU_COLL_ALLGATHER ||
            (c->kind == MU_COLL_BROADCAST && shm->rank_of[i] == c->root))
            memcpy((char *)c->recv +
                       (c->kind == MU_COLL_ALLGATHER ? (size_t)i * bytes : 0),
                   from, bytes);
    }
    if (stores_into(c, b->env.rank) || c->kind == MU_COLL_REDUCE_SCATTER)
        mu_elements_reduce(c->dtype, c->op, c->scale, shm->src, shm->nlocal, &c->recv,
                           1, c->count);
}

/* ---- Arena ---- */

static void *peer_memory(struct mu_host_backend *b, int local, uint64_t at,
                         size_t bytes)
{
    void *p = mu_host_arena_at(b, at, bytes);
    char who[128], mine[128];

    if (!p)
        mu_engine_fail(b, MUSTER_ECONTRACT, b->shm->rank_of[local], true,
                       "%s uses shared memory that %s has not allocated: allocations "
                       "must have the same sizes in the same order on all ranks",
                       mu_rank_text(b, b->shm->rank_of[local], who, sizeof who),
                       mu_rank_text(b, b->env.rank, mine, sizeof mine));
    return p;
}

/* Elements at .. at + n of the vector, in this rank's part. */
static int arena_piece(struct mu_host_backend *b, struct mu_host_request *rq, size_t at,
                       size_t n)
{
    struct mu_shm *shm = b->shm;
    struct mu_coll *c = &rq->coll;
    size_t bytes = n * rq->esize, offset = at * rq->esize;
    struct mu_span mine = mu_host_part(c, shm->nlocal, shm->me);
    int ndst = 0;

    for (int i = 0; i < shm->nlocal; i++) {
        const struct mu_shm_place *p = &mu_shm_entry_of(shm, i, rq->seq)->place;
        bool stores = stores_into(c, shm->rank_of[i]);
        void *to = shm; /* not NULL */

        if (c->kind == MU_COLL_BROADCAST && shm->rank_of[i] != c->root)
            continue;
        shm->src[i] = peer_memory(b, i, p->send_at + offset, bytes);
        if (stores)
            to = peer_memory(b, i, p->recv_at + offset, bytes);
        if (!shm->src[i] || !to)
            return -1;
        if (stores)
            shm->dst[ndst++] = to;
        if (c->kind == MU_COLL_ALLGATHER) {
            to = (char *)c->recv + (size_t)i * c->count * rq->esize + offset;
            if (to != shm->src[i] && i != shm->me)
                memcpy(to, shm->src[i], bytes);
            else if (i == shm->me && to != (const char *)c->send + offset)
                memcpy(to, (const char *)c->send + offset, bytes);
        } else if (c->kind == MU_COLL_BROADCAST && i != shm->me) {
            memcpy((char *)c->recv + offset, shm->src[i], bytes);
        }
    }
    if (c->kind == MU_COLL_REDUCE_SCATTER) {
        shm->dst[0] = (char *)c->recv + (at - mine.at) * rq->esize;
        mu_elements_reduce(c->dtype, c->op, c->scale, shm->src, shm->nlocal, shm->dst,
                           1, n);
    } else if (ndst > 0) {
        mu_elements_reduce(c->dtype, c->op, c->scale, shm->src, shm->nlocal, shm->dst,
                           ndst, n);
    }
    return 0;
}

static int arena_progress(struct mu_host_backend *b, struct mu_host_request *rq)
{
    struct mu_shm *shm = b->shm;
    const struct mu_coll *c = &rq->coll;
    struct mu_span mine = mu_host_part(c, shm->nlocal, shm->me);
    size_t step = PIECE / rq->esize, done = rq->round * step, n;

    if (c->kind == MU_COLL_BROADCAST || c->kind == MU_COLL_ALLGATHER)
        mine = (struct mu_span){ 0, c->count }; /* every rank reads the whole */
    if (rq->phase == 0) {
        if (done < mine.n) {
            n = mine.n - done < step ? mine.n - done : step;
            if (arena_piece(b, rq, mine.at + done, n) < 0)
                return MU_FAILED;
            rq->round++;
            return MU_MORE;
        }
        rq->phase = 1;
        shm->stored++;
        mu_shm_advance(shm, MU_STORED, 1);
    }
    return mu_shm_reached(shm, MU_STORED, shm->stored) ? MU_FINISHED : MU_WAITS;
}

/* ---- Choice of the algorithm ---- */

/* True if the buffers of all ranks are inside allocations that every rank has. */
static bool in_arena(const struct mu_shm *shm, const struct mu_host_request *rq)
{
    const struct mu_shm_place *any = &mu_shm_entry_of(shm, 0, rq->seq)->place;
    bool one = rq->coll.kind == MU_COLL_BROADCAST, all = true;

    for (int i = 0; i < shm->nlocal; i++) {
        const struct mu_shm_place *p = &mu_shm_entry_of(shm, i, rq->seq)->place;

        if (!one || shm->rank_of[i] == rq->coll.root)
            all = all && p->arena &&
                  (one || (p->send_block == any->send_block &&
                           (rq->coll.kind == MU_COLL_REDUCE ||
                            p->recv_block == any->recv_block)));
    }
    return all;
}

static void decide(struct mu_host_backend *b, struct mu_host_request *rq)
{
    struct mu_shm *shm = b->shm;
    const struct mu_coll *c = &rq->coll;
    size_t each = mu_shm_chunk_elements(shm, rq);

    if (c->kind == MU_COLL_EXCHANGE) {
        rq->algorithm = EXCHANGE;
        return;
    }
    if (is_small(shm, rq)) {
        rq->algorithm = SMALL;
        return;
    }
    rq->algorithm = in_arena(shm, rq) ? ARENA : STAGED;
    rq->base = shm->rounds;
    rq->nrounds = (mu_host_part(c, shm->nlocal, 0).n + each - 1) / each;
}

int mu_shm_progress(struct mu_host_backend *b, struct mu_host_request *rq)
{
    struct mu_shm *shm = b->shm;
    int r = MU_FINISHED;

    if (rq->algorithm == UNDECIDED) {
        if (!mu_shm_reached(shm, MU_ENTERED, rq->seq + 1))
            return MU_WAITS;
        if (!entries_agree(b, rq))
            return MU_FAILED;
        decide(b, rq);
    }
    if (rq->algorithm == SMALL)
        small_compute(b, rq);
    else if (rq->algorithm == ARENA)
        r = arena_progress(b, rq);
    else if (rq->algorithm == EXCHANGE)
        r = mu_shm_exchange_progress(b, rq);
    else
        r = mu_shm_staged_progress(b, rq);
    if (r == MU_FINISHED)
        mu_shm_advance(shm, MU_DONE, 1);
    return r;
}
