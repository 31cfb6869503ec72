/* SPDX-License-Identifier: BSD-3-Clause */
/* weight.c - what a rank's gradient is multiplied by, so that the mean is weighted */
#include "runtime/core/weight.h"

double mu_weight_begin(struct mu_weight *w, double weight)
{
    double before = w->newest;

    w->given = true;
    w->sum += weight;
    w->nothing = weight == 0;
    if (weight > 0)
        w->newest = weight;
    return weight > 0 && before > 0 && before != weight ? before / weight : 1;
}

double mu_weight_factor(const struct mu_weight *w, const double *sum, int size)
{
    double total = 0;
    bool equal = true;

    for (int r = 0; r < size; r++) {
        total += sum[r];
        equal &= sum[r] == sum[0];
    }
    if (total == 0)
        return 0;
    /* Not by division: n times the same weight need not add up exactly. */
    if (equal && w->newest == w->sum)
        return 1;
    return w->newest / total * size;
}
