/* SPDX-License-Identifier: BSD-3-Clause */
/* eligible.c - which all-reduces Muster carries out */
#include "runtime/nccl/eligible.h"

#include <stdint.h>

#include "runtime/nccl/nccl_abi.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Sizes up to which Muster's kernels were faster than NCCL, in float32 and in graphs
 * (tests/gpu/RESULTS.md). Among 4 ranks `mapped` is that of muster_alloc's memory.
 */
static const struct limits {
    int ranks;
    size_t one_shot, mapped;
} limits[] = { { 2, MIB, 256 * MIB }, { 4, 256 * KIB, 16 * MIB } };

/* By ncclDataType_t. The sums of a signed and of an unsigned type have the same bits.
 */
enum { NONE = -1 };
static const struct {
    unsigned char bytes;
    signed char dtype; /* enum muster_dtype */
    bool is_float, is_unsigned;
} types[] = {
    { 1, NONE, false, false },       { 1, NONE, false, true },
    { 4, MUSTER_I32, false, false }, { 4, MUSTER_I32, false, true },
    { 8, MUSTER_I64, false, false }, { 8, MUSTER_I64, false, true },
    { 2, MUSTER_F16, true, false },  { 4, MUSTER_F32, true, false },
    { 8, MUSTER_F64, true, false },  { 2, MUSTER_BF16, true, false },
    { 1, NONE, true, false },        { 1, NONE, true, false },
};

/* All 0: never measured among so many ranks. */
static struct limits limits_of(int ranks)
{
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (limits[i].ranks == ranks)
            return limits[i];
    return (struct limits){ 0 };
}

bool mu_eligible_ranks(int ranks)
{
    return limits_of(ranks).one_shot > 0;
}

/* NCCL's mean of integers is not rounded to nearest, and Muster has no unsigned order.
 */
static bool operator_fits(int op, bool is_float, bool is_unsigned,
                          struct mu_eligible *out)
{
    out->mean = op == MU_NCCL_AVG;
    out->op = op == MU_NCCL_MAX   ? MUSTER_MAX
              : op == MU_NCCL_MIN ? MUSTER_MIN
                                  : MUSTER_SUM;
    return op == MU_NCCL_SUM || (op == MU_NCCL_AVG && is_float) ||
           ((op == MU_NCCL_MAX || op == MU_NCCL_MIN) && !is_unsigned);
}

enum mu_fate mu_eligible(int ranks, size_t count, int type, int op,
                         struct mu_eligible *out)
{
    bool known = type >= 0 && (size_t)type < sizeof types / sizeof types[0];
    const struct limits most = limits_of(ranks);
    size_t mapped;

    *out = (struct mu_eligible){ 0 };
    if (known && count <= SIZE_MAX / types[type].bytes)
        out->bytes = count * types[type].bytes;
    if (!known || types[type].dtype == NONE)
        return MU_OTHER_TYPE;
    out->dtype = (enum muster_dtype)types[type].dtype;
    if (!operator_fits(op, types[type].is_float, types[type].is_unsigned, out))
        return MU_OTHER_OPERATOR;
    mapped = types[type].is_float && out->op == MUSTER_SUM ? most.mapped : 0;
    out->mapped = out->bytes > most.one_shot;
    if (out->bytes == 0 || out->bytes > (out->mapped ? mapped : most.one_shot))
        return MU_OTHER_SIZE;
    return MU_CARRIED;
}
