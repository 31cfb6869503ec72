/* SPDX-License-Identifier: BSD-3-Clause */
/* pmix_call.h - PMIx calls that keep a deadline of ours
 *
 * The non-blocking form is started and waited for with our own clock: PMIX_TIMEOUT is
 * not honoured everywhere, and a blocking call cannot be left.
 */
#ifndef MU_PMIX_CALL_H
#define MU_PMIX_CALL_H

#include <pmix.h>
#include <pthread.h>
#include <stdbool.h>

#define MU_PMIX_KEY 64

/* Shared by the waiter and a callback that may come after the waiter left: the last of
 * the two frees it.
 */
struct mu_call {
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    int users, done;
    pmix_status_t status;
    pmix_value_t *value; /* of a get: a copy */
    /* arguments, valid until the callback */
    pmix_proc_t proc;
    char key[MU_PMIX_KEY];
    pmix_info_t info[2];
    /* May be NULL. The waiter calls it every 50 ms and stops waiting on true. */
    bool (*leave)(void *arg);
    void *leave_arg;
};

struct mu_call *mu_call_new(void);
/* Callbacks, with the call as their argument. */
void mu_on_fence(pmix_status_t status, void *arg);
void mu_on_get(pmix_status_t status, pmix_value_t *value, void *arg);
/* Has the callback come? */
bool mu_call_done(struct mu_call *c);
/* Wait for c until `until` (seconds of the monotonic clock) and give it up; `started`
 * is what the starting call returned.
 * PMIX_ERR_TIMEOUT at the deadline, or when `leave` returns true. *value (may be NULL)
 * gets the value of a get, to be released.
 */
pmix_status_t mu_call_wait(struct mu_call *c, pmix_status_t started, double until,
                           pmix_value_t **value);

#endif
