/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_html.c - the collectives of a job as one page that needs no other file */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tools/gnuplot.h"
#include "runtime/tools/plot.h"
#include "runtime/tools/profile.h"

#define WIDTH 820
#define HEIGHT 280
#define POINTS 400 /* of a curve: more are no more to see */
#define ROWS 64    /* processes in a picture */

struct page {
    const struct mu_profile *p;
    FILE *to;
    struct mu_err err; /* of the first plot that could not be drawn */
};

/* ---- Text ------------------------------------------------------------------------ */

static void cell(const char *tag, const char *text, FILE *to)
{
    fprintf(to, "<%s>", tag);
    mu_plot_escape(text, to);
    fprintf(to, "</%s>", tag);
}

static void findings(const struct page *g)
{
    fputs("<h2>Findings</h2>\n", g->to);
    if (g->p->nfindings == 0)
        fputs("<p>No rule found anything.</p>\n", g->to);
    else
        fputs("<table><tr><th>rule</th><th>what</th><th>remedy</th></tr>\n", g->to);
    for (int i = 0; i < g->p->nfindings; i++) {
        const struct mu_finding *f = &g->p->findings[i];

        fputs("<tr>", g->to);
        cell("td", f->rule, g->to);
        cell("td", f->text, g->to);
        cell("td", f->remedy, g->to);
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

static void collectives(const struct page *g)
{
    int minor = 0;

    fputs("<h2>Collectives</h2>\n<table><tr><th>function</th><th>bytes</th>"
          "<th>ranks</th><th>algorithm</th><th>protocol</th><th>channels</th>"
          "<th>calls</th><th>median &micro;s</th><th>busbw GB/s</th>"
          "<th>skew &micro;s</th><th>last rank</th></tr>\n",
          g->to);
    for (int i = 0; i < g->p->nrows; i++) {
        const struct mu_profile_row *r = &g->p->rows[i];

        minor += r->minor;
        if (r->minor)
            continue;
        fputs("<tr>", g->to);
        cell("td", r->like->func, g->to);
        value(r->bytes, 0, g->to);
        value(g->p->comms[r->comm].size, 0, g->to);
        cell("td", r->like->algo, g->to);
        cell("td", r->like->proto, g->to);
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

/* Hosts in the order of their first rank, with what each rank did. */
static void processes(const struct page *g)
{
    fputs("<h2>Placement</h2>\n<table><tr><th>host</th><th>rank</th><th>pid</th>"
          "<th>CPUs</th><th>NUMA node</th><th>GPU</th><th>its node</th><th>NIC</th>"
          "<th>in collectives %</th><th>launch &micro;s</th></tr>\n",
          g->to);
    for (int i = 0; i < g->p->nfiles; i++) {
        const struct mu_profile_part *part = &g->p->parts[i];
        const struct mu_ledger_head *head = g->p->files[i].head;
        double share =
            part->busy >= 0 && part->span > 0 ? 100 * part->busy / part->span : -1;

        fputs("<tr>", g->to);
        cell("td", g->p->files[i].head->host, g->to);
        value(part->rank, 0, g->to);
        fprintf(g->to, "<td class=\"n\">%d</td>", head->pid);
        value(head->cpus > 0 ? head->cpus : -1, 0, g->to);
        if (head->cpu_node < 0)
            cell("td", "several", g->to);
        else
            value(head->cpu_node - 1, 0, g->to);
        cell("td", head->gpu, g->to);
        value(head->gpu_node - 1, 0, g->to);
        cell("td", head->nic, g->to);
        value(share, 1, g->to);
        value(part->launch, 1, g->to);
        fputs("</tr>\n", g->to);
    }
    fputs("</table>\n", g->to);
}

/* ---- Plots ----------------------------------------------------------------------- */

static FILE *begin_plot(struct page *g, const char *id, const char *title, int height)
{
    fprintf(g->to, "<h2>%s</h2>\n<figure id=\"%s\">\n", title, id);
    return mu_gnuplot_open(WIDTH, height);
}

static void end_plot(struct page *g, FILE *script)
{
    struct mu_err err = { 0 };

    if (!script)
        mu_err_set(&err, ENOMEM, "no temporary file for a plot");
    if (err.text[0] || mu_gnuplot_close(script, g->to, &err) < 0) {
        cell("p", err.text, g->to);
        if (!g->err.text[0])
            g->err = err;
    }
    fputs("</figure>\n", g->to);
}

/* Lines "step mean most busy wait", one for `each` steps; milliseconds. */
static void step_data(const struct mu_profile_steps *s, FILE *script)
{
    int each = s->n / POINTS + 1;

    fputs("$d << EOD\n", script);
    for (int i = 0; i < s->n; i += each) {
        double took = 0, busy = 0, wait = 0, most = 0;
        int n = 0;

        for (; n < each && i + n < s->n; n++) {
            const struct mu_profile_step *one = &s->step[i + n];

            took += one->took;
            busy += one->busy;
            wait += one->wait;
            most = one->took > most ? one->took : most;
        }
        fprintf(script, "%d %.4g %.4g %.4g %.4g\n", i, took / n * 1e-3, most * 1e-3,
                busy / n * 1e-3, wait / n * 1e-3);
    }
    fputs("EOD\nset xlabel 'step'\nset ylabel 'ms'\nset yrange [0:*]\n", script);
}

static void step_plots(struct page *g)
{
    const struct mu_profile_steps *s = &g->p->steps;
    FILE *script = begin_plot(g, "steps", "Step time", HEIGHT);

    if (script) {
        step_data(s, script);
        if (s->n > POINTS)
            fputs("plot $d using 1:3 with lines lc rgb '#d9822b' title 'longest', "
                  "$d using 1:2 with lines lc rgb '#3b6ea5' title 'mean'\n",
                  script);
        else
            fputs("plot $d using 1:2 with lines lc rgb '#3b6ea5' notitle\n", script);
    }
    end_plot(g, script);
    if (s->median.busy < 0)
        return;
    script = begin_plot(g, "communication", "Time in collectives", HEIGHT);
    if (script) {
        step_data(s, script);
        fputs("plot $d using 1:4 with filledcurves y1=0 lc rgb '#3b6ea5' title "
              "'in collectives', $d using 1:5 with filledcurves y1=0 lc rgb "
              "'#d9822b' title 'of it waiting for the last rank'\n",
              script);
    }
    end_plot(g, script);
}

/* ---- The timeline ---------------------------------------------------------------- */

/* The records of one collective begin at r; those of the step are a bar each. A
 * collective ends on all ranks at about the same time, and the clocks of GPUs differ:
 * so each bar ends with the one of the process that the steps are of.
 */
static size_t draw_collective(const struct mu_profile *p, size_t at,
                              const struct mu_profile_step *step, FILE *script)
{
    const struct mu_profile_record *r = &p->records[at];
    const struct mu_profile_steps *s = &p->steps;
    const struct mu_ledger_call *own = NULL;
    double origin = (double)s->call[step->first]->gpu_begin;
    size_t n = 0;

    for (; at + n < p->nrecords && r[n].hash == r->hash &&
           r[n].call->sequence == r->call->sequence &&
           strcmp(r[n].call->func, r->call->func) == 0;
         n++)
        if (r[n].file == s->file)
            own = r[n].call;
    if (!own || own->number < s->call[step->first]->number ||
        own->number >= s->call[step->end]->number || mu_profile_gpu_us(own) < 0)
        return n;
    for (size_t i = 0; i < n; i++) {
        double took = mu_profile_gpu_us(r[i].call);
        double end = ((double)own->gpu_end - origin) * 1e-3;

        if (took >= 0 && r[i].file < ROWS)
            fprintf(script, "%d %.4f %.4f %d\n", r[i].file, (end - took) * 1e-3,
                    end * 1e-3, (int)(own->number & 1));
    }
    return n;
}

/* The names of the first processes on an axis. */
static void name_rows(const struct mu_profile *p, const char *axis, FILE *script)
{
    char name[128];

    fprintf(script, "set %s (", axis);
    for (int i = 0; i < p->nfiles && i < ROWS; i++) {
        fputs(i ? ", " : "", script);
        mu_gnuplot_text(script, mu_profile_name(p, i, name, sizeof name));
        fprintf(script, " %d", i);
    }
    fputs(")\n", script);
}

static void timeline(struct page *g, int chosen)
{
    const struct mu_profile *p = g->p;
    int rows = p->nfiles < ROWS ? p->nfiles : ROWS;
    char title[96];
    FILE *script;

    snprintf(title, sizeof title, "Timeline of step %d%s", chosen,
             rows < p->nfiles ? " (first processes)" : "");
    script = begin_plot(g, "timeline", title, 120 + 18 * rows);
    if (script) {
        fputs("$d << EOD\n", script);
        for (size_t at = 0; at < p->nrecords;)
            at += draw_collective(p, at, &p->steps.step[chosen], script);
        fputs("EOD\nset xlabel 'ms'\nset key off\nset style fill solid 0.9\n"
              "set linetype 1 lc rgb '#3b6ea5'\nset linetype 2 lc rgb '#7fa8d1'\n",
              script);
        name_rows(p, "ytics", script);
        fprintf(script,
                "set yrange [%d.5:-0.5]\nplot $d using "
                "2:1:2:3:($1-0.4):($1+0.4):($4+1) with boxxyerror lc variable\n",
                rows - 1);
    }
    end_plot(g, script);
}

/* ---- Links and ranks ------------------------------------------------------------- */

static void busbw(struct page *g)
{
    const struct mu_profile *p = g->p;
    const char *drawn[16];
    int ndrawn = 0;
    FILE *script = begin_plot(g, "busbw", "Bus bandwidth by size", HEIGHT);

    if (script) {
        for (int i = 0; i < p->nrows; i++) {
            const char *func = p->rows[i].like->func;
            int k = 0;

            while (k < ndrawn && strcmp(drawn[k], func) != 0)
                k++;
            if (k < ndrawn || ndrawn == 16 || p->rows[i].busbw <= 0)
                continue;
            drawn[ndrawn] = func;
            fprintf(script, "$d%d << EOD\n", ndrawn++);
            for (int j = i; j < p->nrows; j++)
                if (strcmp(p->rows[j].like->func, func) == 0 && p->rows[j].busbw > 0)
                    fprintf(script, "%.0f %.4g\n", p->rows[j].bytes, p->rows[j].busbw);
            fputs("EOD\n", script);
        }
        fputs("set xlabel 'bytes'\nset ylabel 'GB/s'\nset logscale x 2\n"
              "set format x '%.0b %B'\nset offsets graph 0.05, graph 0.05\n"
              "set yrange [0:*]\nplot ",
              script);
        for (int k = 0; k < ndrawn; k++) {
            fprintf(script, "%s$d%d using 1:2 with points pt 7 ps 0.7 title ",
                    k ? ", " : "", k);
            mu_gnuplot_text(script, drawn[k]);
        }
        fputs(ndrawn ? "\n" : "[1:2] 1/0 notitle\n", script);
    }
    end_plot(g, script);
}

static void stragglers(struct page *g)
{
    const struct mu_profile *p = g->p;
    const struct mu_profile_steps *s = &p->steps;
    int rows = p->nfiles < ROWS ? p->nfiles : ROWS;
    FILE *script =
        begin_plot(g, "stragglers", "How long the others waited for each rank", HEIGHT);

    if (script) {
        fputs("$d << EOD\n", script);
        for (int f = 0; f < rows; f++) {
            double wait = 0;

            for (int i = 0; i < s->n; i++)
                wait += s->step[i].late == f ? s->step[i].wait : 0;
            fprintf(script, "%d %.4g\n", f, wait * 1e-6);
        }
        fputs("EOD\nset ylabel 'seconds'\nset yrange [0:*]\nset boxwidth 0.7\n"
              "set style fill solid\nset key off\nset xtics rotate by -35\n",
              script);
        name_rows(p, "xtics", script);
        fputs("plot $d using 1:2 with boxes lc rgb '#d9822b'\n", script);
    }
    end_plot(g, script);
}

/* ---- The page -------------------------------------------------------------------- */

static int slowest(const struct mu_profile_steps *s)
{
    int most = 0;

    for (int i = 1; i < s->n; i++)
        most = s->step[i].took > s->step[most].took ? i : most;
    return most;
}

static void head(const struct page *g)
{
    const char *job = g->p->files[0].head->job;

    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<title>Collectives of a job</title>\n<style>\n"
          "body { font: 15px sans-serif; margin: 2em auto; max-width: 860px; }\n"
          "h2 { font-size: 17px; margin-top: 2em; }\n"
          "table { border-collapse: collapse; font-size: 14px; }\n"
          "th { text-align: left; color: #666; font-weight: normal; }\n"
          "th, td { padding: 3px 14px 3px 0; vertical-align: top; }\n"
          "td.n { text-align: right; }\nfigure { margin: 0; }\n"
          "tr { border-bottom: 1px solid #eee; }\n"
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
    struct page g = { .p = p, .to = to };

    if (step >= p->steps.n) {
        fprintf(complain, "muster report: --step %d: the ledgers have steps 0 to %d\n",
                step, p->steps.n - 1);
        return -1;
    }
    head(&g);
    findings(&g);
    if (p->steps.n > 0) {
        step_plots(&g);
        if (p->steps.median.busy >= 0)
            timeline(&g, step < 0 ? slowest(&p->steps) : step);
        stragglers(&g);
    }
    busbw(&g);
    processes(&g);
    collectives(&g);
    fputs("</body></html>\n", to);
    if (g.err.text[0])
        fprintf(complain, "muster report: %s\n", g.err.text);
    return 0;
}
