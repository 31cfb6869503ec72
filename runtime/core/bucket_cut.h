/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket_cut.h - cut gradients into buckets so that the last bucket ends earliest */
#ifndef MU_BUCKET_CUT_H
#define MU_BUCKET_CUT_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"
#include "runtime/core/curve.h"

/* n gradients in the order in which they arrive. */
struct mu_bucket_load {
    int n;
    const size_t *bytes;
    const double *ready; /* time of arrival in us, ascending */
    const struct mu_curve *curve;
    size_t cap;   /* no bucket of several gradients is larger */
    double slack; /* us by which the end may be later for fewer buckets */
};

/* A bucket is a run of gradients. It starts when its last gradient has arrived and the
 * bucket before it has ended, since all share one link, and takes the curve's time.
 *
 * last[i] becomes true where a bucket ends behind gradient i. The last bucket ends at
 * the earliest possible time plus slack. From the last bucket to the first, each takes
 * as many gradients as its deadline allows. With a curve of one slope this is the least
 * number of buckets.
 *
 * *exposed (may be NULL): us from the arrival of the last gradient to the end. The call
 * takes time in proportion to n times the number of gradients that fit cap.
 */
int mu_bucket_cut(const struct mu_bucket_load *load, bool *last, double *exposed,
                  struct mu_err *err);

#endif
