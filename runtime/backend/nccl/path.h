/* SPDX-License-Identifier: BSD-3-Clause */
/* path.h - which way an all-reduce of a size takes, from measured times; no CUDA */
#ifndef MU_NCCL_PATH_H
#define MU_NCCL_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/core/curve.h"

enum mu_path {
    MU_PATH_ONE_SHOT,
    MU_PATH_PULL,
    MU_PATH_RELAY,
    MU_PATH_COPY, /* never chosen for its time: see mu_coll.hidden */
    MU_PATH_NCCL,
    MU_PATHS,
};

#define MU_PATH_POINTS 4

extern const char *const mu_path_names[MU_PATHS + 1]; /* ends with NULL */

/* Measured times of one path: points ascending in bytes; a path that was not measured
 * has none. Between two points the time is linear in the size (alpha + size/beta of
 * that stretch), outside it goes on with the nearest stretch's slope.
 */
struct mu_path_curve {
    int n;
    float bytes[MU_PATH_POINTS], us[MU_PATH_POINTS];
    float call_us; /* of the host, in a call: a GPU with nothing to do waits for it */
};

struct mu_path_table {
    struct mu_path_curve curve[MU_PATHS];
};

/* Microseconds, at least 0.5; a huge number for a path without points. */
double mu_path_time(const struct mu_path_table *table, enum mu_path path, size_t bytes);

/* The quickest of the paths whose bit is set in `usable` (1 << path), the host's call
 * included unless the launch is captured. MU_PATH_NCCL when none is, or when none of
 * them was measured.
 */
enum mu_path mu_path_choose(const struct mu_path_table *table, size_t bytes,
                            unsigned usable, bool captured);

/* The best of the usable paths at sizes from 16 KiB to 128 MiB. No points when none of
 * them was measured.
 */
void mu_path_curve(const struct mu_path_table *table, unsigned usable,
                   struct mu_curve *out);

#endif
