/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.c - stdout and stderr of a process that is about to end */
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

enum state { IDLE, BUSY, STUCK };

/* One flush at a time. STUCK: a call has waited in vain for the thread that writes; no
 * later call waits for it.
 */
static atomic_int state = IDLE;

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

static void *flush_in_thread(void *arg)
{
    FILE *const streams[] = { stdout, stderr };

    for (int i = 0; i < 2; i++)
        if (ftrylockfile(streams[i]) == 0) {
            fflush_unlocked(streams[i]);
            funlockfile(streams[i]);
        }
    atomic_store(&state, IDLE);
    return NULL;
}

static bool start_thread(void)
{
    pthread_t thread;
    int rc = mu_thread_start(&thread, "muster-flush", flush_in_thread, NULL);

    if (rc == 0)
        pthread_detach(thread);
    return rc == 0;
}

static void await_idle(int ms)
{
    int busy = BUSY;

    for (int i = 0; i < ms && atomic_load(&state) == BUSY; i++)
        mu_pause(0.001);
    if (ms > 0)
        atomic_compare_exchange_strong(&state, &busy, STUCK);
}

bool mu_streams_flush(double seconds)
{
    int ms = (int)(seconds * 1000), idle = IDLE;
    bool out, err;

    await_idle(ms);
    if (!atomic_compare_exchange_strong(&state, &idle, BUSY))
        return false;
    out = flush_in_place(stdout);
    err = flush_in_place(stderr);
    if ((out || err) && start_thread())
        await_idle(ms);
    else
        atomic_store(&state, IDLE);
    return !(out || err) || (ms > 0 && atomic_load(&state) == IDLE);
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
