/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_print.c - the collectives of a job as text and as JSON */
#include <limits.h>

#include "runtime/tools/profile.h"

/* The oldest interface among the files decides what can be shown. */
static unsigned oldest(const struct mu_profile *p, unsigned *newest)
{
    unsigned least = UINT_MAX;

    *newest = 0;
    for (int i = 0; i < p->nfiles; i++) {
        unsigned v = p->files[i].head->interface;

        if (mu_profile_is_buckets(p->files[i].head))
            continue;
        least = v < least ? v : least;
        *newest = v > *newest ? v : *newest;
    }
    if (least > *newest) /* nothing else */
        least = *newest = MU_LEDGER_LIBMUSTER;
    return least;
}

static size_t untimed(const struct mu_profile *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->nrecords; i++)
        n += p->records[i].call->untimed;
    return n;
}

void mu_profile_notes(const struct mu_profile *p, const char *open, const char *close,
                      FILE *to)
{
    unsigned newest, least = oldest(p, &newest);
    size_t without = untimed(p);

    if (least < 3)
        fprintf(to, "%sno times on the GPU and no bandwidth: they need NCCL 2.26%s",
                open, close);
    else if (least == 3)
        fprintf(to,
                "%stimes were taken by NCCL's thread on the host: NCCL 2.27 has the "
                "GPU's%s",
                open, close);
    if (least != newest)
        fprintf(to,
                "%sthe files are of different NCCL releases (profiler interfaces %u to "
                "%u)%s",
                open, least, newest, close);
    if (without > 0)
        fprintf(to,
                "%s%zu of %zu records have no times of the GPU: MUSTER_PROFILE_SHARE "
                "sets how many have%s",
                open, without, p->nrecords, close);
    if (p->overwritten)
        fprintf(to,
                "%s%llu older records were overwritten; MUSTER_PROFILE_RECORDS makes "
                "the files larger%s",
                open, (unsigned long long)p->overwritten, close);
}

static void print_comm(const struct mu_profile_comm *c, FILE *to)
{
    fprintf(to, "\ncommunicator %016llx%s%s: %d rank%s", (unsigned long long)c->hash,
            c->name[0] ? " " : "", c->name, c->size, mu_plural(c->size));
    if (c->nodes)
        fprintf(to, " on %d node%s", c->nodes, mu_plural(c->nodes));
    if (c->missing >= 0)
        fprintf(to, "; %d without a file, the first is rank %d", c->size - c->ranks,
                c->missing);
    fprintf(to, "\n  %-13s %11s  %-10s %-7s %3s %8s %10s %10s %8s %9s %6s %9s\n",
            "function", "bytes", "algorithm", "proto", "ch", "calls", "median us",
            "total ms", "busbw", "skew us", "late", "launch us");
}

static void print_value(double value, int width, int digits, FILE *to)
{
    if (value < 0)
        fprintf(to, " %*s", width, "-");
    else
        fprintf(to, " %*.*f", width, digits, value);
}

static void print_row(const struct mu_profile_row *r, FILE *to)
{
    fprintf(to, "  %-13s %11.0f  %-10s %-7s %3d %8ld", r->like->func, r->bytes,
            r->like->algo, r->like->proto, r->like->channels, r->calls);
    print_value(r->median, 10, 1, to);
    print_value(r->total < 0 ? -1 : r->total * 1e-3, 10, 3, to);
    print_value(r->busbw, 8, 1, to);
    print_value(r->skew, 9, 1, to);
    if (r->late < 0)
        fprintf(to, " %6s", "-");
    else
        fprintf(to, " %6d", r->late);
    print_value(r->launch, 9, 1, to);
    if (r->unfinished)
        fprintf(to, "  %ld not ended", r->unfinished);
    putc('\n', to);
}

static void print_steps(const struct mu_profile *p, FILE *to)
{
    const struct mu_profile_steps *s = &p->steps;
    double least = 0, most = 0;

    if (s->n == 0) {
        fputs("  steps: no sequence of collectives repeats\n", to);
        return;
    }
    for (int i = 0; i < s->n; i++) {
        least = i == 0 || s->step[i].took < least ? s->step[i].took : least;
        most = s->step[i].took > most ? s->step[i].took : most;
    }
    fprintf(to,
            "  steps: %d of %d collective%s, median %.3f ms (least %.3f, most %.3f)",
            s->n, s->period, mu_plural(s->period), s->median.took * 1e-3, least * 1e-3,
            most * 1e-3);
    if (s->median.busy >= 0)
        fprintf(
            to,
            "; %.3f ms with a collective; the first rank waits %.3f ms for the last",
            s->median.busy * 1e-3, s->median.wait * 1e-3);
    putc('\n', to);
}

static void print_findings(const struct mu_profile *p, FILE *to)
{
    for (int i = 0; i < p->nfindings; i++)
        fprintf(to, "\n%s: %s\n  %s\n", p->findings[i].rule, p->findings[i].text,
                p->findings[i].remedy);
}

/* A program may have several objects, each with steps of its own. */
static void print_buckets(const struct mu_profile *p, FILE *to)
{
    for (int i = 0; i < p->nbuckets; i++) {
        const struct mu_profile_bucket *b = &p->buckets[i];

        if (b->bucket == MU_LEDGER_STEP) {
            fprintf(to,
                    "\nbuckets of libmuster: step %.3f ms, of which %.3f ms in sync "
                    "(%.0f %% exposed)\n  %6s %11s %8s %10s %10s %10s %10s %10s %10s\n",
                    b->joined * 1e-3, b->exposed * 1e-3, 100 * b->exposed / b->joined,
                    "bucket", "bytes", "records", "ready us", "launch us", "queue us",
                    "work us", "exposed us", "most us");
            continue;
        }
        fprintf(to, "  %6u %11.0f %8ld", b->bucket, b->bytes, b->records);
        print_value(b->ready, 10, 1, to);
        print_value(b->launch, 10, 1, to);
        print_value(b->queue, 10, 1, to);
        print_value(b->work, 10, 1, to);
        print_value(b->exposed, 10, 1, to);
        print_value(b->exposed_most, 10, 1, to);
        putc('\n', to);
    }
}

void mu_profile_text(const struct mu_profile *p, FILE *to)
{
    long minor = 0;

    fprintf(to, "%d process%s, %zu record%s\n", p->nfiles, p->nfiles == 1 ? "" : "es",
            p->nrecords, mu_plural((long)p->nrecords));
    mu_profile_notes(p, "  ", "\n", to);
    print_steps(p, to);
    print_findings(p, to);
    print_buckets(p, to);
    for (int i = 0; i < p->nrows; i++) {
        if (i == 0 || p->rows[i].comm != p->rows[i - 1].comm) {
            print_comm(&p->comms[p->rows[i].comm], to);
            minor = 0;
        }
        if (p->rows[i].minor)
            minor++;
        else
            print_row(&p->rows[i], to);
        if (minor && (i + 1 == p->nrows || p->rows[i + 1].comm != p->rows[i].comm))
            fprintf(to,
                    "  and %ld more kinds of less than 0.1 %% of the time each, which "
                    "--format json has\n",
                    minor);
    }
    fputs("\n  median, total: on the rank that began last; busbw: GB/s; skew: the "
          "longest wait\n"
          "  for that rank, median; late: the rank that was last most often; ch: "
          "channels\n",
          to);
}

static json_t *number(double value)
{
    return value < 0 ? json_null() : json_real(value);
}

static json_t *row_json(const struct mu_profile *p, const struct mu_profile_row *r)
{
    const struct mu_profile_comm *c = &p->comms[r->comm];
    char hash[24];

    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)c->hash);
    return json_pack(
        "{s:s, s:s, s:f, s:s, s:s, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:f, s:o}",
        "communicator", hash, "function", r->like->func, "bytes", r->bytes, "algorithm",
        r->like->algo, "protocol", r->like->proto, "channels", r->like->channels,
        "calls", (json_int_t)r->calls, "unfinished", (json_int_t)r->unfinished,
        "median_us", number(r->median), "least_us", number(r->least), "most_us",
        number(r->most), "total_us", number(r->total), "busbw_gb_s", number(r->busbw),
        "skew_us", number(r->skew), "skew_most_us", number(r->skew_most), "late_rank",
        r->late < 0 ? json_null() : json_integer(r->late), "late_share", r->late_share,
        "launch_us", number(r->launch));
}

static json_t *comm_json(const struct mu_profile_comm *c)
{
    char hash[24];
    json_t *name = json_string(c->name); /* NULL: the name is no UTF-8 */

    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)c->hash);
    return json_pack("{s:s, s:o, s:i, s:i, s:i, s:o}", "hash", hash, "name",
                     name ? name : json_null(), "ranks", c->size, "nodes", c->nodes,
                     "ranks_with_file", c->ranks, "first_missing_rank",
                     c->missing < 0 ? json_null() : json_integer(c->missing));
}

static json_t *steps_json(const struct mu_profile *p)
{
    const struct mu_profile_steps *s = &p->steps;

    if (s->n == 0)
        return json_null();
    return json_pack("{s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "count", s->n,
                     "collectives", s->period, "process", s->file, "median_us",
                     number(s->median.took), "busy_us", number(s->median.busy),
                     "compute_us", number(s->median.compute), "wait_us",
                     number(s->median.wait));
}

static json_t *known_text(const char *text)
{
    return *text ? json_string(text) : json_null();
}

/* 1 + the number, as in a ledger's head; -1: several nodes. */
static json_t *known_node(int node)
{
    return node > 0 ? json_integer(node - 1) : json_null();
}

static json_t *process_json(const struct mu_profile *p, int i)
{
    const struct mu_profile_part *part = &p->parts[i];
    const struct mu_ledger_head *head = p->files[i].head;
    json_t *host = json_string(head->host);

    return json_pack(
        "{s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "rank",
        part->rank < 0 ? json_null() : json_integer(part->rank), "host",
        host ? host : json_null(), "pid", head->pid, "span_us", number(part->span),
        "busy_us", number(part->busy), "launch_us", number(part->launch), "cpus",
        head->cpus > 0 ? json_integer(head->cpus) : json_null(), "cpu_numa_node",
        known_node(head->cpu_node), "gpu", known_text(head->gpu), "gpu_numa_node",
        known_node(head->gpu_node), "nic", known_text(head->nic));
}

static json_t *bucket_json(const struct mu_profile_bucket *b)
{
    char hash[24];

    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)b->hash);
    return json_pack(
        "{s:s, s:I, s:o, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "communicator",
        hash, "ddp", (json_int_t)b->ddp, "bucket",
        b->bucket == MU_LEDGER_STEP ? json_null() : json_integer(b->bucket), "records",
        (json_int_t)b->records, "bytes", b->bytes, "ready_us", number(b->ready),
        "launch_us", number(b->launch), "queue_us", number(b->queue), "work_us",
        number(b->work), "exposed_us", number(b->exposed), "exposed_most_us",
        number(b->exposed_most), "joined_us", number(b->joined));
}

/* The process is an index of "by_process". */
static json_t *finding_json(const struct mu_finding *f)
{
    json_t *text = json_string(f->text);

    return json_pack("{s:s, s:o, s:s, s:o, s:f, s:f}", "rule", f->rule, "text",
                     text ? text : json_null(), "remedy", f->remedy, "process",
                     f->file < 0 ? json_null() : json_integer(f->file), "value",
                     f->value, "limit", f->limit);
}

json_t *mu_profile_json(const struct mu_profile *p)
{
    json_t *comms = json_array(), *rows = json_array();
    json_t *processes = json_array(), *findings = json_array();
    json_t *buckets = json_array();
    unsigned newest, least = oldest(p, &newest);

    for (int i = 0; i < p->ncomms; i++)
        json_array_append_new(comms, comm_json(&p->comms[i]));
    for (int i = 0; i < p->nrows; i++)
        json_array_append_new(rows, row_json(p, &p->rows[i]));
    for (int i = 0; i < p->nfiles; i++)
        json_array_append_new(processes, process_json(p, i));
    for (int i = 0; i < p->nbuckets; i++)
        json_array_append_new(buckets, bucket_json(&p->buckets[i]));
    for (int i = 0; i < p->nfindings; i++)
        json_array_append_new(findings, finding_json(&p->findings[i]));
    return json_pack("{s:s, s:i, s:i, s:I, s:I, s:[i,i], s:o, s:o, s:o, s:o, s:o, s:o}",
                     "format", "muster-profile", "version", 1, "processes", p->nfiles,
                     "records", (json_int_t)p->nrecords, "overwritten",
                     (json_int_t)p->overwritten, "interfaces", (int)least, (int)newest,
                     "communicators", comms, "collectives", rows, "by_process",
                     processes, "steps", steps_json(p), "buckets", buckets, "findings",
                     findings);
}
