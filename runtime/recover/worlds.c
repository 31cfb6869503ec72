/* SPDX-License-Identifier: BSD-3-Clause */
/* worlds.c - a process ends because of one of its worlds: all of them get one reason
 *
 * Without this the ranks of the other worlds would see only a closed connection, and
 * report a death.
 *
 * Among the open worlds the highest one that ends with the failure reports it. All
 * processes rank their worlds alike, so that one death has one sentence.
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/recover/recover.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct mu_recover *worlds; /* those that are open */
    pid_t pid;                 /* a forked child has another */
    struct mu_recover *taken;  /* stays open until the process has ended; NULL: none */
} process;
static atomic_bool ending;

/* ---- The open worlds: with the lock ---------------------------------------------- */

static struct mu_recover *open_worlds(void)
{
    return process.pid == getpid() ? process.worlds : NULL;
}

/* Where the pointer to it is, or NULL. */
static struct mu_recover **find(const struct mu_recover *recover)
{
    struct mu_recover **at = &process.worlds;

    while (*at && *at != recover)
        at = &(*at)->next_world;
    return *at ? at : NULL;
}

/* Its ranks go on without this process. */
static bool lasts(const struct mu_recover *recover)
{
    return recover->survive && atomic_load(&recover->comm->armed);
}

static bool is_abortable(const struct mu_recover *recover)
{
    return !recover->comm->config.return_failure;
}

static bool ends(const struct mu_recover *recover)
{
    return !lasts(recover) && is_abortable(recover);
}

static bool has_failed(const struct mu_recover *recover, struct mu_err *why)
{
    return mu_control_failed(recover->comm->control, why);
}

/* The reason of a failure that is returned has reached all ranks. */
static bool awaits_reason(const struct mu_recover *recover)
{
    struct mu_err known;

    return !recover->survive && (is_abortable(recover) || !has_failed(recover, &known));
}

/* The same in each process that has both: the launcher can end the whole step; more
 * ranks; any order.
 */
static bool is_above(const struct mu_recover *a, const struct mu_recover *b)
{
    const struct mu_world *wa = a->comm->world, *wb = b->comm->world;

    if (!wa->abort != !wb->abort)
        return wa->abort;
    if (wa->size != wb->size)
        return wa->size > wb->size;
    return memcmp(wa->token, wb->token, sizeof wa->token) > 0;
}

static struct mu_recover *highest(bool (*is_meant)(const struct mu_recover *recover))
{
    struct mu_recover *top = NULL;

    for (struct mu_recover *at = open_worlds(); at; at = at->next_world)
        if (is_meant(at) && (!top || is_above(at, top)))
            top = at;
    return top;
}

/* The one that reports in the place of this one, or NULL. A world that is not open yet
 * reports only where it is alone.
 */
static struct mu_recover *above(const struct mu_recover *recover, int status)
{
    struct mu_recover *top = highest(ends);
    bool reports = find(recover) && !(lasts(recover) && status == MUSTER_EPEER);

    return top == recover || (top && reports && !is_above(top, recover)) ? NULL : top;
}

static bool is_same_process(const struct mu_world *a, int i, const struct mu_world *b,
                            int k)
{
    return a->pid_of[i] == b->pid_of[k] &&
           mu_address_same_machine(&a->address[i], &b->address[k]);
}

/* ---- Open and close -------------------------------------------------------------- */

bool mu_worlds_add(struct mu_recover *recover)
{
    bool first;

    pthread_mutex_lock(&lock);
    first = !open_worlds();
    recover->next_world = open_worlds();
    process.worlds = recover;
    process.pid = getpid();
    pthread_mutex_unlock(&lock);
    return first;
}

void mu_worlds_remove(const struct mu_recover *recover)
{
    struct mu_recover **at;

    pthread_mutex_lock(&lock);
    while (process.taken == recover) {
        pthread_mutex_unlock(&lock);
        mu_pause(1);
        pthread_mutex_lock(&lock);
    }
    at = find(recover);
    if (at)
        *at = recover->next_world;
    pthread_mutex_unlock(&lock);
}

/* ---- For verdict.c --------------------------------------------------------------- */

bool mu_worlds_end_with(const struct mu_recover *recover, int rank)
{
    const struct mu_world *w = recover->comm->world;
    bool found = false;

    pthread_mutex_lock(&lock);
    for (struct mu_recover *at = open_worlds(); at && rank >= 0; at = at->next_world)
        for (int r = 0; at != recover && ends(at) && r < at->comm->world->size; r++)
            found |= is_same_process(at->comm->world, r, w, rank);
    pthread_mutex_unlock(&lock);
    return found;
}

/* Its control connections name a death by themselves, and wait a moment for it. */
bool mu_worlds_hand_over(const struct mu_recover *recover, const struct mu_ending *e)
{
    struct mu_recover *to;

    pthread_mutex_lock(&lock);
    to = above(recover, e->status);
    if (to)
        mu_control_fail(to->comm->control, e->status, -1, e->text);
    pthread_mutex_unlock(&lock);
    return to != NULL;
}

void mu_worlds_reason(struct mu_err *why)
{
    struct mu_recover *top;

    pthread_mutex_lock(&lock);
    top = highest(ends);
    if (top)
        has_failed(top, why);
    pthread_mutex_unlock(&lock);
}

bool mu_worlds_begin_end(void)
{
    return !atomic_exchange(&ending, true);
}

/* One look; true when they have all failed. */
static bool share(const struct mu_recover *recover, const struct mu_err *why, bool send)
{
    struct mu_err known;
    bool all = true;

    pthread_mutex_lock(&lock);
    for (struct mu_recover *at = open_worlds(); at; at = at->next_world) {
        if (at == recover || lasts(at))
            continue;
        if (send)
            mu_control_fail_printed(at->comm->control, why->code, why->text);
        all &= has_failed(at, &known);
    }
    pthread_mutex_unlock(&lock);
    return all;
}

void mu_worlds_share(const struct mu_recover *recover, const struct mu_err *why)
{
    double until = mu_clock_s() + MU_WRITE_SECONDS, pause = 0;
    bool all = share(recover, why, true);

    while (!all && mu_clock_s() < until) {
        mu_pause_longer(&pause);
        all = share(recover, why, false);
    }
}

static struct mu_recover *take(bool (*is_meant)(const struct mu_recover *recover))
{
    struct mu_recover *top;

    pthread_mutex_lock(&lock);
    top = highest(is_meant);
    process.taken = top;
    pthread_mutex_unlock(&lock);
    return top;
}

struct mu_recover *mu_worlds_take_any(void)
{
    return take(is_abortable);
}

struct mu_recover *mu_worlds_take_left(void)
{
    return take(awaits_reason);
}
