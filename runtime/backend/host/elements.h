/* SPDX-License-Identifier: BSD-3-Clause */
/* elements.h - arithmetic on arrays of muster_dtype: reduce in rank order, convert.
 *
 * Pure and vectorised. Buffers need no alignment. 16-bit floats are widened to fp32,
 * combined there and rounded once (to nearest even); the order of the sources is the
 * order of the additions, so equal inputs give equal bits on every rank.
 */
#ifndef MU_HOST_ELEMENTS_H
#define MU_HOST_ELEMENTS_H

#include <stddef.h>

#include "runtime/muster.h"

/* Combine count elements of nsrc >= 1 arrays, ((src[0] op src[1]) op src[2]) ..., times
 * scale, and store the result to ndst arrays. A destination has the same address as a
 * source or overlaps none. Integers wrap; scaled integers are computed in double and
 * rounded to nearest. min and max give NaN only where all sources have it.
 */
void mu_elements_reduce(enum muster_dtype dtype, enum muster_op op, double scale,
                        const void *const *src, int nsrc, void *const *dst, int ndst,
                        size_t count);

/* dst[i] = (to) (src[i] * scale): the product is formed before narrowing, in fp32, or
 * in double if either type is fp64 or an integer. dst and src do not overlap; they may
 * be equal when to == from.
 */
void mu_elements_convert(void *dst, enum muster_dtype to, const void *src,
                         enum muster_dtype from, double scale, size_t count);

#endif
