/* SPDX-License-Identifier: BSD-3-Clause */
/* test_grow_refused.c - processes that may not join a world that has begun, and calls
 * of muster_grow that are refused
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/forked.h"
#include "tests/unit/patience.h"
#include "tests/unit/ways.h"

static int ask_for_a_while(struct muster *m, void *arg)
{
    int joined;

    RANK_CHECK(ways_rank() < 2);
    for (int i = 0; i < 400; i++) {
        RANK_OK(muster_grow(m, &joined));
        RANK_CHECK(joined == 0);
        usleep(1000);
    }
    return muster_finalize(m);
}

/* A world of two with MUSTER_ELASTIC=1, and a third process that joins by path. */
static void run_with_newcomer(const char *path, const char *its_elastic,
                              double init_timeout,
                              int (*body)(struct muster *m, void *arg),
                              struct ways_result *r)
{
    ways_run(&(struct ways){ .size = 3,
                             .set = { { -1, "WORLD_SIZE", "2" },
                                      { -1, "MUSTER_ELASTIC", "1" },
                                      { -1, "MUSTER_GROW", path },
                                      { 2, "MUSTER_ELASTIC", its_elastic },
                                      { 2, "MUSTER_JOIN", path } },
                             .init_timeout = init_timeout },
             ways_port(), body, NULL, r);
}

static void a_process_of_other_settings_does_not_join(void **state)
{
    struct ways_result r;
    char path[256];

    ways_join_file(path, sizeof path);
    run_with_newcomer(path, "2", 0, ask_for_a_while, &r);
    if (r.status[0] || r.status[1] || r.status[2] != MUSTER_ECONTRACT ||
        !ways_line(r.text, "muster-grow-", "elastic 1', but this process 'libmuster") ||
        !ways_line(r.text, "elastic 1", "elastic 2': both must be equal"))
        fail_msg("%d %d %d\n%s", r.status[0], r.status[1], r.status[2], r.text);
    free(r.text);
}

static int must_not_begin(struct muster *m, void *arg)
{
    return 90;
}

static void a_file_of_no_use_is_named(void **state)
{
    static const struct {
        const char *name, *content;
        mode_t mode;
        const char *expect;
    } rows[] = {
        { "no file", NULL, 0600, "did not exist within 0.3 s" },
        { "another file", "hello", 0600, "is not a file that MUSTER_GROW of this" },
        { "a file that others read", "hello", 0644, "has mode 0644: others may read" },
    };
    char path[256];

    ways_join_file(path, sizeof path);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ways_result r;

        if (rows[i].content) {
            FILE *f = fopen(path, "w");

            assert_non_null(f);
            fputs(rows[i].content, f);
            fclose(f);
            assert_int_equal(chmod(path, rows[i].mode), 0);
        }
        ways_run(&(struct ways){ .size = 1,
                                 .set = { { -1, "MUSTER_ELASTIC", "1" },
                                          { -1, "MUSTER_JOIN", path } },
                                 .init_timeout = 0.3 },
                 ways_port(), must_not_begin, NULL, &r);
        if (r.status[0] != MUSTER_ERENDEZVOUS ||
            !ways_line(r.text, "MUSTER_JOIN=", rows[i].expect))
            fail_msg("%s: %d\n%s", rows[i].name, r.status[0], r.text);
        free(r.text);
    }
    unlink(path);
}

static int leave_without_finalize(struct muster *m, void *arg)
{
    int status = ways_rank() < 2 ? 0 : 90;

    muster_barrier(m);
    _exit(status);
}

static void a_job_that_has_ended_is_named(void **state)
{
    struct ways_result r;
    char path[256];

    ways_join_file(path, sizeof path);
    run_with_newcomer(path, "1", WAYS_SHORT * PATIENCE, leave_without_finalize, &r);
    if (r.status[2] != MUSTER_ERENDEZVOUS ||
        !(ways_line(r.text, "rank 0 of job ", "the job may have ended") ||
          ways_line(r.text, "MUSTER_JOIN=", "did not call muster_grow")))
        fail_msg("%d\n%s", r.status[2], r.text);
    unlink(path);
    free(r.text);
}

static int end_while_one_waits(struct muster *m, void *arg)
{
    RANK_CHECK(ways_rank() < 2);
    usleep((useconds_t)(0.3 * PATIENCE * 1e6)); /* the third one has read the file */
    return muster_finalize(m);
}

static void a_job_that_ends_while_one_waits_is_not_waited_for(void **state)
{
    struct ways_result r;
    char path[256];

    ways_join_file(path, sizeof path);
    run_with_newcomer(path, "1", 60 * PATIENCE, end_while_one_waits, &r);
    if (r.status[0] || r.status[1] || r.status[2] != MUSTER_ERENDEZVOUS ||
        !ways_line(r.text, "MUSTER_JOIN=", " has ended") || r.seconds > 20 * PATIENCE)
        fail_msg("%d %d %d, %.1f s\n%s", r.status[0], r.status[1], r.status[2],
                 r.seconds, r.text);
    free(r.text);
}

static int calls_that_are_refused(struct muster *m, void *arg)
{
    struct muster_handle *h = NULL;
    struct muster *group;
    int32_t one = 1;
    int joined = 7;

    RANK_CHECK(muster_grow(m, NULL) == MUSTER_EUSAGE);
    if (muster_size(m) == 1) {
        RANK_CHECK(muster_grow(m, &joined) == MUSTER_EUSAGE);
        RANK_CHECK(strstr(muster_error(m), "has begun with one rank"));
        return muster_finalize(m);
    }
    if (!getenv("MUSTER_GROW")) {
        RANK_CHECK(muster_grow(m, &joined) == MUSTER_EUSAGE);
        RANK_CHECK(strstr(muster_error(m), "start all ranks with MUSTER_GROW=FILE"));
        return muster_finalize(m);
    }
    RANK_OK(muster_split(m, 0, 0, "all", &group));
    RANK_CHECK(muster_grow(group, &joined) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(group), "group 'all': call it on the world"));
    RANK_OK(muster_finalize(group));
    RANK_OK(muster_start(m, &h));
    RANK_OK(muster_allreduce(m, &one, 1, MUSTER_I32, MUSTER_SUM, NULL));
    RANK_CHECK(muster_grow(m, &joined) == MUSTER_EUSAGE);
    RANK_CHECK(strstr(muster_error(m), "wait for 1 handle of muster_start first"));
    RANK_OK(muster_wait(h, 0));
    RANK_CHECK(joined == 7);
    RANK_OK(muster_grow(m, &joined));
    RANK_CHECK(joined == 0 && one == 2);
    return muster_finalize(m);
}

static void calls_at_a_wrong_place_are_refused(void **state)
{
    static const struct {
        int size;
        bool grows;
    } rows[] = { { 2, true }, { 2, false }, { 1, true } };
    char path[256];

    ways_join_file(path, sizeof path);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ways w = { .size = rows[i].size,
                          .set = { { -1, "MUSTER_ELASTIC", "1" },
                                   { -1, "MUSTER_GROW", path } } };
        struct ways_result r;

        if (!rows[i].grows)
            w.set[1].name = NULL;
        ways_run(&w, ways_port(), calls_that_are_refused, NULL, &r);
        if (r.status[0] || (rows[i].size > 1 && r.status[1]))
            fail_msg("row %zu: %d %d\n%s", i, r.status[0], r.status[1], r.text);
        free(r.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_of_other_settings_does_not_join),
        cmocka_unit_test(a_file_of_no_use_is_named),
        cmocka_unit_test(a_job_that_has_ended_is_named),
        cmocka_unit_test(a_job_that_ends_while_one_waits_is_not_waited_for),
        cmocka_unit_test(calls_at_a_wrong_place_are_refused),
    };

    return cmocka_run_group_tests_name("grow_refused", tests, NULL, NULL);
}
