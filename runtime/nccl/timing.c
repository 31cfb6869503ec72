/* SPDX-License-Identifier: BSD-3-Clause */
/* timing.c - when collectives get times of the GPU */
#include "runtime/nccl/timing.h"

#include <stdlib.h>

#include "runtime/base/parse.h"

#define WINDOW 1.0 /* seconds */
#define SHARE 5    /* percent */

int mu_timing_open_asked(struct mu_timing *t, int64_t now, struct mu_err *err)
{
    const char *window = getenv("MUSTER_PROFILE_WINDOW");
    const char *percent = getenv("MUSTER_PROFILE_SHARE");
    double seconds = WINDOW;
    long share = SHARE;

    if (window && *window &&
        mu_parse_double("MUSTER_PROFILE_WINDOW", window, 1e-3, 3600, &seconds, err) < 0)
        return -1;
    if (percent && *percent &&
        mu_parse_int("MUSTER_PROFILE_SHARE", percent, 1, 100, &share, err) < 0)
        return -1;
    t->window = (int64_t)(seconds * 1e9);
    t->period = t->window * 100 / share;
    t->opened = now;
    return 0;
}

bool mu_timing_due(const struct mu_timing *t, int64_t now)
{
    int64_t age = now - t->opened;

    return (age >= 0 && age < t->period) || now % t->period < t->window;
}
