/* SPDX-License-Identifier: BSD-3-Clause */
/* show.h - what a run prints: rank-tagged lines, and a bar where there is a terminal */
#ifndef TRAIN_SHOW_H
#define TRAIN_SHOW_H

#include <stdint.h>

struct show {
    int rank;
    int bar; /* standard output is a terminal, and this is rank 0 */
    int bar_drawn;
    double last_line; /* when the last progress line was written, CLOCK_MONOTONIC */
};

struct show_progress {
    long epoch, epochs;   /* from 1 */
    uint64_t step, steps; /* in this epoch */
    double loss, lr;
    double rate; /* samples per second, all ranks */
    double eta;  /* seconds to the end of the run */
};

void show_init(struct show *show, int rank);
/* Print "RANK: 3 | text" with one write, so that lines of ranks do not mix. Clears the
 * bar.
 */
void show_line(struct show *show, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Rank 0: redraw the bar, or print a plain line at most every 2 s. Others: nothing. */
void show_progress(struct show *show, const struct show_progress *p);
void show_bar_end(struct show *show);

#endif
