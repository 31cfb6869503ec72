/* SPDX-License-Identifier: BSD-3-Clause */
/* ready.h - which bucket may start: complete, and all before it started */
#ifndef MU_READY_H
#define MU_READY_H

#include <stdbool.h>

#include "runtime/base/err.h"
#include "runtime/core/bucket.h"

/* The readiness of one step. Buckets start in one order on every rank whatever the
 * order of the backward pass, since collectives must match; a bucket that is complete
 * early waits for the ones before it.
 */
struct mu_ready {
    const struct mu_bucket_plan *plan; /* borrowed */
    int *pending;                      /* by bucket: gradients that are not ready */
    bool *marked;                      /* by parameter */
    int *order;                        /* of starts; index order until it is changed */
    int next;                          /* the place in it that starts next */
};

int mu_ready_init(struct mu_ready *ready, const struct mu_bucket_plan *plan,
                  struct mu_err *err);
void mu_ready_clear(struct mu_ready *ready);
/* A new step: nothing is ready. */
void mu_ready_reset(struct mu_ready *ready);
/* False when the parameter was marked before in this step. */
bool mu_ready_mark(struct mu_ready *ready, int param);
/* Bytes of the buckets between the last one started and the very last one. */
size_t mu_ready_between(const struct mu_ready *ready);
/* The next bucket that may start now, or -1; it counts as started then. */
int mu_ready_take(struct mu_ready *ready);

#endif
