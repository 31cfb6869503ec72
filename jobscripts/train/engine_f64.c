/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_f64.c - the CPU engine in double precision */
#define REAL double
#define GEMM cblas_dgemm
#define EXP exp
#define LOG log
#define DTYPE MUSTER_F64
#define OPS engine_cpu_f64
#include "jobscripts/train/engine_cpu.h"
