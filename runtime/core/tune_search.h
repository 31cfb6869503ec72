/* SPDX-License-Identifier: BSD-3-Clause */
/* tune_search.h - which ways of NCCL are measured, how often, and what goes into the
 * table
 *
 * Each size has one pass over all ways, in turns with NCCL's own choice. What was at
 * least 2 % faster is measured MU_TUNE_PASSES times in all. A table takes the slowest
 * row of a way: a way that was faster once by chance is thus not taken.
 */
#ifndef MU_TUNE_SEARCH_H
#define MU_TUNE_SEARCH_H

#include "runtime/core/tune_table.h"

#define MU_TUNE_PASSES 4

struct mu_tune_search {
    int func;
    uint64_t min, max; /* bytes; each size is twice the one before */
    int ranks, nodes, nccl;
    void *arg; /* of measure */
    /* Fill in row->us and default_us of the way. Returns 0; 1: NCCL cannot use the way
     * here; -1 with *err, which ends the search.
     */
    int (*measure)(void *arg, struct mu_tune_row *row, struct mu_err *err);
};

/* The ways at a size, in a fixed order; row has func and bytes. *at begins with 0.
 * Fills in algo, proto and channels; false: there is none left.
 */
bool mu_tune_next_way(int *at, struct mu_tune_row *row);

/* Fill a table, which mu_tune_clear releases. It has at least one row per size, or the
 * search fails.
 */
int mu_tune_search(const struct mu_tune_search *search, struct mu_tune *out,
                   struct mu_err *err);

/* A comment line for each size of the table, which has one function: what the tuner
 * takes there, its slowest time, and that of NCCL's own choice. Caller frees the text;
 * NULL: no memory.
 */
char *mu_tune_summary(const struct mu_tune *t);

#endif
