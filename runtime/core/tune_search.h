/* SPDX-License-Identifier: BSD-3-Clause */
/* tune_search.h - which ways of NCCL are measured, how often, and what goes into the
 * table
 *
 * Each size has one pass over all ways, in turns with NCCL's own choice and in every
 * form (tune_table.h). What that pass proves is measured in two more. Of what is then
 * proven, the fastest way has a last pass, the check of the table: where it fails, the
 * next way is checked. A table takes the slowest row of a way: a way that was faster
 * once by chance, or in one form only at the other's cost, is thus not taken.
 */
#ifndef MU_TUNE_SEARCH_H
#define MU_TUNE_SEARCH_H

#include "runtime/core/tune_table.h"

#define MU_TUNE_PASSES 4 /* of a way that is taken */

struct mu_tune_search {
    int func;
    uint64_t min, max; /* bytes; each size is twice the one before */
    int ranks, nodes, nccl;
    bool forms[MU_TUNE_FORMS]; /* that are measured, at least one */
    void *arg;                 /* of measure */
    /* rows[0 .. n-1] are one way in each form: fill in us and default_us. screen: it is
     * the first pass, for which fewer turns do. Returns 0; 1: NCCL cannot use the way
     * here; -1 with *err, which ends the search.
     */
    int (*measure)(void *arg, struct mu_tune_row *rows, int n, bool screen,
                   struct mu_err *err);
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
