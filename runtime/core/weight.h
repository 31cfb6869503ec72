/* SPDX-License-Identifier: BSD-3-Clause */
/* weight.h - what a rank's gradient is multiplied by, so that the mean is weighted */
#ifndef MU_WEIGHT_H
#define MU_WEIGHT_H

#include <stdbool.h>

/* One rank's micro-batches of a step. The gradients in its buffers are kept in units of
 * the newest micro-batch: sum over k of weight_k * g_k / newest.
 */
struct mu_weight {
    bool given;    /* in this step */
    double newest; /* the last weight above 0, 0: none yet */
    double sum;    /* of this rank in this step */
    bool nothing;  /* the micro-batch at hand weighs 0 */
};

/* A micro-batch of this weight (0 or more) begins: what the buffers must be multiplied
 * by before its gradients are added; 1 is "leave them".
 */
double mu_weight_begin(struct mu_weight *w, double weight);

/* sum[r]: of each rank. What this rank's buffers are multiplied by before they are
 * summed and divided by the number of ranks: then the result is sum(w g) / sum(w).
 * Exactly 1 where all ranks gave one and the same weight in one micro-batch; 0 when all
 * gave 0.
 */
double mu_weight_factor(const struct mu_weight *w, const double *sum, int size);

#endif
