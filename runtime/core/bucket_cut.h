/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket_cut.h - where to cut the gradients so that the last bucket is waited for least
 */
#ifndef MU_BUCKET_CUT_H
#define MU_BUCKET_CUT_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"
#include "runtime/core/curve.h"

/* What is to be cut: n gradients in the order in which they arrive. */
struct mu_bucket_load {
    int n;
    const size_t *bytes;
    const double *ready; /* us from some start, ascending */
    const struct mu_curve *curve;
    size_t cap;   /* no bucket of several gradients is larger */
    double slack; /* us: so much more waiting is accepted for fewer buckets */
};

/* Buckets are runs of gradients. One starts when its last gradient is there and the
 * bucket before it is done (one link carries all), and takes the curve's time. Sets
 * last[i] where a bucket ends behind gradient i, such that the last bucket is done at
 * the earliest time possible plus slack, and, of the plans that keep that, one of large
 * buckets: each takes in as much as its deadline lets it, seen from the last to the
 * first. With a curve of one slope that is the least number of buckets.
 * *exposed (may be NULL): us from the arrival of the last gradient to the end.
 * Takes time in proportion to n and to the gradients that fit cap.
 */
int mu_bucket_cut(const struct mu_bucket_load *load, bool *last, double *exposed,
                  struct mu_err *err);

#endif
