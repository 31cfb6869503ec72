/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.c - the streams of C in a process that is about to end */
#include "runtime/recover/streams.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/err.h"
#include "runtime/base/thread.h"

/* How many milliseconds a line waits for stderr. */
#define PRINT_MS 1000

/* A flush that may last, in a thread of its own; one at a time. Each call waits until
 * its limit after the flush began: what hangs is waited for once, not in each call.
 */
struct task {
    _Atomic double began; /* 0: idle */
    void (*flush)(void);
};

/* Poll returns at once for a file; a pipe that is ready takes a page. A pipe without a
 * reader is not ready: a write would raise SIGPIPE.
 */
static bool await_room(int fd, int ms)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };

    return poll(&p, 1, ms) == 1 && p.revents == POLLOUT;
}

/* True when a write returns without waiting for a reader. */
static bool takes_all(FILE *stream)
{
    struct stat st;
    int fd = fileno_unlocked(stream);

    if (fd < 0 || fstat(fd, &st) < 0)
        return false;
    return S_ISREG(st.st_mode) || (S_ISFIFO(st.st_mode) &&
                                   __fpending(stream) <= PIPE_BUF && await_room(fd, 0));
}

/* Returns true when the stream still holds bytes whose write may wait for a reader. */
static bool flush_in_place(FILE *stream)
{
    bool left = false;

    if (ftrylockfile(stream) != 0)
        return false;
    if (__fpending(stream) > 0) {
        left = !takes_all(stream);
        if (!left)
            fflush_unlocked(stream);
    }
    funlockfile(stream);
    return left;
}

static void flush_standard(void)
{
    FILE *const streams[] = { stdout, stderr };

    for (int i = 0; i < 2; i++)
        if (ftrylockfile(streams[i]) == 0) {
            fflush_unlocked(streams[i]);
            funlockfile(streams[i]);
        }
}

static void flush_files(void)
{
    fflush(NULL);
}

static struct task standard = { 0, flush_standard }, files = { 0, flush_files },
                   python = { 0, mu_python_flush };

static void give(struct task *task)
{
    atomic_store(&task->began, 0);
}

static void *run_task(void *arg)
{
    struct task *task = arg;

    task->flush();
    give(task);
    return NULL;
}

static bool start_thread(struct task *task)
{
    pthread_t thread;
    int rc = mu_thread_start(&thread, "muster-flush", run_task, task);

    if (rc == 0)
        pthread_detach(thread);
    return rc == 0;
}

/* True when it is idle `ms` after it began, or earlier. */
static bool await_idle(const struct task *task, int ms)
{
    double began, pause = 0;

    while ((began = atomic_load(&task->began)) > 0 && mu_clock_s() < began + ms * 1e-3)
        mu_pause_longer(&pause);
    return began == 0;
}

/* True: this caller may begin. */
static bool take(struct task *task, int ms)
{
    double idle = 0;

    return await_idle(task, ms) &&
           atomic_compare_exchange_strong(&task->began, &idle, mu_clock_s());
}

/* True when it has ended within ms. */
static bool run_within(struct task *task, int ms)
{
    if (!take(task, ms))
        return false;
    if (!start_thread(task))
        give(task);
    return ms > 0 && await_idle(task, ms);
}

static bool flush_python(int ms)
{
    bool holds_lock;

    if (ms == 0 || !mu_python_is_here(&holds_lock))
        return true;
    if (holds_lock) /* no other thread could flush */
        mu_python_flush();
    return holds_lock || run_within(&python, ms);
}

bool mu_streams_flush(double seconds)
{
    int ms = (int)(seconds * 1000);
    bool left, done = flush_python(ms);

    if (!take(&standard, ms))
        return false;
    left = flush_in_place(stdout);
    left |= flush_in_place(stderr);
    give(&standard);
    return (!left || run_within(&standard, ms)) && done;
}

bool mu_streams_flush_all(double seconds)
{
    bool done = mu_streams_flush(seconds);

    return run_within(&files, (int)(seconds * 1000)) && done;
}

/* ---- A line on stderr ---- */

void mu_streams_print(const char *fmt, ...)
{
    char line[MU_ERR_TEXT + 64] = "muster: ";
    int fd = fileno_unlocked(stderr), ms = PRINT_MS;
    size_t len = strlen(line);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line + len, sizeof line - len - 1, fmt, ap);
    va_end(ap);
    len = strlen(line);
    line[len++] = '\n';
    if (!await_room(fd, PRINT_MS))
        return;
    while (ftrylockfile(stderr) != 0) {
        if (--ms == 0)
            return;
        mu_pause(0.001);
    }
    fwrite_unlocked(line, 1, len, stderr);
    fflush_unlocked(stderr);
    funlockfile(stderr);
}
