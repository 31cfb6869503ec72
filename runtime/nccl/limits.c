/* SPDX-License-Identifier: BSD-3-Clause */
/* limits.c - sizes up to which Muster's kernels were faster than NCCL, in float32 and
 * in graphs (tests/gpu/RESULTS.md)
 */
#include "runtime/nccl/limits.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define UP_TO(one_shot, mapped)                                                        \
    {                                                                                  \
        one_shot, one_shot + 1, mapped, one_shot                                       \
    }

/* All-reduce alone has been measured among 4 ranks, with muster_alloc's memory. */
static const struct {
    int ranks;
    struct mu_limits limits;
} known[] = {
    { 2, { { [MU_COLL_ALLREDUCE] = UP_TO(MIB, 256 * MIB) } } },
    { 4, { { [MU_COLL_ALLREDUCE] = UP_TO(256 * KIB, 16 * MIB) } } },
};

bool mu_limits_known(int ranks, struct mu_limits *out)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].ranks == ranks) {
            *out = known[i].limits;
            return true;
        }
    return false;
}
