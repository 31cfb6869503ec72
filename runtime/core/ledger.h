/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger.h - from times to exposed communication */
#ifndef MU_LEDGER_H
#define MU_LEDGER_H

#include "runtime/muster.h"

/* The moments of one step, seconds of one clock. */
struct mu_ledger_step {
    double begin;       /* the end of the step before, 0: this is the first */
    double first_start; /* the first bucket started, 0: none did before sync */
    double sync_begin, sync_end;
};

/* Add a step. Communication runs from the start of the first bucket to the end of sync;
 * what of it the caller spent waiting in sync is exposed, the rest lay under the
 * computation. The first step has no length and is not counted.
 */
void mu_ledger_add(struct muster_ledger *ledger, const struct mu_ledger_step *step);

#endif
