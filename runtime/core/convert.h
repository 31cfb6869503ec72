/* SPDX-License-Identifier: BSD-3-Clause */
/* convert.h - arrays of one element type as another, times a factor */
#ifndef MU_CONVERT_H
#define MU_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/muster.h"

/* IEEE half and bfloat16, rounded to nearest even; NaN stays NaN, too large is Inf. */
float mu_from_f16(uint16_t half);
uint16_t mu_to_f16(float value);
float mu_from_bf16(uint16_t bits);
uint16_t mu_to_bf16(float value);

/* dst[i] = src[i] * scale for count elements. dst == src is fine for equal types. A
 * scale of 1 between equal types copies the bits. Integers only as themselves with
 * scale 1. f64 goes through double, all others through float; the product is taken
 * before the result is rounded to `to`.
 */
int mu_convert(void *dst, enum muster_dtype to, const void *src, enum muster_dtype from,
               size_t count, double scale, struct mu_err *err);

#endif
