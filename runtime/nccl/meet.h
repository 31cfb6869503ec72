/* SPDX-License-Identifier: BSD-3-Clause */
/* meet.h - the ranks of a program's NCCL communicator meet on this host
 *
 * Rank 0 leads: it binds an abstract AF_UNIX name, a one-way hash of the
 * communicator's unique id, and the others dial it. Both ends must have the same user.
 * Only all ranks meet: where one is missing within the time, or runs another version,
 * no rank has a meeting.
 *
 * The leader alone keeps the time of a vote. A rank that has sent its vote waits for
 * the answer or for the end of the connection, so no rank decides by itself.
 */
#ifndef MU_MEET_H
#define MU_MEET_H

#include "runtime/base/exchange.h"

#define MU_MEET_RANKS 8 /* most ranks of a meeting */

struct mu_meet_call {
    const void *id; /* the same bytes on all ranks, and of this communicator only */
    size_t id_len;
    int rank, size;
    const char *version; /* the ranks must have the same */
    double seconds;      /* how long a rank waits for the others to arrive */
};

struct mu_meet;

/* Collective. NULL: not all ranks have met; err has the reason. */
struct mu_meet *mu_meet_open(const struct mu_meet_call *call, struct mu_err *err);
void mu_meet_close(struct mu_meet *m);

/* Collective: true on all ranks if all of them vote yes within the leader's seconds,
 * else false on all.
 */
bool mu_meet_vote(struct mu_meet *m, bool yes, double seconds);

/* The exchange of these ranks; valid until close. A fence that fails breaks the
 * meeting: later fences fail, and votes are lost.
 */
struct mu_exchange mu_meet_exchange(struct mu_meet *m);

#endif
