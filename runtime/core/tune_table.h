/* SPDX-License-Identifier: BSD-3-Clause */
/* tune_table.h - a table of measured times, and which ways of NCCL it proves faster
 *
 * The text is described in muster-nccl(7).
 */
#ifndef MU_TUNE_TABLE_H
#define MU_TUNE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

#define MU_TUNE_FIRST_LINE "muster-tune 1"
#ifndef MU_TUNE_ROWS       /* fuzzing has a lower one */
#define MU_TUNE_ROWS 16384 /* of a table, at most */
#endif

/* NCCL's numbers of functions, algorithms and protocols. */
enum mu_tune_func {
    MU_TUNE_BROADCAST,
    MU_TUNE_REDUCE,
    MU_TUNE_ALLGATHER,
    MU_TUNE_REDUCE_SCATTER,
    MU_TUNE_ALLREDUCE,
};
enum mu_tune_algo {
    MU_TUNE_TREE,
    MU_TUNE_RING,
    MU_TUNE_COLLNET_DIRECT,
    MU_TUNE_COLLNET_CHAIN,
    MU_TUNE_NVLS,
    MU_TUNE_NVLS_TREE,
    MU_TUNE_PAT,
    MU_TUNE_ALGOS,
};
enum mu_tune_proto { MU_TUNE_LL, MU_TUNE_LL128, MU_TUNE_SIMPLE, MU_TUNE_PROTOS };

/* How the calls were made that a row has the time of. NCCL does not report to a tuner
 * which one a call is of. ANY: the table does not name it.
 */
enum mu_tune_form { MU_TUNE_ANY, MU_TUNE_STREAM, MU_TUNE_GRAPH, MU_TUNE_FORMS };

/* A measured time in us, and that of NCCL's own choice, measured in turns with it.
 * func, algo and proto are NCCL's numbers.
 */
struct mu_tune_row {
    int ranks, nodes, func;
    uint64_t bytes;
    int algo, proto, channels; /* channels 0: as many as NCCL takes */
    double us, default_us;
    enum mu_tune_form form;
};

struct mu_tune {
    int nccl; /* 22803 is 2.28.3 */
    int n;
    struct mu_tune_row *rows; /* owned */
};

/* "AllReduce", "RING", "LL". */
const char *mu_tune_func_name(int func);
const char *mu_tune_algo_name(int algo);
const char *mu_tune_proto_name(int proto);
const char *mu_tune_form_name(enum mu_tune_form form);

static inline bool mu_tune_same_way(const struct mu_tune_row *a,
                                    const struct mu_tune_row *b)
{
    return a->algo == b->algo && a->proto == b->proto && a->channels == b->channels;
}

/* The way of `row` is proven at its size. Of each form the slowest measurement counts:
 * in none is it slower than the default, in at least one it is faster. 2 % are noise.
 */
bool mu_tune_proven(const struct mu_tune *t, const struct mu_tune_row *row);
/* The slowest measurement of the row's way at the row's size in that form; NULL: there
 * is none.
 */
const struct mu_tune_row *mu_tune_slowest(const struct mu_tune *t,
                                          const struct mu_tune_row *row,
                                          enum mu_tune_form form);
/* The fastest of the ways that are proven at the size of `size`; NULL: the default. */
const struct mu_tune_row *mu_tune_best(const struct mu_tune *t,
                                       const struct mu_tune_row *size);

/* The text of a table, which mu_tune_parse reads; caller frees it. NULL: no memory. */
char *mu_tune_format(const struct mu_tune *t);

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
 * their number, -1 without memory. A way is taken at a measured size where it is
 * proven, and between two sizes where it is at both. Beyond the measured sizes there is
 * no span. They are in order of function and size.
 */
int mu_tune_spans(const struct mu_tune *t, int ranks, int nodes,
                  struct mu_tune_span **out);

/* By halves, since NCCL asks at each call. NULL: NCCL's default. */
const struct mu_tune_span *mu_tune_find(const struct mu_tune_span *spans, int n,
                                        int func, uint64_t bytes);

#endif
