/* SPDX-License-Identifier: BSD-3-Clause */
/* int8_block.h - the arithmetic of the 8-bit integers of compress.h, in C and CUDA */
#ifndef MU_INT8_BLOCK_H
#define MU_INT8_BLOCK_H

#include <float.h>
#include <stdint.h>

#include "runtime/base/both.h"
#include "runtime/core/compress.h"

/* The value of integer 1. 0 where the block is sent as zeros: its peak is 0, Inf, NaN
 * or too small.
 */
MU_BOTH static inline float mu_int8_step(float peak, int ranks)
{
    float step = peak / (float)(MU_INT8_RANKS / ranks);

    return step >= FLT_MIN && step <= FLT_MAX ? step : 0;
}

/* Round a magnitude below 2^22 to the nearest integer, ties to even. x + big has no
 * bits for a fraction, so the addition rounds, without a call of a function.
 */
MU_BOTH static inline float mu_int8_nearest(float x)
{
    const float big = 0x1.8p23f;

    return (x + big) - big;
}

/* The integer for g + *rest; *rest becomes the rounding error. inverse is 1 / step, or
 * 0.
 */
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

/* Take the lowest integer, -127 .. 127, out of *word. */
MU_BOTH static inline int32_t mu_int8_take(int32_t *word)
{
    int32_t lowest = ((*word + 128) & 0xff) - 128;

    *word = (*word - lowest) / 256;
    return lowest;
}

/* The value of integer 1 of a summed word in the mean. The division comes first, since
 * the sum may exceed a float where the mean does not. NaN where the peak is not finite.
 */
MU_BOTH static inline float mu_int8_unit(float peak, int ranks)
{
    return peak <= FLT_MAX ? mu_int8_step(peak, ranks) / (float)ranks : peak - peak;
}

#endif
