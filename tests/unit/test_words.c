/* SPDX-License-Identifier: BSD-3-Clause */
/* test_words.c - a command line of any length, with empty words in it */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "spank/hw/io/words.h"

static void write_file(const char *path, const char *text, size_t len, int times)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    for (int i = 0; i < times; i++)
        assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void empty_words_are_words(void **state)
{
    static const char text[] = "srun\0--comment\0\0-n2\0a\nb\n";
    struct mu_words words = { 0 };

    write_file(*state, text, sizeof text, 1);
    assert_int_equal(mu_words_read(*state, &words, NULL), 0);
    assert_int_equal(words.n, 5);
    assert_string_equal(words.word[0], "srun");
    assert_string_equal(words.word[2], "");
    assert_string_equal(words.word[3], "-n2");
    assert_string_equal(words.word[4], "a\nb\n");
    assert_null(words.word[5]);
    mu_words_clear(&words);
    assert_null(words.word);
}

static void a_list_near_arg_max_is_read_whole(void **state)
{
    struct mu_words words = { 0 };

    write_file(*state, "0123456789", 11, 190000); /* 2 MiB */
    assert_int_equal(mu_words_read(*state, &words, NULL), 0);
    assert_int_equal(words.n, 190000);
    assert_string_equal(words.word[189999], "0123456789");
    mu_words_clear(&words);
}

static void what_cannot_be_read_leaves_the_list_alone(void **state)
{
    struct mu_words words = { .n = 7 };
    struct mu_err err = { 0 };

    assert_int_equal(mu_words_read("/proc/self/no-such-file", &words, &err), -1);
    assert_int_equal(words.n, 7);
    assert_non_null(strstr(err.text, "/proc/self/no-such-file: No such file"));
    write_file(*state, "0123456789", 11, 900000); /* 9 MiB */
    assert_int_equal(mu_words_read(*state, &words, &err), -1);
    assert_int_equal(err.code, EFBIG);
    assert_int_equal(words.n, 7);
}

static int make_file(void **state)
{
    char path[] = "/tmp/mwords.XXXXXX";
    int fd = mkstemp(path);

    *state = strdup(path);
    return fd < 0 || !*state ? -1 : close(fd);
}

static int remove_file(void **state)
{
    unlink(*state);
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(empty_words_are_words, make_file, remove_file),
        cmocka_unit_test_setup_teardown(a_list_near_arg_max_is_read_whole, make_file,
                                        remove_file),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_leaves_the_list_alone,
                                        make_file, remove_file),
    };

    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
