/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.c - a forked child gives up the descriptors
 *
 * A child that kept a TCP connection open would hide its parent's death from the other
 * nodes. exec closes them anyway; this is for children that only fork.
 */
#include <unistd.h>

#include "runtime/backend/host/host.h"

/* The one piece of global state: atfork handlers have no argument. */
static struct {
    pthread_mutex_t lock;
    struct mu_backend *open;
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
    for (struct mu_backend *b = all.open; b; b = b->next_open) {
        b->transport->forget(b);
        close(b->epoll_fd);
        close(b->bell_fd);
        close(b->timer_fd);
        b->epoll_fd = b->bell_fd = b->timer_fd = -1;
    }
    all.open = NULL;
    pthread_mutex_unlock(&all.lock);
}

static void install(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

void mu_fork_enter(struct mu_backend *b)
{
    pthread_once(&once, install);
    pthread_mutex_lock(&all.lock);
    b->next_open = all.open;
    all.open = b;
    pthread_mutex_unlock(&all.lock);
}

void mu_fork_leave(struct mu_backend *b)
{
    pthread_mutex_lock(&all.lock);
    for (struct mu_backend **at = &all.open; *at; at = &(*at)->next_open) {
        if (*at == b) {
            *at = b->next_open;
            break;
        }
    }
    pthread_mutex_unlock(&all.lock);
}
