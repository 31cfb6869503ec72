/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_figures.c - used by each benchmark: a median, rows, the end */
#include "runtime/tools/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
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

void bench_die(const struct mu_err *err)
{
    fprintf(stderr, "muster bench: %s\n", err->text);
    exit(err->code > 0 && err->code < 64 ? err->code : MUSTER_EINTERNAL);
}
