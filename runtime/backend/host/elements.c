/* SPDX-License-Identifier: BSD-3-Clause */
/* elements.c - the loops behind elements.h, written so that the compiler vectorises
 * them
 */
#include "runtime/backend/host/elements.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "runtime/core/dtype.h"

/* One build serves every x86-64 CPU: the loader selects the widest version that the CPU
 * supports, of any vendor. In sanitizer builds there is one version, because the loader
 * selects before the sanitizer's runtime is initialised.
 */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) &&     \
    !defined(__SANITIZE_THREAD__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

/* gcc's -O2, which ends the flags of most builds, leaves loops of any length scalar. */
#if defined(__OPTIMIZE__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* Elements at any address. */
typedef float f32 __attribute__((aligned(1), may_alias));
typedef double f64 __attribute__((aligned(1), may_alias));
typedef uint16_t u16 __attribute__((aligned(1), may_alias));
typedef int32_t i32 __attribute__((aligned(1), may_alias));
typedef int64_t i64 __attribute__((aligned(1), may_alias));

/* The accumulators of one block fit into the first-level cache. */
#define BLOCK 2048

static inline float from_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t to_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* No step produces a subnormal fp32, so programs that set denormals-are-zero get the
 * same bits.
 */
static inline float widen_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, body = h & 0x7fff;
    uint32_t normal = (body << 13) + (112u << 23);
    uint32_t tiny = to_bits((float)(int32_t)body * 0x1p-24f);
    uint32_t special = normal + (112u << 23);
    uint32_t bits = body < 0x0400 ? tiny : normal;

    return from_bits(sign | (body >= 0x7c00 ? special : bits));
}

static inline uint16_t narrow_half(float f)
{
    uint32_t bits = to_bits(f), sign = bits >> 16 & 0x8000, body = bits & 0x7fffffff;
    uint32_t normal = (body + 0xfff + (body >> 13 & 1) - (112u << 23)) >> 13;
    /* Adding 0.5 aligns the last place with 2^-24 and rounds there. */
    uint32_t tiny = to_bits(from_bits(body) + 0.5f) - 0x3f000000;
    uint32_t half = body < 0x38800000 ? tiny : normal;

    half = body >= 0x477ff000 ? 0x7c00 : half;
    half = body > 0x7f800000 ? 0x7e00 : half;
    return (uint16_t)(sign | half);
}

static inline float widen_bfloat(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}

static inline uint16_t narrow_bfloat(float f)
{
    uint32_t bits = to_bits(f);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

/* For each kind of accumulator: load, combine, scale, store, n elements. */
#define LOAD(name, acc_t, el_t, widen)                                                 \
    WIDEST static void load_##name(acc_t *restrict acc, const el_t *restrict src,      \
                                   size_t n)                                           \
    {                                                                                  \
        for (size_t i = 0; i < n; i++)                                                 \
            acc[i] = widen(src[i]);                                                    \
    }
#define STORE(name, acc_t, el_t, narrow)                                               \
    WIDEST static void store_##name(el_t *restrict dst, const acc_t *restrict acc,     \
                                    size_t n)                                          \
    {                                                                                  \
        for (size_t i = 0; i < n; i++)                                                 \
            dst[i] = narrow(acc[i]);                                                   \
    }
#define COMBINE(name, acc_t, el_t, widen, what)                                        \
    WIDEST static void name(acc_t *restrict acc, const el_t *restrict src, size_t n)   \
    {                                                                                  \
        for (size_t i = 0; i < n; i++) {                                               \
            acc_t a = acc[i], x = widen(src[i]);                                       \
                                                                                       \
            acc[i] = what;                                                             \
        }                                                                              \
    }
#define SAME(x) (x)
#define LESS (x < a || a != a ? x : a)
#define MORE (x > a || a != a ? x : a)
#define PLUS (a + x)
#define WRAP32 ((int32_t)((uint32_t)a + (uint32_t)x))
#define WRAP64 ((int64_t)((uint64_t)a + (uint64_t)x))
#define TYPE(name, acc_t, el_t, widen, narrow, plus)                                   \
    LOAD(name, acc_t, el_t, widen)                                                     \
    STORE(name, acc_t, el_t, narrow)                                                   \
    COMBINE(sum_##name, acc_t, el_t, widen, plus)                                      \
    COMBINE(min_##name, acc_t, el_t, widen, LESS)                                      \
    COMBINE(max_##name, acc_t, el_t, widen, MORE)

TYPE(f32, float, f32, SAME, SAME, PLUS)
TYPE(f64, double, f64, SAME, SAME, PLUS)
TYPE(f16, float, u16, widen_half, narrow_half, PLUS)
TYPE(bf16, float, u16, widen_bfloat, narrow_bfloat, PLUS)
TYPE(i32, int32_t, i32, SAME, SAME, WRAP32)
TYPE(i64, int64_t, i64, SAME, SAME, WRAP64)

WIDEST static void scale_float(float *acc, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] *= scale;
}

WIDEST static void scale_double(double *acc, double scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] *= scale;
}

static int64_t clamp_int(double x, double low, double high)
{
    if (!(x >= low)) /* NaN too */
        return (int64_t)low;
    /* 2^63 itself is not an int64 */
    return x >= high ? (high >= 0x1p63 ? INT64_MAX : (int64_t)high) : (int64_t)rint(x);
}

static void scale_i32(int32_t *acc, double scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] = (int32_t)clamp_int(acc[i] * scale, INT32_MIN, INT32_MAX);
}

static void scale_i64(int64_t *acc, double scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] = clamp_int((double)acc[i] * scale, -0x1p63, 0x1p63);
}

typedef void combine_fn(void *acc, const void *src, size_t n);
typedef void scale_fn(void *acc, double scale, size_t n);

/* The typed loops behind one signature; [op] sum, min, max as in enum muster_op. */
#define FRONT(name, acc_t, el_t, scale_acc)                                            \
    static void front_load_##name(void *acc, const void *src, size_t n)                \
    {                                                                                  \
        load_##name((acc_t *)acc, (const el_t *)src, n);                               \
    }                                                                                  \
    static void front_store_##name(void *dst, const void *acc, size_t n)               \
    {                                                                                  \
        store_##name((el_t *)dst, (const acc_t *)acc, n);                              \
    }                                                                                  \
    static void front_sum_##name(void *acc, const void *src, size_t n)                 \
    {                                                                                  \
        sum_##name((acc_t *)acc, (const el_t *)src, n);                                \
    }                                                                                  \
    static void front_min_##name(void *acc, const void *src, size_t n)                 \
    {                                                                                  \
        min_##name((acc_t *)acc, (const el_t *)src, n);                                \
    }                                                                                  \
    static void front_max_##name(void *acc, const void *src, size_t n)                 \
    {                                                                                  \
        max_##name((acc_t *)acc, (const el_t *)src, n);                                \
    }                                                                                  \
    static void front_scale_##name(void *acc, double scale, size_t n)                  \
    {                                                                                  \
        scale_acc;                                                                     \
    }

FRONT(f32, float, f32, scale_float(acc, (float)scale, n))
FRONT(f64, double, f64, scale_double(acc, scale, n))
FRONT(f16, float, u16, scale_float(acc, (float)scale, n))
FRONT(bf16, float, u16, scale_float(acc, (float)scale, n))
FRONT(i32, int32_t, i32, scale_i32(acc, scale, n))
FRONT(i64, int64_t, i64, scale_i64(acc, scale, n))

#define ROW(name)                                                                      \
    {                                                                                  \
        front_load_##name, front_store_##name,                                         \
            { front_sum_##name, front_min_##name, front_max_##name },                  \
            front_scale_##name                                                         \
    }

static const struct type {
    combine_fn *load, *store, *combine[3];
    scale_fn *scale;
} types[] = {
    [MUSTER_F32] = ROW(f32),   [MUSTER_F64] = ROW(f64), [MUSTER_F16] = ROW(f16),
    [MUSTER_BF16] = ROW(bf16), [MUSTER_I32] = ROW(i32), [MUSTER_I64] = ROW(i64),
};

void mu_elements_reduce(enum muster_dtype dtype, enum muster_op op, double scale,
                        const void *const *src, int nsrc, void *const *dst, int ndst,
                        size_t count)
{
    const struct type *type = &types[dtype];
    size_t size = mu_dtype_size(dtype);
    int64_t acc[BLOCK];

    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK, offset = at * size;

        type->load(acc, (const char *)src[0] + offset, n);
        for (int s = 1; s < nsrc; s++)
            type->combine[op](acc, (const char *)src[s] + offset, n);
        if (scale != 1.0)
            type->scale(acc, scale, n);
        for (int d = 0; d < ndst; d++)
            type->store((char *)dst[d] + offset, acc, n);
    }
}

static bool is_small_float(enum muster_dtype dtype)
{
    return dtype == MUSTER_F32 || dtype == MUSTER_F16 || dtype == MUSTER_BF16;
}

static void widen_to_double(double *wide, const void *src, enum muster_dtype from,
                            size_t n)
{
    int64_t acc[BLOCK];
    const float *f = (const float *)acc;
    const int32_t *i = (const int32_t *)acc;

    if (from == MUSTER_F64) {
        memcpy(wide, src, n * sizeof *wide);
        return;
    }
    types[from].load(acc, src, n);
    for (size_t k = 0; k < n; k++)
        wide[k] = from == MUSTER_I64   ? (double)acc[k]
                  : from == MUSTER_I32 ? i[k]
                                       : (double)f[k];
}

static void narrow_from_double(void *dst, enum muster_dtype to, const double *wide,
                               size_t n)
{
    int64_t acc[BLOCK];
    float *f = (float *)acc;
    int32_t *i = (int32_t *)acc;

    for (size_t k = 0; k < n; k++) {
        if (to == MUSTER_I64)
            acc[k] = clamp_int(wide[k], -0x1p63, 0x1p63);
        else if (to == MUSTER_I32)
            i[k] = (int32_t)clamp_int(wide[k], INT32_MIN, INT32_MAX);
        else
            f[k] = (float)wide[k];
    }
    types[to].store(dst, acc, n);
}

void mu_elements_convert(void *dst, enum muster_dtype to, const void *src,
                         enum muster_dtype from, double scale, size_t count)
{
    size_t in = mu_dtype_size(from), out = mu_dtype_size(to);

    if (to == from && scale == 1.0) {
        memmove(dst, src, count * in);
        return;
    }
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        const char *s = (const char *)src + at * in;
        char *d = (char *)dst + at * out;

        if (is_small_float(from) && is_small_float(to)) {
            float acc[BLOCK];

            types[from].load(acc, s, n);
            if (scale != 1.0)
                scale_float(acc, (float)scale, n);
            types[to].store(d, acc, n);
        } else {
            double acc[BLOCK];

            widen_to_double(acc, s, from, n);
            if (scale != 1.0)
                scale_double(acc, scale, n);
            if (to == MUSTER_F64)
                memcpy(d, acc, n * sizeof acc[0]);
            else
                narrow_from_double(d, to, acc, n);
        }
    }
}
