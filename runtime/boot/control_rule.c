/* SPDX-License-Identifier: BSD-3-Clause */
/* control_rule.c - what a frame, a death or a deadline leads to
 *
 * The root decides. Another rank reports to the root and waits. If it receives no
 * decision (the path to the root is cut, or a rank on it is stopped), it ends the job
 * itself. Children of one parent wait for different times, so that only one reports.
 */
#include "runtime/boot/control_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/muster.h"

#define ORPHAN_STEP 0.5 /* seconds between reports of orphans */

struct ending_frame {
    int32_t status, rank;
    char text[MU_ERR_TEXT];
};

static void decide(struct mu_control *c, int status, int rank, const char *text,
                   bool reporter)
{
    struct ending_frame f = { status, rank, "" };

    if (c->ended || c->goodbye)
        return;
    c->ended = true;
    c->ending.status = status;
    c->ending.rank = rank;
    c->ending.reporter = reporter;
    mu_copy(c->ending.text, sizeof c->ending.text, text);
    mu_copy(f.text, sizeof f.text, text);
    mu_control_send_down(c, MU_FRAME_END, 0, 0, &f, sizeof f);
    pthread_cond_broadcast(&c->changed);
    mu_control_wake(c);
}

/* The launcher may end the job before this rank receives the reason: the decision does
 * not reach ranks that are cut off, and the launcher kills them.
 */
static void alarm_below(struct mu_control *c)
{
    if (c->alarm)
        return;
    c->alarm = true;
    mu_control_send_down(c, MU_FRAME_ALARM, 0, 0, NULL, 0);
}

/* Report it ourselves at `at` if no rank above has decided by then. */
static void prepare_last_resort(struct mu_control *c, double at, int status, int rank,
                                const char *text)
{
    if (c->orphan_at && c->orphan_at <= at)
        return;
    c->orphan_at = at;
    c->last_resort.status = status;
    c->last_resort.rank = rank;
    mu_copy(c->last_resort.text, sizeof c->last_resort.text, text);
    alarm_below(c);
    mu_control_wake(c);
}

void mu_control_complain(struct mu_control *c, int status, int rank, const char *text)
{
    struct ending_frame f = { status, rank, "" };

    if (c->ended || c->goodbye)
        return;
    if (c->parent < 0) {
        decide(c, status, rank, text, true);
        return;
    }
    mu_copy(f.text, sizeof f.text, text);
    mu_control_send_up(c, MU_FRAME_FAIL, c->rank, 0, 0, &f, sizeof f);
    prepare_last_resort(c, mu_clock_s() + MU_CONTROL_ACK, status, rank, text);
}

/* By the place of this rank among its parent's children: 0, 1, ... steps. */
static double orphan_delay(const struct mu_control *c)
{
    int place = 0;

    for (int r = 0; r < c->rank; r++)
        place += c->parent_of[r] == c->parent;
    return c->env.report_immediately ? 0 : ORPHAN_STEP * place;
}

void mu_control_lost(struct mu_control *c, struct mu_link *link)
{
    const struct mu_world *w = c->env.world;
    char text[MU_ERR_TEXT];
    int rank = link->rank;
    bool up = link == &c->up;

    if (link->error == ETIMEDOUT || link->error == EHOSTUNREACH ||
        link->error == ENETUNREACH)
        snprintf(
            text, sizeof text,
            "rank %d (node %s) cannot be reached any more: its node or the link to it "
            "is dead",
            rank, w->host_of[rank]);
    else
        snprintf(text, sizeof text,
                 "rank %d (node %s, pid %d) died or left without muster_finalize", rank,
                 w->host_of[rank], w->pid_of[rank]);
    mu_link_close(c, link);
    if (c->goodbye || c->ended)
        return;
    if (!up)
        mu_control_complain(c, MUSTER_EPEER, rank, text);
    else /* the parent's own parent may decide before this orphan does */
        prepare_last_resort(
            c,
            mu_clock_s() + orphan_delay(c) +
                (c->parent_of[rank] >= 0 && !c->env.report_immediately ? 1 : 0),
            MUSTER_EPEER, rank, text);
}

/* ---- Deadlines ---------------------------------------------------------------------
 */

static void judge(struct mu_control *c)
{
    char text[MU_ERR_TEXT] = "a rank did not enter the collective in time";
    int guilty = c->env.hooks.judge(c->env.hooks.arg, c->records, c->parent_of, text,
                                    sizeof text);

    c->answer_until = 0;
    c->ending.records = c->records;
    decide(c, MUSTER_ETIMEOUT, guilty, text, true);
}

static void record_in(struct mu_control *c, int from, const void *data, size_t len)
{
    struct mu_flight *copy;

    if (!c->records || from < 0 || from >= c->size || c->records[from] ||
        len != sizeof *copy || c->ended)
        return;
    copy = malloc(sizeof *copy);
    if (!copy)
        return;
    memcpy(copy, data, sizeof *copy);
    c->records[from] = copy;
    if (++c->nrecords == c->size)
        judge(c);
}

static void answer(struct mu_control *c)
{
    struct mu_flight mine = { .rank = c->rank };

    c->env.hooks.record(c->env.hooks.arg, &mine);
    mine.waiting_since = c->waiting_since;
    mu_copy(mine.waiting_for, sizeof mine.waiting_for, c->waiting_for);
    if (c->parent < 0)
        record_in(c, c->rank, &mine, sizeof mine);
    else
        mu_control_send_up(c, MU_FRAME_RECORD, c->rank, 0, 0, &mine, sizeof mine);
}

/* The root requests the flight records of all ranks. */
static void collect(struct mu_control *c)
{
    if (c->records || c->ended)
        return;
    c->records = calloc((size_t)c->size, sizeof *c->records);
    if (!c->records) {
        decide(c, MUSTER_EMEMORY, c->rank, "out of memory in rank 0", true);
        return;
    }
    c->answer_until = mu_clock_s() + MU_CONTROL_ANSWER;
    mu_control_send_down(c, MU_FRAME_ASK, 0, 0, NULL, 0);
    answer(c);
    mu_control_wake(c);
}

/* Our own wait, or one further down, is over its deadline. */
static void overdue(struct mu_control *c, double now)
{
    if (c->overdue || c->ended)
        return;
    c->overdue = true;
    if (c->parent < 0) {
        collect(c);
        return;
    }
    mu_control_send_up(c, MU_FRAME_OVERDUE, c->rank, 0, 0, NULL, 0);
    c->ack_until = now + MU_CONTROL_ACK;
    c->verdict_until = now + MU_CONTROL_VERDICT;
}

void mu_control_overdue_now(struct mu_control *c)
{
    overdue(c, mu_clock_s());
    mu_control_wake(c);
}

static double earlier(double a, double b)
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

static void parent_is_silent(struct mu_control *c, double now)
{
    char text[MU_ERR_TEXT];

    snprintf(text, sizeof text,
             "rank %d (node %s, pid %d) does not answer (stopped, or its node hangs); "
             "rank %d "
             "waits for %s",
             c->parent, c->env.world->host_of[c->parent],
             c->env.world->pid_of[c->parent], c->rank,
             c->waiting_for[0] ? c->waiting_for : "the next step");
    prepare_last_resort(c, now + orphan_delay(c), MUSTER_ETIMEOUT, c->parent, text);
}

static void root_is_silent(struct mu_control *c, double now)
{
    char text[MU_ERR_TEXT];

    snprintf(text, sizeof text,
             "a wait exceeded its deadline, and rank 0 (node %s) did not report the "
             "reason",
             c->env.world->host_of[0]);
    prepare_last_resort(c, now + orphan_delay(c), MUSTER_ETIMEOUT, -1, text);
}

double mu_control_deadlines(struct mu_control *c, double now)
{
    double next = 0;

    if (c->ended)
        return 0;
    if (c->orphan_at && now >= c->orphan_at) {
        decide(c, c->last_resort.status, c->last_resort.rank, c->last_resort.text,
               true);
        return 0;
    }
    if (c->answer_until && now >= c->answer_until) {
        judge(c);
        return 0;
    }
    if (c->ack_until && now >= c->ack_until) {
        c->ack_until = 0;
        parent_is_silent(c, now);
    }
    if (c->verdict_until && now >= c->verdict_until) {
        c->verdict_until = 0;
        root_is_silent(c, now);
    }
    if (c->waiting_since) {
        double at = c->waiting_since + c->env.timeout;

        if (at < c->extended_until)
            at = c->extended_until;
        if (now >= at)
            overdue(c, now);
        else
            next = at;
    }
    next = earlier(next, c->orphan_at);
    next = earlier(next, c->answer_until);
    next = earlier(next, c->ack_until);
    return earlier(next, c->verdict_until);
}

/* ---- Sums --------------------------------------------------------------------------
 */

static void check(struct mu_control *c, const struct mu_complaint *complaint)
{
    if (complaint->status != MUSTER_OK)
        mu_control_complain(c, complaint->status, complaint->rank, complaint->text);
}

void mu_control_gather_in(struct mu_control *c, int from, uint32_t flags,
                          uint64_t number, const char *what, const void *data,
                          size_t len)
{
    struct mu_complaint complaint = { 0 };

    mu_control_gather_add(c, from, flags, number, what, data, len, &complaint);
    check(c, &complaint);
}

void mu_control_agree_in(struct mu_control *c, int from, uint64_t step,
                         const void *data, size_t len)
{
    struct mu_complaint complaint = { 0 };

    mu_control_agree_add(c, from, step, data, len, &complaint);
    check(c, &complaint);
}

/* ---- Frames ------------------------------------------------------------------------
 */

static void extend(struct mu_control *c, double seconds)
{
    double until = mu_clock_s() + seconds;

    mu_control_send_down(c, MU_FRAME_EXTEND, 0, 0, &seconds, sizeof seconds);
    if (until > c->extended_until)
        c->extended_until = until;
    c->extension = seconds;
    c->extension_new = true;
    mu_control_wake(c);
}

static void frame_from_below(struct mu_control *c, struct mu_link *link,
                             const struct mu_frame *f, const char *data)
{
    struct ending_frame e;
    double seconds;
    size_t name;

    if (f->type == MU_FRAME_OVERDUE) {
        mu_link_send(c, link, MU_FRAME_ACK, c->rank, 0, 0, NULL, 0);
        overdue(c, mu_clock_s());
        return;
    }
    if (c->parent >= 0) {
        mu_control_send_up(c, f->type, f->from, f->flags, f->number, data, f->len);
        return;
    }
    switch (f->type) {
    case MU_FRAME_GATHER:
        name = strnlen(data, f->len) + 1;
        if (name <= f->len)
            mu_control_gather_in(c, f->from, f->flags, f->number, data, data + name,
                                 f->len - name);
        break;
    case MU_FRAME_AGREE:
        mu_control_agree_in(c, f->from, f->number, data, f->len);
        break;
    case MU_FRAME_FAIL:
        if (f->len != sizeof e)
            break;
        memcpy(&e, data, sizeof e);
        decide(c, e.status, e.rank, e.text, true);
        break;
    case MU_FRAME_RECORD:
        record_in(c, f->from, data, f->len);
        break;
    case MU_FRAME_EXTEND_UP:
        if (f->len == sizeof seconds) {
            memcpy(&seconds, data, sizeof seconds);
            extend(c, seconds);
        }
        break;
    default:
        break;
    }
}

static char *copy_of(const char *data, size_t len)
{
    char *copy = malloc(len + 1);

    if (copy)
        memcpy(copy, data, len);
    return copy;
}

static void all_in(struct mu_control *c, const struct mu_frame *f, const char *data)
{
    mu_control_send_down(c, MU_FRAME_ALL, f->flags, f->number, data, f->len);
    c->goodbye |= (f->flags & MU_FRAME_LAST) != 0;
    free(c->all);
    c->all = copy_of(data, f->len);
    c->all_len = f->len;
    c->all_number = f->number;
    pthread_cond_broadcast(&c->changed);
}

static void absent_in(struct mu_control *c, const struct mu_frame *f, const char *data)
{
    mu_control_send_down(c, MU_FRAME_ABSENT, 0, f->number, data, f->len);
    free(c->absent);
    c->absent = (uint8_t *)copy_of(data, f->len);
    c->absent_len = f->len;
    c->absent_step = f->number;
    c->absent_known = true;
    pthread_cond_broadcast(&c->changed);
}

static void frame_from_above(struct mu_control *c, const struct mu_frame *f,
                             const char *data)
{
    struct ending_frame e;
    double seconds;

    switch (f->type) {
    case MU_FRAME_ALL:
        all_in(c, f, data);
        break;
    case MU_FRAME_ABSENT:
        absent_in(c, f, data);
        break;
    case MU_FRAME_END:
        if (f->len != sizeof e)
            break;
        memcpy(&e, data, sizeof e);
        decide(c, e.status, e.rank, e.text, false);
        break;
    case MU_FRAME_ACK:
        c->ack_until = 0;
        break;
    case MU_FRAME_ALARM:
        alarm_below(c);
        break;
    case MU_FRAME_ASK:
        mu_control_send_down(c, MU_FRAME_ASK, 0, 0, NULL, 0);
        answer(c);
        break;
    case MU_FRAME_EXTEND:
        if (f->len == sizeof seconds) {
            memcpy(&seconds, data, sizeof seconds);
            extend(c, seconds);
        }
        break;
    default:
        break;
    }
}

void mu_control_frame(struct mu_control *c, struct mu_link *link,
                      const struct mu_frame *frame, const char *data)
{
    if (link == &c->up)
        frame_from_above(c, frame, data);
    else
        frame_from_below(c, link, frame, data);
}

void mu_control_extend_from(struct mu_control *c, double seconds)
{
    if (c->parent < 0)
        extend(c, seconds);
    else
        mu_control_send_up(c, MU_FRAME_EXTEND_UP, c->rank, 0, 0, &seconds,
                           sizeof seconds);
}
