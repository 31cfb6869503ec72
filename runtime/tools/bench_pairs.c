/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_pairs.c - latency and bandwidth from each rank to each other one
 *
 * One pair at a time sends messages, the other ranks sleep. What the ranks agree on
 * goes over the control connections: a link that carries no data does not stop them.
 *
 * A pair begins with one message each way, which has a limit in time. Its time decides
 * how many messages a repeat has. A pair that misses the limit is left out, and its
 * messages stay in flight, with their buffers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/api/impl.h" /* for the control connections */
#include "runtime/base/clock.h"
#include "runtime/tools/bench_pairs.h"

#define REPEAT_SECONDS 0.005
#define CALLS_MAX 64
#define ROUNDS 4 /* round trips of small messages for each large one */
#define BATCHES_MAX 1000
#define LOOK_SECONDS 20e-6

struct run {
    struct bench *b;
    struct muster *m;
    int rank;
    size_t small, large; /* elements of the messages */
    int32_t *host;       /* a large message, to fill and compare */
    char *send, *recv;   /* where the memory is that is measured */
    bool *stuck;         /* by rank: it cannot take part any more */
};

static void take_buffers(struct run *r)
{
    size_t bytes = r->large * sizeof(int32_t);
    struct mu_err err = { 0 };

    r->send = r->b->memory->alloc(bytes);
    r->recv = r->b->memory->alloc(bytes);
    if (!r->send || !r->recv) {
        mu_err_set(&err, MUSTER_EMEMORY, "out of memory for messages of %zu bytes",
                   bytes);
        bench_die(&err);
    }
}

/* Blocks until all calls so far are done. */
static void settle(const struct run *r)
{
    if (r->b->memory->settle)
        r->b->memory->settle(r->b->stream, MU_FOREVER);
}

/* ---- The first message ---- */

static int32_t element(int from, int to, size_t i)
{
    return (int32_t)((unsigned)from * 1000003u + (unsigned)to * 10007u + (unsigned)i);
}

static void fill(struct run *r, int from, int to)
{
    for (size_t i = 0; i < r->large; i++)
        r->host[i] = element(from, to, i);
    r->b->memory->copy(r->send, r->host, r->large * sizeof *r->host, true);
}

static bool is_right(struct run *r, int from, int to)
{
    r->b->memory->copy(r->host, r->recv, r->large * sizeof *r->host, false);
    for (size_t i = 0; i < r->large; i++)
        if (r->host[i] != element(from, to, i))
            return false;
    return true;
}

/* *h becomes NULL when it needs no wait any more. */
static bool is_done_within(const struct run *r, struct muster_handle **h,
                           double seconds)
{
    double until = mu_clock_s() + seconds;
    int done = 0;

    if (r->b->memory->settle) {
        bench_must(r->m, muster_wait(*h, 0));
        *h = NULL;
        return r->b->memory->settle(r->b->stream, seconds);
    }
    while (muster_test(*h, &done), !done && mu_clock_s() < until)
        mu_pause(LOOK_SECONDS);
    return done;
}

struct first {
    int64_t state; /* enum mu_pair_state; without padding, which would be sent */
    double seconds;
};

/* Equal on all ranks: what the receiver has found. */
static struct first first_message(struct run *r, int from, int to)
{
    const struct bench_options *o = r->b->options;
    bool takes_part = r->rank == from || r->rank == to;
    struct first mine = { MU_PAIR_OK, mu_clock_s() }, agreed;
    struct muster_handle *h = NULL;
    struct mu_gathered all;

    if (r->stuck[from] || r->stuck[to])
        return (struct first){ MU_PAIR_SKIPPED, 0 };
    if (r->rank == from)
        fill(r, from, to);
    if (takes_part) {
        bench_must(r->m, muster_start(r->m, &h));
        bench_must(r->m, r->rank == from ? muster_send(r->m, r->send, r->large,
                                                       MUSTER_I32, to, r->b->stream)
                                         : muster_recv(r->m, r->recv, r->large,
                                                       MUSTER_I32, from, r->b->stream));
        if (!is_done_within(r, &h, o->limit))
            mine.state = MU_PAIR_OVERDUE;
    }
    mine.seconds = mu_clock_s() - mine.seconds;
    if (r->rank == to && mine.state == MU_PAIR_OK && !is_right(r, from, to))
        mine.state = MU_PAIR_WRONG;
    bench_share(r->b, &mine, sizeof mine, &all);
    memcpy(&agreed, all.at[to], sizeof agreed);
    mu_gathered_clear(&all);
    if (agreed.state != MU_PAIR_OVERDUE)
        bench_must(r->m, muster_wait(h, 0));
    else if (r->b->memory->settle) /* all that a stuck stream is given waits too */
        r->stuck[from] = r->stuck[to] = true;
    else if (takes_part)
        take_buffers(r);
    return agreed;
}

/* ---- Repeats ---- */

static void send_to(const struct run *r, size_t count, int to)
{
    bench_must(r->m, muster_send(r->m, r->send, count, MUSTER_I32, to, r->b->stream));
}

static void receive_from(const struct run *r, size_t count, int from)
{
    bench_must(r->m, muster_recv(r->m, r->recv, count, MUSTER_I32, from, r->b->stream));
}

/* Microseconds one way: half a round trip. */
static double latency(const struct run *r, int i, int j, int rounds)
{
    double from = mu_clock_s();

    for (int k = 0; k < rounds; k++) {
        if (r->rank == i)
            send_to(r, r->small, j);
        receive_from(r, r->small, r->rank == i ? j : i);
        if (r->rank == j)
            send_to(r, r->small, i);
    }
    settle(r);
    return (mu_clock_s() - from) * 1e6 / (2 * rounds);
}

static double rate_of(const struct run *r, int calls, double from)
{
    return (double)calls * (double)r->large * sizeof(int32_t) / (mu_clock_s() - from) *
           1e-9;
}

/* GB/s, right on rank i: until j has answered the last message. */
static double one_way(const struct run *r, int i, int j, int calls)
{
    double from = mu_clock_s();

    for (int k = 0; k < calls; k++)
        if (r->rank == i)
            send_to(r, r->large, j);
        else
            receive_from(r, r->large, i);
    if (r->rank == i)
        receive_from(r, r->small, j);
    else
        send_to(r, r->small, i);
    settle(r);
    return rate_of(r, calls, from);
}

static double both_ways(const struct run *r, int other, int calls)
{
    double from = mu_clock_s();

    for (int k = 0; k < calls; k++)
        bench_must(r->m, muster_sendrecv(r->m, r->send, r->large, other, r->recv,
                                         r->large, other, MUSTER_I32, r->b->stream));
    settle(r);
    return rate_of(r, calls, from);
}

/* On rank i the figures from i to j, on rank j those from j to i. */
static void repeat(const struct run *r, int i, int j, double seconds,
                   struct mu_pair_figure *f)
{
    double us[BATCHES_MAX], there[BATCHES_MAX], back[BATCHES_MAX], both[BATCHES_MAX];
    double fits = REPEAT_SECONDS / seconds, *rates = r->rank == i ? there : back;
    int calls = fits < 1 ? 1 : fits > CALLS_MAX ? CALLS_MAX : (int)fits;
    int n = r->b->options->batches;

    for (int k = 0; k < n; k++) {
        us[k] = latency(r, i, j, calls * ROUNDS);
        there[k] = one_way(r, i, j, calls);
        back[k] = one_way(r, j, i, calls);
        both[k] = both_ways(r, r->rank == i ? j : i, calls);
    }
    f->us = mu_spread_of(us, n);
    f->rate = mu_spread_of(rates, n);
    f->both = mu_spread_of(both, n);
    f->outliers = mu_pair_outliers(rates, n);
}

/* there: from i to j; back: from j to i. */
static void measure(struct run *r, int i, int j, struct mu_pair_figure *there,
                    struct mu_pair_figure *back)
{
    struct first a = first_message(r, i, j), b = first_message(r, j, i);
    struct mu_pair_figure mine = { 0 };
    struct mu_gathered all;

    there->state = (enum mu_pair_state)a.state;
    back->state = (enum mu_pair_state)b.state;
    if (a.state != MU_PAIR_OK || b.state != MU_PAIR_OK) {
        if (a.state == MU_PAIR_OK)
            there->state = MU_PAIR_SKIPPED;
        if (b.state == MU_PAIR_OK)
            back->state = MU_PAIR_SKIPPED;
        return;
    }
    if (r->rank == i || r->rank == j)
        repeat(r, i, j, a.seconds > b.seconds ? a.seconds : b.seconds, &mine);
    bench_share(r->b, &mine, sizeof mine, &all);
    memcpy(&mine, all.at[j], sizeof mine);
    back->rate = mine.rate;
    back->outliers = mine.outliers;
    memcpy(&mine, all.at[i], sizeof mine);
    there->rate = mine.rate;
    there->outliers = mine.outliers;
    there->us = back->us = mine.us;
    there->both = back->both = mine.both;
    mu_gathered_clear(&all);
}

/* ---- All pairs ---- */

/* From i to j among all pairs in the order of their ranks. */
static int index_of(int i, int j, int ranks)
{
    return i * (ranks - 1) + j - (j > i);
}

static void measure_all(struct run *r, struct bench_pairs *p)
{
    int ranks = muster_size(r->m);
    const int *node_of = r->m->comm.world->node_of;

    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < ranks; j++)
            if (i != j)
                p->figures[index_of(i, j, ranks)] = (struct mu_pair_figure){
                    .from = i,
                    .to = j,
                    .link = node_of[i] == node_of[j] ? MU_LINK_NODE : MU_LINK_NETWORK,
                };
    for (int i = 0; i < ranks; i++)
        for (int j = i + 1; j < ranks; j++)
            measure(r, i, j, &p->figures[index_of(i, j, ranks)],
                    &p->figures[index_of(j, i, ranks)]);
}

/* Messages are still in flight, so the world cannot be finalized. */
static int end_overdue(const struct run *r, const struct bench_pairs *p)
{
    struct mu_gathered all;
    char text[512];

    for (int i = 0; i < p->n; i++)
        if (r->rank == 0 && p->figures[i].state == MU_PAIR_OVERDUE) {
            bench_pairs_sentence(p, &p->figures[i], text, sizeof text);
            muster_abort(r->m, MUSTER_ETIMEOUT, text);
        }
    bench_share(r->b, NULL, 0, &all); /* until rank 0 has ended the job */
    mu_gathered_clear(&all);
    return MUSTER_ETIMEOUT;
}

static int report(const struct run *r, struct bench_pairs *p)
{
    const struct bench_options *o = r->b->options;
    int slow = mu_pairs_judge(p->figures, p->n, &o->pairs, p->medians);
    struct mu_err err = { 0 };
    int rc = slow != 0, overdue = 0;

    bench_pairs_print(p);
    if (o->svg && r->rank == 0 && bench_pairs_draw(p, o->svg, &err) < 0) {
        fprintf(stderr, "muster bench: %s\n", err.text);
        rc = 1;
    }
    for (int i = 0; i < p->n; i++) {
        overdue += p->figures[i].state == MU_PAIR_OVERDUE;
        rc |= p->figures[i].state == MU_PAIR_WRONG;
    }
    return overdue ? end_overdue(r, p) : rc;
}

int bench_pairs(struct bench *b)
{
    const struct bench_options *o = b->options;
    int ranks = muster_size(b->m), rc;
    struct run r = { .b = b,
                     .m = b->m,
                     .rank = muster_rank(b->m),
                     .small = (o->min + sizeof(int32_t) - 1) / sizeof(int32_t),
                     .large = (o->max + sizeof(int32_t) - 1) / sizeof(int32_t) };
    struct bench_pairs p = { .b = b, .n = ranks * (ranks - 1) };
    struct mu_err err = { 0 };

    if (ranks == 1) {
        mu_err_set(&err, 2, "one rank has no pair; start more ranks");
        bench_die(&err);
    }
    r.host = malloc(r.large * sizeof *r.host);
    r.stuck = calloc((size_t)ranks, sizeof *r.stuck);
    p.figures = calloc((size_t)p.n, sizeof *p.figures);
    if (!r.host || !r.stuck || !p.figures) {
        mu_err_set(&err, MUSTER_EMEMORY, "out of memory");
        bench_die(&err);
    }
    take_buffers(&r);
    measure_all(&r, &p);
    rc = report(&r, &p);
    free(p.figures);
    free(r.stuck);
    free(r.host);
    b->memory->free(r.send);
    b->memory->free(r.recv);
    return rc;
}
