/* SPDX-License-Identifier: BSD-3-Clause */
/* quant.c - floats as a byte each, with a scale for every 256 */
#include "runtime/core/quant.h"

#include <math.h>
#include <string.h>

size_t mu_quant_blocks(size_t n)
{
    return (n + MU_QUANT_BLOCK - 1) / MU_QUANT_BLOCK;
}

/* The largest magnitude, NaN if there is a NaN or Inf. */
static float magnitude(const float *x, size_t n)
{
    float most = 0;

    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return NAN;
        if (fabsf(x[i]) > most)
            most = fabsf(x[i]);
    }
    return most;
}

static void encode_block(float *x, size_t n, struct mu_quant_block *out)
{
    float most = magnitude(x, n);

    memset(out, 0, sizeof *out);
    out->scale = most / 127;
    if (!isfinite(most)) {
        memset(out->q, 1, sizeof out->q);
        memset(x, 0, n * sizeof *x); /* it must not come back in the next step */
        return;
    }
    for (size_t i = 0; i < n && out->scale > 0; i++) {
        float q = rintf(x[i] / out->scale);

        out->q[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
        x[i] -= out->scale * out->q[i];
    }
}

void mu_quant_encode(const float *x, float *residual, size_t n,
                     struct mu_quant_block *out)
{
    for (size_t at = 0; at < n; at += MU_QUANT_BLOCK) {
        size_t len = n - at < MU_QUANT_BLOCK ? n - at : MU_QUANT_BLOCK;

        for (size_t i = at; i < at + len; i++)
            residual[i] += x[i];
        encode_block(residual + at, len, &out[at / MU_QUANT_BLOCK]);
    }
}

void mu_quant_add(const struct mu_quant_block *in, float factor, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct mu_quant_block *b = &in[i / MU_QUANT_BLOCK];

        out[i] += factor * (b->scale * b->q[i % MU_QUANT_BLOCK]);
    }
}
