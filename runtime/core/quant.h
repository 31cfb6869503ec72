/* SPDX-License-Identifier: BSD-3-Clause */
/* quant.h - floats as a byte each, with a scale for every 256 */
#ifndef MU_QUANT_H
#define MU_QUANT_H

#include <stddef.h>
#include <stdint.h>

#define MU_QUANT_BLOCK 256

struct mu_quant_block {
    float scale; /* of one step: value = scale * q, q in -127..127 */
    int8_t q[MU_QUANT_BLOCK];
};

/* Blocks for n floats. */
size_t mu_quant_blocks(size_t n);
/* Encode x + residual; the residual becomes what was lost. A block with NaN or Inf gets
 * a scale of NaN, so that it decodes to NaN and is not hidden.
 */
void mu_quant_encode(const float *x, float *residual, size_t n,
                     struct mu_quant_block *out);
/* out[i] += factor * value i. */
void mu_quant_add(const struct mu_quant_block *in, float factor, float *out, size_t n);

#endif
