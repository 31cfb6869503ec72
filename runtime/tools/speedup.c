/* SPDX-License-Identifier: BSD-3-Clause */
/* speedup.c - how much faster more ranks were, and how many cores that took */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tools/report.h"

/* Times are comparable only for the same work. */
static int check_same_work(const struct mu_run *a, const struct mu_run *b,
                           struct mu_err *err)
{
    if (strcmp(a->model, b->model) != 0 || strcmp(a->dtype, b->dtype) != 0)
        return mu_err_set(err, EINVAL,
                          "%s trained '%s' in %s, but %s trained '%s' in %s: "
                          "their times cannot be compared",
                          a->path, a->model, a->dtype, b->path, b->model, b->dtype);
    /* Padding of the last step of an epoch: at most ranks - 1 samples. */
    if (llabs(a->samples_seen - b->samples_seen) >
        (int64_t)a->epochs * (a->ranks + b->ranks))
        return mu_err_set(err, EINVAL,
                          "%s trained on %lld samples, but %s trained on %lld: "
                          "their times cannot be compared",
                          a->path, (long long)a->samples_seen, b->path,
                          (long long)b->samples_seen);
    return 0;
}

static int by_size(const void *a, const void *b)
{
    const struct mu_speedup *x = a, *y = b;

    return x->ranks != y->ranks ? x->ranks - y->ranks : x->nodes - y->nodes;
}

static void add(struct mu_speedup *table, int *lines, const struct mu_run *run)
{
    int i = 0;

    while (i < *lines && (table[i].ranks != run->ranks || table[i].nodes != run->nodes))
        i++;
    if (i == *lines)
        table[(*lines)++] =
            (struct mu_speedup){ .ranks = run->ranks, .nodes = run->nodes };
    table[i].seconds += run->seconds;
    table[i].cores += run->cores;
    table[i].runs++;
}

int mu_speedup_make(const struct mu_run *runs, int n, struct mu_speedup **out,
                    struct mu_err *err)
{
    struct mu_speedup *table, *base;
    int lines = 0;

    if (n < 1)
        return mu_err_set(err, EINVAL, "no run given");
    for (int i = 0; i < n; i++) {
        if (check_same_work(&runs[0], &runs[i], err) < 0)
            return -1;
        if (!runs[i].finished || runs[i].seconds <= 0)
            return mu_err_set(
                err, EINVAL,
                "%s was stopped early, or has no training time: it cannot be "
                "compared",
                runs[i].path);
    }
    table = calloc((unsigned)n, sizeof *table);
    if (!table)
        return mu_err_set(err, ENOMEM, "no memory for %d runs", n);
    for (int i = 0; i < n; i++)
        add(table, &lines, &runs[i]);
    qsort(table, (size_t)lines, sizeof *table, by_size);
    base = &table[0];
    for (int i = 0; i < lines; i++) {
        table[i].seconds /= table[i].runs;
        table[i].cores /= table[i].runs;
        table[i].speedup = base->seconds / table[i].seconds;
        table[i].efficiency = table[i].speedup * base->ranks / table[i].ranks;
        table[i].core_efficiency = table[i].speedup * base->cores / table[i].cores;
    }
    *out = table;
    return lines;
}

static void print_world(const struct mu_speedup *line, FILE *to)
{
    fprintf(to, "%d rank%s, %d node%s", line->ranks, mu_plural(line->ranks),
            line->nodes, mu_plural(line->nodes));
}

void mu_speedup_text(const struct mu_speedup *table, int n, const char *devices,
                     FILE *to)
{
    /* GPUs do the work: the number of cores means nothing. */
    int cores = strcmp(devices, "GPUs") != 0;

    fprintf(to, "SPEEDUP ANALYSIS (%s)\n======================================\n",
            devices);
    fprintf(to, "Baseline (");
    print_world(&table[0], to);
    fprintf(to, "): %.2f seconds\n", table[0].seconds);
    if (cores)
        fprintf(to, "  Cores used: %g\n", table[0].cores);
    for (int i = 1; i < n; i++) {
        fputc('\n', to);
        print_world(&table[i], to);
        fprintf(to, ":\n  Average time: %.2f seconds", table[i].seconds);
        if (table[i].runs > 1)
            fprintf(to, " (%d runs)", table[i].runs);
        fprintf(to, "\n  Speedup: %.2fx\n  Parallel efficiency: %.1f%%\n",
                table[i].speedup, 100 * table[i].efficiency);
        if (cores)
            fprintf(to, "  Cores used: %g\n  Efficiency per core: %.1f%%\n",
                    table[i].cores, 100 * table[i].core_efficiency);
    }
    if (n == 1)
        fprintf(to, "\nAll runs have the same number of ranks and nodes: there is "
                    "nothing to compare.\n");
}

json_t *mu_speedup_json(const struct mu_speedup *table, int n)
{
    json_t *lines = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(
            lines,
            json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "ranks",
                      table[i].ranks, "nodes", table[i].nodes, "runs", table[i].runs,
                      "seconds", table[i].seconds, "cores", table[i].cores, "speedup",
                      table[i].speedup, "parallel_efficiency", table[i].efficiency,
                      "efficiency_per_core", table[i].core_efficiency));
    return json_pack("{s:s, s:i, s:o}", "format", "muster-speedup", "version", 1,
                     "table", lines);
}
