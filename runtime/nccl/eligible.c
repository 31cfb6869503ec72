/* SPDX-License-Identifier: BSD-3-Clause */
/* eligible.c - which collectives Muster carries out */
#include "runtime/nccl/eligible.h"

#include <stdint.h>

#include "runtime/nccl/nccl_abi.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Sizes of the larger buffer up to which Muster's kernels were faster than NCCL, in
 * float32 and in graphs (tests/gpu/RESULTS.md). All-reduce among 4 ranks: `mapped` is
 * that of muster_alloc's memory. The other collectives are not measured yet: they begin
 * with what all-reduce has, less a margin. Large broadcasts are left out: of a group of
 * them, with a root each, NCCL makes one.
 */
struct limits {
    int ranks;
    size_t one_shot, mapped;
};
static const struct limits limits[][2] = {
    [MU_COLL_ALLREDUCE] = { { 2, MIB, 256 * MIB }, { 4, 256 * KIB, 16 * MIB } },
    [MU_COLL_REDUCE_SCATTER] = { { 2, 512 * KIB, 64 * MIB }, { 4, 128 * KIB, 0 } },
    [MU_COLL_ALLGATHER] = { { 2, 512 * KIB, 64 * MIB }, { 4, 128 * KIB, 0 } },
    [MU_COLL_BROADCAST] = { { 2, 256 * KIB, 0 }, { 4, 64 * KIB, 0 } },
};

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
static struct limits limits_of(enum mu_coll_kind kind, int ranks)
{
    for (int i = 0; i < 2; i++)
        if (limits[kind][i].ranks == ranks) {
            struct limits found = limits[kind][i];

#ifdef MU_ONE_SHOT_MOST /* a build that measures: every size, by one-shot up to this */
            if (kind != MU_COLL_ALLREDUCE)
                found = (struct limits){ ranks, MU_ONE_SHOT_MOST, 256 * MIB };
#endif
            return found;
        }
    return (struct limits){ 0 };
}

bool mu_eligible_ranks(int ranks)
{
    return limits_of(MU_COLL_ALLREDUCE, ranks).one_shot > 0;
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

enum mu_fate mu_eligible(enum mu_coll_kind kind, int ranks, size_t count, int type,
                         int op, struct mu_eligible *out)
{
    bool known = type >= 0 && (size_t)type < sizeof types / sizeof types[0];
    const struct limits most = limits_of(kind, ranks);
    bool segmented = true;

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
        segmented = types[type].is_float && out->op == MUSTER_SUM;
    }
    out->mapped = out->bytes > most.one_shot;
    if (out->bytes == 0 || out->bytes > (!out->mapped ? most.one_shot
                                         : segmented  ? most.mapped
                                                      : 0))
        return MU_OTHER_SIZE;
    return MU_CARRIED;
}
