/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_impl.h - inside of survive: the agreement, and the star that it leaves
 *
 * "Origin" is a rank's number when the world began: the one thing that survivors which
 * stand at different agreements have in common.
 *
 *   survive.c       open, agree, follow the leader
 *   survive_call.c  connect to another survivor and prove the token
 *   survive_lead.c  lead: collect the ballots, send the verdict
 *   survive_star.c  exchange over the connections of the agreement
 */
#ifndef MU_SURVIVE_IMPL_H
#define MU_SURVIVE_IMPL_H

#include "runtime/base/fork.h"
#include "runtime/endpoint/net.h"
#include "runtime/boot/survive.h"

#define MU_JOIN_MAGIC 0x4d75534bu    /* changes with struct mu_join */
#define MU_VERDICT_MAGIC 0x4d755357u /* and with struct mu_fate */
#define MU_CALL_SECONDS 5.0          /* for all addresses of a rank */

struct mu_address_record {
    uint32_t port, pad;
    char machine[MU_NET_MACHINE];
    char addresses[MU_NET_ADDRESSES];
};

_Static_assert(sizeof(struct mu_address_record) <= MU_SURVIVE_RECORD,
               "fits the record");

/* State and ballot of one rank in an agreement. */
struct mu_fate {
    int32_t life, pad;
    int64_t ballot[MU_SURVIVE_BALLOT];
};

/* From a follower to the leader, after both have proved the token. */
struct mu_join {
    uint32_t magic, pad;
    int64_t ballot[MU_SURVIVE_BALLOT];
};

/* From the leader to a follower; n fates follow. */
struct mu_verdict {
    uint32_t magic, n;
};

struct mu_published {
    struct mu_published *next;
    int origin;
    char key[64];
    size_t len;
    char value[];
};

struct mu_survive {
    int n, me; /* origins */
    uint8_t token[MU_TOKEN_LEN];
    const struct mu_log *log;
    int listen_fd;
    struct mu_address_record *at; /* by origin */
    struct mu_fate *fate;         /* by origin */
    int size, *origin_of;         /* by rank */

    int leader; /* origin */
    int *fd;   /* by origin. Leader: to each other rank; else to the leader; -1: none */
    char *out; /* published since the last fence */
    size_t out_len;
    struct mu_published *published;

    struct mu_forkable fork;
};

/* survive_call.c. Connect s->fd[origin] and send join, when that rank has proved the
 * token, before `until` (NULL: only see whether it lives). false: its fate says how
 * it is dead. true: it lives, or something that has not disproved it; s->fd[origin] is
 * -1 where it did not receive join.
 */
bool mu_survive_call(struct mu_survive *s, int origin, const struct mu_join *join,
                     double until);
void mu_survive_drop(struct mu_survive *s, int origin);
/* That rank lives, but does not come. Returns -1. */
int mu_survive_late(const struct mu_survive *s, int origin, double patience,
                    struct mu_err *err);

/* survive_lead.c */
int mu_survive_lead(struct mu_survive *s, const struct mu_join *mine, double until,
                    double patience, struct mu_err *err);

/* survive_star.c: close all connections, drop what was published. */
void mu_survive_hang_up(struct mu_survive *s);

#endif
