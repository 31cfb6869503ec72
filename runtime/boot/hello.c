/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.c - the challenge at the beginning of each connection of boot */
#include "runtime/boot/hello.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/base/random.h"
#include "runtime/boot/net.h"
#include "runtime/boot/world.h"

#define MAGIC 0x4d755432u /* changes with the frames; tells byte orders apart too */

struct greeting { /* from the one that accepts */
    uint32_t magic;
    uint8_t nonce[MU_PROOF_NONCE];
};

struct answer { /* from the caller */
    uint32_t magic;
    int32_t from, to;
    uint8_t nonce[MU_PROOF_NONCE], proof[MU_PROOF_LEN];
};

_Static_assert(sizeof(struct answer) <= sizeof((struct mu_hello *)0)->in, "fits");
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
    struct greeting greeting = { .magic = MAGIC };

    *h = (struct mu_hello){ .secret = secret, .kind = kind, .me = me, .peer = -1 };
    if (mu_random(h->mine, sizeof h->mine) < 0)
        return false;
    memcpy(greeting.nonce, h->mine, sizeof greeting.nonce);
    return mu_net_send(fd, &greeting, sizeof greeting, 0);
}

static void prove(const struct mu_hello *h, int peer, uint8_t proof[MU_PROOF_LEN])
{
    char speaker = (char)(h->calls ? h->kind : h->kind - 'A' + 'a');

    mu_proof_make(h->secret, h->theirs, h->mine, speaker, h->me, peer, proof);
}

/* Does the other end's proof hold? */
static bool proved(const struct mu_hello *h, int peer,
                   const uint8_t proof[MU_PROOF_LEN])
{
    char speaker = (char)(h->calls ? h->kind - 'A' + 'a' : h->kind);
    uint8_t expected[MU_PROOF_LEN];

    mu_proof_make(h->secret, h->mine, h->theirs, speaker, peer, h->me, expected);
    return mu_proof_equal(proof, expected);
}

static enum mu_hello_result answer_greeting(struct mu_hello *h, int fd)
{
    struct answer answer = { .magic = MAGIC, .from = h->me, .to = h->peer };
    struct greeting greeting;

    memcpy(&greeting, h->in, sizeof greeting);
    if (greeting.magic != MAGIC)
        return MU_HELLO_STRANGER;
    memcpy(h->theirs, greeting.nonce, sizeof h->theirs);
    memcpy(answer.nonce, h->mine, sizeof answer.nonce);
    prove(h, h->peer, answer.proof);
    h->answered = true;
    return mu_net_send(fd, &answer, sizeof answer, 0) ? MU_HELLO_GOES_ON
                                                      : MU_HELLO_GONE;
}

static enum mu_hello_result check_caller(struct mu_hello *h)
{
    struct answer answer;

    memcpy(&answer, h->in, sizeof answer);
    memcpy(h->theirs, answer.nonce, sizeof h->theirs);
    if (answer.magic != MAGIC || answer.to != h->me ||
        !proved(h, answer.from, answer.proof))
        return MU_HELLO_STRANGER;
    h->peer = answer.from;
    return MU_HELLO_PROVED;
}

static size_t awaited(const struct mu_hello *h)
{
    if (!h->calls)
        return sizeof(struct answer);
    return h->answered ? MU_PROOF_LEN : sizeof(struct greeting);
}

static enum mu_hello_result take(struct mu_hello *h, int fd)
{
    if (!h->calls)
        return check_caller(h);
    if (!h->answered)
        return answer_greeting(h, fd);
    return proved(h, h->peer, h->in) ? MU_HELLO_PROVED : MU_HELLO_STRANGER;
}

enum mu_hello_result mu_hello_step(struct mu_hello *h, int fd)
{
    enum mu_hello_result result = MU_HELLO_GOES_ON;

    while (result == MU_HELLO_GOES_ON) {
        size_t len = awaited(h);
        ssize_t n = recv(fd, h->in + h->got, len - h->got, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return MU_HELLO_GOES_ON;
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

    while ((result = mu_hello_step(h, fd)) == MU_HELLO_GOES_ON) {
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
