/* SPDX-License-Identifier: BSD-3-Clause */
/* eligible.c - which collectives Muster carries out */
#include "runtime/nccl/eligible.h"

#include <stdint.h>

#include "runtime/nccl/nccl_abi.h"

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

static bool adds(enum mu_coll_kind kind)
{
    return kind == MU_COLL_ALLREDUCE || kind == MU_COLL_REDUCE_SCATTER;
}

/* Bytes of the larger buffer; 0: none, or more than there are. */
static size_t bytes_of(enum mu_coll_kind kind, int ranks, size_t count, size_t element)
{
    size_t parts =
        kind == MU_COLL_REDUCE_SCATTER || kind == MU_COLL_ALLGATHER ? (size_t)ranks : 1;

    return parts > 0 && count <= SIZE_MAX / element / parts ? count * element * parts
                                                            : 0;
}

/* Into out->mapped. */
static bool size_fits(const struct mu_limit *most, bool has_mapped,
                      struct mu_eligible *out)
{
    out->mapped = has_mapped && out->bytes > most->one_shot;
    if (out->mapped)
        return out->bytes >= most->from && out->bytes <= most->to;
    return out->bytes > 0 && out->bytes <= (has_mapped ? most->one_shot : most->others);
}

enum mu_fate mu_eligible(const struct mu_limits *most, enum mu_coll_kind kind,
                         int ranks, size_t count, int type, int op,
                         struct mu_eligible *out)
{
    bool known = type >= 0 && (size_t)type < sizeof types / sizeof types[0];
    bool has_mapped = true;

    *out = (struct mu_eligible){ .count = count };
    if (!known)
        return MU_OTHER_TYPE;
    out->bytes = bytes_of(kind, ranks, count, types[type].bytes);
    if (!adds(kind)) {
        out->count = count * types[type].bytes;
    } else {
        if (types[type].dtype == NONE)
            return MU_OTHER_TYPE;
        out->dtype = (enum muster_dtype)types[type].dtype;
        if (!operator_fits(op, types[type].is_float, types[type].is_unsigned, out))
            return MU_OTHER_OPERATOR;
        has_mapped = types[type].is_float && out->op == MUSTER_SUM;
    }
    return size_fits(&most->of[kind], has_mapped, out) ? MU_CARRIED : MU_OTHER_SIZE;
}
