/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.h - all connections of a process begin here
 *
 *   caller                                  process that is called
 *   ------                                  ----------------------
 *   its address record, from the exchange
 *        |
 *   dial: AF_UNIX on the same machine,      endpoint thread: accepts all the time
 *   else TCP to each address in turn             |
 *        |                                  another user's AF_UNIX caller is dropped
 *        |  <------ nonce ----------------  table of unproved callers, one for TCP and
 *        |  -- claim, nonce, proof ------>  one for AF_UNIX
 *        |  <------ proof ----------------       |
 *        |                                  list of arrivals
 *        v                                       |  the service takes it
 *   connected socket                        connected socket, rank, process id
 *
 * A claim names a service (the ring before the rendezvous, control, survivors, mesh,
 * shared memory, pairs, newcomers), a generation of the world and the caller's rank. An
 * arrival waits until this rank's service takes it: no rank waits for another one to
 * begin. A caller whose service has no secret yet waits in the table too.
 *
 * A caller that does not prove itself in time is dropped. When a table is full, its
 * oldest caller makes room. Strangers can therefore delay a rank, and can neither keep
 * it out nor read anything of use: only nonces and proofs precede the proof.
 *
 *   endpoint.c  listeners and their thread
 *   arrivals.c  proved connections, and what services call
 *   gate.c      one listener and its unproved callers
 *   dial.c      the calling side
 *   hello.c     the challenge
 *   address.c   the address record, and this host's own addresses
 *   net.c       sockets
 *   bell.h      an eventfd
 */
#ifndef MU_ENDPOINT_H
#define MU_ENDPOINT_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/endpoint/dial.h"

struct mu_endpoint;

/* Listen, and start the thread. `first` (or NULL): an address of this host that callers
 * try before the others.
 */
int mu_endpoint_open(const char *first, struct mu_endpoint **out, struct mu_err *err);
/* Listen where callers expect it: over TCP on at's port alone, or on its AF_UNIX name
 * alone.
 */
int mu_endpoint_open_at(const struct mu_address *at, bool tcp, struct mu_endpoint **out,
                        struct mu_err *err);
void mu_endpoint_close(struct mu_endpoint *ep); /* NULL is fine */
const struct mu_address *mu_endpoint_address(const struct mu_endpoint *ep);

/* From now on callers of this service are judged by this secret, which is copied. */
void mu_endpoint_set_secret(struct mu_endpoint *ep, enum mu_service service,
                            const uint8_t secret[MU_TOKEN_LEN]);
/* Print at most `lines` warnings of dropped connections to log (borrowed), in all. */
void mu_endpoint_set_log(struct mu_endpoint *ep, const struct mu_log *log, int lines);

/* A connection whose other end has proved the secret. */
struct mu_arrival {
    struct mu_arrival *next;
    struct mu_claim claim;
    int fd;
    pid_t pid;     /* of an AF_UNIX peer, else 0 */
    char from[64]; /* for messages */
};

/* The next arrival for this service and generation; its fd is the caller's. Does not
 * block. Drops arrivals of other generations, but for MU_SERVICE_PAIR: those are of
 * another group, whose ranks connect at any time.
 */
bool mu_endpoint_take(struct mu_endpoint *ep, enum mu_service service,
                      uint64_t generation, struct mu_arrival *out);
/* This rank has left that generation: arrivals for it are closed, and callers that come
 * later get no proof. The survivors' own connections have no generation.
 */
void mu_endpoint_retire(struct mu_endpoint *ep, uint64_t generation);
/* poll() on fds[1] to fds[n - 1] until `until` (seconds of the monotonic clock), an
 * event, or a new arrival. fds[0] is for the endpoint.
 */
int mu_endpoint_poll(struct mu_endpoint *ep, struct pollfd *fds, int n, double until);
/* Close an arrival that no service expects. */
void mu_endpoint_refuse(struct mu_endpoint *ep, const struct mu_arrival *arrival,
                        const char *why);

#endif
