/* SPDX-License-Identifier: BSD-3-Clause */
/* test_cores.c - may the ranks of a domain look for each other instead of sleeping? */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runtime/backend/host/cores.h"

static const struct row {
    const char *name;
    const char *cores[4]; /* of each rank; NULL ends the list */
    bool apart;
} rows[] = {
    { "one rank", { "0-3" }, true },
    { "a core each", { "0", "1", "2" }, true },
    { "several cores each", { "0-3", "8-11", "4-7" }, true },
    { "two ranks on one core", { "0", "0" }, false },
    { "ranks that no launcher has bound", { "0-7", "0-7" }, false },
    { "one core is shared", { "0-3", "3-6" }, false },
    { "the last shares with the first", { "0", "1", "0-1" }, false },
    { "the cores of one are unknown", { "0", "" }, false },
};

static void ranks_look_only_where_no_core_is_shared(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mu_cpuset taken = { 0 };
        bool apart = true;

        for (int r = 0; r < 4 && rows[i].cores[r]; r++) {
            struct mu_cpuset cores;

            assert_int_equal(mu_cpuset_parse(rows[i].cores[r], &cores, NULL), 0);
            apart = apart && mu_cores_take(&taken, &cores);
        }
        if (apart != rows[i].apart)
            fail_msg("%s: %d", rows[i].name, apart);
    }
}

static void the_cores_are_those_of_the_affinity(void **state)
{
    struct mu_cpuset all, one;
    cpu_set_t before, first;
    int cpu = 0;

    mu_cores_own(&all);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    assert_int_equal(sched_setaffinity(0, sizeof first, &first), 0);
    mu_cores_own(&one);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(mu_cpuset_count(&one), 1);
    assert_true(mu_cpuset_inside(&one, &all));
    assert_true(mu_cpuset_count(&all) <= CPU_COUNT(&before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_look_only_where_no_core_is_shared),
        cmocka_unit_test(the_cores_are_those_of_the_affinity),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
