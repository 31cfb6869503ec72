/* SPDX-License-Identifier: BSD-3-Clause */
/* control_frame.c - what a frame leads to, at the root and on its way */
#include "runtime/boot/control_impl.h"

#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/muster.h"

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

static void sum_in(struct mu_control *c, const struct mu_frame *f, const char *what,
                   const void *data)
{
    struct mu_complaint complaint = { 0 };

    mu_control_sum_add(c, f, what, data, &complaint);
    if (complaint.status != MUSTER_OK)
        mu_control_complain(c, &complaint);
}

/* Its data begin with what the rank calls it. */
static void gather_in(struct mu_control *c, const struct mu_frame *f, const char *data)
{
    size_t name = strnlen(data, f->len) + 1;
    struct mu_frame rest = *f;

    if (name > f->len)
        return;
    rest.len -= (uint32_t)name;
    sum_in(c, &rest, data, data + name);
}

/* What any rank sends up, the root itself too. */
static void frame_at_root(struct mu_control *c, const struct mu_frame *f,
                          const char *data)
{
    struct mu_complaint e;
    double seconds;

    switch (f->type) {
    case MU_FRAME_GATHER:
        gather_in(c, f, data);
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

static void frame_from_below(struct mu_control *c, struct mu_link *link,
                             const struct mu_frame *f, const char *data)
{
    link->asked = false;
    if (f->type == MU_FRAME_WRITTEN) {
        link->written = true;
    } else if (f->type == MU_FRAME_OVERDUE) {
        mu_link_send(c, link, MU_FRAME_ACK, c->rank, 0, 0, NULL, 0);
        mu_control_overdue_now(c);
    } else {
        mu_control_pass_up(c, f, data);
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
    if (!link)
        frame_at_root(c, frame, data);
    else if (link == &c->up)
        frame_from_above(c, frame, data);
    else
        frame_from_below(c, link, frame, data);
}
