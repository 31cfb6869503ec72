/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plan.c - whole plans on made-up machines; numbers are those of the case log */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/synth.h"

static void dgx_a100(struct mu_node *node)
{
    static const char *const busid[] = { "07:00.0", "0f:00.0", "47:00.0", "4e:00.0",
                                         "87:00.0", "90:00.0", "b7:00.0", "bd:00.0" };
    static const int numa[] = { 3, 3, 1, 1, 7, 7, 5, 5 };

    synth_cpus(node, 2, 4, 16, 2);
    synth_distances(node, 12, 32);
    for (int i = 0; i < 8; i++)
        synth_gpu(node, busid[i], numa[i]);
}

static void case_001_a_dgx_a100_splits_by_locality_not_by_rank(void **state)
{
    static const char want[] = "0 0000:07:00.0 48-55,176-183 3 - - -\n"
                               "1 0000:0f:00.0 56-63,184-191 3 - - -\n"
                               "2 0000:47:00.0 16-23,144-151 1 - - -\n"
                               "3 0000:4e:00.0 24-31,152-159 1 - - -\n"
                               "4 0000:87:00.0 112-119,240-247 7 - - -\n"
                               "5 0000:90:00.0 120-127,248-255 7 - - -\n"
                               "6 0000:b7:00.0 80-87,208-215 5 - - -\n"
                               "7 0000:bd:00.0 88-95,216-223 5 - - -\n";
    struct mu_node node = { 0 };
    struct mu_alloc alloc;
    struct mu_plan plan;
    struct mu_err err = { 0 };
    char *rows;

    dgx_a100(&node);
    synth_links(&node);
    assert_int_equal(mu_node_finish(&node, &err), 0);
    synth_alloc(&node, 8, &alloc);
    rows = synth_plan(&node, &alloc, "", &plan);
    assert_string_equal(rows, want);
    free(rows);
    mu_plan_clear(&plan);
    mu_node_clear(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_001_a_dgx_a100_splits_by_locality_not_by_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
