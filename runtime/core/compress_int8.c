/* SPDX-License-Identifier: BSD-3-Clause */
/* compress_int8.c - 8-bit integers with a scale per block, summed four to a word */
#include "runtime/core/int8_block.h"

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

static void encode_block(const float *g, float *rest, size_t n, float step,
                         int8_t *digit)
{
    float inverse = step > 0 ? 1 / step : 0;

    for (size_t i = 0; i < n; i++)
        digit[i] = mu_int8_digit(g[i], &rest[i], step, inverse);
}

void mu_int8_encode(const float *g, float *rest, size_t count, const float *peak,
                    int ranks, int32_t *word)
{
    for (size_t from = 0; from < count; from += MU_INT8_BLOCK) {
        size_t n = block_end(from, count) - from;
        float top = peak[from / MU_INT8_BLOCK];
        int8_t digit[MU_INT8_BLOCK] = { 0 };

        if (isfinite(top))
            encode_block(g + from, rest + from, n, mu_int8_step(top, ranks), digit);
        for (size_t w = 0; w < mu_int8_words(n); w++)
            word[from / 4 + w] = mu_int8_word(digit + 4 * w);
    }
}

void mu_int8_decode(const int32_t *word, size_t count, const float *peak, int ranks,
                    float *mean)
{
    for (size_t from = 0; from < count; from += MU_INT8_BLOCK) {
        size_t n = block_end(from, count) - from;
        float top = peak[from / MU_INT8_BLOCK];
        float unit = mu_int8_unit(top, ranks);
        float value[MU_INT8_BLOCK];

        for (size_t w = 0; w < mu_int8_words(n); w++) {
            int32_t left = word[from / 4 + w];

            for (size_t k = 0; k < 4; k++)
                value[4 * w + k] = (float)mu_int8_take(&left) * unit;
        }
        for (size_t i = 0; i < n; i++)
            mean[from + i] = value[i];
    }
}

void mu_int8_run(enum mu_int8_stage stage, const struct mu_int8_tensor *tensors, int n,
                 int ranks)
{
    for (const struct mu_int8_tensor *t = tensors; t < tensors + n; t++)
        if (stage == MU_INT8_PEAKS)
            mu_int8_peaks(t->g, t->rest, t->count, t->peak);
        else if (stage == MU_INT8_ENCODE)
            mu_int8_encode(t->g, t->rest, t->count, t->peak, ranks, t->word);
        else
            mu_int8_decode(t->word, t->count, t->peak, ranks, t->g);
}
