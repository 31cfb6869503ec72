/* SPDX-License-Identifier: BSD-3-Clause */
/* algo.c - choice of the all-reduce algorithm for a size, from measured times; no CUDA
 */
#include "runtime/backend/nccl/algo.h"

#define NEVER 1e30
#define CURVE_POINTS 14

const char *const mu_algo_names[MU_ALGOS + 1] = { "one-shot", "pull", "relay", "own",
                                                  "copy",     "nccl", NULL };

double mu_algo_time(const struct mu_algo_table *table, enum mu_algo algo, size_t bytes)
{
    const struct mu_algo_curve *c = &table->curve[algo];
    double slope, us;
    int i = 1;

    if (c->n == 0)
        return NEVER;
    if (c->n == 1)
        return c->us[0];
    while (i < c->n - 1 && (double)bytes > c->bytes[i])
        i++;
    slope = (c->us[i] - c->us[i - 1]) / (c->bytes[i] - c->bytes[i - 1]);
    if (slope < 0) /* noise: a larger size is never faster */
        slope = 0;
    us = c->us[i - 1] + slope * ((double)bytes - c->bytes[i - 1]);
    return us < 0.5 ? 0.5 : us;
}

enum mu_algo mu_algo_choose(const struct mu_algo_table *table, size_t bytes,
                            unsigned usable, bool captured)
{
    enum mu_algo best = MU_ALGO_NCCL;
    double least = NEVER;

    for (int p = 0; p < MU_ALGOS; p++) {
        double us =
            mu_algo_time(table, p, bytes) + (captured ? 0 : table->curve[p].call_us);

        if ((usable & 1u << p) && us < least) {
            least = us;
            best = p;
        }
    }
    return best;
}

void mu_algo_curve(const struct mu_algo_table *table, unsigned usable,
                   struct mu_curve *out)
{
    size_t bytes = (size_t)16 << 10;

    *out = (struct mu_curve){ 0 };
    for (int i = 0; i < CURVE_POINTS; i++, bytes *= 2) {
        double us =
            mu_algo_time(table, mu_algo_choose(table, bytes, usable, false), bytes);

        if (us >= NEVER)
            return;
        out->bytes[i] = (double)bytes;
        out->us[i] = us;
        out->n = i + 1;
    }
}
