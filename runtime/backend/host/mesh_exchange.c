/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh_exchange.c - a part from each rank to each other, over messages
 *
 * The announcement to a rank has the number of elements for it, and the elements where
 * there are few. The others follow in chunks once all ranks have entered. They need no
 * credit: each chunk has its place in the receiver's buffer.
 */
#include <string.h>

#include "runtime/backend/host/mesh.h"

static bool is_small(const struct mu_host_backend *b, const struct mu_host_request *rq,
                     size_t count)
{
    return count * rq->esize <= b->mesh->small;
}

static size_t chunk_elements(const struct mu_host_backend *b,
                             const struct mu_host_request *rq)
{
    return b->mesh->chunk / rq->esize;
}

/* Chunks that follow the announcement. */
static uint64_t rounds_of(const struct mu_host_backend *b,
                          const struct mu_host_request *rq, size_t count)
{
    size_t each = chunk_elements(b, rq);

    return is_small(b, rq, count) ? 0 : (count + each - 1) / each;
}

/* Bytes of chunk `round`. */
static size_t chunk_bytes(const struct mu_host_backend *b,
                          const struct mu_host_request *rq, size_t count,
                          uint64_t round)
{
    size_t each = chunk_elements(b, rq), left = count - each * round;

    return (left < each ? left : each) * rq->esize;
}

static const char *sent_from(const struct mu_host_request *rq, int rank)
{
    return (const char *)rq->coll.send + rq->coll.sends[rank].at * rq->esize;
}

static char *received_at(const struct mu_host_request *rq, int rank)
{
    return (char *)rq->coll.recv + rq->coll.recvs[rank].at * rq->esize;
}

void mu_mesh_exchange_post(struct mu_host_backend *b, struct mu_host_request *rq,
                           struct mu_mesh_header *head)
{
    mu_mesh_begin_large(b, rq);
    for (int i = 1; i < b->env.size && !b->failure.status; i++) {
        int to = (b->env.rank + i) % b->env.size;
        size_t count = rq->coll.sends[to].count;
        bool small = count > 0 && is_small(b, rq, count);

        head->part = count;
        head->expected = rq->coll.recvs[to].count;
        head->len = small ? count * rq->esize : 0;
        mu_mesh_send(b, to, head, small ? sent_from(rq, to) : NULL, rq);
    }
}

static const struct mu_mesh_header *
announced(const struct mu_host_backend *b, const struct mu_host_request *rq, int rank)
{
    return &b->mesh->peer[rank].entry[rq->seq % MU_MESH_DEPTH];
}

static bool count_agrees(struct mu_host_backend *b, const struct mu_host_request *rq,
                         int rank)
{
    const struct mu_mesh_header *h = announced(b, rq, rank);
    char why[MU_FAILURE_TEXT];

    if (mu_host_parts_agree(b, rq, rank, h->part, h->expected, why, sizeof why))
        return true;
    mu_engine_fail(b, MUSTER_ECONTRACT, rank, true, "%s", why);
    return false;
}

char *mu_mesh_exchange_place(struct mu_host_backend *b,
                             const struct mu_host_request *rq, int rank,
                             const struct mu_mesh_header *h)
{
    struct mu_mesh_peer *p = &b->mesh->peer[rank];
    size_t count = rq->coll.recvs[rank].count;

    /* The sender has compared the calls of all ranks; this rank may not have yet. */
    if (p->entered > rq->seq && !count_agrees(b, rq, rank))
        return NULL;
    if (h->verb != MU_MESH_INPUT || h->round != p->got ||
        h->round >= rounds_of(b, rq, count) ||
        h->len != chunk_bytes(b, rq, count, h->round))
        return mu_mesh_misplaced(b, rank, h);
    return received_at(rq, rank) + h->round * chunk_elements(b, rq) * rq->esize;
}

/* All ranks have entered: send the long parts, take the short ones. */
static bool begin(struct mu_host_backend *b, struct mu_host_request *rq)
{
    for (int i = 1; i < b->env.size; i++) {
        int r = (b->env.rank + i) % b->env.size;
        size_t count = rq->coll.sends[r].count, got = rq->coll.recvs[r].count;
        uint64_t rounds = rounds_of(b, rq, count);

        if (!count_agrees(b, rq, r))
            return false;
        if (got > 0 && is_small(b, rq, got))
            memcpy(received_at(rq, r),
                   b->mesh->peer[r].small + rq->seq % MU_MESH_DEPTH * b->mesh->small,
                   got * rq->esize);
        for (uint64_t k = 0; k < rounds && !b->failure.status; k++) {
            struct mu_mesh_header head = { .verb = MU_MESH_INPUT,
                                           .seq = rq->seq,
                                           .round = k,
                                           .len = chunk_bytes(b, rq, count, k) };

            mu_mesh_send(b, r, &head,
                         sent_from(rq, r) + k * chunk_elements(b, rq) * rq->esize, rq);
        }
    }
    return !b->failure.status;
}

int mu_mesh_exchange_progress(struct mu_host_backend *b, struct mu_host_request *rq)
{
    if (rq->phase == 0) {
        if (!begin(b, rq))
            return MU_FAILED;
        rq->phase = 1;
    }
    for (int r = 0; r < b->env.size; r++)
        if (r != b->env.rank &&
            b->mesh->peer[r].got < rounds_of(b, rq, rq->coll.recvs[r].count))
            return MU_WAITS;
    if (rq->open_sends > 0)
        return MU_WAITS;
    b->mesh->under_way = NULL;
    return MU_FINISHED;
}
