/* SPDX-License-Identifier: BSD-3-Clause */
/* leave.c - one rank calls exit(muster_report(m)): the others get its reason
 *
 * Without this they would see only a closed connection, and report a death.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/recover/recover.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct mu_recover *recover; /* the world to leave; NULL: none */
    pid_t pid;                  /* a forked child has another */
    bool reported;
    int status;
    char why[MU_ERR_TEXT];
} leaving;

static struct mu_recover *left_behind(void)
{
    struct mu_recover *recover;

    pthread_mutex_lock(&lock);
    recover = leaving.reported && leaving.pid == getpid() ? leaving.recover : NULL;
    pthread_mutex_unlock(&lock);
    return recover;
}

static void at_exit(void)
{
    struct mu_recover *recover = left_behind();
    struct mu_err known;

    /* In an elastic world the others go on without this rank. Of several ranks that
     * leave, each waits until the reason of the first one is printed.
     */
    if (recover && !recover->survive &&
        !(recover->comm->config.return_failure &&
          mu_control_failed(recover->comm->control, &known)))
        mu_verdict_abort(recover, leaving.status, leaving.why);
}

void mu_leave_watch(struct mu_recover *recover)
{
    static bool asked;

    if (!recover->comm->control)
        return;
    pthread_mutex_lock(&lock);
    if (!asked)
        asked = atexit(at_exit) == 0;
    leaving.recover = recover;
    leaving.pid = getpid();
    leaving.reported = false;
    pthread_mutex_unlock(&lock);
}

void mu_leave_reported(const struct mu_recover *recover, int status, const char *why)
{
    pthread_mutex_lock(&lock);
    if (leaving.recover == recover) {
        leaving.reported = true;
        leaving.status = status;
        snprintf(leaving.why, sizeof leaving.why, "%s", why);
    }
    pthread_mutex_unlock(&lock);
}

void mu_leave_forget(const struct mu_recover *recover)
{
    pthread_mutex_lock(&lock);
    if (leaving.recover == recover)
        leaving.recover = NULL;
    pthread_mutex_unlock(&lock);
}
