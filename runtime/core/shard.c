/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/core/shard.h"

#define ROUNDS 8

/* The finaliser of SplitMix64 (Steele, Lea, Flood, 2014): every input bit reaches every
 * output bit.
 */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void mu_shuffle_init(struct mu_shuffle *shuffle, uint64_t n, uint64_t seed,
                     uint64_t epoch)
{
    shuffle->n = n;
    shuffle->key = mix(mix(seed) ^ (epoch * 0xd1342543de82ef95u));
    shuffle->half_bits = 1;
    while (shuffle->half_bits < 31 && (1ull << (2 * shuffle->half_bits)) < n)
        shuffle->half_bits++;
}

static uint64_t feistel(const struct mu_shuffle *shuffle, uint64_t value)
{
    uint64_t mask = (1ull << shuffle->half_bits) - 1;
    uint64_t left = value >> shuffle->half_bits, right = value & mask;

    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ (mix(shuffle->key ^ mix(right + (round << 40))) & mask);

        left = right;
        right = next;
    }
    return left << shuffle->half_bits | right;
}

uint64_t mu_shuffle_at(const struct mu_shuffle *shuffle, uint64_t i)
{
    /* feistel permutes a larger set. Repeated until the value is below n, it permutes
     * 0 .. n-1; the loop ends, since the cycle through i contains i.
     */
    do
        i = feistel(shuffle, i);
    while (i >= shuffle->n);
    return i;
}

int mu_shard_step(uint64_t samples, uint64_t position, uint64_t batch, int rank,
                  int size, enum muster_tail tail, struct mu_step *out)
{
    uint64_t left = samples > position ? samples - position : 0;
    uint64_t world = (uint64_t)size, r = (uint64_t)rank, extra;

    if (left >= batch * world) {
        *out = (struct mu_step){ position + r * batch, batch, batch * world };
        return 1;
    }
    if (left == 0 || (tail == MUSTER_TAIL_DROP && left < world))
        return 0;
    switch (tail) {
    case MUSTER_TAIL_PAD:
        batch = (left + world - 1) / world;
        *out = (struct mu_step){ position + r * batch, batch, left };
        break;
    case MUSTER_TAIL_DROP:
        batch = left / world;
        *out = (struct mu_step){ position + r * batch, batch, left };
        break;
    case MUSTER_TAIL_KEEP:
        batch = left / world;
        extra = left % world;
        *out = (struct mu_step){ position + r * batch + (r < extra ? r : extra),
                                 batch + (r < extra), left };
        break;
    }
    return 1;
}

uint64_t mu_shard_steps(uint64_t samples, uint64_t position, uint64_t batch, int size,
                        enum muster_tail tail)
{
    uint64_t left = samples > position ? samples - position : 0;
    uint64_t full = left / (batch * (uint64_t)size);
    struct mu_step step;

    return full + (uint64_t)mu_shard_step(left, full * batch * (uint64_t)size, batch, 0,
                                          size, tail, &step);
}
