/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_abi.h - what libmuster-nccl declares of NCCL's interface, NCCL 2.10 to 2.28
 *
 * The library is preloaded into any program and built without NCCL. Handles are opaque.
 */
#ifndef MU_NCCL_ABI_H
#define MU_NCCL_ABI_H

#include <stddef.h>

typedef int mu_nccl_result;
enum {
    MU_NCCL_SUCCESS = 0,
    MU_NCCL_CUDA_ERROR = 1,
    MU_NCCL_INVALID_USAGE = 5,
    MU_NCCL_IN_PROGRESS = 7
};

/* ncclDataType_t and ncclRedOp_t, as far as they are named here */
enum {
    MU_NCCL_INT8 = 0,
    MU_NCCL_INT32 = 2,
    MU_NCCL_UINT64 = 5,
    MU_NCCL_FLOAT16 = 6,
    MU_NCCL_FLOAT32 = 7,
    MU_NCCL_FLOAT64 = 8,
    MU_NCCL_BFLOAT16 = 9
};
enum { MU_NCCL_SUM = 0, MU_NCCL_MAX = 2, MU_NCCL_MIN = 3, MU_NCCL_AVG = 4 };

struct mu_nccl_id {
    char internal[128];
};

enum { MU_NCCL_WINDOW_SYMMETRIC = 1, MU_NCCL_SHRINK_ABORT = 1 };

#endif
