/* SPDX-License-Identifier: BSD-3-Clause */
/* int8_block.h - the arithmetic of compress.h's 8-bit integers, in C and CUDA */
#ifndef MU_INT8_BLOCK_H
#define MU_INT8_BLOCK_H

#include <float.h>
#include <stdint.h>

#include "runtime/base/both.h"
#include "runtime/core/compress.h"

/* The value of integer 1; 0 where nothing can be sent: a peak that is 0, Inf, NaN or
 * too small.
 */
MU_BOTH static inline float mu_int8_step(float peak, int ranks)
{
    float step = peak / (float)(MU_INT8_RANKS / ranks);

    return step >= FLT_MIN && step <= FLT_MAX ? step : 0;
}

/* Of magnitudes below 2^22, to the nearest integer, ties to even, without a call: a
 * float of this size has no bits behind the point.
 */
MU_BOTH static inline float mu_int8_nearest(float x)
{
    const float big = 0x1.8p23f;

    return (x + big) - big;
}

/* The integer of g + *rest, and what it leaves; inverse is 1 / step, or 0. */
MU_BOTH static inline int8_t mu_int8_digit(float g, float *rest, float step,
                                           float inverse)
{
    float x = g + *rest, steps = mu_int8_nearest(x * inverse);

    *rest = x - steps * step;
    return (int8_t)steps;
}

MU_BOTH static inline int32_t mu_int8_word(const int8_t *digit)
{
    return digit[0] + digit[1] * 256 + digit[2] * 65536 + digit[3] * 16777216;
}

/* Digits of -127 .. 127: the lowest byte, then what it leaves. */
MU_BOTH static inline int32_t mu_int8_take(int32_t *word)
{
    int32_t lowest = ((*word + 128) & 0xff) - 128;

    *word = (*word - lowest) / 256;
    return lowest;
}

/* What an integer of a summed word is worth in the mean. Divided first: the sum may be
 * beyond a float where the mean is not. A block whose peak is not finite gives NaN.
 */
MU_BOTH static inline float mu_int8_unit(float peak, int ranks)
{
    return peak <= FLT_MAX ? mu_int8_step(peak, ranks) / (float)ranks : peak - peak;
}

#endif
