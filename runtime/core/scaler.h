/* SPDX-License-Identifier: BSD-3-Clause */
/* scaler.h - the loss scale of half precision: halved on overflow, doubled slowly */
#ifndef MU_SCALER_H
#define MU_SCALER_H

#include <stdbool.h>

#include "runtime/muster.h"

/* After a step: halve the scale (not below 1) on overflow, double it (not above 2^24)
 * after `interval` good steps.
 */
void mu_scaler_step(struct muster_scaler *scaler, bool overflow);

#endif
