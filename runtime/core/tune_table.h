/* SPDX-License-Identifier: BSD-3-Clause */
/* tune_table.h - a table of measured times, and which ways of NCCL it proves faster
 *
 * The text is described in muster-nccl(7).
 */
#ifndef MU_TUNE_TABLE_H
#define MU_TUNE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

#define MU_TUNE_FIRST_LINE "muster-tune 1"

/* A measured time in us, and that of NCCL's own choice, measured in turns with it.
 * func, algo and proto are NCCL's numbers.
 */
struct mu_tune_row {
    int ranks, nodes, func;
    uint64_t bytes;
    int algo, proto, channels; /* channels 0: as many as NCCL takes */
    double us, default_us;
};

struct mu_tune {
    int nccl; /* 22803 is 2.28.3 */
    int n;
    struct mu_tune_row *rows; /* owned */
};

/* Read a whole table. `path` is for the sentence, which has the line. */
int mu_tune_parse(struct mu_tune *t, const char *text, const char *path,
                  struct mu_err *err);
void mu_tune_clear(struct mu_tune *t);

/* Sizes from first to last, both included, for which a way was measured faster. */
struct mu_tune_span {
    int func;
    uint64_t first, last;
    int algo, proto, channels;
};

/* The spans of communicators with so many ranks and nodes; caller frees *out. Returns
 * their number, -1 without memory. A way is taken at a measured size where it is at
 * least 2 % faster than the default, and between two sizes where it is at both. Beyond
 * the measured sizes there is no span.
 */
int mu_tune_spans(const struct mu_tune *t, int ranks, int nodes,
                  struct mu_tune_span **out);

/* NULL: NCCL's default. */
const struct mu_tune_span *mu_tune_find(const struct mu_tune_span *spans, int n,
                                        int func, uint64_t bytes);

#endif
