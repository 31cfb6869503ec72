/* SPDX-License-Identifier: BSD-3-Clause */
/* rng.h - the random numbers of the initial weights; equal on every machine */
#ifndef TRAIN_RNG_H
#define TRAIN_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

/* SplitMix64 (Steele, Lea, Flood, 2014). */
static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t x = rng->state += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Uniform in [-bound, bound). */
static inline double rng_uniform(struct rng *rng, double bound)
{
    return ((double)(rng_next(rng) >> 11) * 0x1p-52 - 1.0) * bound;
}

#endif
