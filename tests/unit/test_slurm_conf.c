/* SPDX-License-Identifier: BSD-3-Clause */
/* test_slurm_conf.c - lines of slurm.conf and gres.conf cut up as Slurm cuts them, and
 * the files that they include
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "spank/hw/live/slurm_files.h"
#include "tests/unit/patience.h"

static const struct value_case {
    const char *name, *line, *value; /* of the key Gres; NULL: it has none */
} values[] = {
    { "a key among others", "NodeName=n1 Gres=gpu:4 CPUs=8", "gpu:4" },
    { "any case", "gREs=gpu:4", "gpu:4" },
    { "blanks around '='", "NodeName = n1 Gres = gpu:4", "gpu:4" },
    { "tabs and a carriage return", "\tGres=gpu:4\r", "gpu:4" },
    { "quotes hold blanks", "Gres=\"gpu:4 x\" CPUs=8", "gpu:4 x" },
    { "a quote that is not closed", "Gres=\"gpu:4 x", "\"gpu:4" },
    { "an empty value", "Gres= CPUs=8", "CPUs=8" },
    { "the first of two", "Gres=a Gres=b", "a" },
    { "a longer key", "GresTypes=gpu", NULL },
    { "a key that ends alike", "MyGres=gpu", NULL },
    { "a comment", "CPUs=8 # Gres=gpu:4", NULL },
    { "a '#' that is none", "Gres=a\\#b", "a\\#b" },
    { "a word without '=' in between", "Include x Gres=gpu", "gpu" },
    { "only this line", "CPUs=8\nGres=gpu", NULL },
    { "nothing", "", NULL },
    { "longer than the room", "Gres=0123456789abcdef0", NULL },
};

static void values_are_found_as_slurm_finds_them(void **state)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char buf[16];
        bool there = mu_slurm_value(values[i].line, "Gres", buf, sizeof buf);

        if (there != (values[i].value != NULL) ||
            strcmp(buf, there ? values[i].value : "") != 0)
            fail_msg("%s: '%s'", values[i].name, buf);
    }
}

static void joined_lines_keep_the_numbers_of_those_behind(void **state)
{
    static const char *const texts[][2] = {
        { "A \\\nB\nC\n", "A  B\n\nC\n" },
        { "A \\\nB \\\nC\nD", "A  B  C\n\n\nD" },
        { "A \\\r\nB\r\nC", "A   B\r\n\nC" },
        { "A \\x\nB", "A \\x\nB" },
        { "A \\\n", "A  " },
        { "A \\", "A \\" },
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[64];

        snprintf(text, sizeof text, "%s", texts[i][0]);
        mu_slurm_conf_join(text);
        assert_int_equal(strlen(text) <= strlen(texts[i][0]), 1);
        for (size_t end = strlen(text); end > 0 && text[end - 1] == ' ' && i == 4;
             end--)
            text[end - 1] = '\0';
        assert_string_equal(text, i == 4 ? "A" : texts[i][1]);
    }
}

static void a_line_of_many_parts_is_joined_in_one_pass(void **state)
{
    enum { PARTS = 100000 };
    char *text = malloc(2 * PARTS + 1);
    clock_t from = clock();

    for (size_t i = 0; i < PARTS; i++)
        memcpy(text + 2 * i, "\\\n", 3);
    mu_slurm_conf_join(text);
    assert_true(clock() - from < 1 * PATIENCE * CLOCKS_PER_SEC);
    assert_int_equal(strspn(text, " "), 2 * PARTS);
    free(text);
}

static void an_include_line_names_its_file(void **state)
{
    char file[16];

    assert_true(mu_slurm_include_of_line("  include\tnodes.conf # x", file, 16));
    assert_string_equal(file, "nodes.conf");
    assert_true(mu_slurm_include_of_line("Include a\nb", file, 16));
    assert_string_equal(file, "a");
    assert_false(mu_slurm_include_of_line("Includes=x", file, 16));
    assert_false(mu_slurm_include_of_line("Include", file, 16));
    assert_false(mu_slurm_include_of_line("Include  ", file, 16));
    assert_false(mu_slurm_include_of_line("#Include x", file, 16));
    assert_false(mu_slurm_include_of_line("Include a-name-too-long-for-it", file, 16));
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void included_files_are_read_beside_the_first_and_once(void **state)
{
    static struct mu_slurm_files files;
    char dir[] = "/tmp/mslurm.XXXXXX", path[256], value[16];
    static const char *const names[] = { "slurm.conf", "more.conf" };

    assert_non_null(mkdtemp(dir));
    write_file(dir, names[0], "A=1\nInclude more.conf\nInclude gone.conf\n");
    write_file(dir, names[1], "Include slurm.conf\nB \\\n=2\n");
    snprintf(path, sizeof path, "%s/slurm.conf", dir);
    mu_slurm_files_load(path, &files);
    assert_int_equal(files.n, 3);
    assert_string_equal(files.file[0].path, path);
    assert_int_equal(files.file[1].from, 0);
    assert_int_equal(files.file[1].line, 2);
    assert_true(mu_slurm_text_value(files.file[1].text, "B", value, sizeof value));
    assert_string_equal(value, "2");
    assert_null(files.file[2].text);
    assert_int_equal(files.file[2].line, 3);
    mu_slurm_files_clear(&files);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
    mu_slurm_files_load(path, &files); /* not there */
    assert_int_equal(files.n, 1);
    assert_null(files.file[0].text);
    mu_slurm_files_clear(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found_as_slurm_finds_them),
        cmocka_unit_test(joined_lines_keep_the_numbers_of_those_behind),
        cmocka_unit_test(a_line_of_many_parts_is_joined_in_one_pass),
        cmocka_unit_test(an_include_line_names_its_file),
        cmocka_unit_test(included_files_are_read_beside_the_first_and_once),
    };

    return cmocka_run_group_tests_name("slurm_conf", tests, NULL, NULL);
}
