/* SPDX-License-Identifier: BSD-3-Clause */
/* test_preload_comm.c - libmuster-nccl: which communicators are served, and how long */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/preload_run.h"

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

/* The library is in a folder of its user, whose parent is another's. */
static void a_module_that_another_user_may_have_put_there_is_not_opened(void **state)
{
    struct run r = { .nccl = "on", .alone = true, .steps = "init " SMALL " destroy" };
    char path[512];

    link_to(FAKES "libfake-backend.so", "alone/backend_nccl.so");
    snprintf(path, sizeof path, "%s/alone", folder);
    run(&r);
    has(&r, "backend open");
    for (int i = 0; i < (geteuid() == 0 ? 2 : 1); i++) {
        assert_int_equal(chmod(path, i ? 0700 : 0777), 0);
        assert_int_equal(i ? chown(path, 65534, 65534) : 0, 0);
        run(&r);
        both(&r, MADE BY_NCCL " | nccl Destroy 0 0 0");
        has(&r, "alone/lib/..: make it yours, or chmod o-w)");
    }
    assert_int_equal(chown(path, geteuid(), getegid()), 0);
    chmod(path, 0700);
    strcat(path, "/backend_nccl.so");
    unlink(path);
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
    r.env = "FAKE_NCCL=progress";
    run(&r);
    both(&r, MADE "config returned 7 | " BY_NCCL);
    has(&r, "(it is non-blocking)");
}

static void a_group_makes_communicators_at_its_end(void **state)
{
    struct run r = { .nccl = "on",
                     .steps = "group group init endgroup endgroup " SMALL " destroy" };

    run(&r);
    both(&r, SERVED BY_MUSTER " | backend close | nccl Destroy 0 0 0");
    r.steps = "group init init endgroup " SMALL; /* both are the same rank's */
    run(&r);
    both(&r, MADE MADE BY_NCCL);
    has(&r, "(several ranks of it are in one process)");
}

/* Two parts of two ranks; ranks 2 and 3 are the second part's. */
static void parts_of_a_communicator_are_served(void **state)
{
    struct run r = { .nccl = "on",
                     .steps = "init split:1 " SMALL " destroy whole split:1 " SMALL };

    run(&r);
    both(&r, SERVED "nccl Split 1 0 0 | backend open 2 borrowed | " BY_MUSTER
                    " | backend close | nccl Destroy 0 0 0 | nccl Split 1 0 0 | "
                    "backend open 2 borrowed | " BY_MUSTER);
    r = (struct run){ .nccl = "on",
                      .ranks = 4,
                      .steps =
                          "init @0split:100 @1split:100 @2split:101 @3split:101 " };
    run(&r);
    assert_int_equal(lines(&r, "backend open 2 borrowed\n"), 4);
    r = (struct run){ .nccl = "on", .steps = "init split:-1 whole " SMALL };
    run(&r);
    both(&r, SERVED "nccl Split -1 0 0 | " BY_MUSTER);
    r = (struct run){ .nccl = "on", .steps = "init group split:1 endgroup " SMALL };
    run(&r);
    both(&r, SERVED "nccl Split 1 0 0 | backend open 2 borrowed | " BY_MUSTER);
}

static void a_group_changes_nothing(void **state)
{
    struct run r = { .nccl = "on",
                     .steps = "init @0group " SMALL " sum:4:0:0 @0endgroup" };

    run(&r);
    both(&r, SERVED BY_MUSTER " | nccl AllReduce 4 0 0");
}

static void after_a_symmetric_window_calls_are_nccl_s(void **state)
{
    struct run r = { .nccl = "on", .steps = "init window:0 " SMALL " window:1 " SMALL };

    run(&r);
    both(&r, SERVED "nccl WindowRegister 4096 0 0 | " BY_MUSTER
                    " | nccl WindowRegister 4096 1 0 | " BY_NCCL);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_that_cannot_serve_decides_for_all),
        cmocka_unit_test(a_module_that_another_user_may_have_put_there_is_not_opened),
        cmocka_unit_test(a_rank_that_does_not_come_costs_a_second),
        cmocka_unit_test(communicators_that_are_not_complete_are_nccl_s),
        cmocka_unit_test(a_group_makes_communicators_at_its_end),
        cmocka_unit_test(parts_of_a_communicator_are_served),
        cmocka_unit_test(a_group_changes_nothing),
        cmocka_unit_test(after_a_symmetric_window_calls_are_nccl_s),
        cmocka_unit_test(what_ends_a_communicator_ends_muster_s_part_first),
    };

    return cmocka_run_group_tests(tests, lay_out, clear);
}
