/* SPDX-License-Identifier: BSD-3-Clause */
/* shard.h - which samples of an epoch belong to which rank and step; pure arithmetic
 *
 * An epoch visits 0 .. samples-1 in an order that only seed and epoch decide, so it is
 * the same on every rank and in every world. A step takes the next batch * size places
 * of that order; rank r gets the r-th run of batch places. So four ranks with batch 32
 * get in each step the samples that one rank with batch 128 gets.
 */
#ifndef MU_SHARD_H
#define MU_SHARD_H

#include <stdint.h>

#include "runtime/muster.h"

/* A permutation of 0 .. n-1 that needs no memory: a keyed Feistel network over the
 * smallest even number of bits that holds n. It is repeated until the value is below n,
 * less than four times on average. n: 1 .. 2^62.
 */
struct mu_shuffle {
    uint64_t n;
    uint64_t key;
    unsigned half_bits;
};

void mu_shuffle_init(struct mu_shuffle *shuffle, uint64_t n, uint64_t seed,
                     uint64_t epoch);
/* The sample at place i (0 .. n-1) of the order. */
uint64_t mu_shuffle_at(const struct mu_shuffle *shuffle, uint64_t i);

/* One step as seen by one rank. Places count in the order of the epoch. */
struct mu_step {
    uint64_t first;    /* with MUSTER_TAIL_PAD it may be past the end */
    uint64_t count;    /* places of this rank; with MUSTER_TAIL_KEEP it may be 0 */
    uint64_t consumed; /* places that all ranks use together */
};

/* The step that starts at place `position` of an epoch of `samples`. Returns 1, or 0
 * when the epoch is over (then *out is untouched). batch and size are at least 1 and
 * their product is at most 2^62.
 */
int mu_shard_step(uint64_t samples, uint64_t position, uint64_t batch, int rank,
                  int size, enum muster_tail tail, struct mu_step *out);

/* Number of steps from `position` to the end of the epoch. */
uint64_t mu_shard_steps(uint64_t samples, uint64_t position, uint64_t batch, int size,
                        enum muster_tail tail);

#endif
