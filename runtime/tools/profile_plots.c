/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_plots.c - plots of a job's collectives, which gnuplot draws */
#include <errno.h>
#include <string.h>

#include "runtime/tools/gnuplot.h"
#include "runtime/tools/plot.h"
#include "runtime/tools/profile_page.h"

#define WIDTH 820
#define HEIGHT 280
#define POINTS 400 /* of a curve: more are no more to see */
#define ROWS 64    /* processes in a picture */

/* ---- Plots ----------------------------------------------------------------------- */

static FILE *begin_plot(struct mu_page *g, const char *id, const char *title,
                        int height)
{
    fprintf(g->to, "<h2>%s</h2>\n<figure id=\"%s\">\n", title, id);
    return mu_gnuplot_open(WIDTH, height);
}

static void end_plot(struct mu_page *g, FILE *script)
{
    struct mu_err err = { 0 };

    if (!script)
        mu_err_set(&err, ENOMEM, "no temporary file for a plot");
    if (err.text[0] || mu_gnuplot_close(script, g->to, &err) < 0) {
        mu_plot_cell("p", err.text, g->to);
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
        int n = 0, timed = 0;

        for (; n < each && i + n < s->n; n++) {
            const struct mu_profile_step *one = &s->step[i + n];

            took += one->took;
            if (mu_profile_counts(s, i + n)) {
                timed++;
                busy += one->busy;
                wait += one->wait;
            }
            most = one->took > most ? one->took : most;
        }
        fprintf(script, "%d %.4g %.4g", i, took / n * 1e-3, most * 1e-3);
        if (timed)
            fprintf(script, " %.4g %.4g\n", busy / timed * 1e-3, wait / timed * 1e-3);
        else
            fputs(" NaN NaN\n", script);
    }
    fputs("EOD\nset xlabel 'step'\nset ylabel 'ms'\nset yrange [0:*]\n", script);
}

void mu_page_steps(struct mu_page *g)
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
              "'in collectives', $d using 1:5 with lines lw 2 lc rgb '#d9822b' "
              "title 'the first rank waits for the last'\n",
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

void mu_page_timeline(struct mu_page *g, int chosen)
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

/* ---- Buckets --------------------------------------------------------------------- */

/* Rows "y begin end half kind" of the median step: a bucket's wait for its turn, its
 * work, and below them sync's wait for it.
 */
static int bucket_bars(const struct mu_profile *p, FILE *script)
{
    const struct mu_profile_bucket *step = &p->buckets[0];
    int n = 1;

    fputs("$d << EOD\n", script);
    for (; n < p->nbuckets && p->buckets[n].bucket != MU_LEDGER_STEP; n++) {
        const struct mu_profile_bucket *b = &p->buckets[n];
        double started = b->ready + b->launch + b->queue;

        if (b->work >= 0)
            fprintf(script, "%d %.4f %.4f -0.4 0.1 1\n%d %.4f %.4f -0.4 0.1 2\n", n,
                    b->ready * 1e-3, started * 1e-3, n, started * 1e-3,
                    (started + b->work) * 1e-3);
        fprintf(script, "%d %.4f %.4f 0.1 0.4 3\n", n, (b->joined - b->exposed) * 1e-3,
                b->joined * 1e-3);
    }
    fputs("EOD\n", script);
    fprintf(script,
            "set arrow from first %.4f, graph 0 to first %.4f, graph 1 nohead "
            "dashtype 2 lc rgb '#888888'\n",
            (step->joined - step->exposed) * 1e-3,
            (step->joined - step->exposed) * 1e-3);
    return n - 1;
}

void mu_page_buckets(struct mu_page *g)
{
    const struct mu_profile *p = g->p;
    const struct mu_profile_bucket *step = &p->buckets[0];
    FILE *script;
    int n = 0;

    while (n + 1 < p->nbuckets && p->buckets[n + 1].bucket != MU_LEDGER_STEP)
        n++;
    script = begin_plot(g, "buckets", "Buckets of the median step",
                        HEIGHT > 140 + 22 * n ? HEIGHT : 140 + 22 * n);
    if (script) {
        n = bucket_bars(p, script);
        fprintf(script,
                "set xlabel 'ms since the step before ended; dashed: sync begins'\n"
                "set ylabel 'bucket'\nset xrange [0:%.4f]\nset yrange [%d.6:0.4]\n"
                "set style fill solid 0.9 noborder\nset key above\nset ytics (",
                step->joined * 1e-3 * 1.02, n);
        for (int i = 1; i <= n; i++)
            fprintf(script, "%s'%u' %d", i > 1 ? ", " : "", p->buckets[i].bucket, i);
        fputs(")\nplot ", script);
        for (int kind = 1; kind <= 3; kind++)
            fprintf(script,
                    "%s$d using ($6 == %d ? $2 : 1/0):1:2:3:($1+$4):($1+$5) with "
                    "boxxyerror lc rgb '%s' title '%s'",
                    kind > 1 ? ", " : "", kind,
                    kind == 1   ? "#c9d6e4"
                    : kind == 2 ? "#3b6ea5"
                                : "#d9822b",
                    kind == 1   ? "ready, waits"
                    : kind == 2 ? "all-reduce"
                                : "exposed: sync waits");
        putc('\n', script);
    }
    end_plot(g, script);
}

/* ---- Links and ranks ------------------------------------------------------------- */

void mu_page_busbw(struct mu_page *g)
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

void mu_page_stragglers(struct mu_page *g)
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
