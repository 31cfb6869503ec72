/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.c - progress of the queued requests: the thread, joining callers, deadlines
 *
 * Requests run one at a time, oldest first. They are posted ahead, so that other ranks
 * do not wait for this one. The holder of `lock` makes progress: the thread, or a
 * caller that waits in join (which saves a thread switch, slower than a small
 * collective). Both sleep while no request can advance.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "runtime/backend/host/engine.h"
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/thread.h"
#include "runtime/endpoint/bell.h"

/* A request of at most this many bytes starts in the caller if the queue is empty. */
#define INLINE_BYTES 65536
#define INDEX_TIMER -2

/* Returns true when more work is ready; other threads may want the lock first. */
static bool advance(struct mu_host_backend *b)
{
    mu_engine_take_inbox(b);
    while (!b->failure.status) {
        int r;

        while (b->unposted && !b->failure.status) {
            /* A failure has finished all requests. */
            if (!b->transport->post(b, b->unposted) || b->failure.status)
                break;
            b->unposted->posted = true;
            b->unposted = b->unposted->next;
        }
        if (b->failure.status || !b->head)
            break;
        if (!b->head->posted)
            return false;
        if (b->head->coll.times && b->head->coll.times->began == 0)
            b->head->coll.times->began = mu_clock_ns();
        r = b->transport->progress(b, b->head);
        if (r == MU_MORE)
            return true;
        if (r != MU_FINISHED)
            return false;
        mu_engine_finish_head(b, 0);
        mu_engine_take_inbox(b);
    }
    if (b->failure.status) {
        mu_engine_take_inbox(b);
        while (b->head)
            mu_engine_finish_head(b, -1);
        mu_engine_take_inbox(b);
    }
    return false;
}

static void set_timer(struct mu_host_backend *b, int64_t at)
{
    struct itimerspec t = { .it_value = { at / 1000000000, at % 1000000000 } };

    b->timer_at = at;
    timerfd_settime(b->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

static void check_deadline(struct mu_host_backend *b)
{
    struct mu_failure late = { .status = MUSTER_ETIMEOUT, .rank = -1 };
    int64_t next = 0, now = mu_clock_ns();

    mu_engine_take_inbox(b);
    for (struct mu_host_request *rq = b->head; rq; rq = rq->next)
        if (!next || rq->deadline < next)
            next = rq->deadline;
    if (next && next <= now) {
        /* Requests run in order: the oldest one delays the overdue one. */
        b->transport->late(b, b->head, &late);
        mu_engine_fail(b, late.status, late.rank, true, "%s", late.text);
        next = 0;
    }
    if (b->head && b->tick) {
        b->transport->tick(b);
        if (b->head && now + b->tick < next)
            next = now + b->tick;
    }
    pthread_mutex_lock(&b->inbox_lock);
    b->timer_at = 0;
    if (b->inbox && (!next || b->inbox->deadline < next))
        next = b->inbox->deadline;
    if (next)
        set_timer(b, next);
    pthread_mutex_unlock(&b->inbox_lock);
}

static void handle_event(struct mu_host_backend *b, const struct epoll_event *event)
{
    int index = (int32_t)event->data.u32;
    uint64_t n;

    if (index == MU_INDEX_DOORBELL) {
        if (mu_bell_rung(b->doorbell_fd) && b->driver && b->transport->nudge)
            b->transport->nudge(b);
        b->transport->event(b, index, 0);
    } else if (index == INDEX_TIMER) {
        if (read(b->timer_fd, &n, sizeof n) > 0)
            check_deadline(b);
    } else {
        b->transport->event(b, index, event->events);
    }
}

static void *serve(void *arg)
{
    struct mu_host_backend *b = arg;
    struct epoll_event events[32];

    pthread_mutex_lock(&b->lock);
    while (!b->stop) {
        bool more = false;
        int n;

        if (!b->driver) {
            more = advance(b);
            if (!more && b->head)
                more = !b->transport->arm(b, MU_SLEEP_DOORBELL);
        }
        mu_engine_unlock(b);
        n = epoll_wait(b->epoll_fd, events, 32, more ? 0 : -1);
        pthread_mutex_lock(&b->lock);
        for (int i = 0; i < n; i++)
            handle_event(b, &events[i]);
    }
    mu_engine_unlock(b);
    return NULL;
}

void mu_engine_submit(struct mu_host_backend *b, struct mu_host_request *rq)
{
    size_t bytes = rq->coll.count * rq->esize;
    int64_t wake_at = rq->deadline;
    bool alone;

    pthread_mutex_lock(&b->inbox_lock);
    alone = !atomic_load(&b->busy);
    rq->seq = b->next_seq++;
    if (rq->coll.what)
        mu_copy(rq->what, sizeof rq->what, rq->coll.what);
    else
        snprintf(rq->what, sizeof rq->what, "%s number %llu",
                 mu_kind_name(rq->coll.kind), (unsigned long long)rq->seq);
    *b->inbox_tail = rq;
    b->inbox_tail = &rq->next;
    atomic_store(&b->arrived, true);
    atomic_store(&b->busy, true);
    if (b->tick && mu_clock_ns() + b->tick < wake_at)
        wake_at = mu_clock_ns() + b->tick;
    if (!b->timer_at || wake_at < b->timer_at)
        set_timer(b, wake_at);
    pthread_mutex_unlock(&b->inbox_lock);

    if (alone && bytes <= INLINE_BYTES && pthread_mutex_trylock(&b->lock) == 0) {
        bool more = advance(b);

        /* A caller that joins at once sleeps there itself, if the transport lets it. */
        if (!more && b->head && !(rq->coll.joined && b->transport->wait))
            more = !b->transport->arm(b, MU_SLEEP_DOORBELL);
        mu_engine_unlock(b);
        if (!more)
            return;
    }
    mu_engine_ring(b);
}

/* Make progress in the calling thread until rq is done. Locked. */
static void drive(struct mu_host_backend *b, struct mu_host_request *rq)
{
    while (!rq->done) {
        bool more;

        if (b->driver) {
            b->joiners++;
            pthread_cond_wait(&b->changed, &b->lock);
            b->joiners--;
            continue;
        }
        b->driver = true;
        more = advance(b);
        if (!more && !rq->done)
            more = (b->transport->spin && b->transport->spin(b)) ||
                   !b->transport->arm(b, MU_SLEEP_FUTEX);
        if (!rq->done) {
            mu_engine_unlock(b);
            if (!more)
                b->transport->wait(b);
            pthread_mutex_lock(&b->lock);
        }
        b->driver = false;
        if (b->joiners)
            pthread_cond_broadcast(&b->changed);
    }
    if (b->head || atomic_load(&b->busy))
        mu_engine_ring(b); /* the thread continues with the remaining requests */
}

int mu_engine_join(struct mu_host_backend *b, struct mu_host_request *rq,
                   struct mu_err *err)
{
    int rc;

    pthread_mutex_lock(&b->lock);
    if (b->transport->wait) {
        drive(b, rq);
    } else {
        while (!rq->done) {
            b->joiners++;
            pthread_cond_wait(&b->changed, &b->lock);
            b->joiners--;
        }
    }
    rc = rq->rc;
    if (rc < 0)
        mu_err_set(err, b->failure.status, "%s", b->failure.text);
    mu_engine_unlock(b);
    return rc;
}

bool mu_engine_test(struct mu_host_backend *b, const struct mu_host_request *rq)
{
    bool done;

    pthread_mutex_lock(&b->lock);
    done = rq->done;
    mu_engine_unlock(b);
    return done;
}

void mu_engine_blame(struct mu_host_backend *b, int status, int rank, const char *why)
{
    pthread_mutex_lock(&b->lock);
    mu_engine_fail(b, status, rank, true, "%s", why);
    mu_engine_unlock(b);
}

void mu_engine_abort(struct mu_host_backend *b, int status, const char *why)
{
    pthread_mutex_lock(&b->lock);
    mu_engine_fail(b, status, b->env.rank, false, "%s", why ? why : "aborted");
    mu_engine_unlock(b);
}

void mu_engine_extend(struct mu_host_backend *b, double seconds)
{
    int64_t at = mu_clock_ns() + (int64_t)(seconds * 1e9);

    pthread_mutex_lock(&b->lock);
    mu_engine_take_inbox(b);
    for (struct mu_host_request *rq = b->head; rq; rq = rq->next)
        if (rq->deadline < at)
            rq->deadline = at;
    mu_engine_unlock(b);
}

int mu_engine_watch(struct mu_host_backend *b, int fd, int index, uint32_t events,
                    struct mu_err *err)
{
    struct epoll_event event = { .events = events, .data.u32 = (uint32_t)index };

    if (epoll_ctl(b->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS, "epoll_ctl: %s", strerror(errno));
    return 0;
}

int mu_engine_open(struct mu_host_backend *b, struct mu_err *err)
{
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->inbox_lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    b->tail = &b->head;
    b->inbox_tail = &b->inbox;
    b->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    b->doorbell_fd = mu_bell_open();
    b->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (b->epoll_fd < 0 || b->doorbell_fd < 0 || b->timer_fd < 0)
        return mu_err_set(err, MUSTER_ERENDEZVOUS,
                          "cannot open epoll, eventfd and timerfd: %s",
                          strerror(errno));
    if (mu_engine_watch(b, b->doorbell_fd, MU_INDEX_DOORBELL, EPOLLIN, err) < 0 ||
        mu_engine_watch(b, b->timer_fd, INDEX_TIMER, EPOLLIN, err) < 0)
        return -1;
    return 0;
}

int mu_engine_start(struct mu_host_backend *b, struct mu_err *err)
{
    int rc = mu_thread_start(&b->thread, "muster-host", serve, b);

    if (rc)
        return mu_err_set(err, MUSTER_EMEMORY, "cannot start the progress thread: %s",
                          strerror(rc));
    b->thread_started = true;
    return 0;
}

void mu_engine_stop(struct mu_host_backend *b)
{
    if (!b->thread_started)
        return;
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    mu_engine_unlock(b);
    mu_engine_ring(b);
    pthread_join(b->thread, NULL);
    b->thread_started = false;
}

void mu_engine_close(struct mu_host_backend *b)
{
    if (b->epoll_fd >= 0)
        close(b->epoll_fd);
    if (b->doorbell_fd >= 0)
        close(b->doorbell_fd);
    if (b->timer_fd >= 0)
        close(b->timer_fd);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->inbox_lock);
    pthread_mutex_destroy(&b->lock);
}
