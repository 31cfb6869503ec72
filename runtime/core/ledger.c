/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger.c - exposed communication, from the times of a step */
#include "runtime/core/ledger.h"

void mu_ledger_add(struct muster_ledger *ledger, const struct mu_ledger_step *step)
{
    double start = step->first_start;

    if (step->begin == 0)
        return;
    if (start == 0 || start > step->sync_begin)
        start = step->sync_begin;
    ledger->steps++;
    ledger->seconds += step->sync_end - step->begin;
    ledger->communication += step->sync_end - start;
    ledger->exposed += step->sync_end - step->sync_begin;
}
