/* SPDX-License-Identifier: BSD-3-Clause */
/* both.h - arithmetic that is the same on the CPU and in a kernel */
#ifndef MU_BOTH_H
#define MU_BOTH_H

/* Before a static inline function in a header that C and CUDA C include. */
#ifdef __CUDACC__
#define MU_BOTH __host__ __device__
#else
#define MU_BOTH
#endif

#endif
