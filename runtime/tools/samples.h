/* SPDX-License-Identifier: BSD-3-Clause */
/* samples.h - what a node's GPUs did, as muster monitor records it for muster report
 *
 * A text file: the line "muster-samples 1", then a line for each GPU and look, with
 * fields between tabs: seconds of CLOCK_REALTIME, host, PCI bus id, utilization in
 * percent, watts, MHz of the SMs, MiB of memory in use, MiB of memory. "-": unknown.
 * Lines that begin with '#' are left out.
 */
#ifndef MU_SAMPLES_H
#define MU_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "runtime/base/err.h"

#define MU_SAMPLES_SUFFIX ".samples"
#define MU_SAMPLES_MOST (1 << 20) /* lines of a file that are read */

enum mu_figure {
    MU_UTILIZATION, /* percent */
    MU_WATTS,
    MU_MHZ,
    MU_USED_MIB,
    MU_TOTAL_MIB,
    MU_FIGURES
};

struct mu_sample {
    double when; /* seconds of CLOCK_REALTIME */
    char host[64], gpu[32];
    double figure[MU_FIGURES]; /* -1 unknown */
};

/* Two PCI bus ids: nvidia-smi writes a domain of eight digits, the kernel one of four.
 */
bool mu_same_gpu(const char *a, const char *b);

/* A file's first lines, and a line. */
void mu_samples_head(FILE *to);
void mu_sample_print(const struct mu_sample *s, FILE *to);

/* Append a file's samples to *list, of which *n are used. A line that is none is an
 * error, except the last one: it may be half written.
 */
int mu_samples_read(const char *path, struct mu_sample **list, size_t *n,
                    struct mu_err *err);
/* Sort for mu_samples_median. */
void mu_samples_sort(struct mu_sample *list, size_t n);
/* The median of a figure of one GPU from a moment to another; -1: none is known. */
double mu_samples_median(const struct mu_sample *list, size_t n, const char *host,
                         const char *gpu, enum mu_figure figure, double from,
                         double to);

#endif
