/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_counts.h - Slurm's formats for a number of GPUs: "a100:4,v100:4", "gres/gpu:2" */
#ifndef MU_GPU_COUNTS_H
#define MU_GPU_COUNTS_H

#include "runtime/base/err.h"

/* The number of GPUs in "8", "a100:8", "gpu:a100:8", "gpu:8", "a100:4,v100:4" (8),
 * "gres/gpu:a100=1", "cpu=4,gres/gpu=1". Other resources are skipped. A list without
 * GPUs gives 0.
 */
int mu_gpu_count_parse(const char *text, int *out, struct mu_err *err);

#endif
