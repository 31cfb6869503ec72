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
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/core/text.h"
#include "runtime/recover/streams.h"

#define FLUSH_SECONDS 0.5 /* for this rank to write its streams */
#define LOOK_SECONDS 0.02 /* the same, in a call that is repeated until it succeeds */
#define EARLY_SECONDS 0.1 /* for the others, before a connection could confirm it */

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

static const struct mu_view another_reports = { .sight = MU_SAW_DECISION },
                            control_decides = { .sight = MU_SAW_CALL_FAIL };

/* A process that goes on, or returns from the call, writes its own files. */
static bool may_go_on(const struct mu_comm *comm)
{
    return comm->config.return_failure || comm->config.elastic;
}

bool mu_verdict_alarmed(void *arg)
{
    const struct mu_recover *recover = arg;

    return may_go_on(recover->comm) ? mu_streams_flush(0)
                                    : mu_streams_flush_all(LOOK_SECONDS);
}

const struct mu_recover *mu_verdict_root(const struct mu_recover *recover)
{
    return recover->group ? recover->group->root : recover;
}

bool mu_verdict_survived(const struct mu_recover *recover, int status, int rank)
{
    const struct mu_recover *root = mu_verdict_root(recover);

    return root->survive && status == MUSTER_EPEER && atomic_load(&root->comm->armed) &&
           !atomic_load(&root->giving_up) && !mu_worlds_end_with(root, rank);
}

/* The guilty rank in the world. */
static int in_world(const struct mu_recover *recover, int rank)
{
    return recover->group && rank >= 0 ? recover->group->world_rank[rank] : rank;
}

/* The failure of a group ends the world. The world's own connections report a death
 * too: then its sentence counts.
 */
static void pass_on(const struct mu_recover *recover, const struct mu_ending *e)
{
    struct mu_comm *world = recover->group->root->comm;
    char text[MU_ERR_TEXT];
    struct mu_err known;

    if (!e->reporter)
        return;
    for (int i = 0; e->status == MUSTER_EPEER && i < 100; i++) {
        if (mu_control_failed(world->control, &known))
            return;
        mu_pause(0.01);
    }
    snprintf(text, sizeof text, "group '%s': %.*s", recover->group->name,
             MU_ERR_TEXT - MU_GROUP_NAME - 16, e->text);
    mu_control_fail(world->control, e->status, in_world(recover, e->rank), text);
}

static void __attribute__((noreturn))
end_step(const struct mu_comm *comm, int status, const char *why)
{
    /* Slurm 22.05 may lose the sentence when the step ends at once, where the daemon of
     * the dead rank's node cannot be reached.
     */
    if (comm->control)
        mu_control_await_written(comm->control);
    else if (comm->world->size > 1)
        mu_pause(EARLY_SECONDS);
    mu_world_abort(comm->world, status, why);
}

/* The reason is in e. Returns when this rank has nothing to do about it. */
static void take_turn(const struct mu_recover *recover, const struct mu_view *view,
                      const struct mu_ending *e)
{
    const struct mu_recover *root = mu_verdict_root(recover);
    const struct mu_comm *comm = recover->comm;
    const struct mu_turn other = mu_reporter_turn(&another_reports);
    struct mu_turn turn = mu_reporter_turn(view);
    struct mu_err why = { .code = e->status };

    if (turn.deed == MU_DEED_RETURN)
        return;
    /* before another rank can end this process */
    if (!e->written || may_go_on(comm))
        mu_streams_flush_all(FLUSH_SECONDS);
    if (turn.wait > 0) {
        mu_pause(turn.wait);
        mu_streams_flush_all(FLUSH_SECONDS);
    }
    if (turn.deed == MU_DEED_REPORT && mu_worlds_hand_over(root, e)) {
        turn.deed = other.deed;
        mu_pause(mu_reporter_turn(&control_decides).wait);
    }
    if (!mu_worlds_begin_end())
        mu_pause(other.wait);
    mu_copy(why.text, sizeof why.text, e->text);
    if (turn.deed == MU_DEED_END)
        mu_worlds_reason(&why);
    else
        print_reason(comm, e);
    mu_worlds_share(root, &why);
    if (turn.deed == MU_DEED_LEAVE)
        _exit(why.code);
    end_step(comm, why.code, why.text);
}

void mu_verdict_take_turn(const struct mu_recover *recover, const struct mu_view *view,
                          const struct mu_err *err)
{
    struct mu_ending e = { .status = err->code, .rank = -1 };

    mu_copy(e.text, sizeof e.text, err->text);
    take_turn(recover, view, &e);
}

static bool returns(const struct mu_recover *recover, int status, int rank)
{
    return recover->comm->config.return_failure ||
           mu_verdict_survived(recover, status, in_world(recover, rank));
}

void mu_verdict_ended(void *arg, const struct mu_ending *e)
{
    const struct mu_recover *recover = arg;
    const struct mu_view view = {
        .sight = MU_SAW_DECISION,
        .mine = e->reporter,
        .printed = e->printed,
        .returns = returns(recover, e->status, e->rank),
    };

    if (recover->group && !view.returns)
        pass_on(recover, e);
    else
        take_turn(recover, &view, e);
}

void mu_verdict_await(struct mu_recover *recover, struct mu_err *err)
{
    struct mu_comm *comm = recover->comm;
    struct mu_view view = { .sight = MU_SAW_CALL_FAIL };
    double until = mu_clock_s() + mu_reporter_turn(&view).wait, pause = 0;
    struct mu_err mine = *err;

    if (!comm->failed)
        return;
    comm->failed = false;
    mu_streams_flush(FLUSH_SECONDS); /* before another thread can end this process */
    mu_comm_announce(comm, -1, &mine);
    while (!mu_control_failed(comm->control, err) && mu_clock_s() < until)
        mu_pause_longer(&pause);
    view.returns = returns(recover, err->code, mu_control_guilty(comm->control));
    mu_verdict_take_turn(recover, &view, err);
}

void mu_verdict_await_world(const struct mu_recover *recover, const struct mu_err *err)
{
    const struct mu_view view = { .sight = MU_SAW_CALL_FAIL,
                                  .returns = returns(recover, err->code, -1) };

    if (recover->group)
        mu_verdict_take_turn(recover, &view, err);
}

void mu_verdict_await_abort(const struct mu_recover *recover)
{
    for (int i = 0; i < 500 && !atomic_load(&recover->comm->ended); i++)
        mu_pause(0.01);
}

void mu_verdict_abort(struct mu_recover *recover, int status, const char *why)
{
    struct mu_comm *comm = recover ? recover->comm : NULL;
    struct mu_view view = { .sight = MU_SAW_CALL_FAIL };
    struct mu_err err;

    if (status < 1 || status > 255)
        status = MUSTER_EINTERNAL;
    if (!why)
        why = "the program called muster_abort without a reason";
    if (!comm) {
        mu_streams_flush_all(FLUSH_SECONDS);
        mu_streams_print("rank 0: %s", why);
        _Exit(status);
    }
    err.code = status;
    mu_abort_text(&(struct mu_rank_name){ comm->world->rank,
                                          comm->world->host_of[comm->world->rank], 0 },
                  why, err.text, sizeof err.text);
    atomic_store(&recover->giving_up, true);
    pthread_mutex_lock(&comm->swap_lock); /* it may be a world of another thread */
    if (!comm->control)
        view.sight = MU_SAW_NO_WORLD;
    else
        mu_control_fail(comm->control, status, comm->world->rank, err.text);
    pthread_mutex_unlock(&comm->swap_lock);
    /* the other ranks return from their calls, but the step ends */
    if (comm->config.return_failure)
        view = (struct mu_view){ .sight = MU_SAW_DECISION, .mine = true };
    mu_verdict_take_turn(recover, &view, &err);
    _Exit(status); /* not reached: an abort is never returned */
}
