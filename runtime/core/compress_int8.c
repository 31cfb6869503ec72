/* SPDX-License-Identifier: BSD-3-Clause */
/* compress_int8.c - 8-bit integers with a scale per block, summed four to a word */
#include "runtime/core/compress.h"

#include <float.h>
#include <math.h>

size_t mu_int8_blocks(size_t count)
{
    return (count + MU_INT8_BLOCK - 1) / MU_INT8_BLOCK;
}

size_t mu_int8_words(size_t count)
{
    return (count + 3) / 4;
}

static size_t block_end(size_t from, size_t count)
{
    return count - from < MU_INT8_BLOCK ? count : from + MU_INT8_BLOCK;
}

void mu_int8_peaks(const float *g, const float *rest, size_t count, float *peak)
{
    for (size_t from = 0; from < count; from += MU_INT8_BLOCK) {
        size_t end = block_end(from, count);
        float most = 0;
        bool finite = true;

        for (size_t i = from; i < end; i++) {
            float x = fabsf(g[i] + rest[i]);

            most = x > most ? x : most;
            finite &= x <= FLT_MAX; /* false for NaN */
        }
        peak[from / MU_INT8_BLOCK] = finite ? most : INFINITY;
    }
}

/* The value of integer 1; 0 where nothing can be sent. */
static float step_of(float peak, int ranks)
{
    float step = peak / (float)(MU_INT8_RANKS / ranks);

    return step >= FLT_MIN && step <= FLT_MAX ? step : 0;
}

/* Of magnitudes below 2^22, to the nearest integer, ties to even, without a call: a
 * float of this size has no bits behind the point.
 */
static float nearest(float x)
{
    const float big = 0x1.8p23f;

    return (x + big) - big;
}

static void encode_block(const float *g, float *rest, size_t n, float step,
                         int8_t *digit)
{
    float inverse = step > 0 ? 1 / step : 0;

    for (size_t i = 0; i < n; i++) {
        float x = g[i] + rest[i], steps = nearest(x * inverse);

        digit[i] = (int8_t)steps;
        rest[i] = x - steps * step;
    }
}

void mu_int8_encode(const float *g, float *rest, size_t count, const float *peak,
                    int ranks, int32_t *word)
{
    for (size_t from = 0; from < count; from += MU_INT8_BLOCK) {
        size_t n = block_end(from, count) - from;
        float top = peak[from / MU_INT8_BLOCK];
        int8_t digit[MU_INT8_BLOCK] = { 0 };

        if (isfinite(top))
            encode_block(g + from, rest + from, n, step_of(top, ranks), digit);
        for (size_t w = 0; w < mu_int8_words(n); w++)
            word[from / 4 + w] = digit[4 * w] + digit[4 * w + 1] * 256 +
                                 digit[4 * w + 2] * 65536 + digit[4 * w + 3] * 16777216;
    }
}

void mu_int8_decode(const int32_t *word, size_t count, const float *peak, int ranks,
                    float *mean)
{
    for (size_t from = 0; from < count; from += MU_INT8_BLOCK) {
        size_t n = block_end(from, count) - from;
        float top = peak[from / MU_INT8_BLOCK];
        /* Divided first: the sum may be beyond a float where the mean is not. */
        float unit = isfinite(top) ? step_of(top, ranks) / (float)ranks : NAN;
        float value[MU_INT8_BLOCK];

        for (size_t w = 0; w < mu_int8_words(n); w++) {
            int32_t left = word[from / 4 + w];

            /* Digits of -127 .. 127: the lowest byte, then what it leaves. */
            for (size_t k = 0; k < 4; k++) {
                int32_t lowest = ((left + 128) & 0xff) - 128;

                value[4 * w + k] = (float)lowest * unit;
                left = (left - lowest) / 256;
            }
        }
        for (size_t i = 0; i < n; i++)
            mean[from + i] = value[i];
    }
}
