/* SPDX-License-Identifier: BSD-3-Clause */
/* test_pair_matrix.c - which pairs of ranks count as slow */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/pair_matrix.h"

#define RANKS 4
#define PAIRS (RANKS * (RANKS - 1))

/* Ranks 0 and 1 are on one node, 2 and 3 on another. Inside a node 10 GB/s and 2 us,
 * between nodes 1 GB/s and 20 us; a repeat may be 10 % off.
 */
static void make(struct mu_pair_figure f[PAIRS])
{
    int n = 0;

    memset(f, 0, PAIRS * sizeof *f);
    for (int i = 0; i < RANKS; i++)
        for (int j = 0; j < RANKS; j++) {
            int near = i / 2 == j / 2;
            double rate = near ? 10 : 1, us = near ? 2 : 20;

            if (i == j)
                continue;
            f[n++] = (struct mu_pair_figure){
                .from = i,
                .to = j,
                .link = near ? MU_LINK_NODE : MU_LINK_NETWORK,
                .state = MU_PAIR_OK,
                .us = { us, us * 0.9, us * 1.1 },
                .rate = { rate, rate * 0.9, rate * 1.1 },
                .both = { rate / 2, rate / 2, rate / 2 },
            };
        }
}

/* What is other than usual from rank 0 to rank 2, and what that makes of it. */
static const struct row {
    const char *name;
    enum mu_pair_state before;
    double rate, best_rate, us, best_us, slow_by, rating;
    enum mu_pair_state after;
    int slow;
} rows[] = {
    { "as the others", MU_PAIR_OK, 1, 1.1, 20, 18, 2, 0, MU_PAIR_OK, 0 },
    { "every repeat is slow", MU_PAIR_OK, 0.3, 0.4, 20, 18, 2, 0, MU_PAIR_SLOW_RATE,
      1 },
    { "one repeat is as fast as the others", MU_PAIR_OK, 0.3, 1.0, 20, 18, 2, 0,
      MU_PAIR_OK, 0 },
    { "slow, where a larger factor is given", MU_PAIR_OK, 0.3, 0.4, 70, 70, 3, 0,
      MU_PAIR_OK, 0 },
    { "every message is late", MU_PAIR_OK, 1, 1.1, 90, 70, 2, 0, MU_PAIR_SLOW_LATENCY,
      1 },
    { "one repeat is in time", MU_PAIR_OK, 1, 1.1, 90, 30, 2, 0, MU_PAIR_OK, 0 },
    { "below its rating, as the other seven of its link", MU_PAIR_OK, 1, 1.1, 20, 18, 2,
      4, MU_PAIR_SLOW_RATED, 8 },
    { "an overdue pair stays overdue", MU_PAIR_OVERDUE, 0, 0, 0, 0, 2, 0,
      MU_PAIR_OVERDUE, 0 },
    { "wrong data stay wrong", MU_PAIR_WRONG, 0, 0, 0, 0, 2, 0, MU_PAIR_WRONG, 0 },
};

static void a_pair_is_compared_with_those_of_its_link(void **state)
{
    struct mu_pair_figure f[PAIRS];
    struct mu_pair_medians m[MU_LINKS];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        int slow;

        make(f);
        f[1].state = r->before;
        f[1].rate = (struct mu_spread){ r->rate, r->rate, r->best_rate };
        f[1].us = (struct mu_spread){ r->us, r->best_us, r->us };
        slow = mu_pairs_judge(f, PAIRS,
                              &(struct mu_pair_limits){ r->slow_by, r->rating }, m);
        if (f[1].state != r->after || slow != r->slow)
            fail_msg("%s: %s, %d slow", r->name, mu_pair_state_name(f[1].state), slow);
        if (m[MU_LINK_NODE].rate != 10 || m[MU_LINK_NODE].pairs != 4 ||
            m[MU_LINK_NETWORK].rate != 1 || m[MU_LINK_NETWORK].us != 20 ||
            m[MU_LINK_NETWORK].both != 0.5)
            fail_msg("%s: other medians", r->name);
        assert_int_equal(m[MU_LINK_NETWORK].pairs, r->before == MU_PAIR_OK ? 8 : 7);
    }
    (void)state;
}

static void a_matrix_that_was_not_measured_has_no_median(void **state)
{
    struct mu_pair_figure f = { .state = MU_PAIR_OVERDUE };
    struct mu_pair_medians m[MU_LINKS];

    assert_int_equal(
        mu_pairs_judge(&f, 1, &(struct mu_pair_limits){ MU_PAIR_SLOW, 0 }, m), 0);
    assert_int_equal(m[MU_LINK_NODE].pairs, 0);
    assert_true(m[MU_LINK_NODE].rate == 0);
    (void)state;
}

static void repeats_have_a_spread_and_outliers(void **state)
{
    double rates[] = { 10, 4, 11, 12, 9 };
    struct mu_spread s = mu_spread_of(rates, 5);

    assert_true(s.median == 10 && s.least == 4 && s.most == 12);
    assert_int_equal(mu_pair_outliers(rates, 5), 1);
    assert_int_equal(mu_pair_outliers(rates + 1, 4), 0);
    (void)state;
}

static void lanes_add_until_the_links_are_full(void **state)
{
    static const struct {
        double rates[4];
        int n, add;
    } cases[] = {
        { { 10, 20, 30, 40 }, 4, 4 },
        { { 10, 19, 21, 40 }, 4, 2 },
        { { 10, 15, 19, 19 }, 4, 2 },
        { { 10, 9, 30, 40 }, 4, 1 },
        { { 10 }, 1, 1 },
        { { 0 }, 0, 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (mu_lanes_that_add(cases[i].rates, cases[i].n) != cases[i].add)
            fail_msg("case %zu: %d", i, mu_lanes_that_add(cases[i].rates, cases[i].n));
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_is_compared_with_those_of_its_link),
        cmocka_unit_test(a_matrix_that_was_not_measured_has_no_median),
        cmocka_unit_test(repeats_have_a_spread_and_outliers),
        cmocka_unit_test(lanes_add_until_the_links_are_full),
    };

    return cmocka_run_group_tests_name("pair_matrix", tests, NULL, NULL);
}
