/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_print.c - the collectives of a job as text and as JSON */
#include "runtime/tools/profile.h"

/* The oldest interface among the files decides what can be shown. */
static unsigned oldest(const struct mu_profile *p, unsigned *newest)
{
    unsigned least = 99;

    *newest = 0;
    for (int i = 0; i < p->nfiles; i++) {
        unsigned v = p->files[i].head->interface;

        least = v < least ? v : least;
        *newest = v > *newest ? v : *newest;
    }
    return least;
}

static void print_notes(const struct mu_profile *p, FILE *to)
{
    unsigned newest, least = oldest(p, &newest);

    if (least < 3)
        fputs("  no times on the GPU and no bandwidth: they need NCCL 2.26\n", to);
    else if (least == 3)
        fputs("  times were taken by NCCL's thread on the host: NCCL 2.27 has the "
              "GPU's\n",
              to);
    if (least != newest)
        fprintf(to,
                "  the files are of different NCCL releases (profiler interfaces %u to "
                "%u)\n",
                least, newest);
    if (p->overwritten)
        fprintf(to,
                "  %llu older records were overwritten; MUSTER_PROFILE_RECORDS makes "
                "the files larger\n",
                (unsigned long long)p->overwritten);
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

void mu_profile_text(const struct mu_profile *p, FILE *to)
{
    int last = -1;

    fprintf(to, "%d process%s, %zu record%s\n", p->nfiles, p->nfiles == 1 ? "" : "es",
            p->nrecords, mu_plural((long)p->nrecords));
    print_notes(p, to);
    for (int i = 0; i < p->nrows; i++) {
        if (p->rows[i].comm != last)
            print_comm(&p->comms[p->rows[i].comm], to);
        last = p->rows[i].comm;
        print_row(&p->rows[i], to);
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

json_t *mu_profile_json(const struct mu_profile *p)
{
    json_t *comms = json_array(), *rows = json_array();
    unsigned newest, least = oldest(p, &newest);

    for (int i = 0; i < p->ncomms; i++)
        json_array_append_new(comms, comm_json(&p->comms[i]));
    for (int i = 0; i < p->nrows; i++)
        json_array_append_new(rows, row_json(p, &p->rows[i]));
    return json_pack("{s:s, s:i, s:i, s:I, s:I, s:[i,i], s:o, s:o}", "format",
                     "muster-profile", "version", 1, "processes", p->nfiles, "records",
                     (json_int_t)p->nrecords, "overwritten", (json_int_t)p->overwritten,
                     "interfaces", (int)least, (int)newest, "communicators", comms,
                     "collectives", rows);
}
