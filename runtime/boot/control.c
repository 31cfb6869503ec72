/* SPDX-License-Identifier: BSD-3-Clause */
/* control.c - open and close the control connections, and their thread */
#include "runtime/boot/control_impl.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/thread.h"
#include "runtime/endpoint/bell.h"
#include "runtime/endpoint/net.h"
#include "runtime/muster.h"

#define LOOK_MS 1 /* while the job ends */

/* ---- The thread --------------------------------------------------------------------
 */

static void handle_event(struct mu_control *c, const struct epoll_event *event)
{
    enum mu_source kind = (enum mu_source)(event->data.u64 >> 32);
    int index = (int32_t)(uint32_t)event->data.u64;
    struct mu_link *link;

    switch (kind) {
    case MU_ON_WAKE:
        mu_bell_rung(c->wake_fd);
        break;
    case MU_ON_LINK:
    case MU_ON_PIDFD:
        link = mu_control_link(c, index);
        if (link->fd < 0)
            break;
        /* What a dead process wrote last (its own complaint) is read first. */
        if (!mu_link_read(c, link) || kind == MU_ON_PIDFD ||
            ((event->events & EPOLLOUT) && !mu_link_flush(c, link)))
            mu_control_lost(c, link);
        break;
    }
}

/* Calls to the owner are made without the lock. */
static void call_hooks(struct mu_control *c)
{
    struct mu_control_hooks *h = &c->env.hooks;

    if (c->extension_new && h->extended) {
        double seconds = c->extension;

        c->extension_new = false;
        pthread_mutex_unlock(&c->lock);
        h->extended(h->arg, seconds);
        pthread_mutex_lock(&c->lock);
    }
    if (c->alarm && !c->alarmed) {
        c->alarmed = true;
        pthread_mutex_unlock(&c->lock);
        h->alarmed(h->arg);
        pthread_mutex_lock(&c->lock);
    }
    if (c->orphaned && !mu_control_rejoin(c))
        mu_control_decide(c, &c->pending[MU_SAW_PARENT_SILENT].why, true);
    if (c->ended && !c->reported && mu_control_may_end(c)) {
        c->reported = true;
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
        h->ended(h->arg, &c->ending);
        pthread_mutex_lock(&c->lock);
    }
}

static int wait_ms(struct mu_control *c)
{
    double now = mu_clock_s(), next = mu_control_deadlines(c, now), ms;

    if (c->put_off > 0) {
        mu_control_send_up(c, MU_FRAME_EXTEND_UP, 0, 0, &c->put_off, sizeof c->put_off);
        c->put_off = 0;
        next = mu_control_deadlines(c, now);
    }
    c->armed = next;
    if (c->ended && !c->reported)
        return c->env.report_immediately ? 0 : LOOK_MS;
    if (next == 0)
        return -1;
    ms = (next - now) * 1000 + 1;
    return ms < 0 ? 0 : ms > 3600000 ? 3600000 : (int)ms;
}

static void *serve(void *arg)
{
    struct mu_control *c = arg;
    struct epoll_event events[32];

    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        int ms = wait_ms(c), n;

        pthread_mutex_unlock(&c->lock);
        n = epoll_wait(c->epoll_fd, events, 32, ms);
        pthread_mutex_lock(&c->lock);
        for (int i = 0; i < n; i++)
            handle_event(c, &events[i]);
        call_hooks(c);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- Open --------------------------------------------------------------------------
 */

static int make_tree(struct mu_control *c, struct mu_err *err)
{
    const struct mu_world *w = c->env.world;
    int *leader = calloc((size_t)w->nnodes, sizeof *leader);

    c->parent_of = calloc((size_t)c->size, sizeof *c->parent_of);
    c->child = calloc((size_t)c->size, sizeof *c->child);
    if (!leader || !c->parent_of || !c->child) {
        free(leader);
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", c->size);
    }
    for (int r = c->size - 1; r >= 0; r--)
        if (w->local_of[r] == 0)
            leader[w->node_of[r]] = r;
    for (int r = 0; r < c->size; r++) {
        int node = w->node_of[r];

        if (w->local_of[r] > 0)
            c->parent_of[r] = leader[node];
        else
            c->parent_of[r] = node == 0 ? -1 : leader[(node - 1) / MU_CONTROL_WIDTH];
        if (c->parent_of[r] == c->rank)
            c->child[c->nchildren++] = r;
    }
    c->parent = c->parent_of[c->rank];
    free(leader);
    c->down = calloc((size_t)c->size, sizeof *c->down); /* with room for orphans */
    if (!c->down)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d ranks", c->size);
    for (int i = 0; i < c->nchildren; i++)
        c->down[i] = (struct mu_link){ .fd = -1, .pidfd = -1, .rank = c->child[i] };
    return 0;
}

static int open_descriptors(struct mu_control *c, struct mu_err *err)
{
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->wake_fd = mu_bell_open();
    if (c->epoll_fd < 0 || c->wake_fd < 0 ||
        mu_control_watch(c, c->wake_fd, MU_ON_WAKE, 0) < 0)
        return mu_err_set(err, MUSTER_EIO, "cannot open epoll and eventfd: %s",
                          strerror(errno));
    return 0;
}

static int start_thread(struct mu_control *c, struct mu_err *err)
{
    int rc = mu_thread_start(&c->thread, "muster-control", serve, c);

    if (rc)
        return mu_err_set(err, MUSTER_EMEMORY, "cannot start the control thread: %s",
                          strerror(rc));
    c->thread_started = true;
    return 0;
}

static void shut_all(struct mu_control *c)
{
    for (int i = c->down ? c->nchildren - 1 : -1; i >= -1; i--) {
        struct mu_link *link = mu_control_link(c, i);

        mu_net_drop(&link->fd);
        mu_net_drop(&link->pidfd);
    }
    mu_net_drop(&c->wake_fd);
    mu_net_drop(&c->epoll_fd);
}

static void in_child(struct mu_forkable *f)
{
    shut_all((void *)((char *)f - offsetof(struct mu_control, fork)));
}

void mu_control_discard(struct mu_control *c)
{
    mu_fork_leave(&c->fork);
    if (c->thread_started) {
        pthread_mutex_lock(&c->lock);
        c->stop = true;
        pthread_mutex_unlock(&c->lock);
        mu_control_wake(c);
        pthread_join(c->thread, NULL);
    }
    mu_link_close(c, &c->up);
    for (int i = 0; c->down && i < c->nchildren; i++)
        mu_link_close(c, &c->down[i]);
    shut_all(c);
    mu_control_forget_records(c);
    mu_control_sums_clear(c);
    free(c->down);
    free(c->child);
    free(c->parent_of);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static struct mu_control *make(const struct mu_control_env *env)
{
    struct mu_control *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->env = *env;
    c->rank = env->world->rank;
    c->size = env->world->size;
    c->on_frame = mu_control_frame;
    c->epoll_fd = c->wake_fd = c->apart = -1;
    c->up.fd = c->up.pidfd = -1;
    pthread_mutex_init(&c->lock, NULL);
    mu_cond_init(&c->changed);
    return c;
}

/* All ranks have connected: from now on control sees each death. One before is in err,
 * and the others get it as the reason.
 */
static int meet_all(struct mu_control *c, struct mu_err *err)
{
    size_t len;
    char *blob;

    pthread_mutex_lock(&c->lock);
    blob = mu_control_gather_blob(c, "muster_init", MU_FRAME_FIRST, NULL, 0, &len, err);
    pthread_mutex_unlock(&c->lock);
    if (!blob)
        mu_control_fail(c, err->code, c->rank, err->text);
    free(blob);
    return blob ? 0 : -1;
}

int mu_control_open(const struct mu_control_env *env, struct mu_control **out,
                    struct mu_err *err)
{
    double until = mu_clock_s() + env->init_timeout;
    struct mu_control *c = make(env);

    if (!c)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    c->fork.in_child = in_child;
    mu_fork_enter(&c->fork);
    if (make_tree(c, err) < 0 || open_descriptors(c, err) < 0 ||
        start_thread(c, err) < 0 ||
        (c->parent >= 0 && mu_control_connect_parent(c, until, err) < 0) ||
        mu_control_await_children(c, until, err) < 0) {
        mu_control_discard(c);
        return -1;
    }
    *out = c;
    return meet_all(c, err);
}

/* ---- Close ---- */

/* All frames must be sent before the sockets close. */
static void flush(struct mu_control *c)
{
    double until = mu_clock_s() + 2;
    bool left = true;

    while (left && mu_clock_s() < until) {
        left = false;
        pthread_mutex_lock(&c->lock);
        for (int i = -1; i < c->nchildren; i++) {
            struct mu_link *link = mu_control_link(c, i);

            if (link->fd >= 0 && mu_link_flush(c, link) &&
                link->out.end > link->out.start)
                left = true;
        }
        pthread_mutex_unlock(&c->lock);
        if (left)
            mu_pause(0.002);
    }
}

int mu_control_close(struct mu_control *c, struct mu_err *err)
{
    size_t len;
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    if (c->ended) {
        rc = mu_control_failure(c, err);
    } else {
        char *blob;

        c->leaving = true;
        blob = mu_control_gather_blob(c, "muster_finalize", MU_FRAME_LAST, NULL, 0,
                                      &len, err);
        rc = blob ? 0 : -1;
        free(blob);
    }
    while (c->ended && !c->reported) /* this rank may have to print the reason */
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    flush(c);
    mu_control_discard(c);
    return rc;
}
