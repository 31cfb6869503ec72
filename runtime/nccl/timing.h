/* SPDX-License-Identifier: BSD-3-Clause */
/* timing.h - when collectives get times of the GPU
 *
 * While they do, a thread of NCCL polls the channels of each, which takes a core and a
 * few percent of a step. So it is done for a share of the time: in a window at the
 * begin of each period of the wall clock, which all ranks of a job meet alike.
 */
#ifndef MU_NCCL_TIMING_H
#define MU_NCCL_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"

struct mu_timing {
    int64_t window, period; /* ns */
    int64_t opened;         /* CLOCK_REALTIME; the first period is timed as a whole */
};

/* As MUSTER_PROFILE_WINDOW and MUSTER_PROFILE_SHARE ask for. */
int mu_timing_open_asked(struct mu_timing *t, int64_t now, struct mu_err *err);
bool mu_timing_due(const struct mu_timing *t, int64_t now);

#endif
