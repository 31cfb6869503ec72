/* SPDX-License-Identifier: BSD-3-Clause */
/* lowrank_both.h - the arithmetic of low-rank factors that host and GPU share */
#ifndef MU_LOWRANK_BOTH_H
#define MU_LOWRANK_BOTH_H

#include <stdint.h>

#include "runtime/base/both.h"
#include "runtime/core/compress.h"

/* A column depends on those before it where its part orthogonal to them, relative to
 * the whole, is below this: rounding noise of a float.
 */
#define MU_LOWRANK_DEPENDENT 1e-6

/* A number in -1 .. 1 that seed and i decide (the finaliser of SplitMix64). */
MU_BOTH static inline float mu_lowrank_noise(uint64_t seed, uint64_t i)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + (i + 1) * 0xd1342543de82ef95u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (float)((double)(x >> 11) * 0x1p-52 - 1);
}

/* The same for element i of a column, for the draw-th time. */
MU_BOTH static inline float mu_lowrank_redraw(uint64_t seed, uint64_t draw, uint64_t i)
{
    return mu_lowrank_noise(seed ^ draw << 32, i);
}

/* On a GPU the sums of RIGHT are taken in segments of rows and then added up in order.
 * The number of rows decides the segments: few rows are one segment, many rows are
 * MU_LOWRANK_SEGMENTS.
 */
#define MU_LOWRANK_SEGMENTS 64
MU_BOTH static inline size_t mu_lowrank_segment_rows(const struct mu_lowrank *l)
{
    size_t each = (l->rows + MU_LOWRANK_SEGMENTS - 1) / MU_LOWRANK_SEGMENTS;

    return each < MU_LOWRANK_SEGMENTS ? MU_LOWRANK_SEGMENTS : each;
}

MU_BOTH static inline size_t mu_lowrank_segments(const struct mu_lowrank *l)
{
    size_t each = mu_lowrank_segment_rows(l);

    return (l->rows + each - 1) / each;
}

#endif
