/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_call.c - PMIx calls that keep a deadline of ours */
#include "runtime/boot/pmix_call.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/base/clock.h"
#include "runtime/base/thread.h"

#define LOOK_SECONDS 0.05 /* between two calls of `leave` */

struct mu_call *mu_call_new(void)
{
    struct mu_call *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL);
    mu_cond_init(&c->done_cond);
    c->users = 2;
    return c;
}

/* Give up one of the two uses; called with the lock held. */
static void call_leave(struct mu_call *c)
{
    int left = --c->users;

    pthread_mutex_unlock(&c->lock);
    if (left > 0)
        return;
    if (c->value)
        PMIX_VALUE_RELEASE(c->value);
    pthread_cond_destroy(&c->done_cond);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static void call_finish(struct mu_call *c, pmix_status_t status,
                        const pmix_value_t *value)
{
    pthread_mutex_lock(&c->lock);
    c->status = status;
    if (status == PMIX_SUCCESS && value) {
        PMIX_VALUE_CREATE(c->value, 1);
        if (c->value && PMIx_Value_xfer(c->value, value) != PMIX_SUCCESS)
            c->status = PMIX_ERROR;
    }
    c->done = 1;
    pthread_cond_signal(&c->done_cond);
    call_leave(c);
}

void mu_on_fence(pmix_status_t status, void *arg)
{
    call_finish(arg, status, NULL);
}

void mu_on_get(pmix_status_t status, pmix_value_t *value, void *arg)
{
    call_finish(arg, status, value);
}

bool mu_call_done(struct mu_call *c)
{
    bool done;

    pthread_mutex_lock(&c->lock);
    done = c->done;
    pthread_mutex_unlock(&c->lock);
    return done;
}

/* Until the callback has come, the deadline is over or the waiter's reason to leave is
 * there. Called with the lock held.
 */
static void await_done(struct mu_call *c, double until)
{
    while (!c->done) {
        double soon = mu_clock_s() + LOOK_SECONDS;
        bool last = !c->leave || until < soon;
        int rc = mu_cond_wait(&c->done_cond, &c->lock, last ? until : soon);

        if (rc == ETIMEDOUT && (last || c->leave(c->leave_arg)))
            break;
    }
}

pmix_status_t mu_call_wait(struct mu_call *c, pmix_status_t started, double until,
                           pmix_value_t **value)
{
    pmix_status_t status;

    pthread_mutex_lock(&c->lock);
    if (started != PMIX_SUCCESS) {
        /* Failed, or done at once (PMIX_OPERATION_SUCCEEDED): no callback comes. */
        c->users--;
        c->done = 1;
        c->status = started == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : started;
    }
    await_done(c, until);
    status = c->done ? c->status : PMIX_ERR_TIMEOUT;
    if (value) {
        *value = c->value;
        c->value = NULL;
    }
    call_leave(c);
    return status;
}
