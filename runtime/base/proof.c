/* SPDX-License-Identifier: BSD-3-Clause */
/* proof.c - SipHash-2-4, and proofs made of it */
#include "runtime/base/proof.h"

#include <string.h>

static uint64_t load64(const uint8_t *p)
{
    uint64_t x = 0;

    for (int i = 7; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

static inline uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void rounds(uint64_t v[4], int n)
{
    while (n-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    rounds(v, 2);
    v[0] ^= word;
}

uint64_t mu_siphash(const uint8_t key[16], const void *data, size_t len)
{
    uint64_t k0 = load64(key), k1 = load64(key + 8), last = (uint64_t)len << 56;
    uint64_t v[4] = { k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du,
                      k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u };
    const uint8_t *p = data;

    for (; len >= 8; p += 8, len -= 8)
        absorb(v, load64(p));
    for (size_t i = 0; i < len; i++)
        last |= (uint64_t)p[i] << 8 * i;
    absorb(v, last);
    v[2] ^= 0xff;
    rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void mu_proof_make(const uint8_t secret[MU_PROOF_SECRET],
                   const uint8_t theirs[MU_PROOF_NONCE],
                   const uint8_t ours[MU_PROOF_NONCE], char side, int from, int to,
                   uint8_t out[MU_PROOF_LEN])
{
    uint8_t text[2 * MU_PROOF_NONCE + 9];
    uint32_t ranks[2] = { (uint32_t)from, (uint32_t)to };

    memcpy(text, theirs, MU_PROOF_NONCE);
    memcpy(text + MU_PROOF_NONCE, ours, MU_PROOF_NONCE);
    text[2 * MU_PROOF_NONCE] = (uint8_t)side;
    for (int i = 0; i < 8; i++)
        text[2 * MU_PROOF_NONCE + 1 + i] = (uint8_t)(ranks[i / 4] >> 8 * (i % 4));
    for (int half = 0; half < 2; half++) {
        uint64_t tag = mu_siphash(secret + 16 * half, text, sizeof text);

        for (int i = 0; i < 8; i++)
            out[8 * half + i] = (uint8_t)(tag >> 8 * i);
    }
}

static bool same_bytes(const uint8_t *a, const uint8_t *b, size_t len)
{
    uint8_t differ = 0;

    for (size_t i = 0; i < len; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

bool mu_proof_equal(const uint8_t a[MU_PROOF_LEN], const uint8_t b[MU_PROOF_LEN])
{
    return same_bytes(a, b, MU_PROOF_LEN);
}

bool mu_secret_equal(const uint8_t a[MU_PROOF_SECRET], const uint8_t b[MU_PROOF_SECRET])
{
    return same_bytes(a, b, MU_PROOF_SECRET);
}
