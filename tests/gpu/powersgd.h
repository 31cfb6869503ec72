/* SPDX-License-Identifier: BSD-3-Clause */
/* powersgd.h - functions shared by the two halves of check_powersgd */
#ifndef TESTS_GPU_POWERSGD_H
#define TESTS_GPU_POWERSGD_H

#include "runtime/api/impl.h"
#include "tests/gpu/common.h"

/* A value in -1 .. 1; *x becomes the next state. */
static inline float random_value(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (float)((int32_t)(*x >> 32) * 0x1p-31);
}

/* n zeros; ends the program if memory is missing. */
float *floats(size_t n);
/* Norm of the difference of n floats in device memory from `want`, relative to want's
 * norm.
 */
double off(const float *device, const float *want, size_t n);

/* Whole steps of muster_ddp: all ranks compared with a world of CPUs, error feedback,
 * and a checkpoint of the residuals.
 */
void whole_steps(struct rank *r, struct muster *m);

#endif
