/* SPDX-License-Identifier: BSD-3-Clause */
/* leave.c - exit(muster_report(m)) of one rank: the others hear why
 *
 * They would see no more than a connection that closes, and call it a death.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/api/impl.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct muster *m; /* the world to leave; NULL: none */
    pid_t pid;        /* a fork of it is somebody else */
    bool reported;
} leaving;

static struct muster *left_behind(void)
{
    struct muster *m;

    pthread_mutex_lock(&lock);
    m = leaving.reported && leaving.pid == getpid() ? leaving.m : NULL;
    pthread_mutex_unlock(&lock);
    return m;
}

static void at_exit(void)
{
    struct muster *m = left_behind();
    struct mu_err known;

    /* In an elastic world the others go on without this rank. Of several that leave, each
     * stays until the first one's reason is told.
     */
    if (m && !m->survive &&
        !(m->config.return_failure && mu_control_failed(m->control, &known)))
        muster_abort(m, m->status, m->err.text);
}

void mu_leave_watch(struct muster *m)
{
    static bool asked;

    if (!m->control)
        return;
    pthread_mutex_lock(&lock);
    if (!asked)
        asked = atexit(at_exit) == 0;
    leaving.m = m;
    leaving.pid = getpid();
    leaving.reported = false;
    pthread_mutex_unlock(&lock);
}

void mu_leave_reported(const struct muster *m)
{
    pthread_mutex_lock(&lock);
    if (leaving.m == m)
        leaving.reported = true;
    pthread_mutex_unlock(&lock);
}

void mu_leave_forget(const struct muster *m)
{
    pthread_mutex_lock(&lock);
    if (leaving.m == m)
        leaving.m = NULL;
    pthread_mutex_unlock(&lock);
}
