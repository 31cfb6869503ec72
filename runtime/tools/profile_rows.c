/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_rows.c - joins the records of one collective, and makes rows of them */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/array.h"
#include "runtime/tools/profile.h"

/* ---- Records --------------------------------------------------------------------- */

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* Of two records: is it one communicator, function, size and way? */
static int by_way(const struct mu_profile_record *a, const struct mu_profile_record *b)
{
    int order = ORDER(a->hash, b->hash);

    order = order ? order : strcmp(a->call->func, b->call->func);
    order = order ? order : ORDER(a->bytes, b->bytes);
    order = order ? order : strcmp(a->call->algo, b->call->algo);
    order = order ? order : strcmp(a->call->proto, b->call->proto);
    return order ? order : ORDER(a->call->channels, b->call->channels);
}

static int by_call(const void *one, const void *other)
{
    const struct mu_profile_record *a = one, *b = other;
    int order = by_way(a, b);

    order = order ? order : ORDER(a->call->sequence, b->call->sequence);
    return order ? order : ORDER(a->rank, b->rank);
}

static int by_hash(const void *one, const void *other)
{
    const struct mu_profile_comm *a = one, *b = other;

    return ORDER(a->hash, b->hash);
}

static struct mu_profile_comm *find_comm(const struct mu_profile *p, uint64_t hash)
{
    const struct mu_profile_comm key = { .hash = hash };

    return bsearch(&key, p->comms, (size_t)p->ncomms, sizeof key, by_hash);
}

static uint32_t used(const struct mu_profile_file *f)
{
    return f->head->comms < MU_LEDGER_COMMS ? f->head->comms : MU_LEDGER_COMMS;
}

static void count_ranks(const struct mu_profile *p, struct mu_profile_comm *c)
{
    unsigned char *seen = calloc((size_t)c->size + 1, 1);

    c->missing = -1;
    for (int i = 0; seen && i < p->nfiles; i++) {
        const struct mu_ledger_comm *of = mu_ledger_comms(p->files[i].image);

        for (uint32_t k = 0; k < used(&p->files[i]); k++)
            if (of[k].hash == c->hash && of[k].rank >= 0 && of[k].rank < c->size &&
                !seen[of[k].rank]++)
                c->ranks++;
    }
    for (int r = c->size - 1; seen && r >= 0; r--)
        if (!seen[r])
            c->missing = r;
    free(seen);
}

/* A size that NCCL did not report is that of the ranks which have files. */
static int gather_comms(struct mu_profile *p)
{
    int n = 0;

    p->comms = calloc((size_t)p->nfiles * MU_LEDGER_COMMS + 1, sizeof *p->comms);
    if (!p->comms)
        return -1;
    for (int i = 0; i < p->nfiles; i++) {
        const struct mu_ledger_comm *of = mu_ledger_comms(p->files[i].image);

        for (uint32_t k = 0; k < used(&p->files[i]); k++)
            p->comms[n++] =
                (struct mu_profile_comm){ .hash = of[k].hash,
                                          .name = of[k].name,
                                          .size = of[k].size > 0 ? of[k].size
                                                                 : of[k].rank + 1,
                                          .nodes = of[k].nodes };
    }
    qsort(p->comms, (size_t)n, sizeof *p->comms, by_hash);
    for (int i = 0; i < n; i++) {
        struct mu_profile_comm *last = &p->comms[p->ncomms - 1];

        if (p->ncomms && last->hash == p->comms[i].hash)
            last->size = p->comms[i].size > last->size ? p->comms[i].size : last->size;
        else
            p->comms[p->ncomms++] = p->comms[i];
    }
    for (int i = 0; i < p->ncomms; i++)
        count_ranks(p, &p->comms[i]);
    return 0;
}

static int gather_records(struct mu_profile *p)
{
    for (int i = 0; i < p->nfiles; i++) {
        struct mu_profile_file *f = &p->files[i];
        const struct mu_ledger_comm *comm = mu_ledger_comms(f->image);
        const struct mu_ledger_call *call = mu_ledger_calls(f->image);

        if (f->head->calls > f->head->records)
            p->overwritten += f->head->calls - f->head->records;
        for (uint32_t k = 0; k < f->head->records; k++) {
            const struct mu_ledger_comm *of = &comm[call[k].comm];
            const struct mu_profile_comm *c = find_comm(p, of->hash);

            if (p->last && call[k].number + p->last <= f->head->calls)
                continue;
            if (!call[k].number || !c)
                continue;
            if (mu_array_room(&p->records, sizeof *p->records, p->nrecords) < 0)
                return -1;
            p->records[p->nrecords++] =
                (struct mu_profile_record){ &call[k], i, of->rank, of->hash,
                                            mu_ledger_bytes(&call[k], c->size) };
        }
    }
    if (p->nrecords > 0)
        qsort(p->records, p->nrecords, sizeof *p->records, by_call);
    return 0;
}

/* ---- Rows ------------------------------------------------------------------------ */

/* What a row's records give, while it is made. */
struct gather {
    double *took, *skew, *launch; /* as many as records, at most */
    size_t ntook, nskew, nlaunch;
    int *late; /* by rank: how often it was last */
    int ranks;
};

/* The records of one collective. */
static void add_collective(struct gather *g, struct mu_profile_row *row,
                           const struct mu_profile_record *r, size_t n,
                           const struct mu_profile_file *files)
{
    double least = -1, most = -1;
    int late = -1, known = 0;

    row->calls++;
    for (size_t i = 0; i < n; i++) {
        const struct mu_ledger_call *call = r[i].call;
        double took = mu_profile_gpu_us(call);

        if (call->end >= call->begin)
            g->launch[g->nlaunch++] = (double)(call->end - call->begin) * 1e-3;
        if (took < 0) {
            row->unfinished += !call->untimed && files[r[i].file].head->interface >= 3;
            continue;
        }
        known++;
        if (least < 0 || took < least) {
            least = took;
            late = r[i].rank;
        }
        if (took > most)
            most = took;
    }
    if (known == 0) {
        row->untimed += r->call->untimed;
        return;
    }
    g->took[g->ntook++] = least;
    row->total += least;
    if (known > 1) {
        g->skew[g->nskew++] = most - least;
        if (late >= 0 && late < g->ranks)
            g->late[late]++;
    }
}

static void finish_row(struct gather *g, struct mu_profile_row *row, int size)
{
    int most = 0;

    row->launch = mu_profile_median(g->launch, g->nlaunch);
    row->median = mu_profile_median(g->took, g->ntook);
    row->least = g->ntook ? g->took[0] : -1;
    row->most = g->ntook ? g->took[g->ntook - 1] : -1;
    row->p99 = g->ntook ? g->took[(g->ntook * 99 - 1) / 100] : -1;
    row->busbw = -1;
    if (g->ntook > 0)
        row->total *= (double)(row->untimed + (long)g->ntook) / (double)g->ntook;
    if (g->ntook == 0)
        row->total = -1;
    else if (row->bytes > 0 && mu_ledger_bus_factor(row->like->func, size) > 0)
        row->busbw = row->bytes / row->median * 1e-3 *
                     mu_ledger_bus_factor(row->like->func, size);
    row->skew = mu_profile_median(g->skew, g->nskew);
    row->skew_most = g->nskew ? g->skew[g->nskew - 1] : -1;
    row->late = -1;
    for (int r = 0; g->nskew && r < g->ranks; r++)
        if (g->late[r] > most) {
            most = g->late[r];
            row->late = r;
        }
    row->late_share = g->nskew ? (double)most / (double)g->nskew : 0;
}

/* One row from the records that begin at `r`; returns how many they are. */
static size_t make_row(const struct mu_profile *p, struct gather *g,
                       struct mu_profile_row *row, const struct mu_profile_record *r,
                       size_t left)
{
    const struct mu_profile_comm *comm = find_comm(p, r->hash);
    size_t n = 0, of;

    *row = (struct mu_profile_row){ .comm = (int)(comm - p->comms),
                                    .like = r->call,
                                    .bytes = r->bytes };
    g->ntook = g->nskew = g->nlaunch = 0;
    memset(g->late, 0, (size_t)g->ranks * sizeof *g->late);
    for (; n < left && by_way(r, &r[n]) == 0; n += of) {
        for (of = 1; n + of < left && by_way(r, &r[n + of]) == 0 &&
                     r[n + of].call->sequence == r[n].call->sequence;)
            of++;
        add_collective(g, row, &r[n], of, p->files);
    }
    finish_row(g, row, comm->size);
    return n;
}

static int make_rows(struct mu_profile *p)
{
    size_t room = p->nrecords + 1, at = 0;
    struct gather g = { .took = malloc(room * sizeof(double)),
                        .skew = malloc(room * sizeof(double)),
                        .launch = malloc(room * sizeof(double)) };
    int rc = -1;

    for (int i = 0; i < p->ncomms; i++)
        g.ranks = p->comms[i].size > g.ranks ? p->comms[i].size : g.ranks;
    g.late = calloc((size_t)g.ranks + 1, sizeof *g.late);
    if (!g.took || !g.skew || !g.launch || !g.late)
        goto out;
    while (at < p->nrecords) {
        if (mu_array_room(&p->rows, sizeof *p->rows, (size_t)p->nrows) < 0)
            goto out;
        at += make_row(p, &g, &p->rows[p->nrows++], &p->records[at], p->nrecords - at);
    }
    rc = 0;
out:
    free(g.took);
    free(g.skew);
    free(g.launch);
    free(g.late);
    return rc;
}

#define FEW 12             /* rows of a communicator: all are shown */
#define MINOR (1.0 / 1000) /* of its time */

/* What a program sends once, before its first step, is many rows and no time. */
static void mark_minor(struct mu_profile *p)
{
    for (int at = 0, n; at < p->nrows; at += n) {
        double total = 0;

        for (n = 0; at + n < p->nrows && p->rows[at + n].comm == p->rows[at].comm; n++)
            total += p->rows[at + n].total > 0 ? p->rows[at + n].total : 0;
        for (int i = at; i < at + n && n > FEW; i++)
            p->rows[i].minor = p->rows[i].total >= 0 && !p->rows[i].unfinished &&
                               p->rows[i].total < MINOR * total;
    }
}

int mu_profile_join(struct mu_profile *p)
{
    if (gather_comms(p) < 0 || gather_records(p) < 0 || make_rows(p) < 0)
        return -1;
    mark_minor(p);
    return 0;
}
