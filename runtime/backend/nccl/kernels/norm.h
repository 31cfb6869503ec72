/* SPDX-License-Identifier: BSD-3-Clause */
/* norm.h - division of a sum of squares among threads, in C and CUDA
 *
 * The order of additions depends on the number of elements alone: the grid is always
 * MU_SQUARES blocks of MU_NORM_THREADS. So equal data gives equal bits on all ranks and
 * in all runs.
 */
#ifndef MU_NCCL_NORM_H
#define MU_NCCL_NORM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/both.h"

#define MU_NORM_THREADS 256

/* The magnitude of 16 bits. */
MU_BOTH static inline float mu_norm_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

MU_BOTH static inline float mu_norm_bf16(uint16_t bits)
{
    return mu_norm_bits((uint32_t)(bits & 0x7fff) << 16);
}

/* At a float's bit position the exponent is 112 too small. The product with 2^112 is
 * exact, also for subnormal numbers. An exponent of all ones is Inf or NaN.
 */
MU_BOTH static inline float mu_norm_f16(uint16_t bits)
{
    float x = mu_norm_bits((uint32_t)(bits & 0x7fff) << 13) * 0x1p112f;

    return (bits & 0x7c00) == 0x7c00 ? (bits & 0x3ff ? x - x + mu_norm_bits(0x7fc00000u)
                                                     : mu_norm_bits(0x7f800000u))
                                     : x;
}

/* The squares of elements e*t .. e*t + e-1, e*(t + threads) .. of count, for thread t
 * of all threads of the grid. e elements fill 16 bytes, so that adjacent threads read
 * adjacent memory.
 */
#define MU_NORM_SHARE(name, type, each, up)                                            \
    MU_BOTH static inline double name(const void *data, size_t count, size_t t,        \
                                      size_t threads)                                  \
    {                                                                                  \
        const type *x = (const type *)data;                                            \
        double sum = 0;                                                                \
                                                                                       \
        for (size_t from = t * (each); from < count; from += threads * (each))         \
            for (size_t i = from; i < from + (each) && i < count; i++) {               \
                double v = (double)up(x[i]);                                           \
                                                                                       \
                sum += v * v;                                                          \
            }                                                                          \
        return sum;                                                                    \
    }
#define MU_NORM_AS_IT_IS(x) (x)
MU_NORM_SHARE(mu_norm_share_f32, float, 4, MU_NORM_AS_IT_IS)
MU_NORM_SHARE(mu_norm_share_f64, double, 2, MU_NORM_AS_IT_IS)
MU_NORM_SHARE(mu_norm_share_f16, uint16_t, 8, mu_norm_f16)
MU_NORM_SHARE(mu_norm_share_bf16, uint16_t, 8, mu_norm_bf16)

/* One round of a block's sum, by thread t < half, with a barrier before each. half is
 * MU_NORM_THREADS / 2, then half of that, ... 1. part[0] then holds the sum.
 */
MU_BOTH static inline void mu_norm_fold(double *part, int t, int half)
{
    part[t] += part[t + half];
}

#endif
