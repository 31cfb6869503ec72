/* SPDX-License-Identifier: BSD-3-Clause */
/* findings.c - rules: what makes a training slow, and the remedy
 *
 * Each rule is a function that adds at most one finding. A rule that needs what the
 * ledgers lack (times on the GPU, several ranks, steps) adds none.
 */
#include <stdarg.h>
#include <string.h>

#include "runtime/tools/profile.h"

#define TAIL_CALLS 100
#define FEW_BUCKETS 8    /* of a step: fewer are no small buckets */
#define LARGE (16 << 20) /* bytes that show the bandwidth of a link */

enum rule {
    COMMUNICATION,
    STRAGGLER,
    SKEW,
    LOADER,
    LAUNCHES,
    SMALL_BUCKETS,
    LONG_TAIL,
    DATA_PARALLEL,
    NO_P2P,
    SMALL_BATCH,
    NO_OVERLAP,
    TOPOLOGY,
};

static const struct {
    const char *name;
    double limit; /* of the value in the comment */
    const char *remedy;
} rules[] = {
    /* share of the time, on the rank with the least */
    [COMMUNICATION] = { "communication", 0.20,
                        "send less: bf16 gradients or compression; compare busbw with "
                        "muster bench" },
    /* share of the time in which the others wait for one rank */
    [STRAGGLER] = { "straggler", 0.05,
                    "compare this GPU's clocks, power and temperature (nvidia-smi -q), "
                    "its CPUs and its NIC with the others': muster doctor --nodes" },
    /* waiting over all the time in collectives */
    [SKEW] = { "skew", 0.50,
               "equal work per rank: bucket samples by length, drop the last "
               "incomplete batch, bind CPUs" },
    /* share of the time */
    [LOADER] = { "loader", 0.05,
                 "more num_workers, pin_memory, prefetch_factor; data on local disks" },
    /* share of the time in which the host launches */
    [LAUNCHES] = { "launches", 0.10,
                   "fewer and larger collectives, CUDA graphs, cores of its own for "
                   "each rank" },
    /* bytes of one */
    [SMALL_BUCKETS] = { "small buckets", 1 << 20,
                        "bucket gradients: bucket_cap_mb=25 in DDP, MUSTER_BUCKET_CAP "
                        "in libmuster" },
    /* the slowest percent over the median */
    [LONG_TAIL] = { "long tail", 3,
                    "other jobs on the network or the node; links with errors: muster "
                    "doctor --nodes" },
    /* GPUs of a process */
    [DATA_PARALLEL] = { "pitfall 1: DataParallel instead of DDP", 1,
                        "one process per GPU with DistributedDataParallel: srun "
                        "--muster with one task per GPU" },
    /* busbw, GB/s: NVLink has more, PCIe 4.0 x16 has less */
    [NO_P2P] = { "pitfall 2: no P2P access", 30,
                 "nvidia-smi topo -m: if it shows NV#, look at driver, IOMMU and PCIe "
                 "ACS: muster doctor" },
    /* as communication */
    [SMALL_BATCH] = { "pitfall 3: small batch per GPU", 0.50,
                      "larger batch per GPU, or gradient accumulation with one "
                      "all-reduce for all micro-batches" },
    /* time between first and last launch, over the time on the GPU */
    [NO_OVERLAP] = { "pitfall 4: not overlapping communication", 0.10,
                     "let DDP start buckets in the backward pass: bucket_cap_mb=25, no "
                     "all-reduce by hand after backward()" },
    /* channels of a large collective inside a node */
    [TOPOLOGY] = { "pitfall 5: wrong NCCL topology", 2,
                   "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH shows what NCCL "
                   "found; --muster=topo=FILE sets NCCL_TOPO_FILE" },
};

/* file: the process that the sentence is about, -1 all. */
static void add(struct mu_profile *p, enum rule rule, int file, double value,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

static void add(struct mu_profile *p, enum rule rule, int file, double value,
                const char *format, ...)
{
    struct mu_finding f = {
        rules[rule].name, rules[rule].remedy, file, value, rules[rule].limit, ""
    };
    va_list args;

    if (p->nfindings == MU_FINDINGS_MOST)
        return;
    va_start(args, format);
    vsnprintf(f.text, sizeof f.text, format, args);
    va_end(args);
    p->findings[p->nfindings++] = f;
}

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

    if (file < 0 || share <= rules[COMMUNICATION].limit)
        return;
    add(p, COMMUNICATION, file, share,
        "collectives take %.0f %% of the time even on %s, which has the least; above "
        "%.0f %% scaling suffers",
        100 * share, mu_profile_name(p, file, name, sizeof name),
        100 * rules[COMMUNICATION].limit);
    if (share > rules[SMALL_BATCH].limit)
        add(p, SMALL_BATCH, -1, share,
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
    if (most < 0 ||
        p->parts[most].launches <= rules[LAUNCHES].limit * p->parts[most].span)
        return;
    add(p, LAUNCHES, most, p->parts[most].launches / p->parts[most].span,
        "the host of %s spends %.0f %% of the time on launches of collectives, %.0f us "
        "each",
        mu_profile_name(p, most, name, sizeof name),
        100 * p->parts[most].launches / p->parts[most].span, p->parts[most].launch);
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
                add(p, DATA_PARALLEL, i, comm[a].size,
                    "process %d on %s drives %d GPUs of one communicator",
                    p->files[i].head->pid, p->files[i].head->host, comm[a].size);
                return;
            }
    }
}

/* ---- Steps ----------------------------------------------------------------------- */

/* The steps in which `file` was late in four of five or more: +1 for each, -4 for the
 * others, and the greatest sum. Returns how often it was late in them.
 */
static int late_run(const struct mu_profile_steps *s, int file, int *from, int *to)
{
    int best = 0, sum = 0, begin = 0, n = 0;

    for (int i = 0; i < s->n; i++) {
        if (sum == 0)
            begin = i;
        sum += s->step[i].late == file ? 1 : -4;
        if (sum < 0)
            sum = 0;
        if (sum > best) {
            best = sum;
            *from = begin;
            *to = i;
        }
    }
    for (int i = *from; best && i <= *to; i++)
        n += s->step[i].late == file;
    return n;
}

/* The median launch of the others, where this one's differs. */
static void what_differs(const struct mu_profile *p, int file, char *out, size_t size)
{
    double launch[512], median;
    size_t n = 0;
    int alone = 1;

    for (int i = 0; i < p->nfiles; i++) {
        if (i == file)
            continue;
        if (strcmp(p->files[i].head->host, p->files[file].head->host) == 0)
            alone = 0;
        if (n < sizeof launch / sizeof launch[0])
            launch[n++] = p->parts[i].launch;
    }
    median = mu_profile_median(launch, n);
    if (median > 0 && p->parts[file].launch > 1.5 * median)
        snprintf(out, size, "; its launches take %.0f us, the others' %.0f",
                 p->parts[file].launch, median);
    else if (alone && p->nfiles > 2)
        snprintf(out, size, "; it is alone on its host");
    else
        *out = '\0';
}

static int straggler(struct mu_profile *p)
{
    const struct mu_profile_steps *s = &p->steps;
    double most = 0, total = 0;
    int file = -1, from = 0, to = 0, n = 0;
    char name[128], differs[80];

    for (int i = 0; i < s->n; i++)
        total += s->step[i].took;
    for (int f = 0; f < p->nfiles; f++) {
        int first = 0, last = -1, late = late_run(s, f, &first, &last);
        double wait = 0;

        for (int i = first; i <= last; i++)
            wait += s->step[i].late == f ? s->step[i].wait : 0;
        if (late < 3 || wait <= most)
            continue;
        most = wait;
        file = f;
        from = first;
        to = last;
        n = late;
    }
    if (file < 0 || most < rules[STRAGGLER].limit * total)
        return 0;
    what_differs(p, file, differs, sizeof differs);
    add(p, STRAGGLER, file, most / total,
        "%s was last in %d of steps %d to %d, since %.1f s; the others waited for it "
        "%.0f %% of the time%s",
        mu_profile_name(p, file, name, sizeof name), n, from, to,
        s->step[from].begin * 1e-6, 100 * most / total, differs);
    return 1;
}

/* Without one rank that causes it. */
static void skew(struct mu_profile *p)
{
    const struct mu_profile_steps *s = &p->steps;

    if (s->n == 0 || s->median.busy <= 0 ||
        s->median.wait <= rules[SKEW].limit * s->median.busy)
        return;
    add(p, SKEW, -1, s->median.wait / s->median.busy,
        "ranks wait for one another longer than they exchange data: in the median step "
        "the first waits %.0f us for the last, and collectives take %.0f us",
        s->median.wait, s->median.busy);
}

static void waiting(struct mu_profile *p)
{
    if (!straggler(p))
        skew(p);
}

static void loader(struct mu_profile *p)
{
    const struct mu_profile_steps *s = &p->steps;
    double lost = 0, total = 0;
    int n = 0;

    for (int i = 1; i < s->n; i++) {
        total += s->step[i].took;
        if (s->step[i].compute <= 2 * s->median.compute)
            continue;
        n++;
        lost += s->step[i].compute - s->median.compute;
    }
    /* One long pause is a checkpoint or an evaluation. */
    if (n < 5 || n * 50 < s->n || lost < rules[LOADER].limit * total)
        return;
    add(p, LOADER, s->file, lost / total,
        "in %d of %d steps the pause before the first collective is more than twice "
        "the median: %.0f %% of the time waits for data, or for the host",
        n, s->n, 100 * lost / total);
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
    if (n >= FEW_BUCKETS && bytes / n < rules[SMALL_BUCKETS].limit)
        add(p, SMALL_BUCKETS, -1, bytes / n,
            "a step sends %.1f MB in %d collectives of %.0f KiB on average",
            bytes * 1e-6, n, bytes / n / 1024);
    if (busy > 0.05 * s->median.took && bytes >= LARGE &&
        (n == 1 || (n > 1 && launched < rules[NO_OVERLAP].limit * busy)))
        add(p, NO_OVERLAP, -1, launched / busy,
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
            r->p99 > rules[LONG_TAIL].limit * r->median &&
            (!worst || r->p99 - r->median > worst->p99 - worst->median))
            worst = r;
    }
    if (!worst)
        return;
    add(p, LONG_TAIL, -1, worst->p99 / worst->median,
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
        if (r->busbw < rules[NO_P2P].limit) {
            add(p, NO_P2P, -1, r->busbw,
                "%s of %.0f MB inside the node has %.1f GB/s on the bus: that of PCIe, "
                "not of NVLink",
                r->like->func, r->bytes * 1e-6, r->busbw);
            return;
        }
        if (r->like->channels > 0 && r->like->channels <= rules[TOPOLOGY].limit) {
            add(p, TOPOLOGY, -1, r->like->channels,
                "%s of %.0f MB inside the node uses %d channel%s only", r->like->func,
                r->bytes * 1e-6, r->like->channels, mu_plural(r->like->channels));
            return;
        }
    }
}

void mu_findings_make(struct mu_profile *p)
{
    static void (*const all[])(struct mu_profile *) = {
        communication, waiting, loader, launches, buckets, tail, links, data_parallel,
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        all[i](p);
}
