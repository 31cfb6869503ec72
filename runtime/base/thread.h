/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h - start a thread of the library
 *
 * All signals are blocked in it: the program's signal handlers run in the program's
 * threads.
 */
#ifndef MU_THREAD_H
#define MU_THREAD_H

#include <pthread.h>
#include <signal.h>

/* name: at most 15 characters. Returns 0 or an errno. */
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

#endif
