/* SPDX-License-Identifier: BSD-3-Clause */
/* bucket_cut.c - cut gradients into buckets so that the last bucket ends earliest
 *
 * An earlier end of the first j gradients is never worse for those that follow. So
 * dynamic programming finds the earliest end for j = 1 .. n, over all beginnings i of
 * the bucket that ends with j:
 *
 *   end(j) = min over i of  max(end(i), ready(j)) + time(bytes of i+1 .. j)
 *
 * Then the plan is read backwards from the deadline end(n) + slack.
 */
#include "runtime/core/bucket_cut.h"

#include <stdlib.h>

#include "runtime/muster.h"

#define ROUNDING 1e-6 /* us by which the sums of the two passes may differ */

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* When the bucket of gradients i .. j-1 (bytes in all) ends. */
static double end_of(const struct mu_bucket_load *load, const double *end, int i, int j,
                     size_t bytes)
{
    return later(end[i], load->ready[j - 1]) +
           mu_curve_time(load->curve, (double)bytes);
}

static double earliest(const struct mu_bucket_load *load, const double *end, int j)
{
    size_t bytes = load->bytes[j - 1];
    double best = end_of(load, end, j - 1, j, bytes);

    for (int i = j - 2; i >= 0 && bytes + load->bytes[i] <= load->cap; i--) {
        double other;

        bytes += load->bytes[i];
        other = end_of(load, end, i, j, bytes);
        best = other < best ? other : best;
    }
    return best;
}

/* The largest bucket that ends with gradient j-1 by *deadline. Returns its first
 * gradient; *deadline becomes that of the bucket before it.
 */
static int largest(const struct mu_bucket_load *load, const double *end, int j,
                   double *deadline)
{
    size_t bytes = 0, chosen = load->bytes[j - 1];
    int from = j - 1;

    for (int i = j - 1; i >= 0; i--) {
        bytes += load->bytes[i];
        if (i < j - 1 && bytes > load->cap)
            break;
        if (end_of(load, end, i, j, bytes) > *deadline + ROUNDING)
            continue;
        from = i;
        chosen = bytes;
    }
    *deadline -= mu_curve_time(load->curve, (double)chosen);
    return from;
}

int mu_bucket_cut(const struct mu_bucket_load *load, bool *last, double *exposed,
                  struct mu_err *err)
{
    int n = load->n;
    double *end = calloc((size_t)n + 1, sizeof *end);
    double deadline;

    if (!end)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory for %d gradients", n);
    for (int j = 1; j <= n; j++) {
        end[j] = earliest(load, end, j);
        last[j - 1] = false;
    }
    if (exposed)
        *exposed = n > 0 ? end[n] - load->ready[n - 1] : 0;
    deadline = end[n] + load->slack;
    for (int j = n; j > 0; j = largest(load, end, j, &deadline))
        last[j - 1] = true;
    free(end);
    return 0;
}
