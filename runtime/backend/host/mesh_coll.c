/* SPDX-License-Identifier: BSD-3-Clause */
/* mesh_coll.c - the collectives over messages
 *
 * small: the announcement carries the payload and every rank computes. One hop.
 *
 * large: each rank owns one part of the vector. A round moves one chunk per part: every
 * rank sends its input to each owner; the owner combines in rank order and sends the
 * result to all. A result (or a credit) confirms that the owner has consumed a round of
 * input; senders run at most `window` rounds ahead. Broadcast: only the root has input.
 * All-gather: no input, own part as result. Reduce-scatter: no results, only credits.
 * Reduce: results go to the root alone. mesh_exchange.c has the exchanges.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/backend/host/mesh.h"

enum { UNDECIDED, SMALL, LARGE, EXCHANGE };

static size_t chunk_elements(const struct mu_host_backend *b,
                             const struct mu_host_request *rq)
{
    return b->mesh->chunk / rq->esize;
}

static uint64_t rounds_of(const struct mu_host_backend *b,
                          const struct mu_host_request *rq, int owner)
{
    size_t each = chunk_elements(b, rq);

    return (mu_host_part(&rq->coll, b->env.size, owner).n + each - 1) / each;
}

static struct mu_span chunk_of(const struct mu_host_backend *b,
                               const struct mu_host_request *rq, int owner,
                               uint64_t round)
{
    struct mu_span part = mu_host_part(&rq->coll, b->env.size, owner);
    size_t each = chunk_elements(b, rq), skip = each * round;

    part.at += skip;
    part.n = part.n - skip < each ? part.n - skip : each;
    return part;
}

static bool is_small(const struct mu_host_backend *b, const struct mu_host_request *rq)
{
    return rq->coll.kind != MU_COLL_EXCHANGE &&
           mu_host_payload(rq, b->env.size) <= b->mesh->small;
}

static bool has_input(const struct mu_coll *c, int rank)
{
    return c->kind != MU_COLL_ALLGATHER &&
           (c->kind != MU_COLL_BROADCAST || rank == c->root);
}

/* Do owners send `rank` the results of their parts? */
static bool gets_results(const struct mu_coll *c, int rank)
{
    switch (c->kind) {
    case MU_COLL_REDUCE_SCATTER:
        return false;
    case MU_COLL_BROADCAST:
        return rank != c->root;
    case MU_COLL_REDUCE:
        return rank == c->root;
    default:
        return true;
    }
}

/* ---- Entering ---- */

bool mu_mesh_post(struct mu_host_backend *b, struct mu_host_request *rq)
{
    struct mu_coll *c = &rq->coll;
    struct mu_mesh_header head = { .verb = MU_MESH_ENTER,
                                   .call = mu_host_request_signature(rq),
                                   .seq = rq->seq };

    /* A large request is entered when all before it are done, so that data always
     * belongs to the current one; small requests may run ahead.
     */
    if (rq != b->head && (!is_small(b, rq) || b->mesh->under_way ||
                          rq->seq - b->head->seq >= MU_MESH_DEPTH / 2))
        return false;
    mu_host_request_settle(b, rq);
    if (c->kind == MU_COLL_EXCHANGE) {
        mu_mesh_exchange_post(b, rq, &head);
        return true;
    }
    if (!is_small(b, rq))
        mu_mesh_begin_large(b, rq);
    else if (c->kind != MU_COLL_BROADCAST || c->root == b->env.rank)
        head.len = mu_host_payload(rq, b->env.size);
    for (int r = 0; r < b->env.size && !b->failure.status; r++)
        if (r != b->env.rank)
            mu_mesh_send(b, r, &head, c->send, rq);
    return true;
}

static bool entries_agree(struct mu_host_backend *b, const struct mu_host_request *rq)
{
    char why[MU_FAILURE_TEXT];

    for (int r = 0; r < b->env.size; r++) {
        const struct mu_mesh_header *h =
            &b->mesh->peer[r].entry[rq->seq % MU_MESH_DEPTH];

        if (r == b->env.rank ||
            mu_host_request_agrees(b, rq, r, &h->call, why, sizeof why))
            continue;
        mu_engine_fail(b, MUSTER_ECONTRACT, r, true, "%s", why);
        return false;
    }
    return true;
}

/* ---- Receiving ---- */

static char *input_of(const struct mu_host_backend *b, int rank, uint64_t round)
{
    size_t others = (size_t)b->env.size - 1, at = (size_t)(rank - (rank > b->env.rank));
    size_t slot = round % b->mesh->window * others + at;

    return b->mesh->input + slot * b->mesh->chunk;
}

static char *place(struct mu_host_backend *b, int rank, const struct mu_mesh_header *h)
{
    struct mu_mesh *mesh = b->mesh;
    struct mu_mesh_peer *p = &mesh->peer[rank];
    struct mu_host_request *rq = mesh->under_way;
    bool input = h->verb == MU_MESH_INPUT;
    struct mu_span chunk;
    int owner = input ? b->env.rank : rank;

    if (h->verb == MU_MESH_ENTER && h->len <= mesh->small)
        return p->small + h->seq % MU_MESH_DEPTH * mesh->small;
    if (rq && rq->coll.kind == MU_COLL_EXCHANGE && h->seq == rq->seq)
        return mu_mesh_exchange_place(b, rq, rank, h);
    if (!rq || h->seq != rq->seq || (!input && h->verb != MU_MESH_RESULT) ||
        h->round != (input ? p->got : p->results) ||
        h->round >= rounds_of(b, rq, owner) ||
        (input && h->round >= mesh->reduced + b->mesh->window))
        return mu_mesh_misplaced(b, rank, h);
    chunk = chunk_of(b, rq, owner, h->round);
    if (h->len != chunk.n * rq->esize)
        return mu_mesh_misplaced(b, rank, h);
    return input ? input_of(b, rank, h->round)
                 : (char *)rq->coll.recv + chunk.at * rq->esize;
}

static void arrived(struct mu_host_backend *b, int rank, const struct mu_mesh_header *h)
{
    struct mu_mesh_peer *p = &b->mesh->peer[rank];
    struct mu_host_request *rq = b->mesh->under_way;

    switch (h->verb) {
    case MU_MESH_ENTER:
        if (h->seq != p->entered) {
            mu_mesh_misplaced(b, rank, h);
            return;
        }
        p->entry[h->seq % MU_MESH_DEPTH] = *h;
        p->entered++;
        return;
    case MU_MESH_INPUT:
        p->got++;
        return;
    case MU_MESH_RESULT:
        p->results++;
        p->credit++;
        return;
    case MU_MESH_CREDIT:
        /* Late ones may arrive after that request has finished. */
        if (rq && rq->seq == h->seq)
            p->credit++;
        return;
    default:
        mu_mesh_misplaced(b, rank, h);
    }
}

const struct mu_mesh_sink mu_mesh_collectives = { place, arrived };

/* ---- Small ---- */

static void small_compute(struct mu_host_backend *b, struct mu_host_request *rq)
{
    struct mu_mesh *mesh = b->mesh;
    struct mu_coll *c = &rq->coll;
    size_t bytes = c->count * rq->esize;
    size_t at = c->kind == MU_COLL_REDUCE_SCATTER ? (size_t)b->env.rank * bytes : 0;

    if (c->kind == MU_COLL_BARRIER || bytes == 0)
        return;
    for (int r = 0; r < b->env.size; r++) {
        const char *from = r == b->env.rank ? (const char *)c->send
                                            : mesh->peer[r].small +
                                                  rq->seq % MU_MESH_DEPTH * mesh->small;
        char *to =
            (char *)c->recv + (c->kind == MU_COLL_ALLGATHER ? (size_t)r * bytes : 0);

        mesh->src[r] = from + at;
        if ((c->kind == MU_COLL_ALLGATHER ||
             (c->kind == MU_COLL_BROADCAST && r == c->root)) &&
            to != from)
            memmove(to, from, bytes);
    }
    if (c->kind == MU_COLL_ALLREDUCE || c->kind == MU_COLL_REDUCE_SCATTER ||
        (c->kind == MU_COLL_REDUCE && c->root == b->env.rank))
        mu_elements_reduce(c->dtype, c->op, c->scale, mesh->src, b->env.size, &c->recv,
                           1, c->count);
}

/* ---- Large ---- */

static void send_round(struct mu_host_backend *b, struct mu_host_request *rq, int to,
                       enum mu_mesh_verb verb, uint64_t round)
{
    const struct mu_coll *c = &rq->coll;
    struct mu_span chunk =
        chunk_of(b, rq, verb == MU_MESH_INPUT ? to : b->env.rank, round);
    struct mu_mesh_header head = { .verb = (uint8_t)verb,
                                   .seq = rq->seq,
                                   .round = round };
    const char *from = verb == MU_MESH_INPUT ? c->send : c->recv;

    if (verb != MU_MESH_CREDIT)
        head.len = chunk.n * rq->esize;
    mu_mesh_send(b, to, &head, from + chunk.at * rq->esize,
                 verb == MU_MESH_CREDIT ? NULL : rq);
}

static void send_inputs(struct mu_host_backend *b, struct mu_host_request *rq)
{
    int n = b->env.size;

    if (!has_input(&rq->coll, b->env.rank))
        return;
    /* Each rank starts with a different owner. */
    for (int i = 1; i < n; i++) {
        int to = (b->env.rank + i) % n;
        struct mu_mesh_peer *p = &b->mesh->peer[to];
        uint64_t rounds = rounds_of(b, rq, to);

        for (; p->sent < rounds && p->sent < p->credit + b->mesh->window; p->sent++)
            send_round(b, rq, to, MU_MESH_INPUT, p->sent);
    }
}

static bool inputs_here(const struct mu_host_backend *b,
                        const struct mu_host_request *rq, uint64_t round)
{
    for (int r = 0; r < b->env.size; r++)
        if (r != b->env.rank && has_input(&rq->coll, r) &&
            b->mesh->peer[r].got <= round)
            return false;
    return true;
}

/* Form the result of one round of our part. */
static void combine(struct mu_host_backend *b, struct mu_host_request *rq,
                    uint64_t round)
{
    struct mu_coll *c = &rq->coll;
    struct mu_span chunk = chunk_of(b, rq, b->env.rank, round);
    size_t first = mu_host_part(c, b->env.size, b->env.rank).at * rq->esize,
           at = chunk.at * rq->esize;
    char *to = (char *)c->recv + at;
    const char *own = (const char *)c->send + at;

    switch (c->kind) {
    case MU_COLL_ALLGATHER:
        own -= first;
        if (to != own)
            memmove(to, own, chunk.n * rq->esize);
        break;
    case MU_COLL_BROADCAST:
        if (c->root != b->env.rank)
            memcpy(to, input_of(b, c->root, round), chunk.n * rq->esize);
        break;
    default:
        if (c->kind == MU_COLL_REDUCE_SCATTER)
            to -= first;
        for (int r = 0; r < b->env.size; r++)
            b->mesh->src[r] = r == b->env.rank ? own : input_of(b, r, round);
        mu_elements_reduce(c->dtype, c->op, c->scale, b->mesh->src, b->env.size,
                           (void *const[]){ to }, 1, chunk.n);
    }
}

static void serve_part(struct mu_host_backend *b, struct mu_host_request *rq)
{
    const struct mu_coll *c = &rq->coll;
    uint64_t rounds = rounds_of(b, rq, b->env.rank);
    int n = b->env.size;

    while (b->mesh->reduced < rounds && inputs_here(b, rq, b->mesh->reduced) &&
           !b->failure.status) {
        uint64_t round = b->mesh->reduced++;

        combine(b, rq, round);
        for (int i = 1; i < n; i++) {
            int to = (b->env.rank + i) % n;

            send_round(b, rq, to, gets_results(c, to) ? MU_MESH_RESULT : MU_MESH_CREDIT,
                       round);
        }
    }
}

static bool complete(const struct mu_host_backend *b, const struct mu_host_request *rq)
{
    const struct mu_coll *c = &rq->coll;

    if (b->mesh->reduced < rounds_of(b, rq, b->env.rank))
        return false;
    for (int r = 0; r < b->env.size; r++) {
        const struct mu_mesh_peer *p = &b->mesh->peer[r];
        uint64_t rounds = rounds_of(b, rq, r);

        if (r == b->env.rank)
            continue;
        if (has_input(c, b->env.rank) && p->sent < rounds)
            return false;
        if (gets_results(c, b->env.rank) && p->results < rounds)
            return false;
    }
    return true;
}

static bool all_entered(const struct mu_host_backend *b,
                        const struct mu_host_request *rq)
{
    for (int r = 0; r < b->env.size; r++)
        if (r != b->env.rank && b->mesh->peer[r].entered <= rq->seq)
            return false;
    return true;
}

int mu_mesh_progress(struct mu_host_backend *b, struct mu_host_request *rq)
{
    mu_mesh_poll(b);
    if (b->failure.status)
        return MU_FAILED;
    if (rq->algorithm == UNDECIDED) {
        if (!all_entered(b, rq))
            return MU_WAITS;
        if (!entries_agree(b, rq))
            return MU_FAILED;
        rq->algorithm = rq->coll.kind == MU_COLL_EXCHANGE ? EXCHANGE
                        : is_small(b, rq)                 ? SMALL
                                                          : LARGE;
    }
    if (rq->algorithm == EXCHANGE)
        return mu_mesh_exchange_progress(b, rq);
    if (rq->algorithm == SMALL) {
        /* Queued announcements still refer to the buffer that will change. */
        if (rq->open_sends > 0)
            return MU_WAITS;
        small_compute(b, rq);
        return MU_FINISHED;
    }
    serve_part(b, rq);
    send_inputs(b, rq);
    if (b->failure.status)
        return MU_FAILED;
    if (!complete(b, rq) || rq->open_sends > 0)
        return MU_WAITS;
    b->mesh->under_way = NULL;
    return MU_FINISHED;
}
