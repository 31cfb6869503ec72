/* SPDX-License-Identifier: BSD-3-Clause */
/* thief.h - another user's process that listens where a rank was expected
 *
 * It sends a nonce as a rank would, records what callers send, and answers with a
 * guess: the caller's own proof.
 */
#ifndef TEST_THIEF_H
#define TEST_THIEF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct thief {
    pid_t pid;
    uint32_t port;
    struct loot {
        _Atomic int calls, done; /* connections, and those that are closed again */
        _Atomic size_t len;
        uint8_t bytes[65536];
    } * loot;
};

/* Listen on this port of all addresses, 0: any. */
void thief_begin(struct thief *t, uint32_t port);
/* Is a run of eight bytes of the secret among what it has read? */
bool thief_has(const struct thief *t, const uint8_t *secret, size_t len);
void thief_end(struct thief *t);

#endif
