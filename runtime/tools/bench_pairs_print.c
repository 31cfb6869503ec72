/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_pairs_print.c - figures of pairs of ranks: tables, sentences, a picture */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/tools/bench_pairs.h"
#include "runtime/tools/gnuplot.h"

#define CELL 44        /* pixels of a pair in the picture */
#define SIDE_LEAST 320 /* pixels */
#define SIDE_MOST 1200
#define NUMBERS 24 /* ranks; with more, the numbers in the picture overlap */

static const char *const where[MU_LINKS] = { "inside a node", "between nodes" };
static const char *const link_names[MU_LINKS] = { "node", "network" };

static void print_rows(const struct bench_pairs *p)
{
    const struct muster *m = p->b->m;

    bench_print(p->b, "from\tto\tfrom_node\tto_node\tlink\tlatency_us\tlatency_min_us\t"
                      "latency_max_us\tGBs\tmin_GBs\tmax_GBs\tboth_GBs\tboth_min_GBs\t"
                      "both_max_GBs\toutliers\tresult\n");
    for (int i = 0; i < p->n; i++) {
        const struct mu_pair_figure *f = &p->figures[i];

        bench_print(p->b, "%d\t%d\t%s\t%s\t%s", f->from, f->to, muster_host(m, f->from),
                    muster_host(m, f->to), link_names[f->link]);
        bench_print(p->b, "\t%.2f\t%.2f\t%.2f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f",
                    f->us.median, f->us.least, f->us.most, f->rate.median,
                    f->rate.least, f->rate.most, f->both.median, f->both.least,
                    f->both.most);
        bench_print(p->b, "\t%d\t%s\n", f->outliers, mu_pair_state_name(f->state));
    }
}

static double rate_of(const struct mu_pair_figure *f)
{
    return f->rate.median;
}

static double both_of(const struct mu_pair_figure *f)
{
    return f->both.median;
}

static double latency_of(const struct mu_pair_figure *f)
{
    return f->us.median;
}

/* A row for each sender, a column for each receiver. */
static void print_matrix(const struct bench_pairs *p, const char *title,
                         double (*value)(const struct mu_pair_figure *f))
{
    int ranks = muster_size(p->b->m);
    const struct mu_pair_figure *f = p->figures;

    bench_print(p->b, "%s\n  from\\to", title);
    for (int j = 0; j < ranks; j++)
        bench_print(p->b, " %8d", j);
    for (int i = 0; i < ranks; i++) {
        bench_print(p->b, "\n%9d", i);
        for (int j = 0; j < ranks; j++)
            if (i == j)
                bench_print(p->b, " %8s", "-");
            else if (value(f) > 0)
                bench_print(p->b, " %8.2f", value(f++));
            else
                bench_print(p->b, " %8s", mu_pair_state_name(f++->state));
    }
    bench_print(p->b, "\n");
}

static void print_links(const struct bench_pairs *p)
{
    for (int l = 0; l < MU_LINKS; l++)
        if (p->medians[l].pairs)
            bench_print(p->b,
                        "# %s: %d pair%s, one way %.2f GB/s (%.2f to %.2f), both ways "
                        "%.2f GB/s each, latency %.2f us\n",
                        where[l], p->medians[l].pairs, mu_plural(p->medians[l].pairs),
                        p->medians[l].rate, p->medians[l].least, p->medians[l].most,
                        p->medians[l].both, p->medians[l].us);
}

void bench_pairs_sentence(const struct bench_pairs *p, const struct mu_pair_figure *f,
                          char *text, size_t len)
{
    const struct bench_options *o = p->b->options;
    const struct mu_pair_medians *m = &p->medians[f->link];
    char pair[256];

    snprintf(pair, sizeof pair, "from rank %d (node %s) to rank %d (node %s)", f->from,
             muster_host(p->b->m, f->from), f->to, muster_host(p->b->m, f->to));
    switch (f->state) {
    case MU_PAIR_SLOW_RATE:
        snprintf(text, len, "slow %s: %.2f GB/s, where the median %s is %.2f GB/s",
                 pair, f->rate.median, where[f->link], m->rate);
        break;
    case MU_PAIR_SLOW_LATENCY:
        snprintf(text, len, "slow %s: latency %.2f us, where the median %s is %.2f us",
                 pair, f->us.median, where[f->link], m->us);
        break;
    case MU_PAIR_SLOW_RATED:
        snprintf(text, len, "slow %s: %.2f GB/s, where the link is rated %.2f GB/s",
                 pair, f->rate.median, o->pairs.rating);
        break;
    case MU_PAIR_WRONG:
        snprintf(text, len, "wrong data arrived %s", pair);
        break;
    default:
        snprintf(text, len, "no message arrived within %g s %s", o->limit, pair);
    }
}

void bench_pairs_print(const struct bench_pairs *p)
{
    char text[512];

    if (p->b->options->tsv) {
        print_rows(p);
    } else {
        print_matrix(p, "one way, GB/s", rate_of);
        print_matrix(p, "both ways at once, GB/s each", both_of);
        print_matrix(p, "latency one way, us", latency_of);
    }
    print_links(p);
    for (int i = 0; i < p->n; i++) {
        const struct mu_pair_figure *f = &p->figures[i];

        if (f->state == MU_PAIR_OK || f->state == MU_PAIR_SKIPPED)
            continue;
        bench_pairs_sentence(p, f, text, sizeof text);
        bench_print(p->b, "# %s\n", text);
    }
}

static void write_cells(const struct bench_pairs *p, FILE *script, bool all)
{
    int ranks = muster_size(p->b->m);
    const struct mu_pair_figure *f = p->figures;

    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < ranks; j++) {
            double rate = i == j ? 0 : rate_of(f++);

            if (rate > 0)
                fprintf(script, "%d %d %.3g\n", j, i, rate);
            else if (all)
                fprintf(script, "%d %d NaN\n", j, i);
        }
    fputs("e\n", script);
}

int bench_pairs_draw(const struct bench_pairs *p, const char *path, struct mu_err *err)
{
    int ranks = muster_size(p->b->m), side = CELL * ranks, rc;
    FILE *to = fopen(path, "w"), *script;

    if (!to)
        return mu_err_set(err, errno, "cannot write %s: %s", path, strerror(errno));
    side = side < SIDE_LEAST ? SIDE_LEAST : side > SIDE_MOST ? SIDE_MOST : side;
    script = mu_gnuplot_open(side + 140, side + 100);
    if (!script) {
        mu_err_set(err, errno, "no temporary file for a plot: %s", strerror(errno));
        fclose(to);
        return -1;
    }
    fprintf(script,
            "set title 'GB/s one way'\nset xlabel 'to rank'\nset ylabel 'from rank'\n"
            "unset grid\nset tics scale 0\nset size square\nset cbrange [0:*]\nset "
            "border 15\n"
            "set palette defined (0 '#b2182b', 1 '#fddbc7', 2 '#d1e5f0', 3 '#67a9cf')\n"
            "set xrange [-0.5:%d.5]\nset yrange [%d.5:-0.5]\n"
            "set xtics 0,%d\nset ytics 0,%d\n"
            "plot '-' using 1:2:3 with image pixels notitle",
            ranks - 1, ranks - 1, ranks / NUMBERS + 1, ranks / NUMBERS + 1);
    if (ranks <= NUMBERS)
        fputs(", '-' using 1:2:(sprintf('%.3g', $3)) with labels notitle", script);
    putc('\n', script);
    write_cells(p, script, true);
    if (ranks <= NUMBERS)
        write_cells(p, script, false);
    rc = mu_gnuplot_close(script, to, err);
    if (fclose(to) == EOF && rc == 0)
        rc = mu_err_set(err, errno, "cannot write %s: %s", path, strerror(errno));
    if (rc < 0)
        remove(path);
    return rc;
}
