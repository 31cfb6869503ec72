/* SPDX-License-Identifier: BSD-3-Clause */
/* types.c - element types as NCCL has them */
#include "runtime/backend/nccl/nccl.h"

ncclDataType_t mu_nccl_type(enum muster_dtype dtype)
{
    static const ncclDataType_t types[] = {
        [MUSTER_F32] = ncclFloat32, [MUSTER_F64] = ncclFloat64,
        [MUSTER_F16] = ncclFloat16, [MUSTER_BF16] = ncclBfloat16,
        [MUSTER_I32] = ncclInt32,   [MUSTER_I64] = ncclInt64,
        [MUSTER_BYTE] = ncclUint8,
    };

    return types[dtype];
}
