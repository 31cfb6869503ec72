/* SPDX-License-Identifier: BSD-3-Clause */
/* test_port.c - MASTER_PORT where Slurm reserved none; case 043 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "spank/core/network/port.h"
#include "tests/unit/patience.h"

static const struct range_case {
    const char *name;
    int eph_first, eph_last, first, last;
} ranges[] = {
    { "Linux as it comes", 32768, 60999, 20000, 32767 },
    { "a low ephemeral range: above it", 1024, 50000, 50001, 65535 },
    { "just enough room below", 2048, 65535, 1024, 2047 },
    { "all ports are ephemeral: none", 1024, 65535, 0, 0 },
};

static void case_043_hashed_ports_lie_outside_the_ephemeral_range(void **state)
{
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        int first = 0, last = 0;
        bool got =
            mu_port_range(ranges[i].eph_first, ranges[i].eph_last, &first, &last);

        if (got != (ranges[i].first != 0) || first != ranges[i].first ||
            last != ranges[i].last)
            fail_msg("%s: %d-%d", ranges[i].name, first, last);
    }
}

static void case_043_ports_differ_by_job_step_and_use(void **state)
{
    int same = 0;

    for (uint32_t job = 1; job <= 1000; job++) {
        int port = mu_port_hash(job, 0, 0, 0, 20000, 29999, NULL);

        assert_true(port >= 20000 && port <= 29999);
        same += port == mu_port_hash(job + 10000, 0, 0, 0, 20000, 29999, NULL);
        same += port == mu_port_hash(job, 1, 0, 0, 20000, 29999, NULL);
        same += port == mu_port_hash(job, 0, 1, 0, 20000, 29999, NULL);
        for (uint32_t other = 1; other <= 50; other++)
            assert_int_not_equal(port,
                                 mu_port_hash(other, 0, 0, 1, 20000, 29999, NULL));
    }
    /* 3000 pairs in 5000 places: 0.6 meet by chance */
    assert_true(same <= 6);
    assert_int_equal(mu_port_hash(7, 0, 0, 0, 500, 500, NULL), 500);
}

static const struct list_case {
    const char *text;
    int has, lacks; /* one port that is in it, one that is not; -1 none */
} lists[] = {
    { "", -1, 8080 },         { "\n", -1, 0 },
    { "8080\n", 8080, 8081 }, { "8080,9148-9150\n", 9150, 9151 },
    { "1-65535", 65535, 0 },  { "63-129", 129, 62 },
    { "64-127", 64, 128 },    { "5-5", 5, 4 },
};

static void the_kernels_list_of_reserved_ports_is_read(void **state)
{
    static const char *const bad[] = { "x", "1-", "5-4", "65536", "1;2", "-1", "1 2" };
    struct mu_port_set set;

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        assert_int_equal(mu_port_set_parse(lists[i].text, &set, NULL), 0);
        assert_true(lists[i].has < 0 || mu_port_set_has(&set, lists[i].has));
        assert_false(mu_port_set_has(&set, lists[i].lacks));
    }
    mu_port_set_parse("77", &set, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mu_err err = { 0 };

        if (mu_port_set_parse(bad[i], &set, &err) == 0)
            fail_msg("'%s' was taken", bad[i]);
        assert_non_null(strstr(err.text, bad[i]));
        assert_true(mu_port_set_has(&set, 77)); /* untouched */
    }
}

/* A user can send it: slurmstepd reads the list from srun's environment. */
static void a_list_of_many_large_ranges_takes_no_second(void **state)
{
    enum { RANGES = 30000 };
    static const char range[] = "0-65535,";
    char *text = malloc(RANGES * (sizeof range - 1) + 1);
    struct mu_port_set set;
    clock_t from = clock();

    for (size_t i = 0; i < RANGES; i++)
        memcpy(text + i * (sizeof range - 1), range, sizeof range);
    assert_int_equal(mu_port_set_parse(text, &set, NULL), 0);
    assert_true(mu_port_set_has(&set, 65535));
    assert_true(clock() - from < 1 * PATIENCE * CLOCKS_PER_SEC);
    free(text);
}

static const struct skip_case {
    const char *name, *reserved;
    int first, last, eph_first, eph_last;
    int least, most; /* where every port of 500 jobs must lie */
} skips[] = {
    { "nothing is taken", "", 23000, 23015, 32768, 60999, 23000, 23015 },
    { "the lower half is reserved for others", "23000-23007", 23000, 23015, 32768,
      60999, 23008, 23015 },
    { "one reserved port spoils its pair", "23000,23002,23005,23006,23009", 23000,
      23011, 32768, 60999, 23010, 23011 },
    { "a range that reaches into the ephemeral one", "", 32760, 32779, 32768, 60999,
      32760, 32767 },
    { "an ephemeral range of its own that is reserved as a whole", "40000-40009", 40000,
      40009, 32768, 60999, 40000, 40009 },
    { "ephemeral, and reserved in part: the reserved part", "40004-40007", 40000, 40009,
      32768, 60999, 40004, 40007 },
    { "ephemeral throughout: the site's word holds", "", 40000, 40009, 32768, 60999,
      40000, 40009 },
};

static void case_043_ports_of_others_are_skipped(void **state)
{
    for (size_t i = 0; i < sizeof skips / sizeof skips[0]; i++) {
        const struct skip_case *c = &skips[i];
        struct mu_port_set reserved, skip;

        assert_int_equal(mu_port_set_parse(c->reserved, &reserved, NULL), 0);
        mu_port_skip(c->first, c->last, c->eph_first, c->eph_last, &reserved, &skip);
        for (uint32_t job = 1; job <= 500; job++)
            for (unsigned salt = 0; salt < 2; salt++) {
                int port = mu_port_hash(job, 0, 0, salt, c->first, c->last, &skip);

                if (port < c->least || port > c->most)
                    fail_msg("%s: job %u got %d", c->name, (unsigned)job, port);
            }
    }
}

static void skipping_leaves_the_others_where_they_were(void **state)
{
    struct mu_port_set reserved, skip;
    int moved = 0;

    assert_int_equal(mu_port_set_parse("20100-20199", &reserved, NULL), 0);
    mu_port_skip(20000, 29999, 32768, 60999, &reserved, &skip);
    for (uint32_t job = 1; job <= 1000; job++) {
        int before = mu_port_hash(job, 0, 0, 0, 20000, 29999, NULL);
        int after = mu_port_hash(job, 0, 0, 0, 20000, 29999, &skip);

        assert_false(mu_port_set_has(&reserved, after));
        moved += before != after;
        assert_true(before == after || mu_port_set_has(&reserved, before));
    }
    assert_true(moved >= 1 && moved <= 30); /* 1 % of the range */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_043_hashed_ports_lie_outside_the_ephemeral_range),
        cmocka_unit_test(case_043_ports_differ_by_job_step_and_use),
        cmocka_unit_test(the_kernels_list_of_reserved_ports_is_read),
        cmocka_unit_test(a_list_of_many_large_ranges_takes_no_second),
        cmocka_unit_test(case_043_ports_of_others_are_skipped),
        cmocka_unit_test(skipping_leaves_the_others_where_they_were),
    };

    return cmocka_run_group_tests_name("port", tests, NULL, NULL);
}
