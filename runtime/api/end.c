/* SPDX-License-Identifier: BSD-3-Clause */
/* end.c - end the job, ask for time, report what this rank is doing */
#include "runtime/api/impl.h"

#include <stdio.h>

void muster_abort(struct muster *m, int status, const char *why)
{
    struct mu_recover *recover = mu_worlds_take_any();

    if (!recover && m)
        recover = m->group.root ? m->group.root : &m->recover;
    mu_verdict_abort(recover, status, why);
}

int muster_extend(struct muster *m, double seconds)
{
    if (!(seconds > 0))
        return mu_fail(m, MUSTER_EUSAGE,
                       "muster_extend: seconds is %g, use a number above 0", seconds);
    if (seconds > MU_FOREVER)
        seconds = MU_FOREVER;
    if (m->comm.control)
        mu_control_extend(m->comm.control, seconds);
    return MUSTER_OK;
}

void muster_doing(struct muster *m, const char *what)
{
    pthread_mutex_lock(&m->comm.flight_lock);
    snprintf(m->comm.flight.doing, sizeof m->comm.flight.doing, "%s", what ? what : "");
    pthread_mutex_unlock(&m->comm.flight_lock);
}
