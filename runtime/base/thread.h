/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h - start a thread of the library, wait for what another one does */
#ifndef MU_THREAD_H
#define MU_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <time.h>

/* All signals are blocked in it: the program's signal handlers run in the program's
 * threads. name: at most 15 characters. Returns 0 or an errno.
 */
static inline int mu_thread_start(pthread_t *thread, const char *name,
                                  void *(*work)(void *), void *arg)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(thread, NULL, work, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_setname_np(*thread, name);
    return rc;
}

/* A condition whose waits end at a time of mu_clock_s(). */
static inline void mu_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

/* Returns 0 or ETIMEDOUT. */
static inline int mu_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock,
                               double until)
{
    struct timespec at = { (time_t)until,
                           (long)((until - (double)(time_t)until) * 1e9) };

    return pthread_cond_timedwait(cond, lock, &at);
}

#endif
