/* SPDX-License-Identifier: BSD-3-Clause */
/* scaler.c - the loss scale of half precision: halved on overflow, doubled slowly */
#include "runtime/core/scaler.h"

void mu_scaler_step(struct muster_scaler *scaler, bool overflow)
{
    if (overflow) {
        scaler->scale = scaler->scale > 2 ? scaler->scale / 2 : 1;
        scaler->good = 0;
        scaler->skipped++;
        return;
    }
    if (++scaler->good < scaler->interval)
        return;
    scaler->good = 0;
    if (scaler->scale < 16777216)
        scaler->scale *= 2;
}
