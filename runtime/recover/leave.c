/* SPDX-License-Identifier: BSD-3-Clause */
/* leave.c - one rank calls exit(muster_report(m)): the others get its reason
 *
 * Without this they would see only a closed connection, and report a death.
 */
#include <pthread.h>
#include <stdlib.h>

#include "runtime/base/parse.h"
#include "runtime/recover/recover.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    bool reported; /* a failure, the last one of any world */
    int status;
    char why[MU_ERR_TEXT];
} leaving;

/* In an elastic world the others go on without this rank. Of several ranks that leave,
 * each waits until the reason of the first one is printed.
 */
static void at_exit(void)
{
    struct mu_recover *recover;
    bool reported;

    pthread_mutex_lock(&lock);
    reported = leaving.reported;
    pthread_mutex_unlock(&lock);
    recover = reported ? mu_worlds_take_left() : NULL;
    if (recover)
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
    if (mu_worlds_add(recover))
        leaving.reported = false;
    pthread_mutex_unlock(&lock);
}

void mu_leave_reported(int status, const char *why)
{
    pthread_mutex_lock(&lock);
    leaving.reported = true;
    leaving.status = status;
    mu_copy(leaving.why, sizeof leaving.why, why);
    pthread_mutex_unlock(&lock);
}
