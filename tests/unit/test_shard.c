/* SPDX-License-Identifier: BSD-3-Clause */
/* test_shard.c - no sample lost or twice, in any world, from any position */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/core/shard.h"

static void an_epoch_is_a_permutation(void **state)
{
    static const uint64_t sizes[] = { 1,  2,   3,   4,   5,   7,    10,   16,
                                      17, 100, 255, 256, 257, 1000, 60000 };

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        uint64_t n = sizes[k];
        char *seen = calloc(n, 1);
        struct mu_shuffle shuffle;

        mu_shuffle_init(&shuffle, n, 42, k);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = mu_shuffle_at(&shuffle, i);

            assert_true(at < n);
            assert_int_equal(seen[at], 0);
            seen[at] = 1;
        }
        free(seen);
    }
}

static void the_largest_set_still_has_an_order(void **state)
{
    struct mu_shuffle shuffle;

    mu_shuffle_init(&shuffle, 1ull << 62, 1, 1);
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t a = mu_shuffle_at(&shuffle, (1ull << 62) - 1 - i);

        assert_true(a < 1ull << 62);
        assert_int_not_equal(a, mu_shuffle_at(&shuffle, i));
    }
}

/* Every sample comes to every place about equally often over epochs: chi-square of 9
 * degrees of freedom below 33.7 (p = 0.0001) for each of ten places.
 */
static void epochs_have_orders_of_their_own(void **state)
{
    enum { N = 10, EPOCHS = 20000 };
    int hits[N][N] = { { 0 } };

    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        struct mu_shuffle shuffle;

        mu_shuffle_init(&shuffle, N, 7, epoch);
        for (uint64_t i = 0; i < N; i++)
            hits[i][mu_shuffle_at(&shuffle, i)]++;
    }
    for (int i = 0; i < N; i++) {
        double chi = 0, expected = (double)EPOCHS / N;

        for (int k = 0; k < N; k++)
            chi += (hits[i][k] - expected) * (hits[i][k] - expected) / expected;
        if (chi > 33.7)
            fail_msg("place %d: chi-square %.1f", i, chi);
    }
}

static void seed_and_epoch_change_the_order(void **state)
{
    static const uint64_t pairs[][2] = {
        { 1, 0 }, { 1, 1 }, { 2, 0 }, { 0, 0 }, { 0, 1 }
    };
    enum { PAIRS = sizeof pairs / sizeof pairs[0], N = 1000 };

    for (int a = 0; a < PAIRS; a++)
        for (int b = a + 1; b < PAIRS; b++) {
            struct mu_shuffle one, two;
            int equal = 0;

            mu_shuffle_init(&one, N, pairs[a][0], pairs[a][1]);
            mu_shuffle_init(&two, N, pairs[b][0], pairs[b][1]);
            for (uint64_t i = 0; i < N; i++)
                equal += mu_shuffle_at(&one, i) == mu_shuffle_at(&two, i);
            assert_true(equal < 10); /* 1 expected */
        }
}

static const struct world_case {
    const char *name;
    uint64_t samples, position, batch;
    int size;
    enum muster_tail tail;
    uint64_t steps, padded, dropped;
} worlds[] = {
    { "4 ranks, Fashion-MNIST: 96 samples remain, 24 each", 60000, 0, 32, 4,
      MUSTER_TAIL_PAD, 469, 0, 0 },
    { "1 rank with four times the batch: as many steps", 60000, 0, 128, 1,
      MUSTER_TAIL_PAD, 469, 0, 0 },
    { "evenly dealt: no short step", 128, 0, 8, 4, MUSTER_TAIL_PAD, 4, 0, 0 },
    { "7 ranks: 3 samples come twice", 60001, 0, 32, 7, MUSTER_TAIL_PAD, 268, 3, 0 },
    { "7 ranks: 4 samples are left out", 60001, 0, 32, 7, MUSTER_TAIL_DROP, 268, 0, 4 },
    { "7 ranks: ranks differ by one", 60001, 0, 32, 7, MUSTER_TAIL_KEEP, 268, 0, 0 },
    { "fewer samples than ranks, padded", 3, 0, 32, 8, MUSTER_TAIL_PAD, 1, 5, 0 },
    { "fewer samples than ranks, dropped", 3, 0, 32, 8, MUSTER_TAIL_DROP, 0, 0, 3 },
    { "fewer samples than ranks, some get none", 3, 0, 32, 8, MUSTER_TAIL_KEEP, 1, 0,
      0 },
    { "taken up in the middle by another world", 1000, 384, 5, 3, MUSTER_TAIL_PAD, 42,
      2, 0 },
    { "taken up at the end", 1000, 1000, 5, 3, MUSTER_TAIL_PAD, 0, 0, 0 },
};

/* Walk all ranks through the epoch: they stay in step, cover every place from the
 * position on, and only as many come twice or never as the case says.
 */
static void walk(const struct world_case *w)
{
    unsigned char *seen = calloc(w->samples, 1);
    uint64_t position = w->position, steps = 0, twice = 0, never = 0;
    struct mu_step step;

    while (mu_shard_step(w->samples, position, w->batch, 0, w->size, w->tail, &step)) {
        uint64_t consumed = step.consumed, count = step.count;

        for (int r = 0; r < w->size; r++) {
            assert_int_equal(1, mu_shard_step(w->samples, position, w->batch, r,
                                              w->size, w->tail, &step));
            assert_int_equal(step.consumed, consumed);
            assert_true(step.count <= w->batch);
            if (w->tail != MUSTER_TAIL_KEEP && step.count != count)
                fail_msg("%s: rank %d has another batch", w->name, r);
            for (uint64_t i = 0; i < step.count; i++)
                seen[(step.first + i) % w->samples]++;
        }
        position += consumed;
        steps++;
    }
    if (steps != w->steps ||
        steps != mu_shard_steps(w->samples, w->position, w->batch, w->size, w->tail))
        fail_msg("%s: %llu steps", w->name, (unsigned long long)steps);
    for (uint64_t i = 0; i < w->samples; i++) {
        int first = i >= w->position;

        never += first && !seen[i];
        twice += seen[i] > first ? seen[i] - first : 0;
    }
    if (twice != w->padded || never != w->dropped)
        fail_msg("%s: %llu samples too many, %llu never", w->name,
                 (unsigned long long)twice, (unsigned long long)never);
    free(seen);
}

static void no_sample_is_lost_or_comes_twice(void **state)
{
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++)
        walk(&worlds[i]);
}

static void four_ranks_see_in_each_step_what_one_rank_sees(void **state)
{
    for (uint64_t position = 0; position < 60000; position += 128) {
        struct mu_step one, part;
        uint64_t next;

        assert_int_equal(
            1, mu_shard_step(60000, position, 128, 0, 1, MUSTER_TAIL_PAD, &one));
        next = one.first;
        for (int r = 0; r < 4; r++) {
            assert_int_equal(
                1, mu_shard_step(60000, position, 32, r, 4, MUSTER_TAIL_PAD, &part));
            assert_int_equal(part.first, next);
            next += part.count;
        }
        assert_int_equal(next, one.first + one.count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_is_a_permutation),
        cmocka_unit_test(the_largest_set_still_has_an_order),
        cmocka_unit_test(epochs_have_orders_of_their_own),
        cmocka_unit_test(seed_and_epoch_change_the_order),
        cmocka_unit_test(no_sample_is_lost_or_comes_twice),
        cmocka_unit_test(four_ranks_see_in_each_step_what_one_rank_sees),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
