/* SPDX-License-Identifier: BSD-3-Clause */
/* test_hostlist.c - Slurm's compressed host names and GPU counts (case 045) */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/slurm/hostlist.h"
#include "spank/core/gpubind/gpu_counts.h"

static const struct list_case {
    const char *name, *text, *want; /* want: blanks between names; NULL: refused */
} lists[] = {
    { "one name", "n1", "n1" },
    { "a range and a number", "n[1-3,7]", "n1 n2 n3 n7" },
    { "case 045: zeros and dashes are kept", "n[1-3,7],m-a[08-10]",
      "n1 n2 n3 n7 m-a08 m-a09 m-a10" },
    { "case 045: dashes in the prefix", "xx-yyy-ia[810-811]",
      "xx-yyy-ia810 xx-yyy-ia811" },
    { "the width grows where it must", "n[98-101]", "n98 n99 n100 n101" },
    { "text behind the bracket", "n[1-2]-ib", "n1-ib n2-ib" },
    { "two brackets are multiplied out", "r[1-2]n[0-1]", "r1n0 r1n1 r2n0 r2n1" },
    { "plain names", "a,b", "a b" },
    { "no names", "", NULL },
    { "an empty name", "a,,b", NULL },
    { "a comma at the end", "a,", NULL },
    { "no closing bracket", "n[1-3", NULL },
    { "no opening bracket", "n1-3]", NULL },
    { "a range backwards", "n[3-1]", NULL },
    { "letters in a range", "n[a-c]", NULL },
    { "an empty bracket", "n[]", NULL },
    { "more names than any machine has", "n[0-99999]", NULL },
    { "names that multiply without end", "a[0-999]b[0-999]c[0-999]", NULL },
    { "five brackets", "a[1]b[1]c[1]d[1]e[1]", NULL },
    { "a blank", "a b", NULL },
    { "a range's last number has 16 digits", "n[1-0000000000000002]", NULL },
};

static void host_lists_are_expanded_or_refused(void **state)
{
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct mu_hostlist list = { 0 };
        struct mu_err err = { 0 };
        char text[256] = "";
        int rc = mu_hostlist_parse(lists[i].text, &list, &err);

        if ((rc == 0) != (lists[i].want != NULL))
            fail_msg("%s: %s", lists[i].name, rc ? err.text : "accepted");
        if (rc < 0) {
            assert_int_equal(list.n, 0);
            assert_true(err.text[0]);
            continue;
        }
        for (int k = 0; k < list.n; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s",
                     k ? " " : "", list.name[k]);
        mu_hostlist_clear(&list);
        if (strcmp(text, lists[i].want) != 0)
            fail_msg("%s: '%s'", lists[i].name, text);
    }
}

static void a_name_is_found_by_position(void **state)
{
    struct mu_hostlist list = { 0 };

    assert_int_equal(mu_hostlist_parse("gpu[01-12]", &list, NULL), 0);
    assert_int_equal(mu_hostlist_find(&list, "gpu01"), 0);
    assert_int_equal(mu_hostlist_find(&list, "gpu12"), 11);
    assert_int_equal(mu_hostlist_find(&list, "gpu1"), -1);
    mu_hostlist_clear(&list);
    mu_hostlist_clear(&list);
}

static void a_name_above_the_limit_is_refused(void **state)
{
    struct mu_hostlist list = { 0 };
    char text[400];

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(mu_hostlist_parse(text, &list, NULL), -1);
}

/* Every second of 6000 nodes: what a scattered job of a large machine has. */
static void a_bracket_may_hold_thousands_of_numbers(void **state)
{
    struct mu_hostlist list = { 0 };
    struct mu_err err = { 0 };
    char *text = malloc(32768);
    size_t at = (size_t)sprintf(text, "gpu[");

    for (int i = 0; i < 3000; i++)
        at += (size_t)sprintf(text + at, "%s%04d", i ? "," : "", 2 * i);
    strcpy(text + at, "]");
    if (mu_hostlist_parse(text, &list, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(list.n, 3000);
    assert_string_equal(list.name[2999], "gpu5998");
    mu_hostlist_clear(&list);
    free(text);
}

static const struct gpu_case {
    const char *text;
    int want; /* -1: refused */
} gpus[] = {
    { "8", 8 },
    { "a100:8", 8 },
    { "gpu:8", 8 },
    { "gpu:a100:8", 8 },
    { "a100:4,v100:4", 8 },
    { "gpu", 1 },
    { "gres/gpu:1", 1 },
    { "gres/gpu:a100:2", 2 },
    { "gres:gpu:2", 2 },
    { "gres/gpu=2", 2 },
    { "gres/gpu:a100=2", 2 },
    { "cpu=4,gres/gpu=1", 1 },
    { "cpu=4,mem=10G", 0 },
    { "gres/nic:1", 0 },
    { "gres/gpumem:80", 0 },
    { "a100", 1 },
    { "gpu:a100", 1 },
    { "gres/gpu:a100", 1 },
    { "gres:gpu:a100,gpu:v100:2", 3 },
    { "gpu:", -1 },
    { "a100:x", -1 },
    { "", -1 },
};

static void case_045_gpu_counts_in_all_spellings(void **state)
{
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        struct mu_err err = { 0 };
        int n = -1;

        mu_gpu_count_parse(gpus[i].text, &n, &err);
        if (n != gpus[i].want)
            fail_msg("'%s': %d, want %d", gpus[i].text, n, gpus[i].want);
    }
}

static const char *const shortest[] = {
    "n1",
    "n[1-3,7]",
    "n[1-3,7],m-a[08-10]",
    "n[98-101]",
    "n[098-101]",
    "n[1,3,5]",
    "n1-ib,n2-ib",
    "a,b",
    "rack1n[1-2],rack2n[1-2]",
    "login,n[1-2],n",
    "n[2,1]",
    "n[9,010]",
    "x1234567890[123456788-123456789]",
};

static void a_list_is_written_as_short_as_it_was_read(void **state)
{
    struct mu_hostlist none = { 0 };
    char *text = mu_hostlist_format(&none);

    assert_string_equal(text, "");
    free(text);
    for (size_t i = 0; i < sizeof shortest / sizeof shortest[0]; i++) {
        struct mu_hostlist list = { 0 };
        struct mu_err err = { 0 };

        assert_int_equal(mu_hostlist_parse(shortest[i], &list, &err), 0);
        text = mu_hostlist_format(&list);
        assert_string_equal(text, shortest[i]);
        free(text);
        mu_hostlist_clear(&list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_lists_are_expanded_or_refused),
        cmocka_unit_test(a_list_is_written_as_short_as_it_was_read),
        cmocka_unit_test(a_name_is_found_by_position),
        cmocka_unit_test(a_name_above_the_limit_is_refused),
        cmocka_unit_test(a_bracket_may_hold_thousands_of_numbers),
        cmocka_unit_test(case_045_gpu_counts_in_all_spellings),
    };

    return cmocka_run_group_tests_name("hostlist", tests, NULL, NULL);
}
