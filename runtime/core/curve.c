/* SPDX-License-Identifier: BSD-3-Clause */
/* curve.c - the time of an all-reduce by its size, from a few measured points */
#include "runtime/core/curve.h"

double mu_curve_time(const struct mu_curve *c, double bytes)
{
    double slope, us;
    int i = 1;

    if (c->n < 2)
        return c->n == 1 ? c->us[0] : 0;
    while (i < c->n - 1 && bytes > c->bytes[i])
        i++;
    slope = (c->us[i] - c->us[i - 1]) / (c->bytes[i] - c->bytes[i - 1]);
    if (slope < 0) /* noise of the measurement */
        slope = 0;
    us = c->us[i - 1] + slope * (bytes - c->bytes[i - 1]);
    return us > 0 ? us : 0;
}

size_t mu_curve_knee(const struct mu_curve *c, double share, size_t most)
{
    const size_t step = (size_t)1 << 20;
    double top = (double)most / mu_curve_time(c, (double)most);

    for (size_t bytes = step; bytes < most; bytes += step)
        if ((double)bytes >= share * top * mu_curve_time(c, (double)bytes))
            return bytes;
    return most;
}
