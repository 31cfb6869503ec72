/* SPDX-License-Identifier: BSD-3-Clause */
/* recover.c - how a job ends when a rank dies, does not come or gives up
 *
 * The control connections bring every rank the same reason. One rank, the speaker,
 * tells the user: a sentence and, at a deadline, what each rank was doing. Then the
 * whole step is ended with the status, so that nobody hangs and srun's exit status says
 * why.
 */
#include "runtime/api/impl.h"
#include "runtime/recover/streams.h"
#include "runtime/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Seconds in which this rank's streams are written, and in which the others, whom the
 * reason has just been sent to, write theirs: when the step ends they are killed.
 */
#define FLUSH_SECONDS 0.5
#define OTHERS_SECONDS 0.1

/* Lines of the flight record that are printed of ranks that are not special. */
#define MOST_LINES 32

static struct mu_flight_names names_of(const struct muster *m, const int *parent_of)
{
    return (struct mu_flight_names){
        .host_of = (const char *const *)m->world->host_of,
        .gpu_of = (const char *const *)m->gpu_of,
        .parent_of = parent_of,
    };
}

static void record(void *arg, struct mu_flight *out)
{
    struct muster *m = arg;

    pthread_mutex_lock(&m->flight_lock);
    *out = m->flight;
    pthread_mutex_unlock(&m->flight_lock);
    out->now = mu_clock_s();
    out->rank = m->world->rank;
    out->pid = getpid();
}

static int judge(void *arg, const struct mu_flight *const *records,
                 const int *parent_of, char *text, size_t len)
{
    struct muster *m = arg;
    struct mu_flight_names names = names_of(m, parent_of);

    return mu_flight_verdict(records, m->world->size, &names, text, len);
}

static void speak(struct muster *m, const struct mu_ending *e)
{
    struct mu_flight_names names = names_of(m, NULL);
    char line[512];
    int printed = 0;

    mu_streams_print("%s", e->text);
    for (int r = 0; e->records && r < m->world->size; r++) {
        if (r != e->rank && e->records[r] && ++printed > MOST_LINES)
            continue;
        mu_flight_line(e->records[r], r, &names, line, sizeof line);
        mu_streams_print("  %s", line);
    }
    if (printed > MOST_LINES)
        mu_streams_print("  and %d more rank%s", printed - MOST_LINES,
                         mu_plural(printed - MOST_LINES));
}

static void alarmed(void *arg)
{
    mu_streams_flush(0);
}

static void ended(void *arg, const struct mu_ending *e)
{
    struct muster *m = arg;

    pthread_mutex_lock(&m->swap_lock);
    if (m->backend)
        m->ops->abort(m->backend, e->status, e->text);
    pthread_mutex_unlock(&m->swap_lock);
    atomic_store(&m->ended, true);
    if (m->config.return_failure || mu_elastic_takes(m, e->status))
        return;
    /* The caller may be computing: then nobody else writes its streams. */
    mu_streams_flush(FLUSH_SECONDS);
    if (e->speaker)
        speak(m, e);
    else
        sleep(5); /* the speaker's word ends this process */
    mu_failure_end_step(m, e->status, e->text);
}

static void extended(void *arg, double seconds)
{
    struct muster *m = arg;

    pthread_mutex_lock(&m->swap_lock);
    if (m->backend && m->ops->extend)
        m->ops->extend(m->backend, seconds);
    pthread_mutex_unlock(&m->swap_lock);
}

struct mu_control_hooks mu_failure_hooks(struct muster *m)
{
    return (struct mu_control_hooks){ m, record, judge, alarmed, ended, extended };
}

/* When a rank dies NCCL and CUDA may call it a failure of the device. The control
 * connections know better, at once.
 */
static void await_death(struct muster *m)
{
    struct mu_err why;
    bool known = !m->survive || !atomic_load(&m->armed);

    for (int i = 0; i < 200 && !known; i++) {
        pthread_mutex_lock(&m->swap_lock);
        known = !m->control || mu_control_failed(m->control, &why);
        pthread_mutex_unlock(&m->swap_lock);
        if (!known)
            nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
}

void mu_failure_of_backend(void *arg, int rank, int status, const char *why)
{
    struct muster *m = arg;

    if (status == MUSTER_EDEVICE)
        await_death(m);

    pthread_mutex_lock(&m->swap_lock);
    if (!m->control || atomic_load(&m->closing))
        ; /* nobody's concern */
    else if (status == MUSTER_ETIMEOUT)
        mu_control_overdue(m->control);
    else
        mu_control_fail(m->control, status, rank, why);
    pthread_mutex_unlock(&m->swap_lock);
}

/* An error of this call alone? After any other the world is of no use to anybody, and
 * one of these two can be how it ended.
 */
static bool is_local(struct muster *m, int status)
{
    struct mu_err known;

    return (status == MUSTER_EUSAGE || status == MUSTER_EMEMORY) &&
           !(m->backend && m->ops->broken && m->ops->broken(m->backend)) &&
           !mu_control_failed(m->control, &known);
}

int mu_failure_settle(struct muster *m, struct mu_err *err)
{
    struct mu_err mine = *err;

    if (!m->control || atomic_load(&m->closing) || is_local(m, err->code) ||
        err->code == MUSTER_ESHRUNK)
        return -1;
    mu_streams_flush(FLUSH_SECONDS); /* before another thread can end this process */
    if (mine.code == MUSTER_EDEVICE)
        await_death(m);
    /* The backend may notice before the control connections do, or after. */
    if (!mu_control_failed(m->control, err))
        mu_control_fail(m->control, mine.code, -1, mine.text);
    for (int i = 0; i < 1500 && !mu_control_failed(m->control, err); i++)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    if (!m->config.return_failure && !mu_elastic_takes(m, err->code))
        mu_failure_park(m, err->code, err->text);
    return -1;
}

void mu_failure_park(struct muster *m, int status, const char *why)
{
    mu_streams_flush(FLUSH_SECONDS);
    sleep(15);
    mu_streams_print("rank %d: %s", m->world->rank, why);
    mu_failure_end_step(m, status, why);
}

void mu_failure_end_step(struct muster *m, int status, const char *why)
{
    mu_streams_flush(FLUSH_SECONDS);
    if (m->world->size > 1)
        usleep((useconds_t)(OTHERS_SECONDS * 1e6));
    mu_world_abort(m->world, status, why);
}

void muster_abort(struct muster *m, int status, const char *why)
{
    char text[MU_ERR_TEXT];

    if (status < 1 || status > 255)
        status = MUSTER_EINTERNAL;
    if (!why)
        why = "the program gave up";
    mu_streams_flush(FLUSH_SECONDS);
    if (!m || !m->control) {
        mu_streams_print("rank %d: %s", m ? m->world->rank : 0, why);
        _Exit(status);
    }
    atomic_store(&m->giving_up, true);
    snprintf(text, sizeof text, "rank %d (node %s) ended the job: %s", m->world->rank,
             m->world->host_of[m->world->rank], why);
    mu_control_fail(m->control, status, m->world->rank, text);
    if (m->config.return_failure) { /* the others return, but the step ends */
        mu_streams_print("%s", text);
        mu_failure_end_step(m, status, text);
    }
    mu_failure_park(m, status, text);
}

int muster_extend(struct muster *m, double seconds)
{
    if (!(seconds > 0))
        return mu_fail(m, MUSTER_EUSAGE, "muster_extend takes seconds above 0, not %g",
                       seconds);
    if (seconds > MU_FOREVER)
        seconds = MU_FOREVER;
    if (m->control)
        mu_control_extend(m->control, seconds);
    return MUSTER_OK;
}

void muster_doing(struct muster *m, const char *what)
{
    pthread_mutex_lock(&m->flight_lock);
    snprintf(m->flight.doing, sizeof m->flight.doing, "%s", what ? what : "");
    pthread_mutex_unlock(&m->flight_lock);
}
