/* SPDX-License-Identifier: BSD-3-Clause */
/* report_html.c - one run as a page that needs no other file */
#include <math.h>
#include <stdlib.h>

#include "runtime/tools/plot.h"
#include "runtime/tools/report.h"

#define MOST_BARS 64

static void row(const char *what, const char *value, FILE *to)
{
    fprintf(to, "<tr><th>%s</th><td>", what);
    mu_plot_escape(value, to);
    fputs("</td></tr>\n", to);
}

static void figures(const struct mu_run *run, FILE *to)
{
    char text[256];

    fputs("<table>\n", to);
    row("Model", run->model, to);
    row("Precision", run->dtype, to);
    snprintf(text, sizeof text, "%d rank%s, %d node%s, %d core%s used", run->ranks,
             mu_plural(run->ranks), run->nodes, mu_plural(run->nodes), run->cores,
             mu_plural(run->cores));
    row("World", text, to);
    row("Devices", run->devices, to);
    row("Communication", run->transport, to);
    snprintf(text, sizeof text, "%lld per rank, %lld effective", (long long)run->batch,
             (long long)run->effective_batch);
    row("Batch", text, to);
    snprintf(text, sizeof text, "%lld steps, %lld samples in %.2f s: %.0f samples/s",
             (long long)run->steps, (long long)run->samples_seen, run->seconds,
             run->seconds > 0 ? (double)run->samples_seen / run->seconds : 0);
    row("Work", text, to);
    snprintf(text, sizeof text, "loss %.4f, test accuracy %.4f", run->loss,
             run->test_accuracy);
    row("Result", text, to);
    fputs("</table>\n", to);
}

/* At most as many points as the plot has pixels, each the mean of its neighbours. */
static void loss_curve(const struct mu_run *run, FILE *to)
{
    enum { POINTS = 300 };
    int each = run->nlosses / POINTS + 1, n = 0;
    double x[POINTS + 1], y[POINTS + 1];

    for (int i = 0; i < run->nlosses; i += each) {
        double sum = 0;
        int k = 0;

        for (; k < each && i + k < run->nlosses; k++)
            sum += run->losses[i + k];
        x[n] = (double)(run->steps - run->nlosses) + i + k / 2.0;
        y[n++] = sum / k;
    }
    mu_plot_line("Loss", "step", "mean cross entropy", x, y, n, to);
}

static void rate_curve(const struct mu_run *run, FILE *to)
{
    double *x = calloc((size_t)run->nmoments + 1, sizeof *x);
    double *y = calloc((size_t)run->nmoments + 1, sizeof *y);
    int n = 0;

    for (int i = 1; x && y && i < run->nmoments; i++) {
        const struct mu_run_moment *a = &run->moments[i - 1], *b = &run->moments[i];

        if (b->seconds <= a->seconds)
            continue;
        x[n] = b->seconds;
        y[n++] = (b->step - a->step) / (b->seconds - a->seconds) *
                 (double)run->effective_batch;
    }
    mu_plot_line("Throughput", "seconds", "samples per second", x, y, n, to);
    free(x);
    free(y);
}

static void rank_bars(const struct mu_run *run, FILE *to)
{
    static const char *const parts[] = { "computing", "waiting for gradients",
                                         "waiting for checkpoints" };
    int n = run->ranks < MOST_BARS ? run->ranks : MOST_BARS;
    double values[3 * MOST_BARS];

    for (int r = 0; r < n; r++) {
        const struct mu_run_rank *k = &run->by_rank[r];

        values[3 * r + 1] = fmax(0, k->sync_seconds);
        values[3 * r + 2] = k->stall_seconds;
        values[3 * r] = fmax(0, k->seconds - values[3 * r + 1] - k->stall_seconds);
    }
    mu_plot_bars(n < run->ranks ? "Where the time went (first ranks)"
                                : "Where the time went",
                 parts, 3, values, n, to);
}

void mu_report_html(const struct mu_run *run, FILE *to)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>",
          to);
    mu_plot_escape(run->path, to);
    fputs("</title>\n<style>\n"
          "body { font: 15px sans-serif; margin: 2em auto; max-width: 680px; }\n"
          "th { text-align: left; padding-right: 2em; font-weight: normal; color: "
          "#666; }\n"
          "svg { display: block; margin: 1.5em 0; max-width: 100%; }\n"
          "svg text { font: 12px sans-serif; fill: #333; }\n"
          ".grid { stroke: #ddd; }\n"
          "</style></head><body>\n<h1>",
          to);
    mu_plot_escape(run->path, to);
    fputs("</h1>\n", to);
    figures(run, to);
    loss_curve(run, to);
    rate_curve(run, to);
    rank_bars(run, to);
    fputs("</body></html>\n", to);
}
