/* SPDX-License-Identifier: BSD-3-Clause */
/* test_host_elements.c - conversions and reductions of the host backend, and the proof
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "runtime/backend/host/elements.h"
#include "runtime/core/dtype.h"
#include "tests/unit/host_ref.h"

static const enum muster_dtype halves[] = { MUSTER_F16, MUSTER_BF16 };

static void check_widen(enum muster_dtype dtype)
{
    static uint16_t in[65536];
    static float out[65536];

    for (int i = 0; i < 65536; i++)
        in[i] = (uint16_t)i;
    mu_elements_convert(out, MUSTER_F32, in, dtype, 1.0, 65536);
    for (int i = 0; i < 65536; i++) {
        double want = ref_widen(dtype, in[i]);

        if (isnan(want) ? !isnan(out[i])
                        : out[i] != want || !signbit(out[i]) != !signbit(want))
            fail_msg("%s %04x is %g, should be %g", mu_dtype_name(dtype), i, out[i],
                     want);
    }
}

static void every_half_is_widened_exactly(void **state)
{
    check_widen(MUSTER_F16);
    check_widen(MUSTER_BF16);
}

/* Around every half and every middle between two: itself and its fp32 neighbours. */
static void check_narrow(enum muster_dtype dtype)
{
    for (int h = 0; h < 65535; h++) {
        double a = ref_widen(dtype, (uint16_t)h),
               c = ref_widen(dtype, (uint16_t)(h + 1));
        float middle = (float)(isfinite(c) ? (a + c) / 2 : a), in[6];
        uint16_t out[6];

        for (int k = 0; k < 6; k++) {
            in[k] = k < 3 ? (float)a : middle;
            in[k] = k % 3 == 1   ? nextafterf(in[k], INFINITY)
                    : k % 3 == 2 ? nextafterf(in[k], -INFINITY)
                                 : in[k];
        }
        mu_elements_convert(out, dtype, in, MUSTER_F32, 1.0, 6);
        for (int k = 0; k < 6; k++) {
            uint16_t want = ref_narrow(dtype, in[k]);

            if (isnan(in[k]) ? !isnan(ref_widen(dtype, out[k])) : out[k] != want)
                fail_msg("%s of %a is %04x, should be %04x", mu_dtype_name(dtype),
                         in[k], out[k], want);
        }
    }
}

static void narrowing_rounds_to_nearest_even(void **state)
{
    check_narrow(MUSTER_F16);
    check_narrow(MUSTER_BF16);
}

/* Programs linked with -ffast-math run so. */
static void denormals_are_zero_changes_no_half(void **state)
{
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();
    uint16_t in[1024], out[1024];
    float wide[1024];

    for (int i = 0; i < 1024; i++)
        in[i] = (uint16_t)i; /* all subnormal halves */
    _mm_setcsr(before | 0x8040);
    mu_elements_convert(wide, MUSTER_F32, in, MUSTER_F16, 1.0, 1024);
    mu_elements_convert(out, MUSTER_F16, wide, MUSTER_F32, 1.0, 1024);
    _mm_setcsr(before);
    assert_memory_equal(in, out, sizeof in);
#else
    skip();
#endif
}

static const struct convert_case {
    const char *name;
    enum muster_dtype from, to;
    double in, scale, out;
} converts[] = {
    { "scaled before the cast, so fp16 does not overflow", MUSTER_F32, MUSTER_F16,
      409600, 0.125, 51200 },
    { "what fp16 cannot hold is infinite", MUSTER_F32, MUSTER_F16, 65520, 1, INFINITY },
    { "the largest fp16", MUSTER_F32, MUSTER_F16, 65519, 1, 65504 },
    { "fp64 to bf16", MUSTER_F64, MUSTER_BF16, 3.140625, 1, 3.140625 },
    { "bf16 to fp64", MUSTER_BF16, MUSTER_F64, -2.5, 2, -5 },
    { "fp16 to fp16 with a scale", MUSTER_F16, MUSTER_F16, 3, 1.0 / 3, 1 },
    { "int32 to fp32", MUSTER_I32, MUSTER_F32, -7, 0.5, -3.5 },
    { "fp32 to int32 is rounded", MUSTER_F32, MUSTER_I32, 2.6, 1, 3 },
    { "fp32 to int32 is held at the limit", MUSTER_F32, MUSTER_I32, 1e20, 1,
      INT32_MAX },
    { "int64 mean of 49 times 1/49", MUSTER_I64, MUSTER_I64, 49, 1.0 / 49, 1 },
};

static void put(enum muster_dtype dtype, double x, void *out)
{
    float f = (float)x;
    uint16_t h = 0;
    int32_t i = (int32_t)x;
    int64_t l = (int64_t)x;

    if (dtype == MUSTER_F16 || dtype == MUSTER_BF16)
        h = ref_narrow(dtype, x);
    memcpy(out,
           dtype == MUSTER_F64   ? (void *)&x
           : dtype == MUSTER_F32 ? (void *)&f
           : dtype == MUSTER_I32 ? (void *)&i
           : dtype == MUSTER_I64 ? (void *)&l
                                 : (void *)&h,
           ref_size(dtype));
}

static double get(enum muster_dtype dtype, const void *in)
{
    double x;
    float f;
    uint16_t h;
    int32_t i;
    int64_t l;

    memcpy(&h, in, 2);
    memcpy(&f, in, 4);
    memcpy(&i, in, 4);
    memcpy(&x, in, 8);
    memcpy(&l, in, 8);
    return dtype == MUSTER_F64   ? x
           : dtype == MUSTER_F32 ? f
           : dtype == MUSTER_I32 ? i
           : dtype == MUSTER_I64 ? (double)l
                                 : ref_widen(dtype, h);
}

static void conversions_scale_first(void **state)
{
    for (size_t k = 0; k < sizeof converts / sizeof converts[0]; k++) {
        const struct convert_case *c = &converts[k];
        char in[8 * 3001 + 1], out[8 * 3001 + 16];
        size_t isize = ref_size(c->from), osize = ref_size(c->to);

        /* Unaligned, more than a block, and not a multiple of anything. */
        for (size_t i = 0; i < 3001; i++)
            put(c->from, c->in, in + 1 + i * isize);
        mu_elements_convert(out + 3, c->to, in + 1, c->from, c->scale, 3001);
        for (size_t i = 0; i < 3001; i++)
            if (get(c->to, out + 3 + i * osize) != c->out)
                fail_msg("%s: element %zu is %g", c->name, i,
                         get(c->to, out + 3 + i * osize));
    }
}

/* One rounding at the end: 2048 + 1 + 1 in fp16 is 2048 if rounded at each step. */
static void sums_of_halves_are_rounded_once(void **state)
{
    for (int k = 0; k < 2; k++) {
        double big = k == 0 ? 2048 : 256;
        uint16_t a = ref_narrow(halves[k], big), one = ref_narrow(halves[k], 1), out;
        const void *src[] = { &a, &one, &one };
        void *dst[] = { &out };

        mu_elements_reduce(halves[k], MUSTER_SUM, 1.0, src, 3, dst, 1, 1);
        assert_true(ref_widen(halves[k], out) == big + 2);
    }
}

/* Bit r of `missing`: source r is NaN. */
static double extreme(enum muster_dtype dtype, enum muster_op op, unsigned missing)
{
    double value[3], out64 = 0;
    float in32[3], out32 = 0;
    uint16_t in16[3], out16 = 0;
    const void *src[3];
    void *dst[1];

    for (int r = 0; r < 3; r++) {
        value[r] = missing & 1u << r ? NAN : r + 1;
        in32[r] = (float)value[r];
        in16[r] = ref_narrow(dtype, in32[r]);
        src[r] = dtype == MUSTER_F64   ? (void *)&value[r]
                 : dtype == MUSTER_F32 ? (void *)&in32[r]
                                       : (void *)&in16[r];
    }
    dst[0] = dtype == MUSTER_F64   ? (void *)&out64
             : dtype == MUSTER_F32 ? (void *)&out32
                                   : (void *)&out16;
    mu_elements_reduce(dtype, op, 1.0, src, 3, dst, 1, 1);
    return dtype == MUSTER_F64   ? out64
           : dtype == MUSTER_F32 ? (double)out32
                                 : ref_widen(dtype, out16);
}

static void min_and_max_leave_not_a_number_out(void **state)
{
    for (int type = MUSTER_F32; type <= MUSTER_BF16; type++)
        for (unsigned missing = 0; missing < 8; missing++) {
            double least = extreme((enum muster_dtype)type, MUSTER_MIN, missing);
            double most = extreme((enum muster_dtype)type, MUSTER_MAX, missing);

            if (missing == 7) {
                assert_true(isnan(least) && isnan(most));
                continue;
            }
            assert_true(least == (missing & 1 ? missing & 2 ? 3 : 2 : 1));
            assert_true(most == (missing & 4 ? missing & 2 ? 1 : 2 : 3));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_is_widened_exactly),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(denormals_are_zero_changes_no_half),
        cmocka_unit_test(conversions_scale_first),
        cmocka_unit_test(sums_of_halves_are_rounded_once),
        cmocka_unit_test(min_and_max_leave_not_a_number_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
