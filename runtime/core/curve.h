/* SPDX-License-Identifier: BSD-3-Clause */
/* curve.h - the time of an all-reduce by its size, from a few measured points */
#ifndef MU_CURVE_H
#define MU_CURVE_H

#include <stddef.h>

#define MU_CURVE_POINTS 16

/* Points are ascending in bytes; n is 0 where nothing was measured. Between two points
 * the time is linear in the size; outside, the slope of the nearest segment goes on.
 */
struct mu_curve {
    int n;
    double bytes[MU_CURVE_POINTS], us[MU_CURVE_POINTS];
};

/* Microseconds; 0 without points. Within a segment a larger size never takes less. */
double mu_curve_time(const struct mu_curve *curve, double bytes);

/* The least size, in steps of 1 MiB, whose rate is at least `share` (0..1) of that of
 * `most` bytes: larger buckets gain little. At most `most`.
 */
size_t mu_curve_knee(const struct mu_curve *curve, double share, size_t most);

#endif
