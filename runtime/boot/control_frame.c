/* SPDX-License-Identifier: BSD-3-Clause */
/* control_frame.c - what a frame leads to, at the root and on its way */
#include "runtime/boot/control_impl.h"

#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/muster.h"

/* ---- Sums --------------------------------------------------------------------------
 */

static void sum_in(struct mu_control *c, const struct mu_frame *f, const char *what,
                   const void *data)
{
    struct mu_complaint complaint = { 0 };

    mu_control_sum_add(c, f, what, data, &complaint);
    if (complaint.status != MUSTER_OK)
        mu_control_complain(c, &complaint);
}

void mu_control_gather_in(struct mu_control *c, int from, uint32_t flags,
                          uint64_t number, const char *what, const void *data,
                          size_t len)
{
    const struct mu_frame f = { MU_FRAME_GATHER, (uint32_t)len, from, flags, number };

    sum_in(c, &f, what, data);
}

void mu_control_agree_in(struct mu_control *c, int from, uint64_t step,
                         const void *data, size_t len)
{
    const struct mu_frame f = { MU_FRAME_AGREE, (uint32_t)len, from, 0, step };

    sum_in(c, &f, "", data);
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

/* Its data, which always have that size. */
static bool read_data(const struct mu_frame *f, const char *data, void *to, size_t size)
{
    if (f->len == size)
        memcpy(to, data, size);
    return f->len == size;
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
        sum_in(c, f, "", data);
        break;
    case MU_FRAME_FAIL:
        if (read_data(f, data, &e, sizeof e))
            mu_control_complain(c, &e);
        break;
    case MU_FRAME_RECORD:
        mu_control_record_in(c, f->from, f->number, data, f->len);
        break;
    case MU_FRAME_STUCK:
        mu_control_stuck_in(c, data, f->len);
        break;
    case MU_FRAME_EXTEND_UP:
        if (read_data(f, data, &seconds, sizeof seconds))
            extend(c, seconds);
        break;
    default:
        break;
    }
}

static void frame_from_above(struct mu_control *c, const struct mu_frame *f,
                             const char *data)
{
    struct mu_complaint e;
    double seconds;

    switch (f->type) {
    case MU_FRAME_ALL:
    case MU_FRAME_ABSENT:
        mu_control_result(c, f, data);
        break;
    case MU_FRAME_END:
        if (read_data(f, data, &e, sizeof e))
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
        if (read_data(f, data, &seconds, sizeof seconds))
            extend(c, seconds);
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
