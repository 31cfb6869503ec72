/* SPDX-License-Identifier: BSD-3-Clause */
/* ready.h - which bucket may start: it is complete, and those before it have started */
#ifndef MU_READY_H
#define MU_READY_H

#include <stdbool.h>

#include "runtime/base/err.h"
#include "runtime/core/bucket.h"

/* The state of one step. Collectives must match, so buckets start in one order on all
 * ranks, in any order of the backward pass. A bucket that is complete early waits for
 * those before it.
 */
struct mu_ready {
    const struct mu_bucket_plan *plan; /* borrowed */
    int *pending;                      /* by bucket: gradients that are not ready */
    bool *marked;                      /* by parameter */
    int *order;                        /* of starts; at first 0, 1, 2, ... */
    int next;                          /* index in order of the next to start */
};

int mu_ready_init(struct mu_ready *ready, const struct mu_bucket_plan *plan,
                  struct mu_err *err);
void mu_ready_clear(struct mu_ready *ready);
/* A new step: nothing is ready. */
void mu_ready_reset(struct mu_ready *ready);
/* False when the parameter was marked before in this step. */
bool mu_ready_mark(struct mu_ready *ready, int param);
/* Bytes of the buckets that have not started, without the last one of the step. */
size_t mu_ready_between(const struct mu_ready *ready);
/* The next bucket if it may start now, else -1. It then counts as started. */
int mu_ready_take(struct mu_ready *ready);

#endif
