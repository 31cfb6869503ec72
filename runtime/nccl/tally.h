/* SPDX-License-Identifier: BSD-3-Clause */
/* tally.h - what was done with a program's collectives, and the line about it */
#ifndef MU_NCCL_TALLY_H
#define MU_NCCL_TALLY_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/backend.h"

/* What was done with a call. All but the first mean that NCCL did it. */
enum mu_fate {
    MU_CARRIED,
    MU_NO_RANKS, /* the communicator: its ranks did not agree, or were not asked */
    MU_OTHER_SIZE,
    MU_OTHER_TYPE,
    MU_OTHER_OPERATOR,
    MU_WINDOW,
    MU_FATES,
};

/* From any thread. kind: all-reduce, reduce-scatter, all-gather or broadcast. */
void mu_tally_add(enum mu_coll_kind kind, enum mu_fate fate, size_t bytes);
/* Why a communicator's ranks did not agree; the first reason is printed. */
void mu_tally_reason(const char *why);
/* "carried out 12 of 20 all-reduces (1.5 of 40.0 MiB), 1 of 1 all-gathers (0.1 of
 * 0.1 MiB); forwarded: 8 of other types". False: there was no such call.
 */
int mu_tally_text(char *text, size_t len);

#endif
