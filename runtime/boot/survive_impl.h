/* SPDX-License-Identifier: BSD-3-Clause */
/* survive_impl.h - inside of survive: the agreement, and the star that it leaves
 *
 * "Origin" is a rank's number when the world began, and a newcomer's behind those: the
 * one thing that survivors which are in different agreements have in common.
 *
 *   survive_table.c the table of origins: open, extend, settle, close
 *   survive.c       agree, follow the leader
 *   survive_call.c  connect to another survivor; notice that one has died
 *   survive_lead.c  lead: collect the ballots, send the verdict
 *   survive_join.c  newcomers: the leader takes them, the other ranks learn of them
 *   survive_star.c  all-gather over the connections of the agreement
 */
#ifndef MU_SURVIVE_IMPL_H
#define MU_SURVIVE_IMPL_H

#include "runtime/base/fork.h"
#include "runtime/boot/published.h"
#include "runtime/boot/survive.h"

#define MU_JOIN_MAGIC 0x4d75534eu    /* changes with struct mu_join */
#define MU_VERDICT_MAGIC 0x4d755365u /* and with struct mu_fate */
#define MU_REFUSAL_MAGIC 0x4d755360u
#define MU_REQUEST_MAGIC 0x4d755361u
#define MU_CALL_SECONDS 5.0 /* for all addresses of a rank */

/* State and ballot of one rank in an agreement. */
struct mu_fate {
    int32_t life, pad;
    int64_t ballot[MU_SURVIVE_BALLOT];
};

/* From a follower to the leader. */
struct mu_join {
    uint32_t magic, n; /* n: origins that it has learned of */
    uint64_t admits;
    int64_t ballot[MU_SURVIVE_BALLOT];
};

/* From the leader to a follower; n fates follow, then the last `members` of n members.
 * To a newcomer that is refused: the n bytes of the reason follow.
 */
struct mu_verdict {
    uint32_t magic, n;
    uint64_t generation;
    uint32_t members;
    int32_t to, leader; /* origins */
    uint32_t pad;
};

/* From a process that wants to join to rank 0. */
struct mu_request_to_join {
    uint32_t magic, pad;
    struct mu_member member; /* node is not used */
    char terms[128];
};

/* It has called this rank. */
struct mu_waiting {
    int fd;
    struct mu_member member;
};

/* Each connection between survivors ends with these eight bytes, unless the process at
 * its other end has died.
 */
#define MU_GOODBYE UINT64_MAX

struct mu_survive {
    int n, me; /* origins */
    uint8_t token[MU_TOKEN_LEN];
    const struct mu_world *world; /* for the names of its ranks; borrowed */
    struct mu_endpoint *endpoint; /* borrowed */
    struct mu_address *at;        /* by origin */
    struct mu_fate *fate;         /* by origin */
    int size, *origin_of;         /* by rank */
    uint64_t generation;          /* of the agreement */

    int leader; /* origin */
    int *fd; /* by origin. Leader: to each other rank; else to the leader; -1: none */
    /* By origin: of the last agreement. We have said goodbye, and still see its end. */
    int *old_fd;
    bool *blind; /* by origin: an end of its connection shows nothing any more */
    /* By origin: its connection was reset without a goodbye. It is dead, or the goodbye
     * was lost: then it answers a call at once.
     */
    bool *suspect;
    struct mu_published published;

    struct mu_waiting *waiting; /* on this rank */
    int nwaiting;
    struct mu_member *newcomer; /* of the last agreement: the last ranks */
    int nnewcomers;

    struct mu_forkable fork;
};

/* ---- survive_table.c ---- */
/* Room for n origins; those from s->n on are new. */
int mu_survive_extend(struct mu_survive *s, int n, struct mu_err *err);
int mu_survive_new(const struct mu_world *world, struct mu_survive **out,
                   struct mu_err *err);

/* ---- survive_join.c ---- */
/* The leader: those that wait on this rank become origins, with this rank's ballot. */
int mu_survive_admit(struct mu_survive *s, struct mu_err *err);
/* All origins, for newcomers and for ranks that lack some; NULL: out of memory. */
struct mu_member *mu_survive_members(const struct mu_survive *s);
/* What follows v on fd. False: it did not arrive in time; s is unchanged. */
bool mu_survive_receive(struct mu_survive *s, int fd, const struct mu_verdict *v,
                        double until);

/* ---- survive_call.c ---- */
/* Begin to call that rank. */
void mu_survive_dial(const struct mu_survive *s, int origin, struct mu_dial *d);
/* Seconds for the answer. */
double mu_survive_call_seconds(const struct mu_survive *s, int origin);
/* What a call whose time is over shows of that rank: s->fate[origin]. */
void mu_survive_judge(struct mu_survive *s, int origin, const struct mu_dial *d);
/* Something happened on one of the rank's connections. True: it has ended, and *fd is
 * -1; without a goodbye the rank is dead.
 */
bool mu_survive_ended(struct mu_survive *s, int origin, int *fd);
/* As mu_net_send, to that rank. */
bool mu_survive_send(struct mu_survive *s, int origin, const void *bytes, size_t len,
                     double until);
/* A new connection, which replaces another one. */
void mu_survive_set_fd(struct mu_survive *s, int origin, int fd);
/* Say goodbye: to one rank, to all. */
void mu_survive_part(struct mu_survive *s, int origin);
void mu_survive_hang_up(struct mu_survive *s);
/* Its rank; it is one of the living. */
int mu_survive_rank_of(const struct mu_survive *s, int origin);
/* That rank lives, but does not come. Returns -1. */
int mu_survive_late(const struct mu_survive *s, int origin, double patience,
                    struct mu_err *err);

/* ---- survive_lead.c ---- */
int mu_survive_lead(struct mu_survive *s, const struct mu_join *mine, double until,
                    double patience, struct mu_err *err);

#endif
