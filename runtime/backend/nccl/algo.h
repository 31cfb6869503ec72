/* SPDX-License-Identifier: BSD-3-Clause */
/* algo.h - choice of the all-reduce algorithm for a size, from measured times; no CUDA
 */
#ifndef MU_NCCL_ALGO_H
#define MU_NCCL_ALGO_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/core/curve.h"

enum mu_algo {
    MU_ALGO_ONE_SHOT,
    MU_ALGO_PULL,
    MU_ALGO_RELAY,
    MU_ALGO_OWN,  /* memory that the program allocated */
    MU_ALGO_COPY, /* chosen only for hidden collectives, never for its time */
    MU_ALGO_NCCL,
    MU_ALGOS,
};

#define MU_ALGO_POINTS 4

extern const char *const mu_algo_names[MU_ALGOS + 1]; /* ends with NULL */

/* Measured times of one algorithm: points ascending in bytes; none if it was not
 * measured. Between two points, time is linear in the size (alpha + bytes / beta).
 * Outside, the nearest segment's slope continues.
 */
struct mu_algo_curve {
    int n;
    float bytes[MU_ALGO_POINTS], us[MU_ALGO_POINTS];
    float call_us; /* host time of one call, which an idle GPU waits for */
};

struct mu_algo_table {
    struct mu_algo_curve curve[MU_ALGOS];
};

/* Microseconds, at least 0.5; a huge number for an algorithm without points. */
double mu_algo_time(const struct mu_algo_table *table, enum mu_algo algo, size_t bytes);

/* The fastest algorithm whose bit is set in `usable` (1 << algo), including the host's
 * call unless the launch is captured. MU_ALGO_NCCL if none is usable or measured.
 */
enum mu_algo mu_algo_choose(const struct mu_algo_table *table, size_t bytes,
                            unsigned usable, bool captured);

/* The fastest usable algorithm at sizes from 16 KiB to 128 MiB. No points if none was
 * measured.
 */
void mu_algo_curve(const struct mu_algo_table *table, unsigned usable,
                   struct mu_curve *out);

#endif
