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

void mu_int8_encode(const float *g, float *rest, size_t count, const float *peak,
                    int ranks, int32_t *word)
{
    for (size_t w = 0; w < mu_int8_words(count); w++)
        word[w] = 0;
    for (size_t from = 0; from < count; from += MU_INT8_BLOCK) {
        size_t end = block_end(from, count);
        float top = peak[from / MU_INT8_BLOCK], step = step_of(top, ranks);

        for (size_t i = from; i < end && isfinite(top); i++) {
            float x = g[i] + rest[i];
            int32_t n = step > 0 ? (int32_t)lrintf(x / step) : 0;

            word[i / 4] += n * (1 << 8 * (i % 4));
            rest[i] = x - (float)n * step;
        }
    }
}

void mu_int8_decode(const int32_t *word, size_t count, const float *peak, int ranks,
                    float *mean)
{
    int32_t left = 0;

    for (size_t i = 0; i < count; i++) {
        float top = peak[i / MU_INT8_BLOCK], step = step_of(top, ranks);
        int32_t n;

        if (i % 4 == 0)
            left = word[i / 4];
        /* Digits of -127 .. 127: the lowest byte, then what it leaves. */
        n = (left & 0xff) < 128 ? left & 0xff : (left & 0xff) - 256;
        left = (left - n) / 256;
        /* In double: the sum may be beyond a float where the mean is not. */
        mean[i] = isfinite(top) ? (float)((double)n * step / ranks) : NAN;
    }
}
