/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.h - both ends of a new connection prove the secret before any data
 *
 *   the one that accepts sends a nonce
 *   the caller sends its rank, a nonce and its proof
 *   the one that accepts sends its own proof
 *
 * The secret itself is never sent. A proof holds for these nonces, this kind of
 * connection, both ranks and one direction: whoever records it cannot use it again.
 */
#ifndef MU_HELLO_H
#define MU_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/proof.h"

/* Letters of the speakers in the proof: this one for the caller, its small one for the
 * one that accepts.
 */
enum mu_hello_kind {
    MU_HELLO_CONTROL = 'P',
    MU_HELLO_SURVIVE = 'J',
    MU_HELLO_RING = 'R',
};

enum mu_hello_result {
    MU_HELLO_PENDING,  /* more bytes must arrive */
    MU_HELLO_PROVED,   /* the other end has the secret, and is rank `peer` */
    MU_HELLO_UNPROVED, /* it has not */
    MU_HELLO_GONE,     /* it closed the connection, or was late */
};

struct mu_hello {
    const uint8_t *secret; /* MU_PROOF_SECRET bytes, borrowed */
    enum mu_hello_kind kind;
    int me, peer; /* peer: -1 on the side that accepts, until it is proved */
    bool calls, answered;
    size_t got;
    uint8_t mine[MU_PROOF_NONCE], theirs[MU_PROOF_NONCE];
    unsigned char in[48];
};

/* Begin as the caller of rank `peer`; false: no random bytes. */
bool mu_hello_call(struct mu_hello *h, enum mu_hello_kind kind, const uint8_t *secret,
                   int me, int peer);
/* Begin on a connection that was just accepted; false: it is gone. */
bool mu_hello_accept(struct mu_hello *h, int fd, enum mu_hello_kind kind,
                     const uint8_t *secret, int me);
/* Read what has arrived and answer it. Does not block. */
enum mu_hello_result mu_hello_step(struct mu_hello *h, int fd);
/* The same until it is decided, or `until` (seconds of the monotonic clock). */
enum mu_hello_result mu_hello_wait(struct mu_hello *h, int fd, double until);
/* On the side that accepts, when the caller is proved and its rank expected: send our
 * own proof. Does not block; false: it is gone.
 */
bool mu_hello_confirm(const struct mu_hello *h, int fd);

#endif
