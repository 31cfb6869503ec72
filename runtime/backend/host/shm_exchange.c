/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_exchange.c - a part from each rank of a domain to each other
 *
 * Every rank publishes a table in its mailbox: the elements that it has for each rank,
 * then those that it expects. Where there is room on all ranks, the parts follow it,
 * and no other wait is needed. Else they pass through the staging slots in rounds.
 * Slots hold one chunk for each rank; the longest part of all decides the number of
 * rounds.
 */
#include <string.h>

#include "runtime/backend/host/shm.h"

_Static_assert(2 * MU_EXCHANGE_MOST * sizeof(uint64_t) <= MU_SHM_SMALL, "the table");

static uint64_t *table_of(const struct mu_shm *shm, int local, uint64_t seq)
{
    return (void *)mu_shm_entry_of(shm, local, seq)->small;
}

static size_t table_bytes(const struct mu_shm *shm)
{
    return 2 * (size_t)shm->nlocal * sizeof(uint64_t);
}

static bool fits(const struct mu_shm *shm, const uint64_t *table, size_t esize)
{
    size_t left = (MU_SHM_SMALL - table_bytes(shm)) / esize;

    for (int i = 0; i < shm->nlocal; i++) {
        if (table[i] > left)
            return false;
        left -= table[i];
    }
    return true;
}

void mu_shm_exchange_post(struct mu_host_backend *b, const struct mu_host_request *rq,
                          char *space)
{
    const struct mu_shm *shm = b->shm;
    const struct mu_coll *c = &rq->coll;
    uint64_t *table = (void *)space;
    char *to = space + table_bytes(shm);

    for (int i = 0; i < shm->nlocal; i++) {
        table[i] = i == shm->me ? 0 : c->sends[shm->rank_of[i]].count;
        table[shm->nlocal + i] = c->recvs[shm->rank_of[i]].count;
    }
    if (!fits(shm, table, rq->esize))
        return;
    for (int i = 0; i < shm->nlocal; i++) {
        size_t bytes = table[i] * rq->esize;

        if (bytes > 0)
            memcpy(to, (const char *)c->send + c->sends[shm->rank_of[i]].at * rq->esize,
                   bytes);
        to += bytes;
    }
}

static bool counts_agree(struct mu_host_backend *b, const struct mu_host_request *rq)
{
    const struct mu_shm *shm = b->shm;
    char why[MU_FAILURE_TEXT];

    for (int i = 0; i < shm->nlocal; i++) {
        int rank = shm->rank_of[i];

        const uint64_t *table = table_of(shm, i, rq->seq);

        if (i == shm->me ||
            mu_host_parts_agree(b, rq, rank, table[shm->me],
                                table[shm->nlocal + shm->me], why, sizeof why))
            continue;
        mu_engine_fail(b, MUSTER_ECONTRACT, rank, true, "%s", why);
        return false;
    }
    return true;
}

/* Where the parts of all ranks are in the mailboxes; else the rounds are set. */
static bool is_small(const struct mu_shm *shm, struct mu_host_request *rq, size_t each)
{
    bool small = true;
    uint64_t most = 0;

    for (int i = 0; i < shm->nlocal; i++) {
        const uint64_t *table = table_of(shm, i, rq->seq);

        small &= fits(shm, table, rq->esize);
        for (int k = 0; k < shm->nlocal; k++)
            most = table[k] > most ? table[k] : most;
    }
    rq->nrounds = (most + each - 1) / each;
    return small;
}

static char *into(const struct mu_host_request *rq, int rank, size_t at)
{
    return (char *)rq->coll.recv + (rq->coll.recvs[rank].at + at) * rq->esize;
}

static void copy_small(const struct mu_shm *shm, const struct mu_host_request *rq)
{
    for (int i = 0; i < shm->nlocal; i++) {
        const uint64_t *table = table_of(shm, i, rq->seq);
        size_t before = 0;

        for (int k = 0; k < shm->me; k++)
            before += table[k];
        if (table[shm->me] > 0)
            memcpy(into(rq, shm->rank_of[i], 0),
                   (const char *)table + table_bytes(shm) + before * rq->esize,
                   table[shm->me] * rq->esize);
    }
}

/* ---- Rounds ---- */

static size_t chunk_bytes(const struct mu_shm *shm)
{
    return MU_SHM_SLOT / (size_t)shm->nlocal / 64 * 64;
}

/* The elements of `count` that pass in this round. */
static size_t in_round(size_t count, size_t each, uint64_t round)
{
    size_t skip = each * round;

    return skip >= count ? 0 : count - skip < each ? count - skip : each;
}

static void stage(struct mu_shm *shm, const struct mu_host_request *rq, size_t each)
{
    const struct mu_coll *c = &rq->coll;
    char *slot = mu_shm_slot(shm, shm->me, rq->base + rq->round);

    for (int i = 0; i < shm->nlocal; i++) {
        const struct mu_part *part = &c->sends[shm->rank_of[i]];
        size_t n = i == shm->me ? 0 : in_round(part->count, each, rq->round);

        if (n > 0)
            memcpy(slot + (size_t)i * chunk_bytes(shm),
                   (const char *)c->send + (part->at + each * rq->round) * rq->esize,
                   n * rq->esize);
    }
    mu_shm_advance(shm, MU_STAGED, 1);
}

static void copy_out(struct mu_shm *shm, const struct mu_host_request *rq, size_t each)
{
    for (int i = 0; i < shm->nlocal; i++) {
        int rank = shm->rank_of[i];
        size_t n = in_round(rq->coll.recvs[rank].count, each, rq->round);

        if (i != shm->me && n > 0)
            memcpy(into(rq, rank, each * rq->round),
                   mu_shm_slot(shm, i, rq->base + rq->round) +
                       (size_t)shm->me * chunk_bytes(shm),
                   n * rq->esize);
    }
    /* The counters count the same rounds in every collective. */
    mu_shm_advance(shm, MU_REDUCED, 1);
    mu_shm_advance(shm, MU_COPIED, 1);
}

enum { ENTER, STAGE, COPY };

int mu_shm_exchange_progress(struct mu_host_backend *b, struct mu_host_request *rq)
{
    struct mu_shm *shm = b->shm;
    size_t each = chunk_bytes(shm) / rq->esize;
    uint64_t round = shm->rounds + rq->round;

    if (rq->phase == ENTER) {
        if (!counts_agree(b, rq))
            return MU_FAILED;
        rq->base = shm->rounds;
        rq->phase = STAGE;
        if (is_small(shm, rq, each)) {
            copy_small(shm, rq);
            return MU_FINISHED;
        }
    }
    if (rq->phase == STAGE) {
        /* The slot is free when all ranks have copied its previous contents. */
        if (round >= MU_SHM_NSLOTS &&
            !mu_shm_reached(shm, MU_COPIED, round - MU_SHM_NSLOTS + 1))
            return MU_WAITS;
        stage(shm, rq, each);
        rq->phase = COPY;
    }
    if (!mu_shm_reached(shm, MU_STAGED, round + 1))
        return MU_WAITS;
    copy_out(shm, rq, each);
    rq->phase = STAGE;
    if (++rq->round < rq->nrounds)
        return MU_MORE;
    shm->rounds += rq->nrounds;
    return MU_FINISHED;
}
