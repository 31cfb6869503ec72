/* SPDX-License-Identifier: BSD-3-Clause */
/* weight.h - the factor of a rank's gradients in a weighted mean */
#ifndef MU_WEIGHT_H
#define MU_WEIGHT_H

#include <stdbool.h>

/* One rank's micro-batches of a step. Its buffers hold
 * sum over k of weight_k * g_k / newest.
 */
struct mu_weight {
    bool given;    /* in this step */
    double newest; /* the last weight above 0; 0: none yet */
    double sum;    /* of this rank in this step */
    bool nothing;  /* the current micro-batch has weight 0 */
};

/* A micro-batch of this weight (0 or more) begins. Returns the factor by which the
 * buffers must be multiplied before its gradients are added; 1: they stay unchanged.
 */
double mu_weight_begin(struct mu_weight *w, double weight);

/* The factor of this rank's buffers before they are summed over ranks and divided by
 * the number of ranks, so that the result is sum(w g) / sum(w). sum[r]: the sum of rank
 * r. Exactly 1 where all ranks have one micro-batch of the same weight; 0 where all
 * weights are 0.
 */
double mu_weight_factor(const struct mu_weight *w, const double *sum, int size);

#endif
