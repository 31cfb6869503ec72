/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger.h - exposed communication, from the times of a step */
#ifndef MU_LEDGER_H
#define MU_LEDGER_H

#include "runtime/muster.h"

/* Times of one step, in seconds of one clock. */
struct mu_ledger_step {
    double begin;       /* end of the step before; 0: this is the first step */
    double first_start; /* start of the first bucket; 0: none started before sync */
    double sync_begin, sync_end;
};

/* Add a step. Communication lasts from the start of the first bucket to the end of
 * sync. The time that the caller waits in sync is exposed, the rest overlaps the
 * computation. The first step has no begin and is not counted.
 */
void mu_ledger_add(struct muster_ledger *ledger, const struct mu_ledger_step *step);

#endif
