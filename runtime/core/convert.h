/* SPDX-License-Identifier: BSD-3-Clause */
/* convert.h - convert arrays between element types, times a factor */
#ifndef MU_CONVERT_H
#define MU_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/muster.h"

/* IEEE half and bfloat16, rounded to nearest even. NaN stays NaN; a value that is too
 * large becomes Inf.
 */
float mu_from_f16(uint16_t half);
uint16_t mu_to_f16(float value);
float mu_from_bf16(uint16_t bits);
uint16_t mu_to_bf16(float value);

/* dst[i] = src[i] * scale for count elements. dst == src is fine for equal types. Equal
 * types with scale 1 are copied bit by bit; integers allow only that. The product is
 * taken in double between f64, else in float, and then rounded to `to`.
 */
int mu_convert(void *dst, enum muster_dtype to, const void *src, enum muster_dtype from,
               size_t count, double scale, struct mu_err *err);

#endif
