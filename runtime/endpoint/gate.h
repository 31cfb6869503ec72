/* SPDX-License-Identifier: BSD-3-Clause */
/* gate.h - a listener and the table of its unproved callers
 *
 * AF_UNIX callers have a gate of their own, so that those of TCP leave them room. All
 * functions are for one thread.
 */
#ifndef MU_GATE_H
#define MU_GATE_H

#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

#include "runtime/endpoint/hello.h"

#define MU_GATE_CALLERS 128
#define MU_GATE_FDS (1 + MU_GATE_CALLERS) /* to poll */

/* A connection before its proof. */
struct mu_caller {
    int fd; /* -1: free */
    pid_t pid;
    double since;
    bool claimed; /* it is complete, but its service has no secret yet */
    struct mu_hello hello;
    char from[64];
};

struct mu_gate {
    int fd; /* listens; -1: none */
    bool tcp;
    double paused_until;
    struct mu_caller caller[MU_GATE_CALLERS];

    /* What the owner does; set before the first caller. */
    void *arg;
    const uint8_t *id; /* of the endpoint that is called: MU_ADDRESS_ID bytes */
    /* A connection was dropped. from "": it is not reported. */
    void (*warn)(void *arg, const char *from, const char *why);
    /* The claim is complete. Take the caller's fd, drop it, or set claimed: the caller
     * waits for its service's secret.
     */
    void (*claim)(void *arg, struct mu_gate *g, struct mu_caller *c);
};

void mu_gate_init(struct mu_gate *g);
/* Close everything. */
void mu_gate_shut(struct mu_gate *g);
/* Drop late callers, list what to poll in fds. *next becomes an earlier time when the
 * gate must be looked at before; 0: no time.
 */
void mu_gate_prepare(struct mu_gate *g, struct pollfd fds[MU_GATE_FDS], double now,
                     double *next);
/* After poll. changed: a secret is new. */
void mu_gate_serve(struct mu_gate *g, const struct pollfd fds[MU_GATE_FDS],
                   bool changed);

void mu_gate_drop(struct mu_gate *g, struct mu_caller *c, const char *why);
/* It has closed. Over AF_UNIX it was of our own user: a rank that ends is not reported.
 */
void mu_gate_vanish(struct mu_gate *g, struct mu_caller *c);

#endif
