/* SPDX-License-Identifier: BSD-3-Clause */
/* proof.h - prove that two processes have the same secret, without sending it
 *
 * Each side draws a nonce. A proof depends on the secret, both nonces and its sender,
 * so it is invalid on another connection and in the other direction. It is SipHash-2-4
 * (https://www.aumasson.jp/siphash/siphash.pdf) with each half of the secret.
 */
#ifndef MU_PROOF_H
#define MU_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MU_PROOF_SECRET 32
#define MU_PROOF_NONCE 16
#define MU_PROOF_LEN 16

/* SipHash-2-4 of len bytes: 64 bits. The key is in the byte order of the paper. */
uint64_t mu_siphash(const uint8_t key[16], const void *data, size_t len);

/* Proof over both nonces, both ranks and the side. Side is a letter that differs
 * between the rank that connects and the one that accepts, and between kinds of
 * handshake ('C' and 'S' are those of the mesh).
 */
void mu_proof_make(const uint8_t secret[MU_PROOF_SECRET],
                   const uint8_t theirs[MU_PROOF_NONCE],
                   const uint8_t ours[MU_PROOF_NONCE], char side, int from, int to,
                   uint8_t out[MU_PROOF_LEN]);

/* The time that these take does not depend on where the difference is. */
bool mu_proof_equal(const uint8_t a[MU_PROOF_LEN], const uint8_t b[MU_PROOF_LEN]);
bool mu_secret_equal(const uint8_t a[MU_PROOF_SECRET],
                     const uint8_t b[MU_PROOF_SECRET]);

#endif
