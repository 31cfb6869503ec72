/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.h - the clock of all deadlines and durations: CLOCK_MONOTONIC */
#ifndef MU_CLOCK_H
#define MU_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline struct timespec mu_time_of(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return t;
}

static inline int64_t mu_time_ns(struct timespec t)
{
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline double mu_time_s(struct timespec t)
{
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline int64_t mu_clock_ns(void)
{
    return mu_time_ns(mu_time_of(CLOCK_MONOTONIC));
}

static inline double mu_clock_s(void)
{
    return mu_time_s(mu_time_of(CLOCK_MONOTONIC));
}

/* The same clock as of the last tick of the kernel, at most 10 ms ago: reading it costs
 * a fraction. For times that are kept in each call and compared with seconds.
 */
static inline int64_t mu_clock_tick_ns(void)
{
    return mu_time_ns(mu_time_of(CLOCK_MONOTONIC_COARSE));
}

static inline double mu_clock_tick_s(void)
{
    return mu_time_s(mu_time_of(CLOCK_MONOTONIC_COARSE));
}

/* Also where signals arrive. */
static inline void mu_pause(double seconds)
{
    struct timespec t = { (time_t)seconds,
                          (long)((seconds - (double)(time_t)seconds) * 1e9) };

    while (nanosleep(&t, &t) < 0) {
    }
}

/* For a loop that looks until something has happened: soon again at first, then each
 * millisecond. *seconds is 0 before the first look.
 */
static inline void mu_pause_longer(double *seconds)
{
    *seconds = *seconds == 0 ? 20e-6 : *seconds < 0.5e-3 ? 2 * *seconds : 1e-3;
    mu_pause(*seconds);
}

#endif
