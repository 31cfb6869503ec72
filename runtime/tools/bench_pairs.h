/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_pairs.h - inside of muster bench pairs
 *
 *   bench_pairs.c        measures, pair by pair
 *   bench_pairs_print.c  prints the figures, and draws them
 */
#ifndef MU_BENCH_PAIRS_H
#define MU_BENCH_PAIRS_H

#include "runtime/tools/bench.h"

/* All ordered pairs, judged: equal on all ranks. */
struct bench_pairs {
    const struct bench *b;
    struct mu_pair_figure *figures;
    int n;
    struct mu_pair_medians medians[MU_LINKS];
};

void bench_pairs_print(const struct bench_pairs *p);
/* Write one sentence about a pair that is not ok. */
void bench_pairs_sentence(const struct bench_pairs *p, const struct mu_pair_figure *f,
                          char *text, size_t len);
/* Draw the rates into a file. */
int bench_pairs_draw(const struct bench_pairs *p, const char *path, struct mu_err *err);

#endif
