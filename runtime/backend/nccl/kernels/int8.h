/* SPDX-License-Identifier: BSD-3-Clause */
/* int8.h - the work of one lane on 8-bit integers, in C and CUDA
 *
 * A warp works on a block of MU_INT8_BLOCK elements. Each of its 32 lanes works on
 * MU_INT8_LANE adjacent elements, so that one lane has each word of four integers.
 */
#ifndef MU_NCCL_INT8_H
#define MU_NCCL_INT8_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "runtime/core/int8_block.h"

#define MU_INT8_LANE (MU_INT8_BLOCK / 32)

/* The elements of a lane: returns the first; *n is their number, at most MU_INT8_LANE,
 * 0 behind the end of the tensor.
 */
MU_BOTH static inline size_t mu_int8_lane(size_t count, size_t block, int lane,
                                          size_t *n)
{
    size_t from = block * MU_INT8_BLOCK + (size_t)lane * MU_INT8_LANE;

    *n = from >= count ? 0 : count - from < MU_INT8_LANE ? count - from : MU_INT8_LANE;
    return from;
}

/* The largest magnitude; *finite stays true if there is neither NaN nor Inf. */
MU_BOTH static inline float mu_int8_lane_peak(const struct mu_int8_tensor *t,
                                              size_t from, size_t n, bool *finite)
{
    float most = 0;

    *finite = true;
    for (size_t i = from; i < from + n; i++) {
        float x = fabsf(t->g[i] + t->rest[i]);

        most = x > most ? x : most;
        *finite = *finite && x <= FLT_MAX; /* false for NaN */
    }
    return most;
}

MU_BOTH static inline void mu_int8_lane_encode(const struct mu_int8_tensor *t,
                                               size_t from, size_t n, float peak,
                                               int ranks)
{
    float step = mu_int8_step(peak, ranks), inverse = step > 0 ? 1 / step : 0;
    bool finite = peak <= FLT_MAX;

    for (size_t w = 0; w < n; w += 4) {
        int8_t digit[4] = { 0, 0, 0, 0 };

        for (size_t i = w; i < w + 4 && i < n && finite; i++)
            digit[i - w] =
                mu_int8_digit(t->g[from + i], &t->rest[from + i], step, inverse);
        t->word[(from + w) / 4] = mu_int8_word(digit);
    }
}

MU_BOTH static inline void mu_int8_lane_decode(const struct mu_int8_tensor *t,
                                               size_t from, size_t n, float peak,
                                               int ranks)
{
    float unit = mu_int8_unit(peak, ranks);

    for (size_t w = 0; w < n; w += 4) {
        int32_t left = t->word[(from + w) / 4];

        for (size_t i = w; i < w + 4; i++) {
            float x = (float)mu_int8_take(&left) * unit;

            if (i < n)
                t->g[from + i] = x;
        }
    }
}

#endif
