/* SPDX-License-Identifier: BSD-3-Clause */
/* host_ref.c - the reference, see host_ref.h */
#include "tests/unit/host_ref.h"

#include <math.h>
#include <string.h>

size_t ref_size(enum muster_dtype dtype)
{
    return dtype == MUSTER_BYTE                          ? 1
           : dtype == MUSTER_F64 || dtype == MUSTER_I64  ? 8
           : dtype == MUSTER_F16 || dtype == MUSTER_BF16 ? 2
                                                         : 4;
}

double ref_widen(enum muster_dtype dtype, uint16_t bits)
{
    int fraction = dtype == MUSTER_F16 ? 10 : 7, bias = dtype == MUSTER_F16 ? 15 : 127;
    int top = dtype == MUSTER_F16 ? 31 : 255;
    int e = bits >> fraction & top, f = bits & ((1 << fraction) - 1);
    double x = e == top ? (f ? NAN : INFINITY)
               : e      ? ldexp(f + (1 << fraction), e - bias - fraction)
                        : ldexp(f, 1 - bias - fraction);

    return bits & 0x8000 ? -x : x;
}

uint16_t ref_narrow(enum muster_dtype dtype, double x)
{
    int fraction = dtype == MUSTER_F16 ? 10 : 7, bias = dtype == MUSTER_F16 ? 15 : 127;
    int top = dtype == MUSTER_F16 ? 31 : 255, e;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x), units;

    if (isnan(x))
        return (uint16_t)(sign | top << fraction | 1 << (fraction - 1));
    e = a == 0 || ilogb(a) < 1 - bias ? 1 - bias : isinf(a) ? bias + 1 : ilogb(a);
    if (e > bias)
        return (uint16_t)(sign | top << fraction);
    /* In units of the last place; a carry runs into the exponent as it should. */
    units = rint(ldexp(a, fraction - e));
    if (units < 1 << fraction)
        return (uint16_t)(sign | (int)units);
    return (uint16_t)(sign | (((e + bias - 1) << fraction) + (int)units));
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185u;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

void ref_value(enum muster_dtype dtype, int rank, size_t i, unsigned salt, void *out)
{
    uint64_t h = mix(i * 1000003u + (uint64_t)rank * 7919u + salt * 104729u + 1);
    /* Sign and 52 places of a double between 2^-6 and 2^6. */
    uint64_t bits = (h & 0x800fffffffffffffu) | (1017 + (h >> 52) % 12) << 52;
    double x;
    float f;
    uint16_t half = 0;
    int32_t i32 = (int32_t)h;
    int64_t i64 = (int64_t)h;

    memcpy(&x, &bits, sizeof x);
    f = (float)x;
    if (dtype == MUSTER_F16 || dtype == MUSTER_BF16)
        half = ref_narrow(dtype, x);
    switch (dtype) {
    case MUSTER_F64:
        memcpy(out, &x, sizeof x);
        break;
    case MUSTER_F32:
        memcpy(out, &f, sizeof f);
        break;
    case MUSTER_F16:
    case MUSTER_BF16:
        memcpy(out, &half, sizeof half);
        break;
    case MUSTER_I32:
        memcpy(out, &i32, sizeof i32);
        break;
    case MUSTER_I64:
        memcpy(out, &i64, sizeof i64);
        break;
    case MUSTER_BYTE:
        memcpy(out, &h, 1);
        break;
    }
}

void ref_fill(enum muster_dtype dtype, int rank, size_t first, size_t n, unsigned salt,
              void *out)
{
    size_t size = ref_size(dtype);

    for (size_t i = 0; i < n; i++)
        ref_value(dtype, rank, first + i, salt, (char *)out + i * size);
}

#define FOLD(type, wide, plus)                                                         \
    do {                                                                               \
        type v;                                                                        \
        wide acc = 0;                                                                  \
                                                                                       \
        for (int r = 0; r < n; r++) {                                                  \
            wide x;                                                                    \
                                                                                       \
            ref_value(dtype, r, i, salt, &v);                                          \
            x = v;                                                                     \
            if (r == 0)                                                                \
                acc = x;                                                               \
            else if (op == MUSTER_SUM)                                                 \
                acc = plus;                                                            \
            else if (op == MUSTER_MIN ? x < acc : x > acc)                             \
                acc = x;                                                               \
        }                                                                              \
        if (scale != 1.0)                                                              \
            acc = (wide)SCALED;                                                        \
        v = (type)acc;                                                                 \
        memcpy(out, &v, sizeof v);                                                     \
    } while (0)

void ref_reduce(enum muster_dtype dtype, enum muster_op op, double scale, int n,
                size_t i, unsigned salt, void *out)
{
    float acc = 0;
    uint16_t half = 0;

    switch (dtype) {
#define SCALED (acc * (float)scale)
    case MUSTER_F32:
        FOLD(float, float, acc + x);
        return;
#undef SCALED
#define SCALED (acc * scale)
    case MUSTER_F64:
        FOLD(double, double, acc + x);
        return;
#undef SCALED
#define SCALED rint((double)acc *scale)
    case MUSTER_I32:
        FOLD(int32_t, int32_t, (int32_t)((uint32_t)acc + (uint32_t)x));
        return;
    case MUSTER_I64:
        FOLD(int64_t, int64_t, (int64_t)((uint64_t)acc + (uint64_t)x));
        return;
#undef SCALED
    case MUSTER_F16:
    case MUSTER_BF16:
    case MUSTER_BYTE: /* is not added */
        break;
    }
    for (int r = 0; r < n; r++) {
        float x;

        ref_value(dtype, r, i, salt, &half);
        x = (float)ref_widen(dtype, half);
        if (r == 0)
            acc = x;
        else if (op == MUSTER_SUM)
            acc = acc + x;
        else if (op == MUSTER_MIN ? x < acc : x > acc)
            acc = x;
    }
    half = ref_narrow(dtype, scale != 1.0 ? acc * (float)scale : acc);
    memcpy(out, &half, sizeof half);
}
