/* SPDX-License-Identifier: BSD-3-Clause */
/* test_env.c - which variables Muster may write, MUSTER_SET, port ranges */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/env/task_env.h"

static const char *a_set(void)
{
    static char set[MU_ENV_SET_TEXT];

    if (!set[0]) {
        mu_env_set_add(set, "RANK", "3");
        mu_env_set_add(set, "OMP_NUM_THREADS", "8");
    }
    return set;
}

static const struct write_case {
    const char *name;
    enum mu_env_rule rule;
    const char *var, *current;
    bool inherited, may;
} writes[] = {
    { "not there: written", MU_ENV_KEEP, "OMP_NUM_THREADS", NULL, false, true },
    { "the user's: kept", MU_ENV_KEEP, "OMP_NUM_THREADS", "8", false, false },
    { "the user's empty value: kept", MU_ENV_KEEP, "OMP_NUM_THREADS", "", false,
      false },
    { "an outer step's, unchanged: written", MU_ENV_KEEP, "OMP_NUM_THREADS", "8", true,
      true },
    { "an outer step's, changed since: kept", MU_ENV_KEEP, "OMP_NUM_THREADS", "4", true,
      false },
    { "not listed: kept", MU_ENV_KEEP, "MASTER_ADDR", "n1", true, false },
    { "a rank of the user's: kept", MU_ENV_RANK, "RANK", "3", false, false },
    { "an outer step's rank, unchanged: written", MU_ENV_RANK, "RANK", "3", true,
      true },
    { "an outer step's rank, changed since: written", MU_ENV_RANK, "RANK", "7", true,
      true },
    { "ours: written", MU_ENV_OURS, "CUDA_VISIBLE_DEVICES", "0", false, true },
};

static void a_users_value_is_never_written_over(void **state)
{
    for (size_t i = 0; i < sizeof writes / sizeof writes[0]; i++)
        if (mu_env_may_write(writes[i].rule, writes[i].var, writes[i].current,
                             writes[i].inherited ? a_set() : NULL) != writes[i].may)
            fail_msg("%s", writes[i].name);
}

static void the_set_lists_names_not_parts_of_names(void **state)
{
    char set[MU_ENV_SET_TEXT] = "";

    mu_env_set_add(set, "LOCAL_RANK", "1");
    assert_false(mu_env_set_lists(set, "RANK"));
    assert_false(mu_env_set_lists(set, "LOCAL"));
    assert_true(mu_env_set_lists(set, "LOCAL_RANK"));
    assert_true(mu_env_set_has(set, "LOCAL_RANK", "1"));
    assert_false(mu_env_set_has(set, "LOCAL_RANK", "2"));
    assert_false(mu_env_set_has("", "LOCAL_RANK", "1"));
    assert_false(mu_env_set_has(NULL, "LOCAL_RANK", "1"));
}

static void the_sets_format_is_fixed(void **state)
{
    char set[MU_ENV_SET_TEXT] = "";

    /* FNV-1a of the values: other versions of Muster read it in nested steps. */
    mu_env_set_add(set, "A", "");
    mu_env_set_add(set, "B", "a");
    assert_string_equal(set, "A:811c9dc5,B:e40c292c");
}

static void a_full_set_says_so(void **state)
{
    static char set[MU_ENV_SET_TEXT];
    char name[600];

    memset(name, 'N', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < 13; i++)
        assert_true(mu_env_set_add(set, name, "1"));
    assert_false(mu_env_set_add(set, name, "1"));
    assert_true(strlen(set) < sizeof set);
}

static void names_are_told_one_by_one(void **state)
{
    char name[64];

    assert_true(mu_env_set_name(a_set(), 0, name, sizeof name));
    assert_string_equal(name, "RANK");
    assert_true(mu_env_set_name(a_set(), 1, name, sizeof name));
    assert_string_equal(name, "OMP_NUM_THREADS");
    assert_false(mu_env_set_name(a_set(), 2, name, sizeof name));
    assert_false(mu_env_set_name("", 0, name, sizeof name));
    assert_false(mu_env_set_name("A:1,:2", 1, name, sizeof name));
    assert_false(mu_env_set_name("TOOLONG:1", 0, name, 4));
}

static const struct threads_case {
    int cores, gpus, threads;
} threads[] = {
    { 16, 1, 16 }, { 16, 0, 16 }, { 64, 8, 8 }, { 7, 2, 3 }, { 2, 4, 1 }, { 1, 1, 1 },
};

static void case_064_a_task_with_several_gpus_has_threads_for_each(void **state)
{
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++)
        assert_int_equal(mu_env_threads(threads[i].cores, threads[i].gpus),
                         threads[i].threads);
}

/* An environment of five variables; a name that was unset is empty. */
struct fake_env {
    struct {
        char name[32];
        const char *value;
    } item[5];
};

static const char *fake_get(void *arg, const char *name)
{
    struct fake_env *env = arg;

    for (int i = 0; i < 5; i++)
        if (strcmp(env->item[i].name, name) == 0)
            return env->item[i].value;
    return NULL;
}

static void fake_unset(void *arg, const char *name)
{
    struct fake_env *env = arg;

    for (int i = 0; i < 5; i++)
        if (strcmp(env->item[i].name, name) == 0)
            env->item[i].name[0] = '\0';
}

static void
case_063_an_outer_steps_values_are_dropped_those_changed_since_stay(void **state)
{
    for (int slurms = 0; slurms < 2; slurms++) {
        struct fake_env env = { { { "RANK", "3" },
                                  { "OMP_NUM_THREADS", "7" },
                                  { "ROCR_VISIBLE_DEVICES", "1" },
                                  { "MUSTER_PLAN", "v=1" },
                                  { "HOME", "/root" } } };
        const struct mu_env_access access = { fake_get, fake_unset, &env };
        char set[MU_ENV_SET_TEXT];

        snprintf(set, sizeof set, "%s", a_set());
        mu_env_set_add(set, "ROCR_VISIBLE_DEVICES", "1");
        mu_env_drop_inherited(&access, set, slurms);
        assert_null(fake_get(&env, "RANK"));
        assert_non_null(fake_get(&env, "OMP_NUM_THREADS"));
        assert_null(fake_get(&env, "MUSTER_PLAN"));
        assert_non_null(fake_get(&env, "HOME"));
        if (slurms)
            assert_non_null(fake_get(&env, "ROCR_VISIBLE_DEVICES"));
        else
            assert_null(fake_get(&env, "ROCR_VISIBLE_DEVICES"));
    }
}

static const struct port_case {
    const char *text;
    int port;
} ports[] = {
    { "26239-26241", 26239 },
    { "12000,12005-12006", 12000 },
    { "12000", 12000 },
    { "", -1 },
    { "-5", -1 },
    { "x", -1 },
    { "70000", -1 },
    { "12x", -1 },
    { "0-3", -1 },
};

static void the_first_reserved_port(void **state)
{
    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++)
        if (mu_env_first_port(ports[i].text) != ports[i].port)
            fail_msg("'%s'", ports[i].text);
    assert_int_equal(mu_env_first_port(NULL), -1);
}

static void a_list_that_is_full_refuses_more(void **state)
{
    struct mu_env env = { 0 };
    struct mu_err err = { 0 };

    for (int i = 0; i < MU_ENV_MAX; i++)
        assert_int_equal(mu_env_add(&env, "X", MU_ENV_KEEP, &err, "%d", i), 0);
    assert_int_equal(mu_env_add(&env, "LAST", MU_ENV_KEEP, &err, "x"), -1);
    assert_non_null(strstr(err.text, "LAST"));
    assert_string_equal(env.item[7].value, "7");
    mu_env_clear(&env);
    assert_int_equal(env.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_users_value_is_never_written_over),
        cmocka_unit_test(the_set_lists_names_not_parts_of_names),
        cmocka_unit_test(the_sets_format_is_fixed),
        cmocka_unit_test(a_full_set_says_so),
        cmocka_unit_test(names_are_told_one_by_one),
        cmocka_unit_test(case_064_a_task_with_several_gpus_has_threads_for_each),
        cmocka_unit_test(
            case_063_an_outer_steps_values_are_dropped_those_changed_since_stay),
        cmocka_unit_test(the_first_reserved_port),
        cmocka_unit_test(a_list_that_is_full_refuses_more),
    };

    return cmocka_run_group_tests_name("env", tests, NULL, NULL);
}
