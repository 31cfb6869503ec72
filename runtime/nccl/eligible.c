/* SPDX-License-Identifier: BSD-3-Clause */
/* eligible.c - which all-reduces Muster carries out */
#include "runtime/nccl/eligible.h"

#include <stdint.h>

#include "runtime/nccl/nccl_abi.h"

/* Of ncclDataType_t: int8 to fp8. */
static const unsigned char sizes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

/* Up to these sizes libmuster's kernels were faster in a graph, in float32
 * (tests/gpu/RESULTS.md). On a stream and in 16 bits they are an assumption until
 * tests/gpu/preload has run. Of other numbers of ranks there is no measurement.
 */
size_t mu_eligible_most(int ranks)
{
    return ranks == 2 ? (size_t)1 << 20 : ranks == 4 ? (size_t)256 << 10 : 0;
}

enum mu_fate mu_eligible(int ranks, size_t count, int type, int op, size_t *bytes)
{
    size_t element = type >= 0 && type < (int)sizeof sizes ? sizes[type] : 0;

    *bytes = element && count <= SIZE_MAX / element ? count * element : 0;
    if (type != MU_NCCL_FLOAT32 && type != MU_NCCL_FLOAT16 && type != MU_NCCL_BFLOAT16)
        return MU_OTHER_TYPE;
    if (op != MU_NCCL_SUM && op != MU_NCCL_AVG)
        return MU_OTHER_OPERATOR;
    if (*bytes == 0 || *bytes > mu_eligible_most(ranks))
        return MU_TOO_LARGE;
    return MU_CARRIED;
}
