/* SPDX-License-Identifier: BSD-3-Clause */
/* report.h - what `muster report` prints, as functions of runs and an output file */
#ifndef MU_REPORT_H
#define MU_REPORT_H

#include <stdio.h>

#include "runtime/tools/run.h"

/* Runs with equal ranks and nodes are one line of the table, with their average time.
 */
struct mu_speedup {
    int ranks, nodes, runs;
    double seconds;         /* average */
    double cores;           /* average of the cores used */
    double speedup;         /* seconds of the baseline / seconds */
    double efficiency;      /* speedup / (ranks / baseline's ranks) */
    double core_efficiency; /* speedup / (cores / baseline's cores) */
};

/* Make the table, smallest world first: out[0] is the baseline. Caller frees *out.
 * Returns the number of lines; -1 when the runs cannot be compared, with the file and
 * its difference.
 */
int mu_speedup_make(const struct mu_run *runs, int n, struct mu_speedup **out,
                    struct mu_err *err);
void mu_speedup_text(const struct mu_speedup *table, int n, const char *devices,
                     FILE *to);
json_t *mu_speedup_json(const struct mu_speedup *table, int n);

void mu_report_text(const struct mu_run *run, FILE *to);
json_t *mu_report_json(const struct mu_run *run);
/* One page that needs no other file: numbers, and plots as inline SVG. */
void mu_report_html(const struct mu_run *run, FILE *to);

#endif
