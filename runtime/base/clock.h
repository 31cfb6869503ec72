/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h - the clock of all deadlines and durations: CLOCK_MONOTONIC */
#ifndef MU_CLOCK_H
#define MU_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t mu_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline double mu_clock_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Also where signals arrive. */
static inline void mu_pause(double seconds)
{
    struct timespec t = { (time_t)seconds,
                          (long)((seconds - (double)(time_t)seconds) * 1e9) };

    while (nanosleep(&t, &t) < 0) {
    }
}

#endif
