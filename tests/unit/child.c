/* SPDX-License-Identifier: BSD-3-Clause */
/* child.c - a test's body in a child: a plugin keeps its state until a process ends */
#include "tests/unit/child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

int child_run(int (*body)(void *arg), void *arg, char *text, size_t len)
{
    int fds[2], status;
    size_t at = 0;
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], 2);
        _exit(body(arg));
    }
    close(fds[1]);
    while ((n = read(fds[0], text + at, len - 1 - at)) > 0)
        at += (size_t)n;
    text[at] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}
