/* SPDX-License-Identifier: BSD-3-Clause */
/* test_block.c - the arithmetic of our GPU kernels, thread by thread on the CPU */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/backend/nccl/kernels/int8.h"
#include "runtime/backend/nccl/kernels/norm.h"
#include "runtime/core/compress.h"
#include "runtime/core/convert.h"
#include "runtime/core/numeric.h"

static uint32_t random_bits(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*x >> 32);
}

static float random_value(uint64_t *x)
{
    return (float)((int32_t)random_bits(x) * 0x1p-31);
}

/* ---- Sums of squares ------------------------------------------------------------- */

static double share(const void *data, enum muster_dtype dtype, size_t count, size_t t,
                    size_t threads)
{
    switch (dtype) {
    case MUSTER_F32:
        return mu_norm_share_f32(data, count, t, threads);
    case MUSTER_F64:
        return mu_norm_share_f64(data, count, t, threads);
    case MUSTER_F16:
        return mu_norm_share_f16(data, count, t, threads);
    default:
        return mu_norm_share_bf16(data, count, t, threads);
    }
}

/* As squares() of norm.cu with its grid. */
static double on_grid(const void *data, enum muster_dtype dtype, size_t count)
{
    double part[MU_NORM_THREADS], sum = 0;

    for (size_t b = 0; b < MU_SQUARES; b++) {
        for (int t = 0; t < MU_NORM_THREADS; t++)
            part[t] = share(data, dtype, count, b * MU_NORM_THREADS + (size_t)t,
                            (size_t)MU_SQUARES * MU_NORM_THREADS);
        for (int half = MU_NORM_THREADS / 2; half > 0; half /= 2)
            for (int t = 0; t < half; t++)
                mu_norm_fold(part, t, half);
        sum += part[0];
    }
    return sum;
}

static const size_t counts[] = { 1,    2,      3,      7,      8,      9,
                                 1000, 131072, 262144, 262147, 700001, 0 };

static void squares_of_all_threads_are_those_of_the_cpu(void **state)
{
    static const enum muster_dtype dtypes[] = { MUSTER_F32, MUSTER_F64, MUSTER_F16,
                                                MUSTER_BF16 };
    size_t most = 700001;
    double *data = malloc(most * sizeof *data);
    uint64_t x = 5;

    for (int d = 0; d < 4; d++) {
        for (size_t i = 0; i < most; i++) {
            float v = random_value(&x);

            if (dtypes[d] == MUSTER_F32)
                ((float *)data)[i] = v;
            else if (dtypes[d] == MUSTER_F64)
                data[i] = v;
            else
                ((uint16_t *)data)[i] =
                    dtypes[d] == MUSTER_F16 ? mu_to_f16(v) : mu_to_bf16(v);
        }
        for (int c = 0; counts[c]; c++) {
            double want = mu_sum_squares(data, dtypes[d], counts[c]),
                   got = on_grid(data, dtypes[d], counts[c]);

            if (fabs(got - want) > 1e-12 * want)
                fail_msg("dtype %d, %zu elements: %.17g, not %.17g", (int)dtypes[d],
                         counts[c], got, want);
        }
    }
    free(data);
}

static void all_16_bit_numbers_have_their_magnitude(void **state)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float half = fabsf(mu_from_f16((uint16_t)bits)),
              got = mu_norm_f16((uint16_t)bits);
        float brain = fabsf(mu_from_bf16((uint16_t)bits));

        if (isnan(half) ? !isnan(got) : got != half)
            fail_msg("fp16 %04x: %g, not %g", bits, got, half);
        got = mu_norm_bf16((uint16_t)bits);
        if (isnan(brain) ? !isnan(got) : got != brain)
            fail_msg("bf16 %04x: %g, not %g", bits, got, brain);
    }
}

static void one_nan_or_inf_makes_the_sum_so(void **state)
{
    float data[5000] = { 0 };

    data[4321] = INFINITY;
    assert_true(isinf(on_grid(data, MUSTER_F32, 5000)));
    data[17] = NAN;
    assert_true(isnan(on_grid(data, MUSTER_F32, 5000)));
    assert_true(on_grid(data, MUSTER_F32, 17) == 0);
}

/* ---- 8-bit integers -------------------------------------------------------------- */

enum { MOST = 2000 };

struct tensors {
    float g[MOST], rest[MOST], peak[16];
    int32_t word[MOST / 4 + 1];
};

static struct mu_int8_tensor tensor(struct tensors *t, size_t count)
{
    return (struct mu_int8_tensor){ t->g, t->rest, count, t->peak, t->word };
}

/* As the kernels of int8.cu do it, warp by warp. */
static void by_lanes(struct mu_int8_tensor *t, enum mu_int8_stage stage, int ranks)
{
    for (size_t b = 0; b * MU_INT8_BLOCK < t->count; b++) {
        float most = 0;
        bool finite = true;

        for (int l = 0; l < 32; l++) {
            size_t n, from = mu_int8_lane(t->count, b, l, &n);

            if (stage == MU_INT8_PEAKS) {
                bool lane_finite;
                float peak = mu_int8_lane_peak(t, from, n, &lane_finite);

                most = peak > most ? peak : most;
                finite &= lane_finite;
            } else if (stage == MU_INT8_ENCODE) {
                mu_int8_lane_encode(t, from, n, t->peak[b], ranks);
            } else {
                mu_int8_lane_decode(t, from, n, t->peak[b], ranks);
            }
        }
        if (stage == MU_INT8_PEAKS)
            t->peak[b] = finite ? most : INFINITY;
    }
}

static void lanes_give_the_bits_of_the_cpu(void **state)
{
    static const size_t sizes[] = { 1, 3, 4, 5, 8, 9, 255, 256, 257, 1999, 2000 };
    static struct tensors cpu, gpu;
    uint64_t x = 11;

    for (size_t c = 0; c < sizeof sizes / sizeof sizes[0]; c++)
        for (int ranks = 1; ranks <= 127; ranks += 42) {
            size_t count = sizes[c];
            struct mu_int8_tensor t = tensor(&gpu, count);

            memset(&cpu, 0, sizeof cpu);
            for (size_t i = 0; i < count; i++) {
                cpu.g[i] = random_value(&x) * (i % 3 ? 1 : 1e-3f);
                cpu.rest[i] = random_value(&x) * 1e-2f;
            }
            if (count > 1000) { /* NaN, nothing at all, and too small for a step */
                cpu.g[300] = NAN;
                memset(cpu.g + 512, 0, 256 * sizeof *cpu.g);
                memset(cpu.rest + 512, 0, 256 * sizeof *cpu.g);
                for (size_t i = 768; i < 1024; i++)
                    cpu.g[i] = cpu.rest[i] = FLT_MIN / 8;
            }
            gpu = cpu;
            mu_int8_peaks(cpu.g, cpu.rest, count, cpu.peak);
            by_lanes(&t, MU_INT8_PEAKS, ranks);
            assert_memory_equal(&gpu, &cpu, sizeof cpu);
            mu_int8_encode(cpu.g, cpu.rest, count, cpu.peak, ranks, cpu.word);
            by_lanes(&t, MU_INT8_ENCODE, ranks);
            assert_memory_equal(gpu.word, cpu.word, mu_int8_words(count) * 4);
            assert_memory_equal(gpu.rest, cpu.rest, sizeof cpu.rest);
            mu_int8_decode(cpu.word, count, cpu.peak, ranks, cpu.g);
            by_lanes(&t, MU_INT8_DECODE, ranks);
            for (size_t i = 0; i < MOST; i++)
                if (isnan(cpu.g[i]) ? !isnan(gpu.g[i]) : gpu.g[i] != cpu.g[i])
                    fail_msg("%zu elements, %d ranks: element %zu is %g, not %g", count,
                             ranks, i, gpu.g[i], cpu.g[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_of_all_threads_are_those_of_the_cpu),
        cmocka_unit_test(all_16_bit_numbers_have_their_magnitude),
        cmocka_unit_test(one_nan_or_inf_makes_the_sum_so),
        cmocka_unit_test(lanes_give_the_bits_of_the_cpu),
    };

    return cmocka_run_group_tests_name("block", tests, NULL, NULL);
}
