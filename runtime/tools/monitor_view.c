/* SPDX-License-Identifier: BSD-3-Clause */
/* monitor_view.c - the last records of each rank, put together */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/parse.h"
#include "runtime/base/clock.h"
#include "runtime/tools/monitor.h"
#include "runtime/tools/profile.h"

#define LAST 2048   /* records of a rank */
#define MOST 131072 /* where none of these is timed */

/* Seconds since a moment of a process's clock; its host's clock may be another one. */
static double since(const struct mu_ledger_head *head, uint64_t moment)
{
    double opened = (double)head->opened_real * 1e-9;

    return mu_time_s(mu_time_of(CLOCK_REALTIME)) - opened -
           ((double)moment - (double)head->opened_monotonic) * 1e-9;
}

/* Of each file: data on the bus over the time in collectives, and the last begin. */
static void add_records(const struct mu_profile *p, struct mu_monitor_rank *rank)
{
    double *moved = calloc((unsigned)p->nfiles, sizeof *moved);
    double *took = calloc((unsigned)p->nfiles, sizeof *took);
    uint64_t *last = calloc((unsigned)p->nfiles, sizeof *last);

    for (size_t i = 0; moved && took && last && i < p->nrecords; i++) {
        const struct mu_profile_record *r = &p->records[i];
        double us = mu_profile_gpu_us(r->call);
        int size = mu_ledger_comms(p->files[r->file].image)[r->call->comm].size;

        if (r->call->begin > last[r->file])
            last[r->file] = r->call->begin;
        if (us < 0 || r->bytes < MU_PROFILE_SMALL)
            continue;
        moved[r->file] += r->bytes * mu_ledger_bus_factor(r->call->func, size);
        took[r->file] += us;
    }
    for (int f = 0; moved && took && last && f < p->nfiles; f++) {
        rank[f].busbw = took[f] > 0 ? moved[f] / took[f] * 1e-3 : -1;
        rank[f].idle = last[f] ? since(p->files[f].head, last[f]) : -1;
    }
    free(moved);
    free(took);
    free(last);
}

static void fill(const struct mu_profile *p, int f, struct mu_monitor_rank *r)
{
    const struct mu_profile_steps *s = &p->steps;
    const struct mu_profile_part *part = &p->parts[f];
    double calls = 0;
    int late = 0;

    *r = (struct mu_monitor_rank){ .rank = part->rank,
                                   .pid = p->files[f].head->pid,
                                   .step = -1,
                                   .step_ms = -1,
                                   .share = -1,
                                   .busbw = -1,
                                   .idle = -1,
                                   .last = -1 };
    mu_copy(r->host, sizeof r->host, p->files[f].head->host);
    mu_copy(r->gpu, sizeof r->gpu, p->files[f].head->gpu);
    if (part->busy >= 0 && part->span > 0)
        r->share = part->busy / part->span;
    if (s->n == 0)
        return;
    calls = (double)(s->step[s->n - 1].end - s->step[0].first) / s->n;
    for (int i = 0; i < s->n; i++)
        late += s->step[i].late == f;
    r->step = (double)p->files[f].head->calls / calls;
    r->step_ms = s->median.took * 1e-3;
    r->last = (double)late / s->n;
}

/* A process may have one file of NCCL's calls and one of libmuster's buckets. Returns
 * how many are left.
 */
static int drop_buckets(const struct mu_profile *p, struct mu_monitor_rank *rank)
{
    int n = 0;

    for (int f = 0; f < p->nfiles; f++)
        if (!mu_profile_is_buckets(p->files[f].head))
            rank[n++] = rank[f];
    return n > 0 ? n : p->nfiles;
}

static int by_rank(const void *one, const void *other)
{
    const struct mu_monitor_rank *a = one, *b = other;

    return (a->rank > b->rank) - (a->rank < b->rank);
}

static bool is_untimed(const struct mu_profile *p)
{
    for (size_t i = 0; i < p->nrecords; i++)
        if (!p->records[i].call->untimed)
            return false;
    return p->nrecords > 0;
}

/* What the job does now, back to the last window in which calls were timed. */
static int load_last(struct mu_profile *p, char **paths, int n, const char *job,
                     FILE *complain)
{
    int rc = mu_profile_load_last(p, paths, n, job, LAST, complain);

    for (uint64_t last = LAST * 8; rc == 0 && is_untimed(p) && last <= MOST;
         last *= 8) {
        mu_profile_clear(p);
        rc = mu_profile_load_last(p, paths, n, job, last, complain);
    }
    return rc;
}

int mu_monitor_look(struct mu_monitor *m, char **paths, int n, FILE *complain)
{
    struct mu_monitor_rank *rank = NULL;
    struct mu_profile p;
    int rc = -1;

    if (load_last(&p, paths, n, m->only, complain) < 0)
        goto out;
    rank = calloc((unsigned)p.nfiles, sizeof *rank);
    if (!rank) {
        fputs("muster monitor: no memory\n", complain);
        goto out;
    }
    for (int f = 0; f < p.nfiles; f++)
        fill(&p, f, &rank[f]);
    add_records(&p, rank);
    free(m->rank);
    m->rank = rank;
    m->nranks = drop_buckets(&p, rank);
    qsort(rank, (size_t)m->nranks, sizeof *rank, by_rank);
    mu_copy(m->job, sizeof m->job, p.files[0].head->job);
    m->note[0] = '\0';
    for (int i = 0; i < p.nfindings; i++)
        if (strcmp(p.findings[i].rule, "straggler") == 0)
            mu_copy(m->note, sizeof m->note, p.findings[i].text);
    rc = 0;
out:
    mu_profile_clear(&p);
    return rc;
}

void mu_monitor_clear(struct mu_monitor *m)
{
    free(m->rank);
    *m = (struct mu_monitor){ 0 };
}
