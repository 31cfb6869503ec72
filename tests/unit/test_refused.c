/* SPDX-License-Identifier: BSD-3-Clause */
/* test_refused.c - files that root reads for other users, and that others than root may
 * change
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "spank/hw/live/platform_live.h"
#include "tests/unit/folder.h"

static void put(const char *root, const char *path, const char *text)
{
    char full[512];
    FILE *f;

    snprintf(full, sizeof full, "%s%s", root, path);
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* Root reads these for other users: `who` may change them, too. */
static const struct {
    const char *who;
    uid_t owner;
    mode_t mode;
    const char *sentence, *command;
} foreign[] = {
    { "another user", 65534, 0644, "belongs to user 65534, not to root; it is not read",
      "chown root" },
    { "its group", 0, 0664, "is writable by its group; it is not read", "chmod go-w" },
    { "everybody", 0, 0646, "is writable by everybody; it is not read", "chmod go-w" },
};

/* Path and text as `i` of foreign[] has them; false: only root can. */
static bool put_foreign(const char *root, const char *path, const char *text, size_t i)
{
    char full[512];

    put(root, path, text);
    snprintf(full, sizeof full, "%s%s", root, path);
    assert_int_equal(chmod(full, foreign[i].mode), 0);
    return foreign[i].owner == 0 || chown(full, foreign[i].owner, (gid_t)-1) == 0;
}

static void one_sentence_and_its_command(const char *text, const char *path, size_t i)
{
    char want[1024];

    snprintf(want, sizeof want, "%s %s: run %s %s", path, foreign[i].sentence,
             foreign[i].command, path);
    if (strcmp(text, want) != 0)
        fail_msg("%s: '%s'", foreign[i].who, text);
}

static void a_profile_that_others_may_change_is_refused_with_the_command(void **state)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        char root[] = "/tmp/muster-test-XXXXXX", path[64];
        struct mu_profiles profiles = { 0 };
        struct mu_err err = { 0 };

        assert_non_null(mkdtemp(root));
        put(root, "/10-good.ini", "[a]\nfile = /\nset = A=1\n");
        snprintf(path, sizeof path, "%s/20-bad.ini", root);
        if (put_foreign(root, "/20-bad.ini", "[b]\nset = LD_PRELOAD=/x.so\n", i)) {
            assert_int_equal(mu_profiles_load(root, &profiles, &err), -1);
            one_sentence_and_its_command(err.text, path, i);
        }
        mu_profiles_clear(&profiles);
        assert_int_equal(folder_remove(root), 0);
    }
}

static void a_fifo_among_the_profiles_holds_nobody_up(void **state)
{
    char root[] = "/tmp/muster-test-XXXXXX", path[64];
    struct mu_profiles profiles = { 0 };
    struct mu_err err = { 0 };

    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof path, "%s/a.ini", root);
    assert_int_equal(mkfifo(path, 0644), 0);
    assert_int_equal(mu_profiles_load(root, &profiles, &err), -1);
    assert_non_null(strstr(err.text, "a.ini: not a regular file"));
    mu_profiles_clear(&profiles);
    assert_int_equal(folder_remove(root), 0);
}

static void
a_vendor_s_file_that_others_may_change_adds_nothing_and_is_named(void **state)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        char root[] = "/tmp/muster-test-XXXXXX", path[64], *text;
        struct mu_platform platform;

        assert_non_null(mkdtemp(root));
        snprintf(path, sizeof path, "%s/env.sh", root);
        assert_int_equal(mu_platform_load(root, &platform, NULL), 0);
        assert_null(platform.read(platform.arg, "/missing.sh"));
        assert_string_equal(mu_platform_refused(&platform), "");
        put(root, "/good.sh", "NCCL_A=1");
        text = platform.read(platform.arg, "/good.sh");
        assert_string_equal(text, "NCCL_A=1");
        free(text);
        if (put_foreign(root, "/env.sh", "NCCL_A=1", i)) {
            assert_null(platform.read(platform.arg, "/env.sh"));
            one_sentence_and_its_command(mu_platform_refused(&platform), path, i);
        }
        mu_platform_unload(&platform);
        assert_int_equal(folder_remove(root), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_that_others_may_change_is_refused_with_the_command),
        cmocka_unit_test(a_fifo_among_the_profiles_holds_nobody_up),
        cmocka_unit_test(
            a_vendor_s_file_that_others_may_change_adds_nothing_and_is_named),
    };

    umask(022);
    return cmocka_run_group_tests_name("refused", tests, NULL, NULL);
}
