/* SPDX-License-Identifier: BSD-3-Clause */
/* host_ref.h - a slow, plain reference for the host backend: one element at a time, in
 * rank order, conversions by ldexp and rint; shares no code with what it judges
 */
#ifndef MU_TEST_HOST_REF_H
#define MU_TEST_HOST_REF_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/backend.h"

size_t ref_size(enum muster_dtype dtype);
double ref_widen(enum muster_dtype dtype, uint16_t bits); /* F16, BF16 */
uint16_t ref_narrow(enum muster_dtype dtype, double x);   /* nearest, ties to even */

/* Element i of what rank contributes to test case `salt`: magnitudes differ widely, so
 * that another order of summation gives other bits.
 */
void ref_value(enum muster_dtype dtype, int rank, size_t i, unsigned salt, void *out);
void ref_fill(enum muster_dtype dtype, int rank, size_t first, size_t n, unsigned salt,
              void *out);

/* The reduction of element i over ranks 0 .. n-1. */
void ref_reduce(enum muster_dtype dtype, enum muster_op op, double scale, int n,
                size_t i, unsigned salt, void *out);

#endif
