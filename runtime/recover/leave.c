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
    struct mu_recover *worlds;   /* those that are open */
    pid_t pid;                   /* a forked child has another */
    struct mu_recover *reported; /* the last of them that was; NULL: none */
    int status;
    char why[MU_ERR_TEXT];
} leaving;

static struct mu_recover *left_behind(void)
{
    struct mu_recover *recover;

    pthread_mutex_lock(&lock);
    recover = leaving.pid == getpid() ? leaving.reported : NULL;
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
    if (leaving.pid != getpid())
        leaving.worlds = leaving.reported = NULL; /* those of the parent */
    leaving.pid = getpid();
    recover->next_world = leaving.worlds;
    leaving.worlds = recover;
    pthread_mutex_unlock(&lock);
}

/* Where the pointer to it is, or NULL. */
static struct mu_recover **find(const struct mu_recover *recover)
{
    struct mu_recover **at = &leaving.worlds;

    while (*at && *at != recover)
        at = &(*at)->next_world;
    return *at ? at : NULL;
}

void mu_leave_reported(const struct mu_recover *recover, int status, const char *why)
{
    struct mu_recover **at;

    pthread_mutex_lock(&lock);
    at = find(recover);
    if (at) {
        leaving.reported = *at;
        leaving.status = status;
        snprintf(leaving.why, sizeof leaving.why, "%s", why);
    }
    pthread_mutex_unlock(&lock);
}

void mu_leave_forget(const struct mu_recover *recover)
{
    struct mu_recover **at;

    pthread_mutex_lock(&lock);
    at = find(recover);
    if (at)
        *at = recover->next_world;
    if (leaving.reported == recover)
        leaving.reported = NULL;
    pthread_mutex_unlock(&lock);
}
