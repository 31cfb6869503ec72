/* SPDX-License-Identifier: BSD-3-Clause */
/* weight.c - the factor of a rank's gradients in a weighted mean */
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
    /* The division is not exactly 1: n times a weight may be rounded. */
    if (equal && w->newest == w->sum)
        return 1;
    return w->newest / total * size;
}
