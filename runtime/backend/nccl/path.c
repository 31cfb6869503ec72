/* SPDX-License-Identifier: BSD-3-Clause */
/* path.c - which way an all-reduce of a size takes, from measured times; no CUDA */
#include "runtime/backend/nccl/path.h"

#define NEVER 1e30
#define CURVE_POINTS 14

const char *const mu_path_names[MU_PATHS + 1] = { "one-shot", "pull", "relay",
                                                  "copy",     "nccl", NULL };

double mu_path_time(const struct mu_path_table *table, enum mu_path path, size_t bytes)
{
    const struct mu_path_curve *c = &table->curve[path];
    double slope, us;
    int i = 1;

    if (c->n == 0)
        return NEVER;
    if (c->n == 1)
        return c->us[0];
    while (i < c->n - 1 && (double)bytes > c->bytes[i])
        i++;
    slope = (c->us[i] - c->us[i - 1]) / (c->bytes[i] - c->bytes[i - 1]);
    if (slope < 0) /* noise: a larger size is never quicker */
        slope = 0;
    us = c->us[i - 1] + slope * ((double)bytes - c->bytes[i - 1]);
    return us < 0.5 ? 0.5 : us;
}

enum mu_path mu_path_choose(const struct mu_path_table *table, size_t bytes,
                            unsigned usable, bool captured)
{
    enum mu_path best = MU_PATH_NCCL;
    double least = NEVER;

    for (int p = 0; p < MU_PATHS; p++) {
        double us =
            mu_path_time(table, p, bytes) + (captured ? 0 : table->curve[p].call_us);

        if ((usable & 1u << p) && us < least) {
            least = us;
            best = p;
        }
    }
    return best;
}

void mu_path_curve(const struct mu_path_table *table, unsigned usable,
                   struct mu_curve *out)
{
    size_t bytes = (size_t)16 << 10;

    *out = (struct mu_curve){ 0 };
    for (int i = 0; i < CURVE_POINTS; i++, bytes *= 2) {
        double us =
            mu_path_time(table, mu_path_choose(table, bytes, usable, false), bytes);

        if (us >= NEVER)
            return;
        out->bytes[i] = (double)bytes;
        out->us[i] = us;
        out->n = i + 1;
    }
}
