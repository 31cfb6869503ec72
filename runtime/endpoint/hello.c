/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.c - the mutual challenge at the beginning of each connection */
#include "runtime/endpoint/hello.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/random.h"
#include "runtime/endpoint/net.h"

struct challenge { /* from the one that accepts */
    uint32_t magic;
    uint8_t nonce[MU_HELLO_NONCE];
};

struct response { /* from the caller */
    uint32_t magic, service;
    uint64_t generation;
    int32_t rank, pad;
    uint8_t nonce[MU_HELLO_NONCE], proof[MU_HELLO_PROOF];
};

_Static_assert(sizeof(struct challenge) == MU_HELLO_CHALLENGE, "as declared");
_Static_assert(sizeof(struct response) == MU_HELLO_RESPONSE, "as declared");
_Static_assert(MU_TOKEN_LEN == crypto_auth_KEYBYTES, "the token is the key");
_Static_assert(MU_HELLO_PROOF == crypto_auth_BYTES, "the MAC is the proof");

/* What a proof is the MAC of; without padding. */
struct statement {
    uint32_t magic, service;
    uint64_t generation;
    int32_t rank;
    uint32_t by_caller;
    uint8_t callee[MU_ADDRESS_ID], callees[MU_HELLO_NONCE], callers[MU_HELLO_NONCE];
};

_Static_assert(sizeof(struct statement) == 24 + MU_ADDRESS_ID + 2 * MU_HELLO_NONCE,
               "no padding");

static struct statement statement_of(const struct mu_hello *h, bool by_caller)
{
    struct statement s = { .magic = MU_HELLO_MAGIC,
                           .service = (uint32_t)h->claim.service,
                           .generation = h->claim.generation,
                           .rank = h->claim.rank,
                           .by_caller = by_caller };

    memcpy(s.callee, h->callee, sizeof s.callee);
    memcpy(s.callees, h->calls ? h->theirs : h->mine, sizeof s.callees);
    memcpy(s.callers, h->calls ? h->mine : h->theirs, sizeof s.callers);
    return s;
}

static void prove(const struct mu_hello *h, const uint8_t *secret,
                  uint8_t proof[MU_HELLO_PROOF])
{
    struct statement s = statement_of(h, h->calls);

    crypto_auth(proof, (const unsigned char *)&s, sizeof s, secret);
}

/* Does the other end's proof hold? */
static bool proved(const struct mu_hello *h, const uint8_t *secret,
                   const uint8_t proof[MU_HELLO_PROOF])
{
    struct statement s = statement_of(h, !h->calls);

    return crypto_auth_verify(proof, (const unsigned char *)&s, sizeof s, secret) == 0;
}

bool mu_hello_call(struct mu_hello *h, const struct mu_claim *claim,
                   const uint8_t callee[MU_ADDRESS_ID], const uint8_t *secret)
{
    *h = (struct mu_hello){ .claim = *claim, .secret = secret, .calls = true };
    memcpy(h->callee, callee, sizeof h->callee);
    return mu_random(h->mine, sizeof h->mine) == 0;
}

bool mu_hello_accept(struct mu_hello *h, int fd, const uint8_t callee[MU_ADDRESS_ID])
{
    struct challenge challenge = { .magic = MU_HELLO_MAGIC };

    *h = (struct mu_hello){ 0 };
    memcpy(h->callee, callee, sizeof h->callee);
    if (mu_random(h->mine, sizeof h->mine) < 0)
        return false;
    memcpy(challenge.nonce, h->mine, sizeof challenge.nonce);
    return mu_net_send(fd, &challenge, sizeof challenge, 0);
}

static enum mu_hello_result answer_challenge(struct mu_hello *h, int fd)
{
    struct response response = { .magic = MU_HELLO_MAGIC,
                                 .service = (uint32_t)h->claim.service,
                                 .generation = h->claim.generation,
                                 .rank = h->claim.rank };
    struct challenge challenge;

    memcpy(&challenge, h->in, sizeof challenge);
    if (challenge.magic != MU_HELLO_MAGIC)
        return MU_HELLO_UNPROVED;
    memcpy(h->theirs, challenge.nonce, sizeof h->theirs);
    memcpy(response.nonce, h->mine, sizeof response.nonce);
    prove(h, h->secret, response.proof);
    h->answered = true;
    return mu_net_send(fd, &response, sizeof response, 0) ? MU_HELLO_PENDING
                                                          : MU_HELLO_GONE;
}

/* h->in keeps the proof for the judgement. */
static enum mu_hello_result read_claim(struct mu_hello *h)
{
    struct response response;

    memcpy(&response, h->in, sizeof response);
    if (response.magic != MU_HELLO_MAGIC || response.service >= MU_NSERVICES)
        return MU_HELLO_UNPROVED;
    memcpy(h->theirs, response.nonce, sizeof h->theirs);
    h->claim.service = (enum mu_service)response.service;
    h->claim.generation = response.generation;
    h->claim.rank = response.rank;
    return MU_HELLO_CLAIMED;
}

static size_t next_length(const struct mu_hello *h)
{
    if (!h->calls)
        return sizeof(struct response);
    return h->answered ? MU_HELLO_PROOF : sizeof(struct challenge);
}

static enum mu_hello_result take(struct mu_hello *h, int fd)
{
    if (!h->calls)
        return read_claim(h);
    if (!h->answered)
        return answer_challenge(h, fd);
    return proved(h, h->secret, h->in) ? MU_HELLO_PROVED : MU_HELLO_UNPROVED;
}

enum mu_hello_result mu_hello_step(struct mu_hello *h, int fd)
{
    enum mu_hello_result result = MU_HELLO_PENDING;

    while (result == MU_HELLO_PENDING) {
        size_t len = next_length(h);
        ssize_t n = recv(fd, h->in + h->got, len - h->got, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return MU_HELLO_PENDING;
        if (n <= 0)
            return MU_HELLO_GONE;
        h->got += (size_t)n;
        if (h->got < len)
            continue;
        h->got = 0;
        result = take(h, fd);
    }
    return result;
}

bool mu_hello_judge(const struct mu_hello *h, const uint8_t *secret)
{
    struct response response;

    memcpy(&response, h->in, sizeof response);
    return proved(h, secret, response.proof);
}

bool mu_hello_confirm(const struct mu_hello *h, int fd, const uint8_t *secret)
{
    uint8_t proof[MU_HELLO_PROOF];

    prove(h, secret, proof);
    return mu_net_send(fd, proof, sizeof proof, 0);
}
