/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.c - close the library's descriptors in a forked child: one list per process */
#include "runtime/base/fork.h"

#include <pthread.h>

/* A handler of pthread_atfork has no argument and cannot be removed. So there is one
 * for all, and it reads this variable.
 */
static struct {
    pthread_mutex_t lock;
    struct mu_forkable *first;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&all.lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&all.lock);
}

static void in_child(void)
{
    for (struct mu_forkable *f = all.first; f; f = f->next)
        f->in_child(f);
    all.first = NULL;
    pthread_mutex_unlock(&all.lock);
}

static void install(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

void mu_fork_enter(struct mu_forkable *f)
{
    pthread_once(&once, install);
    pthread_mutex_lock(&all.lock);
    f->next = all.first;
    all.first = f;
    pthread_mutex_unlock(&all.lock);
}

void mu_fork_leave(struct mu_forkable *f)
{
    pthread_mutex_lock(&all.lock);
    for (struct mu_forkable **at = &all.first; *at; at = &(*at)->next)
        if (*at == f) {
            *at = f->next;
            break;
        }
    pthread_mutex_unlock(&all.lock);
}
