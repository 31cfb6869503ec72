/* SPDX-License-Identifier: BSD-3-Clause */
/* pair_queue.c - the messages in flight between this rank and others
 *
 * A caller that waits moves all of them itself, which saves a thread switch. A thread
 * moves them meanwhile; it starts with the first message of muster_start.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/host/memory.h"
#include "runtime/backend/host/pair.h"
#include "runtime/backend/host/shm.h"
#include "runtime/base/clock.h"
#include "runtime/base/thread.h"
#include "runtime/core/dtype.h"
#include "runtime/endpoint/bell.h"

#define SPIN_NS 20000
#define LOOK_SECONDS 0.05 /* period of the check for a failure */
/* The thread does not wait for the endpoint, where another thread may wait. Until the
 * first message of a rank it looks again and again.
 */
#define ARRIVAL_MS 2

/* ---- Open and close ---- */

static void release(struct mu_host_pairs *p)
{
    if (!p->has_thread) { /* a forked child would wait for its parent's thread */
        pthread_cond_destroy(&p->changed);
        pthread_mutex_destroy(&p->lock);
    }
    free(p->of_caller);
    free(p->of_thread);
    free(p->of);
    free(p);
}

static int open_pairs(struct mu_host_backend *b, struct mu_err *err)
{
    size_t n = (size_t)b->env.size;
    struct mu_host_pairs *p;

    if (b->pairs)
        return 0;
    p = calloc(1, sizeof *p);
    if (!p)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->of = calloc(n, sizeof *p->of);
    p->of_caller = calloc(2 * n + 1, sizeof *p->of_caller);
    p->of_thread = calloc(2 * n + 1, sizeof *p->of_thread);
    p->wake_fd = mu_bell_open();
    if (!p->of || !p->of_caller || !p->of_thread || p->wake_fd < 0) {
        mu_err_set(err, MUSTER_EMEMORY, "cannot open messages: %s", strerror(errno));
        if (p->wake_fd >= 0)
            close(p->wake_fd);
        release(p);
        return -1;
    }
    for (size_t r = 0; r < n; r++)
        p->of[r] = (struct mu_pair){ .out = -1, .in = -1 };
    b->pairs = p;
    return 0;
}

void mu_pair_forget(struct mu_host_backend *b)
{
    for (int r = 0; b->pairs && r < b->env.size; r++) {
        struct mu_pair *pair = &b->pairs->of[r];

        if (pair->out >= 0)
            close(pair->out);
        if (pair->in >= 0)
            close(pair->in);
        pair->out = pair->in = -1;
    }
    if (b->pairs && b->pairs->wake_fd >= 0) {
        close(b->pairs->wake_fd);
        b->pairs->wake_fd = -1;
    }
}

void mu_pair_close(struct mu_host_backend *b)
{
    for (int r = 0; b->pairs && r < b->env.size; r++) {
        struct mu_pair *pair = &b->pairs->of[r];

        mu_channel_close(&pair->to, false);
        /* A forked child has closed the descriptor. */
        mu_channel_close(&pair->from, pair->in >= 0);
    }
    mu_pair_forget(b);
    if (b->pairs)
        release(b->pairs);
    b->pairs = NULL;
}

/* ---- The thread ---- */

static void wake(struct mu_host_pairs *p)
{
    pthread_cond_signal(&p->changed);
    mu_bell_ring(p->wake_fd);
}

static void *serve(void *arg)
{
    struct mu_host_backend *b = arg;
    struct mu_host_pairs *p = b->pairs;

    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        bool missing;
        int n;

        if (p->driven || !p->first || atomic_load(&b->failed)) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        mu_pair_step(b);
        n = mu_pair_events(b, p->of_thread, &missing);
        if (!p->first || n == 0 || atomic_load(&b->failed))
            continue;
        pthread_mutex_unlock(&p->lock);
        p->of_thread[0] = (struct pollfd){ p->wake_fd, POLLIN, 0 };
        poll(p->of_thread, (nfds_t)n,
             missing ? ARRIVAL_MS : (int)(LOOK_SECONDS * 1000));
        mu_bell_rung(p->wake_fd);
        pthread_mutex_lock(&p->lock);
        mu_pair_woken(b);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int start_thread(struct mu_host_backend *b, struct mu_err *err)
{
    int rc;

    if (b->pairs->has_thread)
        return 0;
    rc = mu_thread_start(&b->pairs->thread, "muster-pair", serve, b);
    if (rc)
        return mu_err_set(err, MUSTER_EMEMORY,
                          "cannot start the thread of messages: %s", strerror(rc));
    b->pairs->has_thread = true;
    return 0;
}

void mu_pair_stop(struct mu_host_backend *b)
{
    struct mu_host_pairs *p = b->pairs;

    if (!p || !p->has_thread)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    wake(p);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    p->has_thread = false;
}

/* ---- Start and join ---- */

static struct mu_leg leg_of(const struct mu_host_request *rq, int rank,
                            const void *data, size_t count)
{
    return (struct mu_leg){ .rank = rank,
                            .head = { count, (uint32_t)rq->coll.dtype, 0 },
                            .data = (char *)(uintptr_t)data,
                            .bytes =
                                sizeof(struct mu_message_head) + count * rq->esize };
}

static void append_leg(struct mu_leg **at, struct mu_leg *leg)
{
    while (*at)
        at = &(*at)->next;
    *at = leg;
}

static void enqueue(struct mu_host_pairs *p, struct mu_message *m)
{
    struct mu_message **last = &p->first;

    while (*last)
        last = &(*last)->next;
    *last = m;
    if (m->out.rank >= 0)
        append_leg(&p->of[m->out.rank].sends, &m->out);
    if (m->in.rank >= 0)
        append_leg(&p->of[m->in.rank].receives, &m->in);
}

static int prepare(struct mu_host_backend *b, const struct mu_host_request *rq,
                   struct mu_err *err)
{
    int to = rq->coll.to;

    if (open_pairs(b, err) < 0 || (!rq->coll.joined && start_thread(b, err) < 0))
        return -1;
    if (to < 0 || mu_pair_connect(b, to, rq, err) == 0)
        return 0;
    if (!atomic_load(&b->failed))
        mu_engine_blame(b, err->code, to, err->text);
    return mu_err_set(err, b->failure.status, "%s", b->failure.text);
}

int mu_pair_start(struct mu_host_backend *b, struct mu_host_request *rq,
                  struct mu_err *err)
{
    const struct mu_coll *c = &rq->coll;
    bool own = c->to == b->env.rank && c->from == b->env.rank;
    struct mu_message *m;

    if (!own && prepare(b, rq, err) < 0)
        return -1;
    m = calloc(1, sizeof *m);
    if (!m)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    rq->message = m;
    *m = (struct mu_message){ .rq = rq,
                              .out = leg_of(rq, c->to, c->send, c->count),
                              .in = leg_of(rq, c->from, c->recv, c->recv_count),
                              .done = own };
    if (own) {
        mu_memory_own_message(c);
        return 0;
    }
    pthread_mutex_lock(&b->pairs->lock);
    enqueue(b->pairs, m);
    if (!c->joined) {
        mu_pair_step(b);
        wake(b->pairs);
    }
    pthread_mutex_unlock(&b->pairs->lock);
    return 0;
}

bool mu_pair_test(struct mu_host_backend *b, const struct mu_host_request *rq)
{
    bool over;

    if (!b->pairs) /* the only messages so far were to this rank itself */
        return true;
    pthread_mutex_lock(&b->pairs->lock);
    mu_pair_step(b);
    over = rq->message->done || atomic_load(&b->failed);
    pthread_mutex_unlock(&b->pairs->lock);
    return over;
}

/* To sleep and be woken takes several microseconds, more than a small message. Where
 * ranks share cores, the other rank needs this one's.
 */
static void step_for_a_moment(struct mu_host_backend *b, const struct mu_message *m)
{
    bool spins = b->shm && mu_shm_message_spins(b->shm);
    int64_t since = spins ? mu_clock_ns() : 0, now;

    do {
        size_t before = m->out.done + m->in.done;

        mu_pair_step(b);
        now = spins ? mu_clock_ns() : 0;
        if (m->out.done + m->in.done > before)
            since = now;
    } while (spins && !m->done && !atomic_load(&b->failed) && now < since + SPIN_NS);
}

static void drive(struct mu_host_backend *b, const struct mu_message *m)
{
    struct mu_host_pairs *p = b->pairs;

    pthread_mutex_lock(&p->lock);
    p->driven = true;
    step_for_a_moment(b, m);
    while (!m->done && !atomic_load(&b->failed)) {
        bool missing;
        int n = mu_pair_events(b, p->of_caller, &missing);

        if (n > 0) {
            pthread_mutex_unlock(&p->lock);
            mu_endpoint_poll(b->env.endpoint, p->of_caller, n,
                             mu_clock_s() + LOOK_SECONDS);
            pthread_mutex_lock(&p->lock);
            mu_pair_woken(b);
        }
        step_for_a_moment(b, m);
    }
    p->driven = false;
    if (p->first && p->has_thread)
        pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

int mu_pair_join(struct mu_host_backend *b, struct mu_host_request *rq,
                 struct mu_err *err)
{
    struct mu_message *m = rq->message;
    bool done;

    if (b->pairs && !(rq->coll.to == b->env.rank))
        drive(b, m);
    /* After a failure no thread looks at the lists again, so it may stay in them. */
    done = m->done;
    free(m);
    if (done)
        return 0;
    /* a failure is final: reading it needs no lock */
    return mu_err_set(err, b->failure.status, "%s", b->failure.text);
}
