/* SPDX-License-Identifier: BSD-3-Clause */
/* control_rule.c - what a death, a failure or a deadline leads to
 *
 * The root decides. Another rank reports to the root and waits. If it receives no
 * decision (the path to the root is cut, or a rank on it is stopped), it ends the job
 * itself when its turn comes: see reporter.h.
 */
#include "runtime/boot/control_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/muster.h"

/* ---- The end ------------------------------------------------------------------------
 */

void mu_control_own_record(struct mu_control *c, struct mu_flight *out)
{
    *out = (struct mu_flight){ .rank = c->rank };
    c->env.hooks.record(c->env.hooks.arg, out);
    out->waiting_since = c->waiting_since;
    mu_copy(out->waiting_for, sizeof out->waiting_for, c->waiting_for);
}

/* What this rank was doing, for the sentence of a death. */
static void describe_call(struct mu_control *c, char *text, size_t len)
{
    const struct mu_flight_entry *last;
    struct mu_flight mine;

    text[0] = '\0';
    mu_control_own_record(c, &mine);
    last = mu_flight_find(&mine, mine.entered);
    if (c->waiting_for[0])
        snprintf(text, len, "waits for %s", c->waiting_for);
    else if (last)
        snprintf(text, len, "%s %s", last->left > 0 ? "has left" : "has entered",
                 last->what);
}

static void write_sentence(struct mu_control *c, const struct mu_complaint *why,
                           char *text, size_t len)
{
    const struct mu_world *w = c->env.world;
    char call[MU_FLIGHT_WHAT + 16];

    if (why->death == MU_DEATH_NONE || why->rank < 0 || why->rank >= c->size) {
        mu_copy(text, len, why->text);
        return;
    }
    describe_call(c, call, sizeof call);
    mu_death_text((enum mu_death)why->death,
                  &(struct mu_rank_name){ why->rank, w->host_of[why->rank],
                                          w->pid_of[why->rank] },
                  &(struct mu_rank_name){ c->rank, w->host_of[c->rank], 0 }, call, text,
                  len);
}

void mu_control_decide(struct mu_control *c, const struct mu_complaint *why,
                       bool reporter)
{
    struct mu_complaint final = { .status = why->status,
                                  .rank = why->rank,
                                  .printed = why->printed };

    if (c->ended || c->goodbye)
        return;
    write_sentence(c, why, final.text, sizeof final.text);
    c->ended = true;
    c->ending.status = final.status;
    c->ending.rank = final.rank;
    c->ending.reporter = reporter;
    c->ending.printed = final.printed != 0;
    mu_copy(c->ending.text, sizeof c->ending.text, final.text);
    c->end_by = mu_clock_s() + MU_WRITE_SECONDS;
    if (reporter)
        mu_control_expect_orphans(c, why);
    mu_control_send_down(c, MU_FRAME_END, 0, 0, &final, sizeof final);
    pthread_cond_broadcast(&c->changed);
    mu_control_wake(c);
}

/* The launcher may end the job before this rank receives the reason: the decision does
 * not reach ranks that are cut off, and the launcher kills them.
 */
void mu_control_alarm_below(struct mu_control *c)
{
    if (c->alarm)
        return;
    c->alarm = true;
    mu_control_send_down(c, MU_FRAME_ALARM, 0, 0, NULL, 0);
}

/* ---- Turns ----------------------------------------------------------------------- */

static int place_of(const struct mu_control *c)
{
    int place = 0;

    for (int r = 0; r < c->rank; r++)
        place += c->parent_of[r] == c->parent;
    return place;
}

/* Decide when this rank's turn comes, if no rank above has decided by then. */
void mu_control_take_turn(struct mu_control *c, enum mu_sight sight,
                          const struct mu_complaint *why)
{
    const struct mu_view view = {
        .sight = sight,
        .place = place_of(c),
        .root = c->parent < 0,
        .second = c->parent >= 0 && c->parent_of[c->parent] < 0,
        .immediate = c->env.report_immediately,
        .leaving = c->leaving,
    };
    struct mu_turn turn = mu_reporter_turn(&view);
    struct mu_pending *pending = &c->pending[sight];

    if (turn.wait <= 0) {
        mu_control_decide(c, why, true);
        return;
    }
    if (pending->at > 0)
        return;
    pending->at = mu_clock_s() + turn.wait;
    pending->why = *why;
    mu_control_alarm_below(c);
    mu_control_wake(c);
}

/* A device that fails, or a connection whose other end is not known, may be a death
 * that is about to be seen. The threads of a killed process end first, its connections
 * last: it does not answer any more.
 */
static bool is_unnamed(const struct mu_complaint *why)
{
    return why->rank < 0 && !why->printed &&
           (why->status == MUSTER_EPEER || why->status == MUSTER_EDEVICE);
}

/* Another thread or another rank may see a death before this process has read what the
 * dead rank wrote last.
 */
static void read_last_words(struct mu_control *c, int rank)
{
    for (int i = -1; i < c->nchildren; i++) {
        struct mu_link *link = mu_control_link(c, i);

        if (link->rank == rank && !link->reading)
            mu_link_read(c, link);
    }
}

void mu_control_complain(struct mu_control *c, const struct mu_complaint *why)
{
    if (why->death != MU_DEATH_NONE)
        read_last_words(c, why->rank);
    if (c->ended || c->goodbye)
        return;
    if (c->parent >= 0)
        mu_control_send_up(c, MU_FRAME_FAIL, 0, 0, why, sizeof *why);
    mu_control_take_turn(c, is_unnamed(why) ? MU_SAW_UNNAMED : MU_SAW_FAILURE, why);
}

void mu_control_lost(struct mu_control *c, struct mu_link *link)
{
    const struct mu_complaint why = { .status = MUSTER_EPEER,
                                      .rank = link->rank,
                                      .death = mu_death_of_errno(link->error) };
    bool up = link == &c->up;

    mu_link_close(c, link);
    if (c->goodbye || c->ended)
        return;
    c->orphaned = up && !c->env.report_immediately;
    if (up)
        mu_control_take_turn(c, MU_SAW_PARENT_END, &why);
    else
        mu_control_complain(c, &why);
}
