/* SPDX-License-Identifier: BSD-3-Clause */
/* algo.h - which way an all-reduce of a size takes, from measured times; no CUDA */
#ifndef MU_NCCL_ALGO_H
#define MU_NCCL_ALGO_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/core/curve.h"

enum mu_algo {
    MU_ALGO_ONE_SHOT,
    MU_ALGO_PULL,
    MU_ALGO_RELAY,
    MU_ALGO_COPY, /* never chosen for its time: see mu_coll.hidden */
    MU_ALGO_NCCL,
    MU_ALGOS,
};

#define MU_ALGO_POINTS 4

extern const char *const mu_algo_names[MU_ALGOS + 1]; /* ends with NULL */

/* Measured times of one algorithm: points ascending in bytes; one that was not measured
 * has none. Between two points the time is linear in the size (alpha + size/beta of
 * that stretch), outside it goes on with the nearest stretch's slope.
 */
struct mu_algo_curve {
    int n;
    float bytes[MU_ALGO_POINTS], us[MU_ALGO_POINTS];
    float call_us; /* of the host, in a call: a GPU with nothing to do waits for it */
};

struct mu_algo_table {
    struct mu_algo_curve curve[MU_ALGOS];
};

/* Microseconds, at least 0.5; a huge number for an algorithm without points. */
double mu_algo_time(const struct mu_algo_table *table, enum mu_algo algo, size_t bytes);

/* The quickest of the algorithms whose bit is set in `usable` (1 << algo), the host's
 * call included unless the launch is captured. MU_ALGO_NCCL when none is, or when none
 * of them was measured.
 */
enum mu_algo mu_algo_choose(const struct mu_algo_table *table, size_t bytes,
                            unsigned usable, bool captured);

/* The best of the usable algorithms at sizes from 16 KiB to 128 MiB. No points when
 * none of them was measured.
 */
void mu_algo_curve(const struct mu_algo_table *table, unsigned usable,
                   struct mu_curve *out);

#endif
