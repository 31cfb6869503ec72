/* SPDX-License-Identifier: BSD-3-Clause */
/* numeric.h - find NaN and Inf, sum squares */
#ifndef MU_NUMERIC_H
#define MU_NUMERIC_H

#include <stddef.h>

#include "runtime/muster.h"

/* Partial sums of squares that a backend keeps. */
#define MU_SQUARES 256

/* Index of the first element that is NaN or Inf, or count. Integers have none. */
size_t mu_first_nonfinite(const void *data, enum muster_dtype dtype, size_t count);
double mu_element(const void *data, enum muster_dtype dtype, size_t i);
/* Sum of squares in double. Only count decides the order of additions, so equal data
 * give equal bits.
 */
double mu_sum_squares(const void *data, enum muster_dtype dtype, size_t count);

#endif
