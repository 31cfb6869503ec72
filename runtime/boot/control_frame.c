/* SPDX-License-Identifier: BSD-3-Clause */
/* control_frame.c - what a frame leads to, at the root and on its way */
#include "runtime/boot/control_impl.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/muster.h"

/* ---- Sums --------------------------------------------------------------------------
 */

static void check(struct mu_control *c, const struct mu_complaint *complaint)
{
    if (complaint->status != MUSTER_OK)
        mu_control_complain(c, complaint);
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
    if (c->overdue) { /* it is so no longer */
        c->overdue = false;
        c->pending[MU_SAW_OVERDUE].at = 0;
        c->pending[MU_SAW_PARENT_SILENT].at = 0;
        c->pending[MU_SAW_ROOT_SILENT].at = 0;
        mu_control_forget_records(c);
    }
    mu_control_wake(c);
}

static void frame_from_below(struct mu_control *c, struct mu_link *link,
                             const struct mu_frame *f, const char *data)
{
    struct mu_complaint e;
    double seconds;
    size_t name;

    link->asked = false;
    if (f->type == MU_FRAME_WRITTEN) {
        link->written = true;
        return;
    }
    if (f->type == MU_FRAME_OVERDUE) {
        mu_link_send(c, link, MU_FRAME_ACK, c->rank, 0, 0, NULL, 0);
        mu_control_overdue_now(c);
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
        mu_control_complain(c, &e);
        break;
    case MU_FRAME_RECORD:
        mu_control_record_in(c, f->from, f->number, data, f->len);
        break;
    case MU_FRAME_STUCK:
        mu_control_stuck_in(c, data, f->len);
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
    struct mu_complaint e;
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
        mu_control_decide(c, &e, false);
        break;
    case MU_FRAME_ACK:
        c->pending[MU_SAW_PARENT_SILENT].at = 0;
        break;
    case MU_FRAME_ALARM:
        mu_control_alarm_below(c);
        break;
    case MU_FRAME_ASK:
        mu_control_ask_below(c, f->number);
        mu_control_answer(c, f->number);
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
