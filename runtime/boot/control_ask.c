/* SPDX-License-Identifier: BSD-3-Clause */
/* control_ask.c - the root requests the flight records of all ranks, and judges
 *
 *   a wait is over its deadline      the rank to blame, and the job ends
 *   a wait lasts a moment            do ranks wait for each other in different calls?
 *   a failure that a death may cause does every rank answer? Then none has died
 *
 * For the second, each rank whose wait lasts sends its record once. Ranks number their
 * collectives alike; where one number has two names, the root requests all records. It
 * does so twice: only a rank that is in the same wait in both has been in it when the
 * other ranks answered. Programs may call a barrier and start a bucket in another order
 * on each rank: these pass. While one rank works on, the job does not end.
 *
 * Where a GPU matches collectives by their order alone, the ranks compare it in each
 * sync. One in a wrong order may never reach its sync: it waits for the GPU, outside of
 * libmuster. So the root requests all records in each wait that lasts: a difference of
 * the order proves the error at once.
 */
#include "runtime/boot/control_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/muster.h"

#define STUCK_SECONDS 0.2 /* of a wait: then the root gets the record */
#define PROBE_SECONDS 2.0 /* for the records of ranks that may be stopped */

/* ---- Records --------------------------------------------------------------------- */

void mu_control_answer(struct mu_control *c, uint64_t round)
{
    struct mu_flight mine;

    mu_control_own_record(c, &mine);
    mu_control_send_up(c, MU_FRAME_RECORD, 0, round, &mine, sizeof mine);
}

void mu_control_forget_records(struct mu_control *c)
{
    for (int r = 0; c->records && r < c->size; r++)
        free((void *)(uintptr_t)c->records[r]);
    free(c->records);
    c->records = NULL;
    c->nrecords = 0;
}

void mu_control_ask_below(struct mu_control *c, uint64_t round)
{
    for (int i = 0; i < c->nchildren; i++)
        c->down[i].asked = true;
    mu_control_send_down(c, MU_FRAME_ASK, 0, round, NULL, 0);
}

static void collect(struct mu_control *c)
{
    c->records = calloc((size_t)c->size, sizeof *c->records);
    if (!c->records) {
        mu_control_decide(c,
                          &(struct mu_complaint){ .status = MUSTER_EMEMORY,
                                                  .rank = c->rank,
                                                  .text = "out of memory in rank 0" },
                          true);
        return;
    }
    mu_control_ask_below(c, ++c->round);
    mu_control_answer(c, c->round);
}

/* ---- Judging --------------------------------------------------------------------- */

/* A rank that computes or writes a checkpoint may end its work. */
static bool all_wait(const struct mu_control *c)
{
    for (int r = 0; r < c->size; r++)
        if (!c->records[r] || c->records[r]->waiting_since <= 0)
            return false;
    return true;
}

/* Is it the second time that this rank is to blame, in the same wait? Or has it started
 * its collectives in another order?
 */
static bool is_proved(struct mu_control *c, const struct mu_complaint *why)
{
    bool apart = why->status == MUSTER_ECONTRACT && all_wait(c);
    bool disorder = mu_flight_disorder(c->records, c->size) > 0;
    int rank = apart ? why->rank : -1;
    double since = apart ? c->records[rank]->waiting_since : 0;
    bool again = apart && rank == c->apart && since == c->apart_since;

    c->apart = rank;
    c->apart_since = since;
    return again || disorder;
}

static void probe(struct mu_control *c)
{
    c->probing = true;
    c->pending[MU_SAW_OVERDUE].at = mu_clock_s() + PROBE_SECONDS;
    collect(c);
}

/* A rank that waits in another group is late because of others: the verdict there,
 * which names them, comes first.
 */
static bool is_put_off(struct mu_control *c, const struct mu_complaint *why)
{
    const struct mu_view view = { .sight = MU_SAW_ELSEWHERE, .root = true };
    const struct mu_flight *blamed = why->rank >= 0 ? c->records[why->rank] : NULL;
    double left;

    if (why->status != MUSTER_ETIMEOUT || !blamed || !blamed->elsewhere[0])
        return false;
    left = c->env.timeout + mu_reporter_turn(&view).wait - blamed->elsewhere_for;
    if (left <= 0)
        return false;
    c->put_off = left;
    mu_control_forget_records(c);
    mu_control_wake(c);
    return true;
}

static void judge(struct mu_control *c)
{
    struct mu_complaint why = { .status = MUSTER_ETIMEOUT,
                                .text = "a rank did not enter the collective in time" };
    if (c->roll_call && c->nrecords == c->size) {
        mu_control_forget_records(c);
        mu_control_decide(c, &c->pending[MU_SAW_UNNAMED].why, true);
        return;
    }
    c->pending[MU_SAW_OVERDUE].at = 0;
    why.rank = c->env.hooks.judge(c->env.hooks.arg, c->records, c->parent_of,
                                  &why.status, why.text, sizeof why.text);
    if (c->probing && !is_proved(c, &why)) {
        c->probing = false;
        mu_control_forget_records(c);
        if (c->apart >= 0)
            probe(c);
        return;
    }
    if (is_put_off(c, &why))
        return;
    c->ending.records = c->records;
    mu_control_decide(c, &why, true);
}

void mu_control_record_in(struct mu_control *c, int from, uint64_t round,
                          const void *data, size_t len)
{
    struct mu_flight *copy;

    if (!c->records || round != c->round || from < 0 || from >= c->size ||
        c->records[from] || len != sizeof *copy || c->ended)
        return;
    copy = malloc(sizeof *copy);
    if (!copy)
        return;
    memcpy(copy, data, sizeof *copy);
    c->records[from] = copy;
    if (++c->nrecords == c->size)
        judge(c);
}

static void begin_roll_call(struct mu_control *c)
{
    c->roll_call = true;
    c->probing = false;
    c->pending[MU_SAW_OVERDUE].at = 0;
    mu_control_forget_records(c);
    collect(c);
}

/* ---- Waits that last ------------------------------------------------------------- */

/* The first record of a wait that may hide a wrong order. */
static bool may_be_disorder(struct mu_control *c, const struct mu_flight *record)
{
    if (!record->mixes || strcmp(record->waiting_for, c->probed_for) == 0)
        return false;
    mu_copy(c->probed_for, sizeof c->probed_for, record->waiting_for);
    return true;
}

void mu_control_stuck_in(struct mu_control *c, const void *data, size_t len)
{
    struct mu_flight record;

    if (len != sizeof record || c->ended)
        return;
    memcpy(&record, data, sizeof record);
    c->differs |= !mu_flight_merge(&c->seen, &record);
    if (!c->records && (may_be_disorder(c, &record) || c->differs)) {
        c->apart = -1;
        probe(c);
    }
}

double mu_control_stuck_at(const struct mu_control *c)
{
    return c->waiting_since +
           (c->patience < STUCK_SECONDS ? c->patience : STUCK_SECONDS);
}

/* Send this rank's record when its wait lasts. Returns when, or 0. */
static double show_stuck(struct mu_control *c, double now)
{
    struct mu_flight mine;

    if (c->shown)
        return 0;
    if (now < mu_control_stuck_at(c))
        return mu_control_stuck_at(c);
    c->shown = true;
    mu_control_own_record(c, &mine);
    mu_control_send_up(c, MU_FRAME_STUCK, 0, 0, &mine, sizeof mine);
    return 0;
}

/* ---- Waits over their deadline --------------------------------------------------- */

static void report_overdue(struct mu_control *c)
{
    const struct mu_complaint parent = { .status = MUSTER_ETIMEOUT,
                                         .rank = c->parent,
                                         .death = MU_DEATH_SILENT };
    struct mu_complaint root = { .status = MUSTER_ETIMEOUT, .rank = -1 };

    mu_control_send_up(c, MU_FRAME_OVERDUE, 0, 0, NULL, 0);
    mu_control_take_turn(c, MU_SAW_PARENT_SILENT, &parent);
    snprintf(root.text, sizeof root.text,
             "a wait exceeded its deadline, and rank 0 (node %s) did not report the "
             "reason",
             c->env.world->host_of[0]);
    mu_control_take_turn(c, MU_SAW_ROOT_SILENT, &root);
}

void mu_control_overdue_now(struct mu_control *c)
{
    if (c->overdue || c->ended)
        return;
    c->overdue = true;
    if (c->parent >= 0) {
        report_overdue(c);
        return;
    }
    c->probing = false; /* what it asked for is judged now */
    c->pending[MU_SAW_OVERDUE].at = 0;
    mu_control_take_turn(c, MU_SAW_OVERDUE, &(struct mu_complaint){ 0 });
    if (!c->records)
        collect(c);
}

/* ---- Deadlines ---------------------------------------------------------------------
 */

static double earlier(double a, double b)
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

/* A parent that is stopped may have the last result: others have left with it. */
static void give_up_parent(struct mu_control *c)
{
    if (!c->leaving || c->env.report_immediately) {
        mu_control_decide(c, &c->pending[MU_SAW_PARENT_SILENT].why, true);
        return;
    }
    c->orphaned = true;
    mu_control_wake(c);
}

double mu_control_deadlines(struct mu_control *c, double now)
{
    double next = 0;

    if (c->ended)
        return 0;
    if (c->waiting_since) {
        double at = c->waiting_since + c->patience;

        if (at < c->extended_until)
            at = c->extended_until;
        if (now >= at)
            mu_control_overdue_now(c);
        else
            next = earlier(at, show_stuck(c, now));
    } else if (c->waited) {
        next = now + STUCK_SECONDS;
    }
    c->waited = false;
    if (c->parent < 0 && !c->ended && !c->roll_call &&
        c->pending[MU_SAW_UNNAMED].at > 0)
        begin_roll_call(c);
    for (int k = 0; k < MU_NSIGHTS && !c->ended; k++) {
        struct mu_pending *pending = &c->pending[k];

        if (pending->at == 0 || now < pending->at)
            next = earlier(next, pending->at);
        else if (k == MU_SAW_OVERDUE)
            judge(c);
        else if (k == MU_SAW_PARENT_SILENT)
            give_up_parent(c);
        else
            mu_control_decide(c, &pending->why, true);
    }
    return c->ended ? 0 : next;
}
