/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/tools/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Read to the end of the pipe or of the time; false: out of time. */
static bool drain(int fd, double end, char *buf, size_t len)
{
    size_t got = 0;
    char scrap[512];

    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        double left = end - now();
        bool room = got < len - 1;
        ssize_t n;

        buf[got] = '\0';
        if (left <= 0 || (poll(&p, 1, (int)(left * 1000) + 1) < 0 && errno != EINTR))
            return false;
        if (!p.revents)
            continue;
        n = read(fd, room ? buf + got : scrap, room ? len - 1 - got : sizeof scrap);
        if (n <= 0)
            return true;
        if (room)
            got += (size_t)n;
    }
}

/* A program may close its output and live on: it gets the rest of the time. */
static bool ended(pid_t pid, double end, int *status)
{
    while (waitpid(pid, status, WNOHANG) != pid) {
        if (now() > end)
            return false;
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
    return true;
}

int mu_run(char *const *argv, double timeout, char *buf, size_t len)
{
    double end = now() + timeout;
    posix_spawn_file_actions_t actions;
    int fd[2], status = 0, rc;
    bool in_time;
    pid_t pid;

    buf[0] = '\0';
    if (pipe2(fd, O_CLOEXEC) < 0)
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, fd[1], 1);
    rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fd[1]);
    if (rc != 0) {
        close(fd[0]);
        return -1;
    }
    in_time = drain(fd[0], end, buf, len) && ended(pid, end, &status);
    close(fd[0]);
    if (!in_time) {
        kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    return in_time && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
