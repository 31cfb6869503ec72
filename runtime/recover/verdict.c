/* SPDX-License-Identifier: BSD-3-Clause */
/* verdict.c - how a job ends when a rank dies, does not arrive or gives up
 *
 * The control connections bring every rank the same reason. One rank, the reporter,
 * prints it: a sentence and, at a deadline, what each rank was doing. Then it ends the
 * whole step with the status, so that no rank hangs and srun's exit status is the
 * reason's.
 */
#include "runtime/recover/recover.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime/core/text.h"
#include "runtime/recover/streams.h"

/* Seconds for this rank to write its streams, and for the others to write theirs: they
 * have just received the reason, and are killed when the step ends.
 */
#define FLUSH_SECONDS 0.5
#define OTHERS_SECONDS 0.1

/* Most lines of the flight record that are printed for ranks besides the one to blame.
 */
#define MOST_LINES 32

static void print_reason(const struct mu_comm *comm, const struct mu_ending *e)
{
    struct mu_flight_names names = mu_comm_names(comm, NULL);
    char line[512];
    int printed = 0;

    mu_streams_print("%s", e->text);
    for (int r = 0; e->records && r < comm->world->size; r++) {
        if (r != e->rank && e->records[r] && ++printed > MOST_LINES)
            continue;
        mu_flight_line(e->records[r], r, &names, line, sizeof line);
        mu_streams_print("  %s", line);
    }
    if (printed > MOST_LINES)
        mu_streams_print("  and %d more rank%s", printed - MOST_LINES,
                         mu_plural(printed - MOST_LINES));
}

/* When a rank dies, NCCL and CUDA may report a failed device. The control connections
 * report the death itself, at once.
 */
static void await_death(const struct mu_recover *recover)
{
    struct mu_comm *comm = recover->comm;
    struct mu_err why;
    bool known = !recover->survive || !atomic_load(&comm->armed);

    for (int i = 0; i < 200 && !known; i++) {
        pthread_mutex_lock(&comm->swap_lock);
        known = !comm->control || mu_control_failed(comm->control, &why);
        pthread_mutex_unlock(&comm->swap_lock);
        if (!known)
            nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
}

void mu_verdict_alarmed(void *arg)
{
    mu_streams_flush(0);
}

void mu_verdict_before_announce(void *arg, int status)
{
    if (status == MUSTER_EDEVICE)
        await_death(arg);
}

bool mu_verdict_survived(const struct mu_recover *recover, int status)
{
    return recover->survive && status == MUSTER_EPEER &&
           atomic_load(&recover->comm->armed) && !atomic_load(&recover->giving_up);
}

void mu_verdict_ended(void *arg, const struct mu_ending *e)
{
    const struct mu_recover *recover = arg;
    struct mu_comm *comm = recover->comm;

    if (comm->config.return_failure || mu_verdict_survived(recover, e->status))
        return;
    /* The thread that calls may be computing: then only this one writes the streams. */
    mu_streams_flush(FLUSH_SECONDS);
    if (e->reporter)
        print_reason(comm, e);
    else
        sleep(5); /* the reporter ends this process */
    mu_verdict_end_step(comm, e->status, e->text);
}

void mu_verdict_end_step(const struct mu_comm *comm, int status, const char *why)
{
    mu_streams_flush(FLUSH_SECONDS);
    if (comm->world->size > 1)
        usleep((useconds_t)(OTHERS_SECONDS * 1e6));
    mu_world_abort(comm->world, status, why);
}

/* Wait until the control thread ends this process; as a last resort end the step. */
static void __attribute__((noreturn))
park(struct mu_comm *comm, int status, const char *why)
{
    mu_streams_flush(FLUSH_SECONDS);
    sleep(15);
    mu_streams_print("rank %d: %s", comm->world->rank, why);
    mu_verdict_end_step(comm, status, why);
}

void mu_verdict_await(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    struct mu_err mine = *err;

    if (!comm->failed)
        return;
    comm->failed = false;
    mu_streams_flush(FLUSH_SECONDS); /* before another thread can end this process */
    if (mine.code == MUSTER_EDEVICE)
        await_death(recover);
    mu_comm_announce(comm, -1, &mine);
    for (int i = 0; i < 1500 && !mu_control_failed(comm->control, err); i++)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    if (!comm->config.return_failure && !mu_verdict_survived(recover, err->code))
        park(comm, err->code, err->text);
}

void mu_verdict_await_abort(const struct mu_recover *recover)
{
    for (int i = 0; i < 500 && !atomic_load(&recover->comm->ended); i++)
        usleep(10000);
}

void mu_verdict_abort(struct mu_recover *recover, int status, const char *why)
{
    struct mu_comm *comm = recover ? recover->comm : NULL;
    char text[MU_ERR_TEXT];

    if (status < 1 || status > 255)
        status = MUSTER_EINTERNAL;
    if (!why)
        why = "the program called muster_abort without a reason";
    mu_streams_flush(FLUSH_SECONDS);
    if (!comm || !comm->control) {
        mu_streams_print("rank %d: %s", comm ? comm->world->rank : 0, why);
        _Exit(status);
    }
    atomic_store(&recover->giving_up, true);
    snprintf(text, sizeof text, "rank %d (node %s) ended the job: %s",
             comm->world->rank, comm->world->host_of[comm->world->rank], why);
    mu_control_fail(comm->control, status, comm->world->rank, text);
    /* the other ranks return from their calls, but the step ends */
    if (comm->config.return_failure) {
        mu_streams_print("%s", text);
        mu_verdict_end_step(comm, status, text);
    }
    park(comm, status, text);
}
