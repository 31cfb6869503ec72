/* SPDX-License-Identifier: BSD-3-Clause */
#include "spank/hw/io/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"

#define AFTER_KILL 0.2 /* seconds; a process that can die needs less */
#define FILES_MAX 65536

static void close_from(int first)
{
    long max = sysconf(_SC_OPEN_MAX);

#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0U, 0U) == 0)
        return;
#endif
    for (int fd = first; fd < FILES_MAX && fd < max; fd++) /* Linux before 5.9 */
        close(fd);
}

/* Keeps the pipe alone and opens /dev/null as standard files: a child that is left
 * behind must hold no descriptor whose end another process waits for.
 */
static int keep_only(int fd)
{
    int null, pipe = fcntl(fd, F_DUPFD, 4);

    if (pipe < 0 || dup3(pipe, 3, O_CLOEXEC) < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        close(i);
    null = open("/dev/null", O_RDWR);
    if (null != 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        return -1;
    close_from(4);
    return 3;
}

static bool give_up_root(void)
{
    return setresgid(getegid(), getegid(), getegid()) == 0 &&
           setresuid(geteuid(), geteuid(), geteuid()) == 0;
}

int mu_children_start(struct mu_children *children, int want, mu_child_work *work,
                      void *arg, struct mu_err *err)
{
    int fd[2];

    *children = (struct mu_children){ .fd = -1 };
    if (pipe2(fd, O_CLOEXEC) < 0)
        return mu_err_set(err, errno, "cannot create a pipe: %s", strerror(errno));
    for (int i = 0; i < want && i < MU_CHILDREN_MAX; i++) {
        pid_t pid = fork();

        if (pid < 0)
            break;
        if (pid == 0) {
            int out = give_up_root() ? keep_only(fd[1]) : -1;

            _exit(out < 0 ? 1 : work(arg, i, out));
        }
        children->pid[children->n++] = pid;
    }
    children->fd = fd[0];
    if (children->n == 0)
        mu_err_set(err, errno, "cannot start a process: %s", strerror(errno));
    close(fd[1]);
    return children->n == 0 ? -1 : 0;
}

bool mu_child_write(int fd, const void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, (const char *)data + done, len - done);

        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

ssize_t mu_children_read(const struct mu_children *children, void *buf, size_t len,
                         double deadline)
{
    struct pollfd p = { .fd = children->fd, .events = POLLIN };
    size_t got = 0;

    while (got < len) {
        double left = deadline - mu_clock_s();
        ssize_t n;

        p.revents = 0;
        if (left <= 0 || (poll(&p, 1, (int)(left * 1000) + 1) < 0 && errno != EINTR))
            return -1;
        if (!p.revents)
            continue;
        n = read(p.fd, (char *)buf + got, len - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

/* Reap the children that end before `deadline`; the others stay in the list. */
static void reap(struct mu_children *children, double deadline, int *status)
{
    for (;;) {
        int left = 0;

        for (int i = 0; i < children->n; i++) {
            pid_t pid = waitpid(children->pid[i], status, WNOHANG);

            if (pid == 0 || (pid < 0 && errno == EINTR))
                children->pid[left++] = children->pid[i];
        }
        children->n = left;
        if (left == 0 || mu_clock_s() >= deadline)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

int mu_children_end(struct mu_children *children, double deadline)
{
    int status = SIGKILL; /* as if killed, until waitpid reports another */
    bool exited;

    if (children->fd >= 0)
        close(children->fd);
    children->fd = -1;
    if (deadline > 0)
        reap(children, deadline, &status);
    exited = children->n == 0 && WIFEXITED(status);
    for (int i = 0; i < children->n; i++)
        kill(children->pid[i], SIGKILL);
    if (children->n > 0)
        reap(children, mu_clock_s() + AFTER_KILL, &status);
    return exited ? WEXITSTATUS(status) : -1;
}

int mu_child_ask(mu_child_work *work, void *arg, void *answer, size_t len, int seconds,
                 struct mu_err *err)
{
    double deadline = mu_clock_s() + seconds;
    struct mu_children child;
    bool whole;

    if (mu_children_start(&child, 1, work, arg, err) < 0)
        return -1;
    whole = mu_children_read(&child, answer, len, deadline) == (ssize_t)len;
    mu_children_end(&child, whole ? deadline : 0);
    return whole ? 0 : mu_err_set(err, ETIMEDOUT, "no answer within %d s", seconds);
}
