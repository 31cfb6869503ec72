/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_figures.c - used by each benchmark: a median, rows, the end */
#include "runtime/tools/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parse.h"

double bench_median(double *values, int n)
{
    return mu_spread_of(values, n).median;
}

void bench_print(const struct bench *b, const char *fmt, ...)
{
    va_list ap;

    if (muster_rank(b->m) != 0)
        return;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    fflush(stdout);
}

/* Bus bandwidth: the least that each link carries (as in the usual NCCL tests). */
static double bus_factor(const char *kind, double n)
{
    static const char *const whole[] = { "broadcast", "reduce", "send", "sendrecv",
                                         NULL };

    if (mu_parse_word(kind, whole) >= 0)
        return 1;
    return (strcmp(kind, "allreduce") == 0 ? 2 : 1) * (n - 1) / n;
}

void bench_head(const struct bench *b)
{
    bench_print(
        b, b->options->tsv
               ? "kind\tpath\tbytes\tmedian_us\tmin_us\tmax_us\talg_GBs\tbus_GBs\t"
                 "copy_percent\tresult\n"
               : "# kind         path            bytes  median us     min us     max "
                 "us alg GB/s bus GB/s copy %%  result\n");
}

void bench_row(const struct bench *b, const char *kind, const char *path, size_t bytes,
               double *us, const char *result)
{
    const struct bench_options *o = b->options;
    double median = bench_median(us, o->batches), rate = bytes / median * 1e-3,
           bus = rate * bus_factor(kind, muster_size(b->m));

    bench_print(b,
                o->tsv
                    ? "%s\t%s\t%zu\t%.2f\t%.2f\t%.2f\t%.1f\t%.1f\t%.1f\t%s\n"
                    : "%-14s %-9s %11zu %10.2f %10.2f %10.2f %8.1f %8.1f %6.1f  %s\n",
                kind, path, bytes, median, us[0], us[o->batches - 1], rate, bus,
                b->copy_limit > 0 ? 100 * bus / b->copy_limit : 0, result);
}

void bench_die(const struct mu_err *err)
{
    fprintf(stderr, "muster bench: %s\n", err->text);
    exit(err->code > 0 && err->code < 64 ? err->code : MUSTER_EINTERNAL);
}
