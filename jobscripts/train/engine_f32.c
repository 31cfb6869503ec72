/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_f32.c - the CPU engine in single precision */
#define REAL float
#define GEMM cblas_sgemm
#define EXP expf
#define LOG logf
#define DTYPE MUSTER_F32
#define OPS engine_cpu_f32
#include "jobscripts/train/engine_cpu.h"

int engine_cpu_threads(void)
{
    if (!getenv("OMP_NUM_THREADS") && !getenv("OPENBLAS_NUM_THREADS"))
        openblas_set_num_threads(1);
    return openblas_get_num_threads();
}
