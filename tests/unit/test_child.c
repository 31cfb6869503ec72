/* SPDX-License-Identifier: BSD-3-Clause */
/* test_child.c - children with a deadline, one that cannot be killed among them */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "spank/hw/io/child.h"
#include "tests/unit/hang.h"

static int send_index(void *arg, int index, int fd)
{
    return write(fd, &index, sizeof index) == sizeof index ? *(int *)arg : 99;
}

static void the_answers_of_all_children_come_through_one_pipe(void **state)
{
    int status = 7, index, seen = 0;
    struct mu_children c;
    double deadline = mu_clock_s() + 10;

    assert_int_equal(mu_children_start(&c, 3, send_index, &status, NULL), 0);
    while (mu_children_read(&c, &index, sizeof index, deadline) == sizeof index)
        seen |= 1 << index;
    assert_int_equal(seen, 7);
    assert_int_equal(mu_children_end(&c, deadline), 7);
    assert_int_equal(c.n, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie */
    assert_int_equal(errno, ECHILD);
}

static int sleep_long(void *arg, int index, int fd)
{
    close(fd);
    sleep(60);
    return 0;
}

static void a_child_that_lives_on_is_killed_at_the_deadline(void **state)
{
    double start = mu_clock_s();
    struct mu_children c;
    char byte;

    assert_int_equal(mu_children_start(&c, 2, sleep_long, NULL, NULL), 0);
    assert_int_equal(mu_children_read(&c, &byte, 1, start + 10), 0);
    assert_int_equal(mu_children_end(&c, start + 0.3), -1);
    assert_true(mu_clock_s() - start >= 0.3);
    assert_true(mu_clock_s() - start < 5);
    assert_int_equal(c.n, 0);
}

/* The number of open descriptors without that of the folder, and the ids. */
static int show_bounds(void *arg, int index, int fd)
{
    DIR *dir = opendir("/proc/self/fd");
    uid_t all[3];
    int n[4] = { -1 };

    while (dir && readdir(dir))
        n[0]++;
    getresuid(&all[0], &all[1], &all[2]);
    for (int i = 0; i < 3; i++)
        n[i + 1] = (int)all[i];
    return write(fd, n, sizeof n) == sizeof n ? 0 : 1;
}

static void a_child_has_its_pipe_alone_and_the_effective_ids_for_good(void **state)
{
    bool root = getuid() == 0;
    int n[4], other = open("/dev/null", O_RDONLY), high = fcntl(other, F_DUPFD, 900);
    struct mu_children c;
    uid_t want = root ? 65534 : getuid();
    ssize_t got;

    if (root && seteuid(want) < 0)
        fail();
    assert_int_equal(mu_children_start(&c, 1, show_bounds, NULL, NULL), 0);
    got = mu_children_read(&c, n, sizeof n, mu_clock_s() + 10);
    assert_int_equal(mu_children_end(&c, mu_clock_s() + 10), 0);
    if (root && seteuid(0) < 0)
        fail();
    close(other);
    close(high);
    assert_int_equal(got, sizeof n);
    assert_int_equal(n[0], 6); /* ".", "..", 0 to 3, the folder; less 1 to begin with */
    for (int i = 1; i < 4; i++)
        assert_int_equal(n[i], want);
}

static int open_file(void *arg, int index, int fd)
{
    return open(arg, O_RDONLY) < 0;
}

static char state_of(pid_t pid)
{
    char path[64], text[512] = "", *at;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY);
    if (fd >= 0 && read(fd, text, sizeof text - 1) < 0)
        text[0] = '\0';
    close(fd);
    at = strrchr(text, ')');
    return at ? at[2] : '?';
}

static void a_child_that_cannot_be_killed_is_left_behind(void **state)
{
    char file[] = "/tmp/muster-test-XXXXXX", byte, seen;
    struct mu_children c;
    double start, took;
    ssize_t got;
    pid_t pid;
    int rc;

    close(mkstemp(file));
    if (!hang_alone() || !hang_begin(file)) {
        unlink(file);
        skip();
    }
    start = mu_clock_s();
    assert_int_equal(mu_children_start(&c, 1, open_file, file, NULL), 0);
    pid = c.pid[0];
    got = mu_children_read(&c, &byte, 1, start + 0.3);
    rc = mu_children_end(&c, 0);
    took = mu_clock_s() - start;
    seen = state_of(pid);
    hang_end();
    unlink(file);
    assert_int_equal(got, -1);
    assert_int_equal(rc, -1);
    assert_int_equal(seen, 'D'); /* after SIGKILL: this was such a child */
    assert_true(took >= 0.3);
    assert_true(took < 3);
    assert_int_equal(waitpid(pid, &rc, 0), pid); /* now it can die */
    assert_true(WIFSIGNALED(rc));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_answers_of_all_children_come_through_one_pipe),
        cmocka_unit_test(a_child_that_lives_on_is_killed_at_the_deadline),
        cmocka_unit_test(a_child_has_its_pipe_alone_and_the_effective_ids_for_good),
        cmocka_unit_test(a_child_that_cannot_be_killed_is_left_behind),
    };

    return cmocka_run_group_tests_name("child", tests, NULL, NULL);
}
