/* SPDX-License-Identifier: BSD-3-Clause */
/* numeric.c - find NaN and Inf, sum squares */
#include "runtime/core/numeric.h"

#include <stdint.h>

#include "runtime/core/convert.h"

/* NaN and Inf have an exponent of all ones. Comparing bits gives the same result with
 * any float option of the compiler, and 16-bit types need no conversion.
 */
static size_t find16(const uint16_t *x, size_t n, uint16_t exponent)
{
    for (size_t i = 0; i < n; i++)
        if ((x[i] & exponent) == exponent)
            return i;
    return n;
}

static size_t find32(const uint32_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((x[i] & 0x7f800000u) == 0x7f800000u)
            return i;
    return n;
}

static size_t find64(const uint64_t *x, size_t n)
{
    const uint64_t exponent = UINT64_C(0x7ff) << 52;

    for (size_t i = 0; i < n; i++)
        if ((x[i] & exponent) == exponent)
            return i;
    return n;
}

size_t mu_first_nonfinite(const void *data, enum muster_dtype dtype, size_t count)
{
    switch (dtype) {
    case MUSTER_F16:
        return find16(data, count, 0x7c00);
    case MUSTER_BF16:
        return find16(data, count, 0x7f80);
    case MUSTER_F32:
        return find32(data, count);
    case MUSTER_F64:
        return find64(data, count);
    default:
        return count;
    }
}

double mu_element(const void *data, enum muster_dtype dtype, size_t i)
{
    switch (dtype) {
    case MUSTER_F16:
        return mu_from_f16(((const uint16_t *)data)[i]);
    case MUSTER_BF16:
        return mu_from_bf16(((const uint16_t *)data)[i]);
    case MUSTER_F32:
        return ((const float *)data)[i];
    case MUSTER_F64:
        return ((const double *)data)[i];
    case MUSTER_I32:
        return ((const int32_t *)data)[i];
    default:
        return (double)((const int64_t *)data)[i];
    }
}

/* Eight partial sums: with a single one, each addition waits for the one before. */
static double sum_squares_f32(const float *data, size_t count)
{
    double sum[8] = { 0 };
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        for (size_t k = 0; k < 8; k++)
            sum[k] += (double)data[i + k] * data[i + k];
    for (; i < count; i++)
        sum[i % 8] += (double)data[i] * data[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) +
           ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

double mu_sum_squares(const void *data, enum muster_dtype dtype, size_t count)
{
    double sum = 0;

    if (dtype == MUSTER_F32)
        sum = sum_squares_f32(data, count);
    else
        for (size_t i = 0; i < count; i++) {
            double x = mu_element(data, dtype, i);

            sum += x * x;
        }
    return sum;
}
