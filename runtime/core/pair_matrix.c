/* SPDX-License-Identifier: BSD-3-Clause */
/* pair_matrix.c - medians of pairs of ranks, and which pairs are slow */
#include "runtime/core/pair_matrix.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *mu_pair_state_name(enum mu_pair_state state)
{
    static const char *const names[MU_PAIR_STATES] = {
        [MU_PAIR_SKIPPED] = "skipped", [MU_PAIR_OK] = "ok",
        [MU_PAIR_SLOW_RATE] = "slow",  [MU_PAIR_SLOW_LATENCY] = "slow",
        [MU_PAIR_SLOW_RATED] = "slow", [MU_PAIR_WRONG] = "WRONG",
        [MU_PAIR_OVERDUE] = "overdue",
    };

    return names[state];
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct mu_spread mu_spread_of(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return (struct mu_spread){ values[n / 2], values[0], values[n - 1] };
}

int mu_pair_outliers(const double *rates, int n)
{
    int outliers = 0;

    while (outliers < n && rates[outliers] * MU_PAIR_OUTLIER < rates[n / 2])
        outliers++;
    return outliers;
}

int mu_lanes_that_add(const double *rates, int n)
{
    int k = n > 0;

    while (k < n && rates[k] - rates[k - 1] >= rates[0] / 2)
        k++;
    return k;
}

/* The median of one figure, which lies `offset` bytes behind the begin of a pair. */
static struct mu_spread spread_over(const struct mu_pair_figure *figures, int n,
                                    enum mu_pair_link link, size_t offset, double *room,
                                    int *pairs)
{
    *pairs = 0;
    for (int i = 0; i < n; i++)
        if (figures[i].link == link && figures[i].state == MU_PAIR_OK)
            memcpy(&room[(*pairs)++], (const char *)&figures[i] + offset, sizeof *room);
    return *pairs ? mu_spread_of(room, *pairs) : (struct mu_spread){ 0, 0, 0 };
}

static void take_medians(const struct mu_pair_figure *figures, int n,
                         enum mu_pair_link link, double *room,
                         struct mu_pair_medians *out)
{
    struct mu_spread rate =
        spread_over(figures, n, link, offsetof(struct mu_pair_figure, rate.median),
                    room, &out->pairs);

    out->rate = rate.median;
    out->least = rate.least;
    out->most = rate.most;
    out->us = spread_over(figures, n, link, offsetof(struct mu_pair_figure, us.median),
                          room, &out->pairs)
                  .median;
    out->both =
        spread_over(figures, n, link, offsetof(struct mu_pair_figure, both.median),
                    room, &out->pairs)
            .median;
}

static enum mu_pair_state judge(const struct mu_pair_figure *f,
                                const struct mu_pair_limits *l,
                                const struct mu_pair_medians *m)
{
    if (f->rate.most * l->slow < m->rate)
        return MU_PAIR_SLOW_RATE;
    if (f->us.least > 1.5 * l->slow * m->us)
        return MU_PAIR_SLOW_LATENCY;
    if (f->rate.most < MU_PAIR_RATED * l->rating)
        return MU_PAIR_SLOW_RATED;
    return MU_PAIR_OK;
}

int mu_pairs_judge(struct mu_pair_figure *figures, int n,
                   const struct mu_pair_limits *limits,
                   struct mu_pair_medians medians[MU_LINKS])
{
    double *room = malloc((size_t)(n > 0 ? n : 1) * sizeof *room);
    int slow = 0;

    if (!room)
        return -1;
    for (int l = 0; l < MU_LINKS; l++)
        take_medians(figures, n, (enum mu_pair_link)l, room, &medians[l]);
    free(room);
    for (int i = 0; i < n; i++) {
        struct mu_pair_figure *f = &figures[i];

        if (f->state != MU_PAIR_OK)
            continue;
        f->state = judge(f, limits, &medians[f->link]);
        slow += f->state != MU_PAIR_OK;
    }
    return slow;
}
