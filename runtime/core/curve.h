/* SPDX-License-Identifier: BSD-3-Clause */
/* curve.h - how long an all-reduce of a size takes, from a few measured points */
#ifndef MU_CURVE_H
#define MU_CURVE_H

#include <stddef.h>

#define MU_CURVE_POINTS 16

/* Points ascending in bytes; none: nothing was measured. Between two points the time is
 * linear in the size, outside it goes on with the nearest stretch's slope.
 */
struct mu_curve {
    int n;
    double bytes[MU_CURVE_POINTS], us[MU_CURVE_POINTS];
};

/* Microseconds, never less for a larger size of the same stretch; 0 without points. */
double mu_curve_time(const struct mu_curve *curve, double bytes);

/* The least size, in steps of 1 MiB, that has `share` (0..1) of the rate of `most`
 * bytes: larger buckets gain nothing. `most` at the latest.
 */
size_t mu_curve_knee(const struct mu_curve *curve, double share, size_t most);

#endif
