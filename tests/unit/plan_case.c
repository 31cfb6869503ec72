/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_case.c - runs a table of plans */
#include "tests/unit/plan_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/synth.h"

static void run_case(void **state)
{
    const struct plan_case *c = *state;
    struct mu_node node = { 0 };
    struct mu_alloc alloc;
    struct mu_plan plan;
    struct mu_err err = { 0 };
    struct mu_cpuset owned;
    char *rows, *said;

    c->machine(&node);
    if (mu_node_finish(&node, &err) < 0)
        fail_msg("%s", err.text);
    synth_alloc(&node, c->ntasks, &alloc);
    alloc.cpus_per_task = c->per_task;
    if (c->cpus)
        assert_int_equal(mu_cpuset_parse(c->cpus, &alloc.cpus, &err), 0);
    if (c->mems)
        assert_int_equal(mu_cpuset_parse(c->mems, &alloc.mems, &err), 0);
    if (c->gpus) {
        assert_int_equal(mu_cpuset_parse(c->gpus, &owned, &err), 0);
        alloc.ngpus = 0;
        for (int g = mu_cpuset_next(&owned, -1); g >= 0; g = mu_cpuset_next(&owned, g))
            alloc.gpu_node[alloc.ngpus++] = g;
    }
    rows = synth_plan(&node, &alloc, c->options ? c->options : "", &plan);
    said = synth_said(&plan);
    assert_string_equal(rows, c->want);
    for (int i = 0; i < 4 && c->says[i]; i++)
        if (!strstr(said, c->says[i]))
            fail_msg("'%s' is missing in:\n%s", c->says[i], said);
    if (strncmp(rows, "error:", 6) != 0) {
        assert_int_equal(plan.as_asked, !c->not_as_asked);
        assert_int_equal(plan.as_asked, plan.nwarnings == 0);
    }
    free(rows);
    free(said);
    mu_plan_clear(&plan);
    mu_node_clear(&node);
}

int run_plan_cases(const struct plan_case *cases, int n)
{
    struct CMUnitTest *tests = calloc((size_t)n, sizeof *tests);
    int failed;

    if (!tests)
        return 1;
    for (int i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){ .name = cases[i].name,
                                        .test_func = run_case,
                                        .initial_state = (void *)&cases[i] };
    failed = _cmocka_run_group_tests("plan", tests, (size_t)n, NULL, NULL);
    free(tests);
    return failed;
}
