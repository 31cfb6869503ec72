/* SPDX-License-Identifier: BSD-3-Clause */
/* findings.c - rules about the whole time, buckets and links; calls all of them */
#include "runtime/tools/findings.h"

#include <string.h>

#define TAIL_CALLS 100
#define FEW_BUCKETS 8    /* of a step: fewer are no small buckets */
#define LARGE (16 << 20) /* bytes that show the bandwidth of a link */

/* ---- The whole time -------------------------------------------------------------- */

/* The rank with the least share waits least: its share is the exchange itself. */
static int least_busy(const struct mu_profile *p, double *share)
{
    int file = -1;

    for (int i = 0; i < p->nfiles; i++) {
        const struct mu_profile_part *part = &p->parts[i];

        if (part->busy < 0 || part->span <= 0)
            continue;
        if (file < 0 || part->busy / part->span < *share) {
            file = i;
            *share = part->busy / part->span;
        }
    }
    return file;
}

static void communication(struct mu_profile *p)
{
    double share = 0;
    int file = least_busy(p, &share);
    char name[128];

    if (file < 0 || share <= mu_finding_rules[COMMUNICATION].limit)
        return;
    mu_finding_add(
        p, COMMUNICATION, file, share,
        "collectives take %.0f %% of the time even on %s, which has the least; above "
        "%.0f %% scaling suffers",
        100 * share, mu_profile_name(p, file, name, sizeof name),
        100 * mu_finding_rules[COMMUNICATION].limit);
    if (share > mu_finding_rules[SMALL_BATCH].limit)
        mu_finding_add(
            p, SMALL_BATCH, -1, share,
            "communication takes longer than computation: %.0f %% of the time",
            100 * share);
}

static void launches(struct mu_profile *p)
{
    char name[128];
    int most = -1;

    for (int i = 0; i < p->nfiles; i++)
        if (p->parts[i].span > 0 &&
            p->files[i].head->interface != MU_LEDGER_LIBMUSTER &&
            (most < 0 || p->parts[i].launches / p->parts[i].span >
                             p->parts[most].launches / p->parts[most].span))
            most = i;
    if (most < 0 || p->parts[most].launches <=
                        mu_finding_rules[LAUNCHES].limit * p->parts[most].span)
        return;
    mu_finding_add(
        p, LAUNCHES, most, p->parts[most].launches / p->parts[most].span,
        "the host of %s spends %.0f %% of the time on launches of collectives, %.0f us "
        "each",
        mu_profile_name(p, most, name, sizeof name),
        100 * p->parts[most].launches / p->parts[most].span, p->parts[most].launch);
}

/* Through the link between sockets a launch takes longer, and so does a copy. */
static void numa(struct mu_profile *p)
{
    int n = 0, first = -1;
    char name[128], others[32] = "";

    for (int i = 0; i < p->nfiles; i++)
        if (mu_profile_is_remote(p->files[i].head)) {
            first = n++ ? first : i;
        }
    if (n == 0)
        return;
    if (n > 1)
        snprintf(others, sizeof others, "; so are %d more", n - 1);
    mu_finding_add(p, NUMA, first, n,
                   "%s is on CPUs of NUMA node %d, its GPU %s is at node %d%s",
                   mu_profile_name(p, first, name, sizeof name),
                   p->files[first].head->cpu_node - 1, p->files[first].head->gpu,
                   p->files[first].head->gpu_node - 1, others);
}

/* One process that has several ranks of a communicator, as DataParallel makes them. */
static void data_parallel(struct mu_profile *p)
{
    for (int i = 0; i < p->nfiles; i++) {
        const struct mu_ledger_comm *comm = mu_ledger_comms(p->files[i].image);
        uint32_t n = p->files[i].head->comms;

        n = n < MU_LEDGER_COMMS - 1 ? n : MU_LEDGER_COMMS - 1;
        for (uint32_t a = 1; a < n; a++)
            if (comm[a].hash && comm[a].hash == comm[a - 1].hash &&
                comm[a].rank != comm[a - 1].rank) {
                mu_finding_add(p, DATA_PARALLEL, i, comm[a].size,
                               "process %d on %s drives %d GPUs of one communicator",
                               p->files[i].head->pid, p->files[i].head->host,
                               comm[a].size);
                return;
            }
    }
}

/* ---- Buckets --------------------------------------------------------------------- */

/* Of the median step: all-reduces and reduce-scatters. */
static int gradients(const struct mu_profile_steps *s, double *bytes, double *launched,
                     double *busy)
{
    const struct mu_profile_step *step = &s->step[s->n / 2];
    uint64_t first = 0, last = 0;
    int n = 0;

    *bytes = 0;
    *busy = step->busy;
    for (size_t i = step->first; i < step->end; i++) {
        const struct mu_ledger_call *c = s->call[i];

        if (strcmp(c->func, "AllReduce") != 0 && strcmp(c->func, "ReduceScatter") != 0)
            continue;
        first = n++ ? first : c->begin;
        last = c->begin;
        *bytes += (double)c->count * c->element;
    }
    *launched = (double)(last - first) * 1e-3;
    return n;
}

static void buckets(struct mu_profile *p)
{
    const struct mu_profile_steps *s = &p->steps;
    double bytes, launched, busy;
    int n;

    if (s->n < 3)
        return;
    n = gradients(s, &bytes, &launched, &busy);
    if (n >= FEW_BUCKETS && bytes / n < mu_finding_rules[SMALL_BUCKETS].limit)
        mu_finding_add(p, SMALL_BUCKETS, -1, bytes / n,
                       "a step sends %.1f MB in %d collectives of %.0f KiB on average",
                       bytes * 1e-6, n, bytes / n / 1024);
    if (busy > 0.05 * s->median.took && bytes >= LARGE &&
        (n == 1 || (n > 1 && launched < mu_finding_rules[NO_OVERLAP].limit * busy)))
        mu_finding_add(
            p, NO_OVERLAP, -1, launched / busy,
            "the %.0f MB of a step are sent in %d collective%s that start%s within "
            "%.0f us; they take %.0f us on the GPU",
            bytes * 1e-6, n, mu_plural(n), n == 1 ? "s" : "", launched, busy);
}

/* ---- Links ----------------------------------------------------------------------- */

static void tail(struct mu_profile *p)
{
    const struct mu_profile_row *worst = NULL;

    for (int i = 0; i < p->nrows; i++) {
        const struct mu_profile_row *r = &p->rows[i];

        if (r->calls >= TAIL_CALLS && r->median > 0 &&
            r->p99 > mu_finding_rules[LONG_TAIL].limit * r->median &&
            (!worst || r->p99 - r->median > worst->p99 - worst->median))
            worst = r;
    }
    if (!worst)
        return;
    mu_finding_add(
        p, LONG_TAIL, -1, worst->p99 / worst->median,
        "the slowest percent of %s of %.0f bytes takes %.0f us and more, the median "
        "%.0f us",
        worst->like->func, worst->bytes, worst->p99, worst->median);
}

/* Large messages inside a node, where links have names to compare with. */
static void links(struct mu_profile *p)
{
    for (int i = 0; i < p->nrows; i++) {
        const struct mu_profile_row *r = &p->rows[i];

        if (p->comms[r->comm].nodes != 1 || r->bytes < LARGE || r->busbw <= 0 ||
            strcmp(r->like->algo, "HOST") == 0)
            continue;
        if (r->busbw < mu_finding_rules[NO_P2P].limit) {
            mu_finding_add(
                p, NO_P2P, -1, r->busbw,
                "%s of %.0f MB inside the node has %.1f GB/s on the bus: that of PCIe, "
                "not of NVLink",
                r->like->func, r->bytes * 1e-6, r->busbw);
            return;
        }
        if (r->like->channels > 0 &&
            r->like->channels <= mu_finding_rules[TOPOLOGY].limit) {
            mu_finding_add(p, TOPOLOGY, -1, r->like->channels,
                           "%s of %.0f MB inside the node uses %d channel%s only",
                           r->like->func, r->bytes * 1e-6, r->like->channels,
                           mu_plural(r->like->channels));
            return;
        }
    }
}

void mu_findings_make(struct mu_profile *p)
{
    static void (*const all[])(struct mu_profile *) = {
        communication, mu_findings_waiting, mu_findings_loader, launches, buckets, tail,
        links,         mu_findings_gpus,    data_parallel,      numa,
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        all[i](p);
}
