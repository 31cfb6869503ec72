/* SPDX-License-Identifier: BSD-3-Clause */
/* test_base.c - cpu sets, numbers, sizes, the MUSTER_PLAN line, errors */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/cpuset.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/parse.h"
#include "runtime/base/record.h"

static const struct list_case {
    const char *name, *text, *canonical; /* canonical NULL: refused */
} lists[] = {
    { "single numbers and ranges", "0-3,8", "0-3,8" },
    { "out of order and overlapping", "8,2-4,3", "2-4,8" },
    { "a stride", "0-6:2", "0,2,4,6" },
    { "the kernel's final newline", "1-2\n", "1-2" },
    { "blanks after commas", "1, 3", "1,3" },
    { "empty is the empty set", "", "" },
    { "the largest CPU", "8191", "8191" },
    { "one above the largest", "8192", NULL },
    { "a number that overflows", "99999999999999999999", NULL },
    { "a range backwards", "4-2", NULL },
    { "a comma at the end", "1,", NULL },
    { "a comma at the start", ",1", NULL },
    { "words", "all", NULL },
    { "a negative number", "-1", NULL },
    { "a stride of zero", "0-3:0", NULL },
};

static void cpu_lists_are_read_whole_or_refused(void **state)
{
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct mu_cpuset set = { { 7 } }, before = set;
        struct mu_err err = { 0 };
        char out[64];

        if (!lists[i].canonical) {
            if (mu_cpuset_parse(lists[i].text, &set, &err) != -1)
                fail_msg("%s: accepted", lists[i].name);
            assert_true(mu_cpuset_equal(&set, &before));
            assert_non_null(strstr(err.text, lists[i].text));
            continue;
        }
        if (mu_cpuset_parse(lists[i].text, &set, &err) < 0)
            fail_msg("%s: %s", lists[i].name, err.text);
        mu_cpuset_format(&set, out, sizeof out);
        assert_string_equal(out, lists[i].canonical);
    }
}

static const struct mask_case {
    const char *name, *mask, *list, *canonical;
} masks[] = {
    { "one word", "ff", "0-7", "ff" },
    { "two words, right one first", "1,00000000", "32", "1,00000000" },
    { "NCCL's p4d mask", "ffffff,00000000,ffffff", "0-23,64-87",
      "ffffff,00000000,00ffffff" },
    { "Slurm's long form", "0xfe000000000000", "49-55", "fe0000,00000000" },
    { "empty", "0", "", "0" },
    { "not hexadecimal", "0xfg", NULL, NULL },
    { "nothing", "0x", NULL, NULL },
};

static void masks_are_read_right_to_left(void **state)
{
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        struct mu_cpuset set = { { 0 } };
        char out[128];
        int rc = mu_cpuset_parse_mask(masks[i].mask, &set, NULL);

        assert_int_equal(rc, masks[i].list ? 0 : -1);
        if (rc < 0)
            continue;
        mu_cpuset_format(&set, out, sizeof out);
        assert_string_equal(out, masks[i].list);
        mu_cpuset_format_mask(&set, out, sizeof out);
        assert_string_equal(out, masks[i].canonical);
    }
}

static void a_list_that_does_not_fit_is_cut_and_its_length_told(void **state)
{
    struct mu_cpuset set = { { 0 } };
    char out[6];

    mu_cpuset_add_range(&set, 100, 200);
    mu_cpuset_add(&set, 300);
    assert_int_equal(mu_cpuset_format(&set, out, sizeof out), 11);
    assert_string_equal(out, "100-2");
}

static const struct size_case {
    const char *text;
    uint64_t bytes;
    int rc;
} sizes[] = {
    { "0", 0, 0 },
    { "1048576", 1048576, 0 },
    { "25M", 25u << 20, 0 },
    { "1KiB", 1024, 0 },
    { "2g", UINT64_C(2) << 30, 0 },
    { "3MB", 3u << 20, 0 },
    { "7b", 7, 0 },
    { "1x", 0, -1 },
    { "M", 0, -1 },
    { "-1", 0, -1 },
    { "1.5G", 0, -1 },
    { "99999T", 0, -1 },
    { "", 0, -1 },
};

static void sizes_have_units_of_1024(void **state)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t out = 42;
        struct mu_err err = { 0 };
        int rc = mu_parse_size("bucket", sizes[i].text, UINT64_C(1) << 40, &out, &err);

        if (rc != sizes[i].rc)
            fail_msg("'%s': %d", sizes[i].text, rc);
        assert_int_equal(out, rc < 0 ? 42 : sizes[i].bytes);
        if (rc < 0)
            assert_non_null(strstr(err.text, "bucket takes bytes"));
    }
}

static void numbers_take_the_whole_string(void **state)
{
    long n = 5;
    double d = 5;

    assert_int_equal(mu_parse_int("x", "12", 0, 12, &n, NULL), 0);
    assert_int_equal(n, 12);
    assert_int_equal(mu_parse_int("x", "13", 0, 12, &n, NULL), -1);
    assert_int_equal(mu_parse_int("x", "1 ", 0, 12, &n, NULL), -1);
    assert_int_equal(mu_parse_int("x", " 1", 0, 12, &n, NULL), -1);
    assert_int_equal(mu_parse_int("x", "", 0, 12, &n, NULL), -1);
    assert_int_equal(n, 12);
    assert_int_equal(mu_parse_double("x", "0.5", 0, 1, &d, NULL), 0);
    assert_int_equal(mu_parse_double("x", "nan", 0, 1, &d, NULL), -1);
}

static void a_record_survives_the_round_trip(void **state)
{
    static const char line[] = "v=1;task=2;gpus=0000:0f:00.0;cpus=16-23,144-151;mems=1;"
                               "nics=mlx5_2;path=PXB";
    struct mu_record r;
    char out[MU_RECORD_LINE];

    assert_int_equal(mu_record_decode(line, &r, NULL), 0);
    assert_int_equal(r.task, 2);
    assert_string_equal(r.gpus, "0000:0f:00.0");
    assert_int_equal(mu_cpuset_count(&r.cpus), 16);
    assert_int_equal(mu_record_encode(&r, out, sizeof out, NULL), 0);
    assert_string_equal(out, line);
    assert_int_equal(mu_record_encode(&r, out, sizeof line - 1, NULL), -1);
    snprintf(r.fabric, sizeof r.fabric, "InfiniBand");
    assert_int_equal(mu_record_encode(&r, out, sizeof out, NULL), 0);
    assert_string_equal(out + sizeof line - 1, ";fabric=InfiniBand");
    memset(r.fabric, 0, sizeof r.fabric);
    assert_int_equal(mu_record_decode(out, &r, NULL), 0);
    assert_string_equal(r.fabric, "InfiniBand");
}

static void records_of_other_versions_are_refused_by_name(void **state)
{
    struct mu_record r;
    struct mu_err err = { 0 };

    assert_int_equal(mu_record_decode("v=2;task=0", &r, &err), -1);
    assert_non_null(strstr(err.text, "version 2"));
    assert_int_equal(mu_record_decode("", &r, &err), -1);
    assert_int_equal(mu_record_decode("v=1;task=x", &r, &err), -1);
    assert_int_equal(mu_record_decode("v=1;cpus=a", &r, &err), -1);
    assert_int_equal(mu_record_decode("v=1;future=1", &r, &err), 0);
}

static void context_goes_in_front_and_errno_stays(void **state)
{
    struct mu_err err = { 0 };

    errno = EPIPE;
    assert_int_equal(mu_err_set(&err, EINVAL, "bad %s", "mask"), -1);
    assert_int_equal(mu_err_context(&err, "line %d", 3), -1);
    assert_string_equal(err.text, "line 3: bad mask");
    assert_int_equal(err.code, EINVAL);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(mu_err_set(NULL, 1, "x"), -1);
}

/* A kernel with 4096 CPUs; the process may run on the last one. */
#define KERNEL_CPUS 4096

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    if (pid != 77 || size < KERNEL_CPUS / 8) {
        errno = pid == 77 ? EINVAL : ESRCH;
        return -1;
    }
    memset(set, 0, size);
    CPU_SET_S(KERNEL_CPUS - 1, size, set);
    return 0;
}

static void the_cpus_of_a_process_go_above_1024(void **state)
{
    struct mu_cpuset set = { { 7 } };
    char list[64];

    assert_int_equal(mu_cpuset_of_process(78, &set), -1);
    assert_int_equal(errno, ESRCH);
    assert_true(set.word[0] == 7);
    assert_int_equal(mu_cpuset_of_process(77, &set), 0);
    mu_cpuset_format(&set, list, sizeof list);
    assert_string_equal(list, "4095");
}

/* A pipe of packets gives each write apart. */
static void a_line_is_one_write(void **state)
{
    const struct mu_log log = { .level = MU_LOG_WARN };
    char text[400], got[1024];
    int ends[2], before = dup(STDERR_FILENO);
    ssize_t n;

    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(pipe2(ends, O_DIRECT | O_CLOEXEC), 0);
    fflush(stderr);
    dup2(ends[1], STDERR_FILENO);
    mu_log(&log, MU_LOG_WARN, "%s", text);
    dup2(before, STDERR_FILENO);
    n = read(ends[0], got, sizeof got);
    assert_int_equal(n, (ssize_t)strlen("muster: warning: \n") + sizeof text - 1);
    assert_int_equal(got[n - 1], '\n');
    close(ends[0]);
    close(ends[1]);
    close(before);
}

static void a_foreign_text_is_printable_utf8(void **state)
{
    /* overlong, half of a pair, above the last, cut, C1 control */
    char text[] = "gr\xc3\xb6\xc3\x9f"
                  "e \xe2\x82\xac \xf0\x9f\x98\x80\t|\x1b[m\n|"
                  "caf\xe9|\xc0\xaf|\xe0\x80\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|"
                  "\xc2\x9b|\xe2\x82";

    (void)state;
    mu_make_printable(text);
    assert_string_equal(text, "gr\xc3\xb6\xc3\x9f"
                              "e \xe2\x82\xac \xf0\x9f\x98\x80\t|?[m?|"
                              "caf?|??|???|???|????|??|??");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_lists_are_read_whole_or_refused),
        cmocka_unit_test(masks_are_read_right_to_left),
        cmocka_unit_test(a_list_that_does_not_fit_is_cut_and_its_length_told),
        cmocka_unit_test(the_cpus_of_a_process_go_above_1024),
        cmocka_unit_test(sizes_have_units_of_1024),
        cmocka_unit_test(numbers_take_the_whole_string),
        cmocka_unit_test(a_record_survives_the_round_trip),
        cmocka_unit_test(records_of_other_versions_are_refused_by_name),
        cmocka_unit_test(context_goes_in_front_and_errno_stays),
        cmocka_unit_test(a_line_is_one_write),
        cmocka_unit_test(a_foreign_text_is_printable_utf8),
    };

    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
