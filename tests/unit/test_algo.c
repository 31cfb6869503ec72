/* SPDX-License-Identifier: BSD-3-Clause */
/* test_algo.c - which way an all-reduce of a size takes, from measured times */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "runtime/backend/nccl/algo.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define BIT(p) (1u << (p))
#define ALL                                                                            \
    (BIT(MU_ALGO_ONE_SHOT) | BIT(MU_ALGO_PULL) | BIT(MU_ALGO_RELAY) | BIT(MU_ALGO_NCCL))

/* Times as two GPUs on NVLink show them: alpha in us, beta in bytes per us. */
static void line(struct mu_algo_curve *c, double alpha, double beta)
{
    static const float at[MU_ALGO_POINTS] = { 65536, 1 << 20, 4 << 20, 16 << 20 };

    c->n = MU_ALGO_POINTS;
    for (int i = 0; i < c->n; i++) {
        c->bytes[i] = at[i];
        c->us[i] = (float)(alpha + at[i] / beta);
    }
}

static void table_fill(struct mu_algo_table *t)
{
    *t = (struct mu_algo_table){ 0 };
    line(&t->curve[MU_ALGO_ONE_SHOT], 3, 200e3);
    line(&t->curve[MU_ALGO_PULL], 6, 335e3);
    line(&t->curve[MU_ALGO_RELAY], 9, 360e3);
    line(&t->curve[MU_ALGO_NCCL], 20, 370e3);
}

static const struct choose_case {
    const char *name;
    size_t bytes;
    unsigned usable;
    enum mu_algo path;
} choose_cases[] = {
    { "a small one takes the path of least latency", 4 * KIB, ALL, MU_ALGO_ONE_SHOT },
    { "a middle one the next", 2 * MIB, ALL, MU_ALGO_PULL },
    { "a large one the third", 64 * MIB, ALL, MU_ALGO_RELAY },
    { "a huge one the path of most bandwidth", 1024 * MIB, ALL, MU_ALGO_NCCL },
    { "only what is usable is chosen", 4 * KIB, BIT(MU_ALGO_RELAY) | BIT(MU_ALGO_NCCL),
      MU_ALGO_RELAY },
    { "nothing usable: NCCL", 4 * KIB, 0, MU_ALGO_NCCL },
};

static void chooses(void **state)
{
    struct mu_algo_table t;

    table_fill(&t);
    for (size_t i = 0; i < sizeof(choose_cases) / sizeof(choose_cases[0]); i++) {
        const struct choose_case *c = &choose_cases[i];
        enum mu_algo got = mu_algo_choose(&t, c->bytes, c->usable, true);

        if (got != c->path)
            fail_msg("%s: %s", c->name, mu_algo_names[got]);
    }
}

/* NCCL starts a thread in each call: worth it only where it gains more. */
static void the_call_counts_unless_it_is_captured(void **state)
{
    const unsigned two = BIT(MU_ALGO_PULL) | BIT(MU_ALGO_NCCL);
    struct mu_algo_table t;

    table_fill(&t);
    t.curve[MU_ALGO_NCCL].call_us = 70;
    t.curve[MU_ALGO_PULL].call_us = 4;
    assert_int_equal(mu_algo_choose(&t, 128 * MIB, two, true), MU_ALGO_NCCL);
    assert_int_equal(mu_algo_choose(&t, 128 * MIB, two, false), MU_ALGO_PULL);
    assert_int_equal(mu_algo_choose(&t, 1024 * MIB, two, false), MU_ALGO_NCCL);
}

static void not_measured_is_never_chosen(void **state)
{
    struct mu_algo_table t = { 0 };

    line(&t.curve[MU_ALGO_NCCL], 20, 370e3);
    assert_int_equal(mu_algo_choose(&t, 4096, ALL, true), MU_ALGO_NCCL);
}

static void time_follows_the_line(void **state)
{
    struct mu_algo_table t;

    table_fill(&t);
    /* inside a stretch, below the first point, beyond the last */
    assert_float_equal(mu_algo_time(&t, MU_ALGO_PULL, 2 * MIB), 6 + 2 * MIB / 335e3,
                       0.05);
    assert_float_equal(mu_algo_time(&t, MU_ALGO_PULL, 1024), 6, 0.05);
    assert_float_equal(mu_algo_time(&t, MU_ALGO_PULL, 256 * MIB), 6 + 256 * MIB / 335e3,
                       5);
}

static void noise_never_makes_a_larger_size_quicker(void **state)
{
    struct mu_algo_table t = { 0 };

    t.curve[MU_ALGO_PULL] =
        (struct mu_algo_curve){ .n = 2, .bytes = { 65536, 1 << 20 }, .us = { 9, 4 } };
    assert_true(mu_algo_time(&t, MU_ALGO_PULL, 64 * MIB) >= 4);
    assert_true(mu_algo_time(&t, MU_ALGO_PULL, 0) >= 0.5);
}

static void the_curve_is_that_of_the_best_path(void **state)
{
    struct mu_algo_table t;
    struct mu_curve c;

    table_fill(&t);
    mu_algo_curve(&t, ALL, &c);
    assert_true(c.n >= 12 && c.bytes[0] == 16 * KIB);
    assert_float_equal(mu_curve_time(&c, 16 * KIB),
                       mu_algo_time(&t, MU_ALGO_ONE_SHOT, 16 * KIB), 1e-9);
    assert_float_equal(mu_curve_time(&c, 128 * MIB),
                       mu_algo_time(&t, MU_ALGO_RELAY, 128 * MIB), 1e-6);
    t = (struct mu_algo_table){ 0 };
    mu_algo_curve(&t, ALL, &c);
    assert_int_equal(c.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses),
        cmocka_unit_test(the_call_counts_unless_it_is_captured),
        cmocka_unit_test(not_measured_is_never_chosen),
        cmocka_unit_test(time_follows_the_line),
        cmocka_unit_test(noise_never_makes_a_larger_size_quicker),
        cmocka_unit_test(the_curve_is_that_of_the_best_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
