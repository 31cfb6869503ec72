/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plugin_load.c - muster.so as Slurm loads it: exports, hooks, and each call into
 * Slurm failing in turn
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/plugin_host.h"

static void every_symbol_resolves_and_every_hook_is_there(void **state)
{
    static const char *const names[] = {
        "plugin_name",
        "plugin_type",
        "plugin_version",
        "slurm_spank_init",
        "slurm_spank_init_post_opt",
        "slurm_spank_user_init",
        "slurm_spank_task_init",
        "slurm_spank_task_exit",
        "slurm_spank_exit",
        "spank_plugin_version",
    };
    void *so = load();

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!dlsym(so, names[i]))
            fail_msg("%s is missing", names[i]);
    assert_string_equal(dlsym(so, "plugin_name"), "muster");
    assert_string_equal(dlsym(so, "plugin_type"), "spank");
    dlclose(so);
}

static void case_051_the_version_is_that_of_the_headers(void **state)
{
    void *so = load();
    const unsigned int *version = dlsym(so, "plugin_version");

    assert_int_equal(*version, SLURM_VERSION_NUMBER);
    dlclose(so);
}

/* What the map names, and nothing else: Slurm runs any `init` that it finds. */
static void nothing_else_is_exported(void **state)
{
    static const char want[] =
        "plugin_name plugin_type plugin_version slurm_spank_exit "
        "slurm_spank_init slurm_spank_init_post_opt slurm_spank_task_exit "
        "slurm_spank_task_init slurm_spank_user_init spank_plugin_version ";
    char command[4200], line[256], got[4096] = "";
    FILE *nm;

    snprintf(command, sizeof command,
             "nm -D --defined-only '%s' | sed 's/.* //' | LC_ALL=C sort",
             path_of_plugin());
    nm = popen(command, "r");
    assert_non_null(nm);
    while (fgets(line, sizeof line, nm)) {
        line[strcspn(line, "\n")] = ' ';
        strncat(got, line, sizeof got - strlen(got) - 1);
    }
    assert_int_equal(pclose(nm), 0);
    assert_string_equal(got, want);
}

static int run_hooks(int at, enum site which)
{
    return run_all_hooks(at, which).n;
}

/* Runs under valgrind too (tests/cli/valgrind.bats). */
static void a_whole_life_with_each_site_file(void **state)
{
    for (enum site which = NONE; which <= RECORDED; which++) {
        struct outcome out = run_all_hooks(0, which);

        assert_true(out.n > 0);
        if (which == RECORDED)
            assert_true(out.plan && out.rank);
    }
}

static void the_hooks_return_0_whichever_call_into_slurm_fails(void **state)
{
    struct outcome whole = run_all_hooks(0, RECORDED);
    int total = whole.n;

    assert_true(whole.plan && whole.rank); /* a whole plan is carried out */
    for (int at = 1; at <= total; at++) {
        int n = run_hooks(at, RECORDED);

        if (n < 0)
            fail_msg("call %d of %d fails: %d", at, total, n);
    }
}

/* The step owns a GPU that this machine, with no recorded one in its place, lacks. */
static void without_a_plan_the_ranks_are_set_all_the_same(void **state)
{
    struct outcome out = run_all_hooks(0, NONE);

    if (out.plan)
        skip(); /* a GPU is here */
    assert_true(out.n > 0 && out.rank);
}

static void the_usual_site_file_may_be_missing(void **state)
{
    struct outcome out = run_all_hooks(0, USUAL);

    if (access("/etc/slurm/muster.conf", F_OK) == 0)
        skip(); /* a site file is here */
    assert_true(out.n > 0 && out.rank);
}

static void a_site_file_that_is_missing_leaves_the_task_alone(void **state)
{
    struct outcome out = run_all_hooks(0, MISSING);

    assert_true(out.n > 0 && !out.plan && !out.rank);
}

static void c093_a_word_that_is_no_argument_leaves_the_task_alone(void **state)
{
    struct outcome out = run_all_hooks(0, MISSPELT);

    assert_true(out.n > 0 && !out.plan && !out.rank);
}

/* Batch, interactive and extern steps: looked at for the bind request, never bound. */
static void special_steps_are_not_bound(void **state)
{
    static const uint32_t steps[] = { 0xfffffffa, 0xfffffffb, 0xfffffffc };
    int ordinary = run_hooks(0, RECORDED);

    for (int i = 0; i < 3; i++) {
        step_id = steps[i];
        if (run_hooks(0, RECORDED) >= ordinary)
            fail_msg("step %x is treated as a step of tasks", steps[i]);
    }
    step_id = 0;
}

static void the_option_is_checked_in_srun_and_only_copied_as_root(void **state)
{
    void *so = load();

    said[0] = '\0';
    assert_int_equal(((hook *)dlsym(so, "slurm_spank_init"))(NULL, 0, NULL), 0);
    assert_string_equal(registered.name, "muster");
    assert_int_equal(registered.cb(0, "bogus", 1), 0);
    assert_string_equal(said, "");
    assert_int_equal(registered.cb(0, "bogus", 0), -1);
    assert_non_null(strstr(said, "unknown key 'bogus'"));
    assert_int_equal(registered.cb(0, "on", 0), 0);
    assert_int_equal(registered.cb(0, NULL, 0), 0);
    unload(so);
}

static void a_host_file_that_is_a_pipe_is_left_to_srun(void **state)
{
    void *so = load();
    char dir[] = "/tmp/muster-test-XXXXXX", path[64], got[8] = "";
    int fd;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/hosts", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR | O_NONBLOCK);
    assert_int_equal(write(fd, "n7\n", 3), 3);
    setenv("SLURM_HOSTFILE", path, 1);
    context = S_CTX_LOCAL;
    assert_int_equal(((hook *)dlsym(so, "slurm_spank_init"))(NULL, 0, NULL), 0);
    assert_null(getenv("SLURM_MUSTER_HEAD"));
    assert_int_equal(read(fd, got, sizeof got), 3);
    assert_string_equal(got, "n7\n");
    context = S_CTX_REMOTE;
    unsetenv("SLURM_HOSTFILE");
    close(fd);
    unlink(path);
    rmdir(dir);
    unload(so);
}

static void an_unknown_word_in_plugstack_is_named(void **state)
{
    char *av[] = { "config=/x" };
    void *so = load();

    said[0] = '\0';
    assert_int_equal(((hook *)dlsym(so, "slurm_spank_init"))(NULL, 1, av), 0);
    assert_non_null(strstr(said, "unknown argument"));
    unload(so);
}

/* Slurm's hooks come all the same; a step without Muster is better than none. */
static void without_a_context_in_init_the_other_hooks_do_nothing(void **state)
{
    static const char *const later[] = { "slurm_spank_user_init",
                                         "slurm_spank_task_init",
                                         "slurm_spank_task_exit", "slurm_spank_exit" };
    void *so = load();

    said[0] = '\0';
    context = S_CTX_ERROR;
    assert_int_equal(((hook *)dlsym(so, "slurm_spank_init"))(NULL, 0, NULL), 0);
    assert_non_null(strstr(said, "what loads"));
    context = S_CTX_REMOTE;
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
        assert_int_equal(((hook *)dlsym(so, later[i]))(NULL, 0, NULL), 0);
    unload(so);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_symbol_resolves_and_every_hook_is_there),
        cmocka_unit_test(case_051_the_version_is_that_of_the_headers),
        cmocka_unit_test(nothing_else_is_exported),
        cmocka_unit_test(a_whole_life_with_each_site_file),
        cmocka_unit_test(the_hooks_return_0_whichever_call_into_slurm_fails),
        cmocka_unit_test(without_a_plan_the_ranks_are_set_all_the_same),
        cmocka_unit_test(the_usual_site_file_may_be_missing),
        cmocka_unit_test(a_site_file_that_is_missing_leaves_the_task_alone),
        cmocka_unit_test(c093_a_word_that_is_no_argument_leaves_the_task_alone),
        cmocka_unit_test(special_steps_are_not_bound),
        cmocka_unit_test(the_option_is_checked_in_srun_and_only_copied_as_root),
        cmocka_unit_test(a_host_file_that_is_a_pipe_is_left_to_srun),
        cmocka_unit_test(an_unknown_word_in_plugstack_is_named),
        cmocka_unit_test(without_a_context_in_init_the_other_hooks_do_nothing),
    };

    recorded_machine();                            /* before any child */
    cmocka_set_test_filter(getenv("MUSTER_TEST")); /* a pattern; NULL: all */
    return cmocka_run_group_tests_name("plugin_load", tests, NULL, NULL);
}
