/* SPDX-License-Identifier: BSD-3-Clause */
/* test_numeric.c - elements: 16-bit floats, conversion, values that are not finite */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runtime/core/convert.h"
#include "runtime/core/numeric.h"
#include "runtime/muster.h"

/* Every one of the 65536 halves survives the way through float. */
static void all_halves_survive_the_round_trip(void **state)
{
    for (unsigned i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        float f = mu_from_f16(h), g = mu_from_bf16(h);

        if (isnan(f))
            assert_true(isnan(mu_from_f16(mu_to_f16(f))));
        else if (mu_to_f16(f) != h)
            fail_msg("f16 %04x -> %g -> %04x", h, (double)f, mu_to_f16(f));
        if (isnan(g))
            assert_true(isnan(mu_from_bf16(mu_to_bf16(g))));
        else if (mu_to_bf16(g) != h)
            fail_msg("bf16 %04x -> %g -> %04x", h, (double)g, mu_to_bf16(g));
    }
}

static const struct half_case {
    float in;
    uint16_t f16, bf16;
} halves[] = {
    { 1, 0x3c00, 0x3f80 },
    { 65504, 0x7bff, 0x4780 },
    { 65519, 0x7bff, 0x4780 },
    { 65520, 0x7c00, 0x4780 },
    { -1e6f, 0xfc00, 0xc974 },
    { 0x1p-24f, 0x0001, 0x3380 },
    { 0x1p-25f, 0x0000, 0x3300 },
    { 0x1.8p-25f, 0x0001, 0x3340 },
    { 1.00048828125f, 0x3c00, 0x3f80 }, /* half way: to even */
    { 1.00146484375f, 0x3c02, 0x3f80 },
    { 1.00390625f, 0x3c04, 0x3f80 }, /* of bf16 half way */
    { 1.01171875f, 0x3c0c, 0x3f82 },
};

static void halves_round_to_nearest_even(void **state)
{
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++)
        if (mu_to_f16(halves[i].in) != halves[i].f16 ||
            mu_to_bf16(halves[i].in) != halves[i].bf16)
            fail_msg("%g: f16 %04x bf16 %04x", (double)halves[i].in,
                     mu_to_f16(halves[i].in), mu_to_bf16(halves[i].in));
}

static void conversion_multiplies_before_it_rounds(void **state)
{
    const float big[3] = { 160000, -160000, 8 };
    uint16_t half[3];
    double wide[3];
    int32_t whole[3];

    assert_int_equal(mu_convert(half, MUSTER_F16, big, MUSTER_F32, 3, 0.125, NULL), 0);
    assert_true(mu_from_f16(half[0]) == 20000 && mu_from_f16(half[1]) == -20000);
    assert_int_equal(mu_convert(wide, MUSTER_F64, half, MUSTER_F16, 3, 8, NULL), 0);
    assert_true(wide[0] == 160000 && wide[2] == 8);
    assert_int_equal(mu_convert(wide, MUSTER_F64, wide, MUSTER_F64, 3, 0.1, NULL), 0);
    assert_true(wide[2] == 8 * 0.1);
    assert_int_equal(mu_convert(whole, MUSTER_I32, big, MUSTER_F32, 3, 1, NULL), -1);
}

static void non_finite_elements_are_found_in_every_type(void **state)
{
    float f[4] = { 1, -0.0f, 3.4e38f, INFINITY };
    double d[2] = { 1e308, NAN };
    uint16_t h[3] = { 0x7bff, 0x0001, 0xfc00 }, b[2] = { 0x7f7f, 0x7fc0 };
    int32_t i[2] = { -1, INT32_MAX };

    assert_int_equal(mu_first_nonfinite(f, MUSTER_F32, 4), 3);
    assert_int_equal(mu_first_nonfinite(f, MUSTER_F32, 3), 3);
    assert_int_equal(mu_first_nonfinite(d, MUSTER_F64, 2), 1);
    assert_int_equal(mu_first_nonfinite(h, MUSTER_F16, 3), 2);
    assert_int_equal(mu_first_nonfinite(b, MUSTER_BF16, 2), 1);
    assert_int_equal(mu_first_nonfinite(i, MUSTER_I32, 2), 2);
    assert_int_equal(mu_first_nonfinite(NULL, MUSTER_F32, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_halves_survive_the_round_trip),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(conversion_multiplies_before_it_rounds),
        cmocka_unit_test(non_finite_elements_are_found_in_every_type),
    };

    return cmocka_run_group_tests_name("numeric", tests, NULL, NULL);
}
