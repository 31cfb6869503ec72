/* SPDX-License-Identifier: BSD-3-Clause */
/* test_preload_times.c - libmuster-nccl: what it carries out is measured once for each
 * machine, and kept in a file
 */
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

#include "tests/unit/preload_run.h"

/* FAKE_BACKEND=measures: four collectives by NCCL, each in both forms and ways. */
#define MEASURES "backend measures 98 | "
#define TIMES(name) "MUSTER_NCCL_TIMES=$F/" name " MUSTER_LOG=info "

static char *file_text(const char *name)
{
    static char text[8192];
    char path[512];
    size_t n;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "r");
    if (!f)
        return NULL;
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

static void file_write(const char *name, const char *text)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool measures(const struct run *r)
{
    return strstr(r->text, "backend measures") != NULL;
}

static void the_first_communicator_measures_and_later_ones_read(void **state)
{
    struct run r = { .nccl = "on",
                     .env = TIMES("first") "FAKE_BACKEND=measures",
                     .steps = "init " SMALL };

    run(&r);
    assert_int_equal(lines(&r, "backend measures 98\n"), 2);
    has(&r, "r1 nccl AllReduce 4096 7 0\n"); /* beside NCCL's own */
    has(&r, "r0 nccl ReduceScatter 4096 7 0\n");
    has(&r, "r1 nccl AllGather 4096 0 0\n");
    has(&r, "r0 nccl Broadcast of nothing 4096 0 0\n");
    has(&r, BY_MUSTER "\n");
    has(&r, "muster: nccl: measured against NCCL in ");
    has(&r, "/first\n");
    assert_non_null(file_text("first"));
    assert_non_null(strstr(file_text("first"), "# rank 1: a GPU 1\n"));
    assert_non_null(strstr(file_text("first"),
                           "AllReduce\t1048576\tone-shot\t10.00\t20.00\tgraph\n"));
    run(&r);
    both(&r, SERVED BY_MUSTER);
}

/* The same numbers of another release, node or GPU say nothing. */
static void times_of_another_machine_are_measured_again(void **state)
{
    struct run r = { .nccl = "on",
                     .env = TIMES("moved") "FAKE_BACKEND=measures",
                     .steps = "init " SMALL };
    char *text;

    run(&r);
    text = strdup(file_text("moved"));
    *strstr(text, "NCCL 2.28.9") = 'M';
    file_write("moved", text);
    run(&r);
    assert_true(measures(&r));
    has(&r, "/moved: these times are of another machine: the times are measured "
            "again\n");
    assert_non_null(strstr(file_text("moved"), "NCCL 2.28.9"));
    r.ranks = 3;
    run(&r);
    assert_true(measures(&r));
    has(&r, "r2 " BY_MUSTER "\n");
    free(text);
}

static void what_is_slower_is_nccl_s(void **state)
{
    struct run r = { .nccl = "on",
                     .env = TIMES("slow") "FAKE_BACKEND=slow",
                     .steps = "init sum:16384:7:0 sum:16385:7:0 sum:16385:2:2 "
                              "sum:1000000:7:0" };

    run(&r);
    both(&r, SERVED "backend sum 16384 0 1 | nccl AllReduce 16385 7 0 | "
                    "nccl AllReduce 16385 2 2 | nccl AllReduce 1000000 7 0");
    has(&r, "carried out 1 of 4 all-reduces");
}

static void a_wrong_file_is_reported_and_made_anew(void **state)
{
    struct run r = { .nccl = "on",
                     .env = TIMES("wrong") "FAKE_BACKEND=measures",
                     .steps = "init " SMALL };
    char *text;

    run(&r);
    text = strdup(file_text("wrong"));
    memcpy(strstr(text, "one-shot"), "two-shot", 8);
    file_write("wrong", text);
    r.env = "MUSTER_NCCL_TIMES=$F/wrong FAKE_BACKEND=measures";
    run(&r);
    assert_true(measures(&r));
    has(&r, "/wrong line 6: unknown way 'two-shot': the times are measured again\n");
    file_write("wrong", "hello\n");
    run(&r);
    assert_true(measures(&r));
    assert_non_null(strstr(file_text("wrong"), "muster-nccl-times 1\n"));
    free(text);
}

static void where_nothing_can_be_kept_each_run_measures(void **state)
{
    struct run r = { .nccl = "on",
                     .env = TIMES("nowhere/times") "FAKE_BACKEND=measures",
                     .steps = "init " SMALL };

    for (int i = 0; i < 2; i++) {
        run(&r);
        assert_true(measures(&r));
        has(&r,
            "/nowhere/times: the times cannot be kept: No such file or directory\n");
        has(&r, "r1 " BY_MUSTER "\n");
    }
    r.env = "HOME= XDG_CACHE_HOME= MUSTER_NCCL_TIMES= MUSTER_LOG=info";
    run(&r);
    has(&r, "the times are not kept: neither MUSTER_NCCL_TIMES nor HOME is set\n");
    both(&r, SERVED BY_MUSTER);
}

static void the_file_lies_in_the_user_s_cache(void **state)
{
    static const char *const where[] = {
        "MUSTER_NCCL_TIMES= XDG_CACHE_HOME=$F/cache MUSTER_LOG=info",
        "MUSTER_NCCL_TIMES= XDG_CACHE_HOME=elsewhere HOME=$F MUSTER_LOG=info",
    };
    static const char *const said[] = { "/cache/muster/nccl-times-",
                                        "/.cache/muster/nccl-times-" };
    struct stat st;
    char path[512];

    for (int i = 0; i < 2; i++) {
        struct run r = { .nccl = "on", .env = where[i], .steps = "init " SMALL };

        run(&r);
        has(&r, said[i]);
        both(&r, SERVED BY_MUSTER);
    }
    snprintf(path, sizeof path, "%s/cache/muster", folder);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void what_cannot_be_measured_has_the_known_sizes(void **state)
{
    struct run r = { .nccl = "on",
                     .env = TIMES("none") "FAKE_BACKEND=unmeasured",
                     .steps = "init sum:262144:7:0 sum:262145:7:0 gather:8:7" };

    run(&r);
    both(&r, SERVED "backend sum 262144 0 1 | backend sum 262145 0 1 mapped | "
                    "nccl AllGather 8 7 0");
    has(&r, "nothing was measured: the GPU is busy\n");
    assert_null(file_text("none"));
    r.ranks = 3;
    r.steps = "init " SMALL;
    run(&r);
    for (int rank = 0; rank < 3; rank++)
        expect(
            &r, rank,
            "nccl InitRank 3 1 0 | backend open 3 borrowed | backend close | " BY_NCCL);
    has(&r, "(3 ranks cannot be measured here)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_communicator_measures_and_later_ones_read),
        cmocka_unit_test(times_of_another_machine_are_measured_again),
        cmocka_unit_test(what_is_slower_is_nccl_s),
        cmocka_unit_test(a_wrong_file_is_reported_and_made_anew),
        cmocka_unit_test(where_nothing_can_be_kept_each_run_measures),
        cmocka_unit_test(the_file_lies_in_the_user_s_cache),
        cmocka_unit_test(what_cannot_be_measured_has_the_known_sizes),
    };

    return cmocka_run_group_tests(tests, lay_out, clear);
}
