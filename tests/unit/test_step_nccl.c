/* SPDX-License-Identifier: BSD-3-Clause */
/* test_step_nccl.c - plugins of NCCL and a preload that muster.so sets for a step */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/folder.h"
#include "tests/unit/step_env.h"

static void the_profiler_is_set_where_it_is_asked_for(void **state)
{
    char path[4096];

    run_step("");
    assert_null(get("NCCL_PROFILER_PLUGIN"));
    assert_null(get("MUSTER_PROFILE"));
    begin(state);
    strcpy(option_text, "profile");
    run_step("");
    nothing_is_said();
    snprintf(path, sizeof path, "%s/.libs/libnccl-profiler-muster.so",
             getenv("MUSTER_BUILDDIR"));
    assert_string_equal(get("NCCL_PROFILER_PLUGIN"), path);
    assert_string_equal(get("MUSTER_PROFILE"), ".");
    begin(state);
    put("NCCL_PROFILER_PLUGIN", "mine");
    run_step("profile=/scratch/ledgers");
    nothing_is_said();
    assert_string_equal(get("NCCL_PROFILER_PLUGIN"), "mine");
    assert_string_equal(get("MUSTER_PROFILE"), "/scratch/ledgers");
}

static void the_tuner_is_set_with_its_table(void **state)
{
    char path[4096];

    strcpy(option_text, "tuner=/etc/muster/h200.tune,profile=no");
    run_step("profile=yes");
    nothing_is_said();
    snprintf(path, sizeof path, "%s/.libs/libnccl-tuner-muster.so",
             getenv("MUSTER_BUILDDIR"));
    assert_string_equal(get("NCCL_TUNER_PLUGIN"), path);
    assert_string_equal(get("MUSTER_TUNER"), "/etc/muster/h200.tune");
    assert_null(get("NCCL_PROFILER_PLUGIN"));
    begin(state);
    strcpy(option_text, "tuner=none");
    run_step("tuner=/etc/muster/h200.tune");
    assert_null(get("NCCL_TUNER_PLUGIN"));
}

/* The layout of an installation: LIBDIR/muster/RELEASE/muster.so. */
static void the_profiler_is_looked_for_in_the_library_s_folder(void **state)
{
    static const char *const folders[] = { "lib", "lib/muster", "lib/muster/.libs" };
    char build[4096], from[4096 + 32], top[] = "/tmp/muster-env-XXXXXX", path[64];
    FILE *file;

    snprintf(build, sizeof build, "%s", getenv("MUSTER_BUILDDIR"));
    assert_non_null(mkdtemp(top));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", top, folders[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    strcat(path, "/muster.so");
    snprintf(from, sizeof from, "%s/.libs/muster.so", build);
    assert_int_equal(symlink(from, path), 0);
    snprintf(path, sizeof path, "%s/lib/muster", top);
    setenv("MUSTER_BUILDDIR", path, 1);
    strcpy(option_text, "profile");
    run_step("");
    assert_null(get("NCCL_PROFILER_PLUGIN"));
    assert_null(get("MUSTER_PROFILE"));
    assert_non_null(strstr(said, "profile: the tasks do not see "
                                 "libnccl-profiler-muster.so beside the plugin"));
    begin(state);
    snprintf(path, sizeof path, "%s/lib/libnccl-profiler-muster.so", top);
    file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    strcpy(option_text, "profile");
    run_step("");
    nothing_is_said();
    assert_string_equal(get("NCCL_PROFILER_PLUGIN"), path);
    begin(state);
    strcpy(option_text, "accelerate");
    run_step("");
    assert_null(get("LD_PRELOAD"));
    assert_non_null(strstr(said, "accelerate: the tasks do not see "
                                 "libmuster-nccl.so beside the plugin"));
    begin(state);
    snprintf(from, sizeof from, "%s/.libs/libmuster-nccl.so", build);
    snprintf(path, sizeof path, "%s/lib/libmuster-nccl.so", top);
    assert_int_equal(symlink(from, path), 0);
    strcpy(option_text, "accelerate");
    run_step("");
    nothing_is_said();
    assert_non_null(strstr(get("LD_PRELOAD"), "libmuster-nccl.so"));
    setenv("MUSTER_BUILDDIR", build, 1);
    assert_int_equal(folder_remove(top), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_profiler_is_set_where_it_is_asked_for, begin),
        cmocka_unit_test_setup(the_tuner_is_set_with_its_table, begin),
        cmocka_unit_test_setup(the_profiler_is_looked_for_in_the_library_s_folder,
                               begin),
    };

    return cmocka_run_group_tests_name("step_nccl", tests, NULL, NULL);
}
