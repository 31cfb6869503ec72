/* SPDX-License-Identifier: BSD-3-Clause */
/* test_preload.c - libmuster-nccl under a program of several ranks, on a made-up NCCL
 *
 * A rank's output is in order; the ranks' outputs mix. So each rank is compared alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/nccl/eligible.h"
#include "runtime/nccl/nccl_abi.h"
#include "tests/unit/folder.h"

#define LIBS BUILD "/.libs/"
#define FAKES BUILD "/tests/unit/.libs/"
#define MOST 16384

static char folder[256]; /* the libraries as they are installed, and NCCL */

/* One run of the program. */
struct run {
    const char *env;  /* "A=1 B=2", beside MUSTER_NCCL */
    const char *nccl; /* MUSTER_NCCL, NULL: not set */
    const char *how;  /* NULL: "global" */
    int ranks;        /* 0: 2 */
    bool alone;       /* no backend beside the library */
    const char *steps;
    char text[MOST];
};

static void run(struct run *r)
{
    const char *how = r->how ? r->how : "global";
    bool by_name = strcmp(how, "by-name") == 0;
    char command[2048];
    size_t at = 0;
    FILE *out;

    /* Of a build with sanitizers, the preloaded library is in front of theirs. */
    snprintf(command, sizeof command,
             "exec 2>&1; F=%s; env -u MUSTER_LOG -u MUSTER_NCCL "
             "ASAN_OPTIONS=verify_asan_link_order=0 %s %s%s %s %s %s %s %d %s",
             folder, r->env ? r->env : "", r->nccl ? "MUSTER_NCCL=" : "",
             r->nccl ? r->nccl : "",
             by_name    ? "LD_LIBRARY_PATH=$F/nccl:$F/real"
             : r->alone ? "LD_PRELOAD=$F/alone/lib/libmuster-nccl.so"
                        : "LD_PRELOAD=$F/libmuster-nccl.so",
             BUILD "/tests/unit/nccl_program", how,
             by_name ? "libnccl.so.2" : "$F/real/libnccl.so.2", r->ranks ? r->ranks : 2,
             r->steps);
    out = popen(command, "r");
    assert_non_null(out);
    while (at < sizeof r->text - 1) {
        size_t n = fread(r->text + at, 1, sizeof r->text - 1 - at, out);

        if (n == 0)
            break;
        at += n;
    }
    r->text[at] = '\0';
    assert_int_equal(pclose(out), 0);
}

/* The lines of that rank, without "rN ", separated by " | ". */
static void expect(const struct run *r, int rank, const char *expected)
{
    char got[4096] = "", key[8];

    snprintf(key, sizeof key, "r%d ", rank);
    for (const char *line = r->text; *line;) {
        size_t len = strcspn(line, "\n");

        if (strncmp(line, key, 3) == 0)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s",
                     got[0] ? " | " : "", (int)len - 3, line + 3);
        line += len + (line[len] == '\n');
    }
    if (strcmp(got, expected) != 0)
        print_error("all of it:\n%s", r->text);
    assert_string_equal(got, expected);
}

static void both(const struct run *r, const char *expected)
{
    expect(r, 0, expected);
    expect(r, 1, expected);
}

static void has(const struct run *r, const char *text)
{
    if (!strstr(r->text, text))
        fail_msg("'%s' is not in:\n%s", text, r->text);
}

#define SMALL "sum:256:7:0"
#define BY_NCCL "nccl AllReduce 256 7 0"
#define MADE "nccl InitRank 2 1 0 | "
#define SERVED MADE "backend open 2 borrowed | "
#define BY_MUSTER "backend sum 256 0 1"

static void without_being_asked_all_calls_are_nccl_s(void **state)
{
    struct run r = { .steps = "init " SMALL " destroy" };

    run(&r);
    both(&r, MADE BY_NCCL " | nccl Destroy 0 0 0");
    assert_null(strstr(r.text, "muster"));
    r.env = "MUSTER_LOG=info";
    run(&r);
    has(&r, "muster: nccl: carried out 0 of 1 all-reduces (0.0 of 0.0 MiB); "
            "forwarded: 1 of communicators that Muster does not serve "
            "(MUSTER_NCCL=on is not set)\n");
}

static void off_is_nccl_alone(void **state)
{
    struct run r = { .nccl = "off",
                     .env = "MUSTER_LOG=info",
                     .steps = "init " SMALL " destroy" };

    run(&r);
    both(&r, MADE BY_NCCL " | nccl Destroy 0 0 0");
    assert_null(strstr(r.text, "muster"));
}

static void small_sums_are_carried_out_on_all_ranks(void **state)
{
    static const char *const ways[] = { "init", "config", "scalable" };

    for (int i = 0; i < 3; i++) {
        char steps[64];
        struct run r = { .nccl = "on", .steps = steps };

        snprintf(steps, sizeof steps, "%s " SMALL " sum:8:9:4 destroy", ways[i]);
        run(&r);
        both(&r, SERVED BY_MUSTER " | backend sum 8 3 0.5 | backend close | "
                                  "nccl Destroy 0 0 0");
    }
}

static void four_ranks(void **state)
{
    struct run r = { .nccl = "on", .ranks = 4, .steps = "init " SMALL " finalize" };

    run(&r);
    for (int rank = 0; rank < 4; rank++)
        expect(&r, rank,
               "nccl InitRank 4 1 0 | backend open 4 borrowed | " BY_MUSTER
               " | backend close | nccl Finalize 0 0 0");
}

/* Three ranks: never measured. Other sizes, types and operators: NCCL's. */
static void what_was_not_measured_is_forwarded(void **state)
{
    struct run r = { .nccl = "on", .ranks = 3, .steps = "init " SMALL };

    run(&r);
    for (int rank = 0; rank < 3; rank++)
        expect(&r, rank, "nccl InitRank 3 1 0 | " BY_NCCL);
    has(&r, "(it has not been measured with this number of ranks)");
    r = (struct run){ .nccl = "on",
                      .steps = "init sum:1000000:7:0 sum:0:7:0 sum:4:4:0 sum:4:7:1" };
    run(&r);
    both(&r, SERVED "nccl AllReduce 1000000 7 0 | nccl AllReduce 0 7 0 | "
                    "nccl AllReduce 4 4 0 | nccl AllReduce 4 7 1");
    has(&r, "muster: nccl: carried out 0 of 4 all-reduces (0.0 of 3.8 MiB); "
            "forwarded: 2 of other sizes, 1 of other types, 1 of other operators\n");
}

static void limits_of_what_is_eligible(void **state)
{
    static const struct {
        int ranks, type, op;
        size_t count;
        enum mu_fate fate;
    } rows[] = {
        { 2, MU_NCCL_FLOAT32, MU_NCCL_SUM, 1 << 18, MU_CARRIED },
        { 2, MU_NCCL_FLOAT32, MU_NCCL_SUM, (1 << 18) + 1, MU_TOO_LARGE },
        { 2, MU_NCCL_BFLOAT16, MU_NCCL_AVG, 1 << 19, MU_CARRIED },
        { 4, MU_NCCL_FLOAT16, MU_NCCL_SUM, 1 << 17, MU_CARRIED },
        { 4, MU_NCCL_FLOAT16, MU_NCCL_SUM, (1 << 17) + 1, MU_TOO_LARGE },
        { 8, MU_NCCL_FLOAT32, MU_NCCL_SUM, 1, MU_TOO_LARGE },
        { 2, MU_NCCL_FLOAT32, 5, 1, MU_OTHER_OPERATOR }, /* made by the program */
        { 2, 8, MU_NCCL_SUM, 1, MU_OTHER_TYPE },
        { 2, -1, MU_NCCL_SUM, 1, MU_OTHER_TYPE },
        { 2, 99, MU_NCCL_SUM, 1, MU_OTHER_TYPE },
        { 2, MU_NCCL_FLOAT32, MU_NCCL_SUM, (size_t)-1 / 2, MU_TOO_LARGE },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t bytes;

        assert_int_equal(
            mu_eligible(rows[i].ranks, rows[i].count, rows[i].type, rows[i].op, &bytes),
            rows[i].fate);
    }
}

static void one_rank_that_cannot_serve_decides_for_all(void **state)
{
    struct run r = { .nccl = "on",
                     .env = "FAKE_BACKEND=fails1",
                     .steps = "init " SMALL " destroy" };

    run(&r);
    both(&r, MADE BY_NCCL " | nccl Destroy 0 0 0");
    r.env = "FAKE_BACKEND=device";
    run(&r);
    both(&r, SERVED "backend close | " BY_NCCL " | nccl Destroy 0 0 0");
    has(&r, "the communicator's GPU is not the current one");
    r.env = "";
    r.alone = true;
    run(&r);
    both(&r, MADE BY_NCCL " | nccl Destroy 0 0 0");
    has(&r, "(backend_nccl.so is not installed)");
}

static void a_rank_that_does_not_come_costs_a_second(void **state)
{
    struct run r = { .nccl = "on", .steps = "@0init @0" SMALL };

    run(&r);
    expect(&r, 0, MADE BY_NCCL);
    has(&r, "(1 of 2 ranks met on this host within 1.0 s)");
}

static void communicators_that_are_not_complete_are_nccl_s(void **state)
{
    struct run r = { .nccl = "on",
                     .env = "FAKE_NCCL=pending",
                     .steps = "config " SMALL };

    run(&r);
    both(&r, MADE BY_NCCL);
    has(&r, "(it is non-blocking)");
    r = (struct run){ .nccl = "on", .steps = "group init endgroup " SMALL };
    run(&r);
    both(&r, MADE BY_NCCL);
    has(&r, "(it was made inside a group)");
}

static void a_group_changes_nothing(void **state)
{
    struct run r = { .nccl = "on",
                     .steps = "init @0group " SMALL " sum:4:4:0 @0endgroup" };

    run(&r);
    both(&r, SERVED BY_MUSTER " | nccl AllReduce 4 4 0");
}

static void captured_calls_and_windows_are_nccl_s(void **state)
{
    struct run r = { .nccl = "on",
                     .env = "FAKE_BACKEND=captured",
                     .steps = "init " SMALL };

    run(&r);
    both(&r, SERVED BY_NCCL);
    has(&r, "forwarded: 1 in captured graphs\n");
    r = (struct run){ .nccl = "on",
                      .steps = "init window:0 " SMALL " window:1 " SMALL };
    run(&r);
    both(&r, SERVED "nccl WindowRegister 4096 0 0 | " BY_MUSTER
                    " | nccl WindowRegister 4096 1 0 | " BY_NCCL);
}

static void an_error_of_the_gpu_is_the_program_s(void **state)
{
    struct run r = { .nccl = "on",
                     .env = "FAKE_BACKEND=broken",
                     .steps = "init " SMALL };

    run(&r);
    both(&r, SERVED SMALL " returned 1");
}

/* Afterwards the handle may be another communicator's. */
static void what_ends_a_communicator_ends_muster_s_part_first(void **state)
{
    static const struct {
        const char *step, *then;
    } rows[] = {
        { "abort", "backend abort | backend close | nccl Abort 0 0 0" },
        { "revoke", "backend abort | backend close | nccl Revoke 0 0 0" },
        { "shrink:1", "backend abort | backend close | nccl Shrink 1 1 0" },
        { "destroy again", "backend close | nccl Destroy 0 0 0 | nccl InitRank 1 1 0" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char steps[64], expected[256];
        struct run r = { .nccl = "on", .steps = steps };

        snprintf(steps, sizeof steps, "init %s @1" SMALL, rows[i].step);
        snprintf(expected, sizeof expected, SERVED "%s", rows[i].then);
        run(&r);
        if (i < 3) {
            expect(&r, 0, expected);
            strcat(expected, " | " BY_NCCL);
            expect(&r, 1, expected);
        } else {
            assert_null(strstr(r.text, BY_MUSTER));
        }
    }
    struct run r = { .nccl = "on", .steps = "init shrink:0 " SMALL };

    run(&r);
    both(&r, SERVED "nccl Shrink 1 0 0 | " BY_MUSTER);
}

static void nccl_is_found_where_the_program_has_it(void **state)
{
    struct run r = { .nccl = "on", .how = "local", .steps = "init " SMALL };

    run(&r);
    both(&r, SERVED BY_MUSTER);
    r = (struct run){ .nccl = "on",
                      .how = "by-name",
                      .steps = "init " SMALL " reduce error" };
    run(&r);
    both(&r, SERVED BY_MUSTER " | nccl Reduce 11 1 88 | is no error");
}

static void without_nccl_a_call_fails_with_a_sentence(void **state)
{
    struct run r = { .nccl = "on",
                     .how = "local",
                     .env = "MUSTER_NCCL_LIBRARY=/nonexistent/libnccl.so.2",
                     .ranks = 1,
                     .steps = "init" };

    run(&r);
    expect(&r, 0, "init returned 5");
    has(&r, "muster: error: ncclCommInitRank is not found: MUSTER_NCCL_LIBRARY can "
            "name the path of libnccl.so.2\n");
}

static void the_line_at_the_end_is_one_and_can_be_left_out(void **state)
{
    struct run r = { .nccl = "on", .steps = "init " SMALL " " SMALL };
    const char *line = "muster: nccl: carried out 2 of 2 all-reduces (0.0 of "
                       "0.0 MiB)\n";

    run(&r);
    has(&r, line);
    assert_null(strstr(strstr(r.text, line) + 1, line));
    r.env = "MUSTER_LOG=warn";
    run(&r);
    assert_null(strstr(r.text, "muster"));
    r = (struct run){ .nccl = "yes", .steps = "init " SMALL };
    run(&r);
    both(&r, MADE BY_NCCL);
    has(&r, "muster: warning: MUSTER_NCCL is on, off or watch, not 'yes'\n");
}

static void link_to(const char *target, const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(symlink(target, path), 0);
}

static int clear(void **state)
{
    return folder_remove(folder);
}

static int lay_out(void **state)
{
    static const char *const folders[] = { "/muster", "/nccl", "/alone", "/alone/lib",
                                           "/real" };

    snprintf(folder, sizeof folder, "/tmp/test_preload.XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 5; i++) {
        char path[512];

        snprintf(path, sizeof path, "%s%s", folder, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    link_to(LIBS "libmuster-nccl.so", "libmuster-nccl.so");
    link_to(LIBS "libmuster-nccl.so", "alone/lib/libmuster-nccl.so");
    link_to(LIBS "libmuster-nccl-all.so", "nccl/libnccl.so.2");
    link_to(FAKES "libfake-backend.so", "muster/backend_nccl.so");
    link_to(FAKES "libfake-backend.so", "backend_nccl.so");
    link_to(FAKES "../fakes/.libs/libnccl.so.2", "real/libnccl.so.2");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_being_asked_all_calls_are_nccl_s),
        cmocka_unit_test(off_is_nccl_alone),
        cmocka_unit_test(small_sums_are_carried_out_on_all_ranks),
        cmocka_unit_test(four_ranks),
        cmocka_unit_test(what_was_not_measured_is_forwarded),
        cmocka_unit_test(limits_of_what_is_eligible),
        cmocka_unit_test(one_rank_that_cannot_serve_decides_for_all),
        cmocka_unit_test(a_rank_that_does_not_come_costs_a_second),
        cmocka_unit_test(communicators_that_are_not_complete_are_nccl_s),
        cmocka_unit_test(a_group_changes_nothing),
        cmocka_unit_test(captured_calls_and_windows_are_nccl_s),
        cmocka_unit_test(an_error_of_the_gpu_is_the_program_s),
        cmocka_unit_test(what_ends_a_communicator_ends_muster_s_part_first),
        cmocka_unit_test(nccl_is_found_where_the_program_has_it),
        cmocka_unit_test(without_nccl_a_call_fails_with_a_sentence),
        cmocka_unit_test(the_line_at_the_end_is_one_and_can_be_left_out),
    };

    return cmocka_run_group_tests(tests, lay_out, clear);
}
