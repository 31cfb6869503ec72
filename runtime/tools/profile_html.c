/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_html.c - the collectives of a job as one page that needs no other file */
#include <string.h>

#include "runtime/tools/plot.h"
#include "runtime/tools/profile_page.h"

/* ---- Text ------------------------------------------------------------------------ */

/* Names of columns between '|'; those of numbers begin with '#'. */
static void begin_table(const char *names, FILE *to)
{
    fputs("<table><tr>", to);
    while (*names) {
        bool number = *names == '#';
        size_t n = strcspn(names += number, "|");

        fprintf(to, "<th%s>%.*s</th>", number ? " class=\"n\"" : "", (int)n, names);
        names += n + (names[n] == '|');
    }
    fputs("</tr>\n", to);
}

static void findings(const struct mu_page *g)
{
    fputs("<h2>Findings</h2>\n", g->to);
    if (g->p->nfindings == 0)
        fputs("<p>No rule found anything.</p>\n", g->to);
    else
        begin_table("rule|what|remedy", g->to);
    for (int i = 0; i < g->p->nfindings; i++) {
        const struct mu_finding *f = &g->p->findings[i];

        fputs("<tr>", g->to);
        mu_plot_cell("td", f->rule, g->to);
        mu_plot_cell("td", f->text, g->to);
        mu_plot_cell("td", f->remedy, g->to);
        fputs("</tr>\n", g->to);
    }
    if (g->p->nfindings > 0)
        fputs("</table>\n", g->to);
}

static void value(double v, int digits, FILE *to)
{
    if (v < 0)
        fputs("<td class=\"n\">-</td>", to);
    else
        fprintf(to, "<td class=\"n\">%.*f</td>", digits, v);
}

static void collectives(const struct mu_page *g)
{
    int minor = 0;

    fputs("<h2>Collectives</h2>\n", g->to);
    begin_table("function|#bytes|#ranks|algorithm|protocol|#channels|#calls|#median "
                "&micro;s|#busbw GB/s|#skew &micro;s|#last rank",
                g->to);
    for (int i = 0; i < g->p->nrows; i++) {
        const struct mu_profile_row *r = &g->p->rows[i];

        minor += r->minor;
        if (r->minor)
            continue;
        fputs("<tr>", g->to);
        mu_plot_cell("td", r->like->func, g->to);
        value(r->bytes, 0, g->to);
        value(g->p->comms[r->comm].size, 0, g->to);
        mu_plot_cell("td", r->like->algo, g->to);
        mu_plot_cell("td", r->like->proto, g->to);
        value(r->like->channels, 0, g->to);
        value((double)r->calls, 0, g->to);
        value(r->median, 1, g->to);
        value(r->busbw, 1, g->to);
        value(r->skew, 1, g->to);
        value(r->late, 0, g->to);
        fputs("</tr>\n", g->to);
    }
    fputs("</table>\n", g->to);
    if (minor)
        fprintf(g->to,
                "<p>And %d more kinds of less than 0.1 %% of the time each.</p>\n",
                minor);
}

static void buckets(const struct mu_page *g)
{
    begin_table("#bucket|#bytes|#records|#ready &micro;s|#launch &micro;s|#queue "
                "&micro;s|#work &micro;s|#exposed &micro;s|#most &micro;s",
                g->to);
    for (int i = 0; i < g->p->nbuckets; i++) {
        const struct mu_profile_bucket *b = &g->p->buckets[i];

        fputs("<tr>", g->to);
        if (b->bucket == MU_LEDGER_STEP)
            fputs("<td class=\"n\">all</td>", g->to);
        else
            value(b->bucket, 0, g->to);
        value(b->bytes, 0, g->to);
        value((double)b->records, 0, g->to);
        value(b->ready, 1, g->to);
        value(b->launch, 1, g->to);
        value(b->queue, 1, g->to);
        value(b->work, 1, g->to);
        value(b->exposed, 1, g->to);
        value(b->exposed_most, 1, g->to);
        fputs("</tr>\n", g->to);
    }
    fputs("</table>\n", g->to);
}

/* Hosts in the order of their first rank, with what each rank did. */
static void processes(const struct mu_page *g)
{
    begin_table("host|#rank|#pid|#CPUs|#NUMA node|GPU|#its node|NIC|#in collectives "
                "%|#launch &micro;s",
                g->to);
    for (int i = 0; i < g->p->nfiles; i++) {
        const struct mu_profile_part *part = &g->p->parts[i];
        const struct mu_ledger_head *head = g->p->files[i].head;
        double share =
            part->busy >= 0 && part->span > 0 ? 100 * part->busy / part->span : -1;

        fputs("<tr>", g->to);
        mu_plot_cell("td", g->p->files[i].head->host, g->to);
        value(part->rank, 0, g->to);
        fprintf(g->to, "<td class=\"n\">%d</td>", head->pid);
        value(head->cpus > 0 ? head->cpus : -1, 0, g->to);
        if (head->cpu_node < 0)
            fputs("<td class=\"n\">several</td>", g->to);
        else
            value(head->cpu_node - 1, 0, g->to);
        mu_plot_cell("td", head->gpu, g->to);
        value(head->gpu_node - 1, 0, g->to);
        mu_plot_cell("td", head->nic, g->to);
        value(share, 1, g->to);
        value(part->launch, 1, g->to);
        fputs("</tr>\n", g->to);
    }
    fputs("</table>\n", g->to);
}

/* ---- The page -------------------------------------------------------------------- */

static int slowest(const struct mu_profile_steps *s)
{
    int most = -1;

    for (int i = 0; i < s->n; i++)
        if (mu_profile_counts(s, i) &&
            (most < 0 || s->step[i].took > s->step[most].took))
            most = i;
    return most;
}

static void head(const struct mu_page *g)
{
    const char *job = g->p->files[0].head->job;

    fputs(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<title>Collectives of a job</title>\n<style>\n"
        "body { font: 15px sans-serif; margin: 2em auto; max-width: 860px; }\n"
        "h2 { font-size: 17px; margin-top: 2em; }\n"
        "table { border-collapse: collapse; font-size: 14px; }\n"
        "th { text-align: left; color: #666; font-weight: normal; }\n"
        "th, td { padding: 3px 14px 3px 0; vertical-align: top; }\n"
        ".n { text-align: right; }\nfigure { margin: 0; }\n"
        "tr { border-bottom: 1px solid #eee; }\n"
        ".host, .node { border: 1px solid #bbb; border-radius: 4px; padding: 6px;"
        " margin: 4px; }\n"
        ".host { font-size: 13px; } .node { display: inline-block; border-color: #ddd;"
        " vertical-align: top; }\n"
        ".host b, .node b { display: block; } .rank b { display: inline; }\n"
        ".rank { display: inline-block; vertical-align: top; padding: 6px;"
        " margin: 4px; border-radius: 4px; background: #dbe7f3; }\n"
        ".far { background: #f6d9bd; }\n"
        "</style></head><body>\n<h1>Collectives of ",
        g->to);
    fputs(job[0] ? "job " : "a program", g->to);
    mu_plot_escape(job, g->to);
    fprintf(g->to, "</h1>\n<p>%d process%s, %zu records", g->p->nfiles,
            g->p->nfiles == 1 ? "" : "es", g->p->nrecords);
    if (g->p->steps.n)
        fprintf(g->to, "; %d steps of %d collective%s, median %.3f ms", g->p->steps.n,
                g->p->steps.period, mu_plural(g->p->steps.period),
                g->p->steps.median.took * 1e-3);
    fputs("</p>\n", g->to);
    mu_profile_notes(g->p, "<p>", "</p>\n", g->to);
    for (int i = 0; i < g->p->ncomms; i++)
        if (g->p->comms[i].missing >= 0)
            fprintf(g->to,
                    "<p>Of communicator %016llx %d of %d ranks have no file; the "
                    "first is rank %d.</p>\n",
                    (unsigned long long)g->p->comms[i].hash,
                    g->p->comms[i].size - g->p->comms[i].ranks, g->p->comms[i].size,
                    g->p->comms[i].missing);
}

int mu_profile_html(const struct mu_profile *p, int step, FILE *to, FILE *complain)
{
    struct mu_page g = { .p = p, .to = to };

    if (step >= p->steps.n) {
        fprintf(complain, "muster report: --step %d: the ledgers have steps 0 to %d\n",
                step, p->steps.n - 1);
        return -1;
    }
    head(&g);
    findings(&g);
    if (p->steps.n > 0) {
        mu_page_steps(&g);
        if (p->steps.median.busy >= 0)
            mu_page_timeline(&g, step < 0 ? slowest(&p->steps) : step);
        mu_page_stragglers(&g);
    }
    if (p->nbuckets > 0) {
        mu_page_buckets(&g);
        buckets(&g);
    }
    mu_page_busbw(&g);
    mu_page_placement(&g);
    processes(&g);
    collectives(&g);
    fputs("</body></html>\n", to);
    if (g.err.text[0])
        fprintf(complain, "muster report: %s\n", g.err.text);
    return 0;
}
