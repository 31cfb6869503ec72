/* SPDX-License-Identifier: BSD-3-Clause */
/* convert.c - convert arrays between element types, times a factor */
#include "runtime/core/convert.h"

#include <string.h>

#include "runtime/core/dtype.h"

/* Elements converted at a time, in a buffer on the stack. */
#define BLOCK 512

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

float mu_from_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

uint16_t mu_to_bf16(float value)
{
    uint32_t bits = bits_of(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float mu_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;

    if (rest >= 0x7c00) /* Inf and NaN */
        return float_of(sign | 0x7f800000u | (rest & 0x3ff) << 13);
    if (rest >= 0x400) /* normal: the exponent's bias goes from 15 to 127 */
        return float_of(sign | ((rest << 13) + (112u << 23)));
    /* Subnormal: rest * 2^-24 is exact in a float. */
    return float_of(bits_of((float)rest * 0x1p-24f) | sign);
}

uint16_t mu_to_f16(float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000,
             rest = bits & 0x7fffffffu;

    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000u) /* 65520 and more round to Inf */
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000u) /* below 2^-14: adding 0.5 rounds at 2^-24 */
        return (uint16_t)(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13);
}

static void load_floats(float *out, const void *src, enum muster_dtype from, size_t n)
{
    const uint16_t *half = src;
    const double *wide = src;

    if (from == MUSTER_F32)
        memcpy(out, src, n * sizeof *out);
    else if (from == MUSTER_F64)
        for (size_t i = 0; i < n; i++)
            out[i] = (float)wide[i];
    else if (from == MUSTER_F16)
        for (size_t i = 0; i < n; i++)
            out[i] = mu_from_f16(half[i]);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = mu_from_bf16(half[i]);
}

static void store_floats(void *dst, enum muster_dtype to, const float *in, size_t n)
{
    uint16_t *half = dst;
    double *wide = dst;

    if (to == MUSTER_F32)
        memcpy(dst, in, n * sizeof *in);
    else if (to == MUSTER_F64)
        for (size_t i = 0; i < n; i++)
            wide[i] = in[i];
    else if (to == MUSTER_F16)
        for (size_t i = 0; i < n; i++)
            half[i] = mu_to_f16(in[i]);
    else
        for (size_t i = 0; i < n; i++)
            half[i] = mu_to_bf16(in[i]);
}

static void convert_floats(char *dst, enum muster_dtype to, const char *src,
                           enum muster_dtype from, size_t count, float scale)
{
    size_t in = mu_dtype_size(from), out = mu_dtype_size(to);
    float block[BLOCK];

    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;

        load_floats(block, src + at * in, from, n);
        for (size_t i = 0; i < n; i++)
            block[i] *= scale;
        store_floats(dst + at * out, to, block, n);
    }
}

static void scale_doubles(double *dst, const double *src, size_t count, double scale)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = src[i] * scale;
}

int mu_convert(void *dst, enum muster_dtype to, const void *src, enum muster_dtype from,
               size_t count, double scale, struct mu_err *err)
{
    if (to == from && scale == 1) {
        if (dst != src && count > 0)
            memcpy(dst, src, count * mu_dtype_size(to));
        return 0;
    }
    if (to >= MUSTER_I32 || from >= MUSTER_I32)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "%s cannot be converted to %s with factor %g",
                          mu_dtype_name(from), mu_dtype_name(to), scale);
    if (to == MUSTER_F64 && from == MUSTER_F64)
        scale_doubles(dst, src, count, scale);
    else
        convert_floats(dst, to, src, from, count, (float)scale);
    return 0;
}
