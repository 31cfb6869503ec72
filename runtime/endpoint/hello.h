/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.h - both ends of a new connection prove the secret before any data
 *
 *   the one that accepts sends a nonce
 *   the caller sends its claim (service, generation, rank), a nonce and its proof
 *   the one that accepts sends its own proof
 *
 * The secret itself is never sent. A proof is a MAC with it (crypto_auth of libsodium:
 * HMAC-SHA-512-256) over both nonces, the claim, the id of the endpoint that was called
 * and the side. It is invalid on another connection, for another endpoint and in the
 * other direction: whoever records it cannot use it again.
 */
#ifndef MU_HELLO_H
#define MU_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/exchange.h"
#include "runtime/endpoint/address.h"

#define MU_HELLO_MAGIC 0x4d755434u /* changes with the frames, and the byte order */
#define MU_HELLO_NONCE 32
#define MU_HELLO_PROOF 32
#define MU_HELLO_CHALLENGE (4 + MU_HELLO_NONCE) /* bytes that an unproved caller gets */
#define MU_HELLO_RESPONSE (24 + MU_HELLO_NONCE + MU_HELLO_PROOF)

/* What the connection is for. */
enum mu_service {
    MU_SERVICE_RING, /* see enum mu_ring_kind */
    MU_SERVICE_RING_OF_NODES,
    MU_SERVICE_RENDEZVOUS, /* of ranks that have rank 0's address from variables */
    MU_SERVICE_CONTROL,    /* from here on the secret is the job's token */
    MU_SERVICE_SURVIVE,
    MU_SERVICE_MESH,
    MU_SERVICE_SHM,
    MU_SERVICE_PAIR, /* one rank sends to another */
    MU_SERVICE_JOIN, /* of a process that is no rank yet, to rank 0 */
    MU_NSERVICES
};

struct mu_claim {
    enum mu_service service;
    uint64_t generation; /* of the world: 0, then a new one after each death */
    int rank;            /* the caller's, in that generation; 0 where it has none */
};

enum mu_hello_result {
    MU_HELLO_PENDING,  /* more bytes must arrive */
    MU_HELLO_CLAIMED,  /* on the side that accepts: judge the claim */
    MU_HELLO_PROVED,   /* on the side that calls: the other end has the secret */
    MU_HELLO_UNPROVED, /* it has not */
    MU_HELLO_GONE,     /* it closed the connection */
};

struct mu_hello {
    struct mu_claim claim;
    uint8_t callee[MU_ADDRESS_ID];
    const uint8_t *secret; /* MU_TOKEN_LEN bytes, borrowed; of the side that calls */
    bool calls, answered;
    size_t got;
    uint8_t mine[MU_HELLO_NONCE], theirs[MU_HELLO_NONCE];
    unsigned char in[MU_HELLO_RESPONSE];
};

/* Begin as the caller of the endpoint `callee`; false: no random bytes. */
bool mu_hello_call(struct mu_hello *h, const struct mu_claim *claim,
                   const uint8_t callee[MU_ADDRESS_ID], const uint8_t *secret);
/* Begin on a connection that was just accepted; false: it is gone. */
bool mu_hello_accept(struct mu_hello *h, int fd, const uint8_t callee[MU_ADDRESS_ID]);
/* Read what has arrived and answer it. Does not block. */
enum mu_hello_result mu_hello_step(struct mu_hello *h, int fd);
/* After MU_HELLO_CLAIMED: has the caller proved `secret`? */
bool mu_hello_judge(const struct mu_hello *h, const uint8_t *secret);
/* ... and it is to stay: send our own proof. Does not block; false: it is gone. */
bool mu_hello_confirm(const struct mu_hello *h, int fd, const uint8_t *secret);

#endif
