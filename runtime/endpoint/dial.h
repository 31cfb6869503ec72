/* SPDX-License-Identifier: BSD-3-Clause */
/* dial.h - call an endpoint: connect with a deadline, then the hello
 *
 * On the same machine it goes through AF_UNIX, where the kernel names the user and the
 * process at the other end. Otherwise the TCP addresses are tried in turn; those of
 * this host are skipped when the endpoint is on another machine.
 */
#ifndef MU_DIAL_H
#define MU_DIAL_H

#include <sys/types.h>

#include "runtime/endpoint/hello.h"

#define MU_DIAL_MAX 16 /* addresses */

enum mu_answer {
    MU_ANSWER_NONE,    /* not yet */
    MU_ANSWER_SILENT,  /* no reply: the host or the link to it may be dead */
    MU_ANSWER_REFUSED, /* no process listens there, or one that lacks the secret */
    MU_ANSWER_DROPPED, /* closed before its proof: strangers may fill its table */
    MU_ANSWER_STALLED, /* connected, but no hello in time: it may be stopped */
    MU_ANSWER_PROVED,
};

struct mu_dial {
    struct mu_hello hello;
    struct mu_dial_to {
        socklen_t len;
        struct sockaddr_storage at;
    } to[MU_DIAL_MAX];
    int n, turn;
    int fd; /* -1: none; the caller's after MU_ANSWER_PROVED */
    bool connected;
    double until;          /* of this address, seconds of the monotonic clock */
    enum mu_answer first;  /* of the first address: the others may be another host's */
    enum mu_answer answer; /* the result */
    pid_t pid;             /* of an AF_UNIX peer, else 0 */
};

/* own: this process's endpoint. tcp: no AF_UNIX, but loopback first. secret: borrowed
 * until the result. A host name among the addresses is resolved here, which may block.
 */
void mu_dial_start(struct mu_dial *d, const struct mu_address *own,
                   const struct mu_address *to, bool tcp, const struct mu_claim *claim,
                   const uint8_t *secret);
/* Go on; does not block. The result is that of the first address unless one answers. */
enum mu_answer mu_dial_step(struct mu_dial *d);
/* The same, until there is a result or (MU_ANSWER_NONE) `until`. */
enum mu_answer mu_dial_wait(struct mu_dial *d, double until);
/* Hang up. */
void mu_dial_stop(struct mu_dial *d);

#endif
