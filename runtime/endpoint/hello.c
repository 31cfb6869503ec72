/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.c - the challenge at the beginning of each connection of boot */
#include "runtime/endpoint/hello.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/base/exchange.h"
#include "runtime/base/random.h"
#include "runtime/endpoint/net.h"

#define MAGIC 0x4d755432u /* changes with the frames; differs in the other byte order */

struct challenge { /* from the one that accepts */
    uint32_t magic;
    uint8_t nonce[MU_PROOF_NONCE];
};

struct response { /* from the caller */
    uint32_t magic;
    int32_t from, to;
    uint8_t nonce[MU_PROOF_NONCE], proof[MU_PROOF_LEN];
};

_Static_assert(sizeof(struct response) <= sizeof((struct mu_hello *)0)->in, "fits");
_Static_assert(MU_TOKEN_LEN == MU_PROOF_SECRET, "the token is what is proved");

bool mu_hello_call(struct mu_hello *h, enum mu_hello_kind kind, const uint8_t *secret,
                   int me, int peer)
{
    *h = (struct mu_hello){
        .secret = secret, .kind = kind, .me = me, .peer = peer, .calls = true
    };
    return mu_random(h->mine, sizeof h->mine) == 0;
}

bool mu_hello_accept(struct mu_hello *h, int fd, enum mu_hello_kind kind,
                     const uint8_t *secret, int me)
{
    struct challenge challenge = { .magic = MAGIC };

    *h = (struct mu_hello){ .secret = secret, .kind = kind, .me = me, .peer = -1 };
    if (mu_random(h->mine, sizeof h->mine) < 0)
        return false;
    memcpy(challenge.nonce, h->mine, sizeof challenge.nonce);
    return mu_net_send(fd, &challenge, sizeof challenge, 0);
}

static void prove(const struct mu_hello *h, int peer, uint8_t proof[MU_PROOF_LEN])
{
    char side = (char)(h->calls ? h->kind : h->kind - 'A' + 'a');

    mu_proof_make(h->secret, h->theirs, h->mine, side, h->me, peer, proof);
}

/* Does the other end's proof hold? */
static bool proved(const struct mu_hello *h, int peer,
                   const uint8_t proof[MU_PROOF_LEN])
{
    char side = (char)(h->calls ? h->kind - 'A' + 'a' : h->kind);
    uint8_t expected[MU_PROOF_LEN];

    mu_proof_make(h->secret, h->mine, h->theirs, side, peer, h->me, expected);
    return mu_proof_equal(proof, expected);
}

static enum mu_hello_result answer_challenge(struct mu_hello *h, int fd)
{
    struct response response = { .magic = MAGIC, .from = h->me, .to = h->peer };
    struct challenge challenge;

    memcpy(&challenge, h->in, sizeof challenge);
    if (challenge.magic != MAGIC)
        return MU_HELLO_UNPROVED;
    memcpy(h->theirs, challenge.nonce, sizeof h->theirs);
    memcpy(response.nonce, h->mine, sizeof response.nonce);
    prove(h, h->peer, response.proof);
    h->answered = true;
    return mu_net_send(fd, &response, sizeof response, 0) ? MU_HELLO_PENDING
                                                          : MU_HELLO_GONE;
}

static enum mu_hello_result check_caller(struct mu_hello *h)
{
    struct response response;

    memcpy(&response, h->in, sizeof response);
    memcpy(h->theirs, response.nonce, sizeof h->theirs);
    if (response.magic != MAGIC || response.to != h->me ||
        !proved(h, response.from, response.proof))
        return MU_HELLO_UNPROVED;
    h->peer = response.from;
    return MU_HELLO_PROVED;
}

static size_t next_length(const struct mu_hello *h)
{
    if (!h->calls)
        return sizeof(struct response);
    return h->answered ? MU_PROOF_LEN : sizeof(struct challenge);
}

static enum mu_hello_result take(struct mu_hello *h, int fd)
{
    if (!h->calls)
        return check_caller(h);
    if (!h->answered)
        return answer_challenge(h, fd);
    return proved(h, h->peer, h->in) ? MU_HELLO_PROVED : MU_HELLO_UNPROVED;
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

enum mu_hello_result mu_hello_wait(struct mu_hello *h, int fd, double until)
{
    enum mu_hello_result result;

    while ((result = mu_hello_step(h, fd)) == MU_HELLO_PENDING) {
        struct pollfd p = { fd, POLLIN, 0 };
        double left = until - mu_clock_s();

        if (left <= 0)
            return MU_HELLO_GONE;
        /* One second at most: a signal that interrupts the wait ends no connection. */
        poll(&p, 1, left < 1 ? (int)(left * 1000) + 1 : 1000);
    }
    return result;
}

bool mu_hello_confirm(const struct mu_hello *h, int fd)
{
    uint8_t proof[MU_PROOF_LEN];

    prove(h, h->peer, proof);
    return mu_net_send(fd, proof, sizeof proof, 0);
}
