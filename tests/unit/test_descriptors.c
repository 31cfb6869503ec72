/* SPDX-License-Identifier: BSD-3-Clause */
/* test_descriptors.c - file descriptors among three ranks, whose sockets are in one
 * process
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/backend/nccl/descriptors.h"

#define RANKS 3

static struct mu_descriptors rank[RANKS];
static struct mu_descriptor_address address[RANKS + 1];
static int pipes[2];

static int start(void **state)
{
    for (int r = 0; r < RANKS; r++)
        mu_descriptors_open(&rank[r], &address[r]);
    for (int r = 0; r < RANKS; r++) {
        assert_true(address[r].len > 1);
        mu_descriptors_join(&rank[r], r, RANKS, address);
    }
    assert_int_equal(pipe(pipes), 0);
    return 0;
}

static int stop(void **state)
{
    for (int r = 0; r < RANKS; r++)
        mu_descriptors_close(&rank[r]);
    close(pipes[0]);
    close(pipes[1]);
    return 0;
}

/* Descriptors of this process. */
static int count_open(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static bool same_file(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

static void a_descriptor_arrives_with_its_note_and_sender(void **state)
{
    int from = -1, fd = -1, note = 0;

    assert_false(mu_descriptors_take(&rank[2], &from, &note, sizeof note, &fd));
    assert_false(mu_descriptors_await(&rank[2], 0));
    note = 41;
    assert_int_equal(mu_descriptors_send(&rank[1], 2, &note, sizeof note, pipes[0]),
                     MU_SENT);
    note = 42;
    assert_int_equal(mu_descriptors_send(&rank[0], 2, &note, sizeof note, pipes[1]),
                     MU_SENT);
    assert_true(mu_descriptors_await(&rank[2], 0));
    for (int i = 1; i >= 0; i--) {
        assert_true(mu_descriptors_take(&rank[2], &from, &note, sizeof note, &fd));
        assert_int_equal(from, i);
        assert_int_equal(note, 42 - i);
        assert_true(same_file(fd, pipes[1 - i]));
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
    }
    assert_false(mu_descriptors_take(&rank[2], &from, &note, sizeof note, &fd));
}

static void a_full_peer_is_tried_later_and_one_that_has_left_is_known(void **state)
{
    int from, fd, note, sent = 0, taken = 0, before = count_open();
    enum mu_sent result;

    while ((result = mu_descriptors_send(&rank[0], 1, &sent, sizeof sent, pipes[0])) ==
           MU_SENT)
        sent++;
    assert_int_equal(result, MU_SEND_LATER);
    while (mu_descriptors_take(&rank[1], &from, &note, sizeof note, &fd)) {
        assert_int_equal(note, taken++);
        close(fd);
    }
    assert_int_equal(taken, sent);
    assert_int_equal(count_open(), before);
    assert_int_equal(mu_descriptors_send(&rank[0], 1, &note, sizeof note, pipes[0]),
                     MU_SENT);
    mu_descriptors_close(&rank[1]);
    assert_int_equal(mu_descriptors_send(&rank[0], 1, &note, sizeof note, pipes[0]),
                     MU_SEND_LEFT);
    assert_int_equal(mu_descriptors_send(&rank[1], 0, &note, sizeof note, pipes[0]),
                     MU_SEND_NEVER);
    assert_false(mu_descriptors_take(&rank[1], &from, &note, sizeof note, &fd));
}

static void strangers_and_other_notes_are_dropped_with_their_descriptors(void **state)
{
    struct mu_descriptors stranger;
    int from, fd, note = 1, before;
    char other[2] = { 0 };

    mu_descriptors_open(&stranger, &address[RANKS]);
    mu_descriptors_join(&stranger, 0, RANKS, address);
    before = count_open();
    assert_int_equal(mu_descriptors_send(&stranger, 1, &note, sizeof note, pipes[0]),
                     MU_SENT);
    assert_int_equal(mu_descriptors_send(&rank[0], 1, other, sizeof other, pipes[0]),
                     MU_SENT);
    assert_false(mu_descriptors_take(&rank[1], &from, &note, sizeof note, &fd));
    assert_int_equal(count_open(), before);
    mu_descriptors_close(&stranger);
}

/* As a process that has all of its descriptors in use. */
static void a_descriptor_that_does_not_fit_is_reported(void **state)
{
    struct rlimit before, none;
    int from, fd = 0, note = 7;

    assert_int_equal(mu_descriptors_send(&rank[0], 1, &note, sizeof note, pipes[0]),
                     MU_SENT);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_true(mu_descriptors_take(&rank[1], &from, &note, sizeof note, &fd));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(fd, -1);
    assert_int_equal(note, 7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_descriptor_arrives_with_its_note_and_sender),
        TEST(a_full_peer_is_tried_later_and_one_that_has_left_is_known),
        TEST(strangers_and_other_notes_are_dropped_with_their_descriptors),
        TEST(a_descriptor_that_does_not_fit_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
