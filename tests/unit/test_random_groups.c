/* SPDX-License-Identifier: BSD-3-Clause */
/* test_random_groups.c - random programs over random groups, in host memory
 *
 * SEEDS and FIRST in the environment choose how many seeds, and which.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/forked.h"
#include "tests/unit/random_groups.h"

static void copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static int program(struct muster *m, int rank, void *arg)
{
    const struct space host = { malloc, free, copy, true };

    (void)rank;
    random_groups(m, *(uint64_t *)arg, 40, &host);
    return 0;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void random_programs_agree_with_float64(void **state)
{
    uint64_t first = number("FIRST", 1), seeds = number("SEEDS", 12);

    for (uint64_t seed = first; seed < first + seeds; seed++) {
        struct forked_world w = { .size = 2 + (int)(seed % 5),
                                  .nodes = 1 + (int)(seed / 5 % 2),
                                  .force_tcp = seed / 10 % 4 == 3 };

        forked_well("random program", w, program, &seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_agree_with_float64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
