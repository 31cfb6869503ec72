/* SPDX-License-Identifier: BSD-3-Clause */
/* world_program.c - a world of the all-gather that the program brings
 *
 * Rank 0's random token goes through that all-gather, as through PMIx.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/random.h"
#include "runtime/base/thread.h"
#include "runtime/boot/published.h"
#include "runtime/boot/world.h"
#include "runtime/muster.h"

struct program {
    struct mu_published published;
    struct muster_exchange exchange;
    const struct mu_world *world;
};

/* ---- A call of the program's that does not return -------------------------------- */

struct watch {
    const struct program *p;
    double timeout, until; /* seconds; seconds of the monotonic clock */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool returned;
};

static void *watch(void *arg)
{
    struct watch *w = arg;
    const struct mu_world *world = w->p->world;
    struct mu_err why;
    int rc = 0;

    pthread_mutex_lock(&w->lock);
    while (!w->returned && rc != ETIMEDOUT)
        rc = mu_cond_wait(&w->cond, &w->lock, w->until);
    if (!w->returned) {
        mu_err_set(
            &why, MUSTER_ERENDEZVOUS,
            "rank %d (node %s): the all-gather of muster_options.exchange "
            "did not return within %g s (MUSTER_INIT_TIMEOUT): a rank is missing "
            "there",
            world->rank, world->host, w->timeout);
        world->stuck(world->stuck_arg, &why);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int gather(void *arg, const void *mine, size_t len, void *all, double timeout,
                  struct mu_err *err)
{
    const struct program *p = arg;
    struct watch w = { .p = p, .timeout = timeout, .until = mu_clock_s() + timeout };
    pthread_t thread;
    int rc;

    pthread_mutex_init(&w.lock, NULL);
    mu_cond_init(&w.cond);
    if (pthread_create(&thread, NULL, watch, &w) != 0)
        return mu_err_set(err, MUSTER_EMEMORY, "cannot start a thread");
    rc = p->exchange.allgather(p->exchange.arg, mine, all, len);
    pthread_mutex_lock(&w.lock);
    w.returned = true;
    pthread_cond_signal(&w.cond);
    pthread_mutex_unlock(&w.lock);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&w.cond);
    pthread_mutex_destroy(&w.lock);
    if (rc != 0)
        return mu_err_set(
            err, MUSTER_ERENDEZVOUS,
            "rank %d (node %s): the all-gather of muster_options.exchange "
            "returned %d",
            p->exchange.rank, p->world->host, rc);
    return 0;
}

/* ---- Open, close --------------------------------------------------------------- */

static void program_close(struct mu_world *w)
{
    struct program *p = w->impl;

    mu_published_clear(&p->published);
    free(p);
    mu_world_free(w);
}

static int check(const struct muster_exchange *x, struct mu_err *err)
{
    if (x->size < 1 || x->rank < 0 || x->rank >= x->size)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "muster_options.exchange has rank %d of size %d", x->rank,
                          x->size);
    if (!x->allgather)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "muster_options.exchange has no allgather");
    return 0;
}

int mu_world_program(const struct mu_launch *launch, const struct muster_exchange *x,
                     struct mu_world **out, struct mu_err *err)
{
    struct program *p;
    struct mu_world *w;

    if (check(x, err) < 0)
        return -1;
    if (x->size == 1)
        return mu_world_single(out, err);
    w = mu_world_launched(launch, x->rank, x->size, "program", sizeof *p, err);
    if (!w)
        return -1;
    p = w->impl;
    p->exchange = *x;
    p->world = w;
    p->published = (struct mu_published){ .rank = x->rank,
                                          .size = x->size,
                                          .gather = gather,
                                          .arg = p,
                                          .host_of = w->host_of };
    w->exchange = mu_published_exchange(&p->published);
    w->meet = mu_world_exchange;
    w->close = program_close;
    if (mu_random(w->token, sizeof w->token) < 0) {
        mu_err_set(err, MUSTER_EIO, "getrandom failed: %s", strerror(errno));
    } else if (mu_world_listen(w, launch->master_addr, err) == 0) {
        snprintf(w->node_key, sizeof w->node_key, "%.50s %.80s",
                 mu_endpoint_address(w->endpoint)->machine, w->host);
        *out = w;
        return 0;
    }
    program_close(w);
    return -1;
}
