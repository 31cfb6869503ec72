/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/tools/run.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "spank/hw/io/child.h"

extern char **environ;

/* Reads until the pipe ends; false: the deadline passed. */
static bool drain(const struct mu_children *child, double deadline, char *buf,
                  size_t len)
{
    char scrap[512];
    ssize_t n;

    memset(buf, 0, len);
    n = mu_children_read(child, buf, len - 1, deadline);
    if (n == (ssize_t)len - 1)
        do
            n = mu_children_read(child, scrap, sizeof scrap, deadline);
        while (n == (ssize_t)sizeof scrap);
    return n >= 0;
}

int mu_run(char *const *argv, double timeout, char *buf, size_t len)
{
    double deadline = mu_clock_s() + timeout;
    struct mu_children child = { .n = 1 };
    posix_spawn_file_actions_t actions;
    int fd[2], rc;

    buf[0] = '\0';
    if (pipe2(fd, O_CLOEXEC) < 0)
        return -1;
    child.fd = fd[0];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fd[1], 1);
    rc = posix_spawnp(&child.pid[0], argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fd[1]);
    if (rc != 0) {
        close(fd[0]);
        return -1;
    }
    /* A program may close its output and keep running: it gets the remaining time. */
    return mu_children_end(&child, drain(&child, deadline, buf, len) ? deadline : 0);
}
