/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_lanes.c - pairs of ranks that send at once: 1, 2, ... up to all of them
 *
 * A lane is a pair, one rank on the first node and one on the second. A rank sends
 * through the NIC that is nearest to it, so more lanes use more NICs. In a world of one
 * node a lane goes from the first half of the ranks to the second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/api/impl.h" /* for the node of each rank */
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/record.h"
#include "runtime/tools/bench.h"

#define REPEAT_SECONDS 0.02
#define CALLS_MAX 64
#define BATCHES_MAX 1000

struct lane {
    int from, to;
};

struct run {
    const struct bench *b;
    struct muster *m;
    size_t count; /* elements of a message */
    char *send, *recv;
    struct lane *lane;
    int lanes;
    int peer;   /* of this rank, -1: it is in no lane */
    int number; /* of its lane, from 0 */
    bool sends; /* one way */
};

/* ---- Lanes ----------------------------------------------------------------------- */

/* The ranks of a node, or of a half; `room` for all. */
static int ranks_of(const struct run *r, int side, int *rank)
{
    const int *node_of = r->m->comm.world->node_of;
    int size = muster_size(r->m), n = 0;
    bool nodes = muster_nodes(r->m) > 1;

    for (int i = 0; i < size; i++)
        if (nodes ? node_of[i] == side : i / (size / 2) == side)
            rank[n++] = i;
    return n;
}

static int make_lanes(struct run *r)
{
    int size = muster_size(r->m), here = muster_rank(r->m);
    int *from = malloc(2 * (size_t)size * sizeof *from), *to, a, b;

    r->lane = malloc((size_t)size * sizeof *r->lane);
    r->peer = -1;
    if (!from || !r->lane) {
        free(from);
        return -1;
    }
    to = from + size;
    a = ranks_of(r, 0, from);
    b = ranks_of(r, 1, to);
    for (; r->lanes < a && r->lanes < b; r->lanes++) {
        struct lane *l = &r->lane[r->lanes];

        *l = (struct lane){ from[r->lanes], to[r->lanes] };
        if (here != l->from && here != l->to)
            continue;
        r->number = r->lanes;
        r->sends = here == l->from;
        r->peer = r->sends ? l->to : l->from;
    }
    free(from);
    return 0;
}

/* The NIC that this rank's plan names first; "" unknown. */
static void own_nic(char *name, size_t size)
{
    const char *line = getenv("MUSTER_PLAN");
    struct mu_err err = { 0 };
    struct mu_record record;

    *name = '\0';
    if (!line || mu_record_decode(line, &record, &err) < 0 ||
        strcmp(record.nics, "-") == 0)
        return;
    record.nics[strcspn(record.nics, ",")] = '\0';
    mu_copy(name, size, record.nics);
}

static void print_lanes(const struct run *r)
{
    char nic[64];
    struct mu_gathered all;

    own_nic(nic, sizeof nic);
    bench_share(r->b, nic, sizeof nic, &all);
    for (int i = 0; i < r->lanes; i++) {
        const int end[2] = { r->lane[i].from, r->lane[i].to };

        bench_print(r->b, "# lane %d:", i + 1);
        for (int k = 0; k < 2; k++) {
            const char *of = all.at[end[k]];

            bench_print(r->b, "%s rank %d (node %s%s%s)", k ? " to" : "", end[k],
                        muster_host(r->m, end[k]), *of ? ", NIC " : "", of);
        }
        bench_print(r->b, "\n");
    }
    mu_gathered_clear(&all);
}

/* ---- Rates ----------------------------------------------------------------------- */

static void one_way(const struct run *r, int calls)
{
    void *stream = r->b->stream;

    for (int k = 0; k < calls; k++)
        bench_must(r->m, r->sends ? muster_send(r->m, r->send, r->count, MUSTER_I32,
                                                r->peer, stream)
                                  : muster_recv(r->m, r->recv, r->count, MUSTER_I32,
                                                r->peer, stream));
    /* the receiver has it all */
    bench_must(r->m, r->sends
                         ? muster_recv(r->m, r->recv, 1, MUSTER_I32, r->peer, stream)
                         : muster_send(r->m, r->send, 1, MUSTER_I32, r->peer, stream));
}

static void both_ways(const struct run *r, int calls)
{
    for (int k = 0; k < calls; k++)
        bench_must(r->m, muster_sendrecv(r->m, r->send, r->count, r->peer, r->recv,
                                         r->count, r->peer, MUSTER_I32, r->b->stream));
}

/* Of the first `lanes` lanes at once: seconds of the slowest, equal on all ranks. */
static double seconds_of(const struct run *r, int lanes, int calls,
                         void (*send)(const struct run *r, int calls))
{
    bool takes_part = r->peer >= 0 && r->number < lanes;
    double mine = 0, most = 0, from;
    struct mu_gathered all;

    bench_must(r->m, muster_barrier(r->m));
    from = mu_clock_s();
    if (takes_part) {
        send(r, calls);
        if (r->b->memory->settle)
            r->b->memory->settle(r->b->stream, MU_FOREVER);
        mine = mu_clock_s() - from;
    }
    bench_share(r->b, &mine, sizeof mine, &all);
    for (int i = 0; i < muster_size(r->m); i++) {
        memcpy(&mine, all.at[i], sizeof mine);
        most = mine > most ? mine : most;
    }
    mu_gathered_clear(&all);
    return most;
}

/* GB/s of one way, all lanes together. */
static struct mu_spread rate_of(const struct run *r, int lanes, int calls,
                                void (*send)(const struct run *r, int calls))
{
    double rates[BATCHES_MAX];

    for (int k = 0; k < r->b->options->batches; k++)
        rates[k] = (double)lanes * calls * (double)r->count * sizeof(int32_t) * 1e-9 /
                   seconds_of(r, lanes, calls, send);
    return mu_spread_of(rates, r->b->options->batches);
}

static void print_row(const struct run *r, int lanes, struct mu_spread way,
                      struct mu_spread both, double one)
{
    bench_print(r->b,
                r->b->options->tsv
                    ? "%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.1f\t%.3f\t%.3f\t%.3f\n"
                    : "%7d %9.2f %8.2f %8.2f %8.2f %7.0f %% %9.2f %8.2f %8.2f\n",
                lanes, way.median, way.least, way.most, way.median / lanes,
                100 * way.median / (lanes * one), both.median, both.least, both.most);
}

static int measure(const struct run *r)
{
    double *medians = calloc((size_t)r->lanes + 1, sizeof *medians), fits;
    int calls, add;

    if (!medians)
        return -1;
    bench_print(r->b,
                r->b->options->tsv
                    ? "lanes\tGBs\tmin_GBs\tmax_GBs\teach_GBs\tpercent\tboth_GBs\t"
                      "both_min_GBs\tboth_max_GBs\n"
                    : "# lanes      GB/s    least     most     each of linear both "
                      "GB/s    least     most\n");
    seconds_of(r, r->lanes, 1, one_way); /* connects */
    fits = REPEAT_SECONDS / seconds_of(r, 1, 1, one_way);
    calls = fits < 1 ? 1 : fits > CALLS_MAX ? CALLS_MAX : (int)fits;
    for (int n = 1; n <= r->lanes; n++) {
        struct mu_spread way = rate_of(r, n, calls, one_way);

        medians[n - 1] = way.median;
        print_row(r, n, way, rate_of(r, n, calls, both_ways), medians[0]);
    }
    add = mu_lanes_that_add(medians, r->lanes);
    bench_print(r->b,
                "# %d of %d lanes add to the bandwidth: %.2f GB/s, %.1f times one\n",
                add, r->lanes, medians[add - 1], medians[add - 1] / medians[0]);
    free(medians);
    return 0;
}

int bench_lanes(struct bench *b)
{
    const struct bench_options *o = b->options;
    struct run r = { .b = b, .m = b->m };
    struct mu_err err = { 0 };
    size_t bytes;

    r.count = (o->max + sizeof(int32_t) - 1) / sizeof(int32_t);
    bytes = r.count * sizeof(int32_t);
    r.send = b->memory->alloc(bytes);
    r.recv = b->memory->alloc(bytes);
    mu_err_set(&err, MUSTER_EMEMORY, "out of memory for messages of %zu bytes", bytes);
    if (!r.send || !r.recv || make_lanes(&r) < 0)
        bench_die(&err);
    print_lanes(&r);
    if (measure(&r) < 0)
        bench_die(&err);
    b->memory->free(r.send);
    b->memory->free(r.recv);
    free(r.lane);
    return 0;
}
