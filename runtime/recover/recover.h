/* SPDX-License-Identifier: BSD-3-Clause */
/* recover.h - the one place that decides what an error of a group means
 *
 *   verdict.c  waits for the reason that all ranks get, reports it, ends the job
 *   elastic.c  ranks died: the others go on with fewer; newcomers join
 *   change.c   what they agree on then (change.h)
 *   grow.c     the file by which newcomers find the world
 *   recover.c  what a public call does with its error: the two above, in this order
 *   worlds.c   a process that ends because of one of its worlds
 *   leave.c    a process that calls exit() without muster_finalize
 *   streams.c, streams_python.c  what a process that is about to end has printed
 *
 * runtime/comm announces failures and returns them; the public calls bring them here.
 *
 * A group has a comm of its own, and does not decide on the job: it passes its failure
 * on to the world, which ends the job. Where the ranks survive a death, the groups that
 * lost no rank go on, and the calls on the others return the death.
 */
#ifndef MU_RECOVER_H
#define MU_RECOVER_H

#include "runtime/boot/survive.h"
#include "runtime/comm/comm.h"

#define MU_GROUP_NAME 48 /* with the end */

/* Work that has begun on the group. It must be given up before ranks are numbered anew.
 */
struct mu_resettable {
    /* Returns when none of it is in flight; may join what it started. */
    void (*drop)(void *arg);
    void *arg;
    struct mu_resettable *next;
};

/* What the comm of a group has besides that of a world. */
struct mu_group {
    struct mu_recover *root; /* of the world */
    char name[MU_GROUP_NAME];
    int *world_rank; /* by rank, as of the split */
};

struct mu_recover {
    struct mu_comm *comm;
    const struct mu_group *group; /* NULL: the world */
    struct mu_survive *survive;   /* NULL: the job ends when a rank dies */
    struct mu_resettable *resettables;
    uint64_t commits;      /* syncs that have returned MUSTER_OK */
    bool voting;           /* this rank's gradients are complete */
    bool finishing;        /* in muster_finalize */
    bool growing;          /* in muster_grow */
    bool published;        /* this rank has written the file of config.grow */
    int nested;            /* calls of the program's functions that libmuster is in */
    atomic_bool giving_up; /* in muster_abort */
    struct mu_recover *next_world; /* of this process; for worlds.c */
};

/* ---- recover.c ---- */
/* Also sets the hooks of comm; call it before comm is opened. */
void mu_recover_init(struct mu_recover *recover, struct mu_comm *comm);
/* Call it before comm is cleared. */
void mu_recover_clear(struct mu_recover *recover);
/* A public call failed with *err. When the whole job fails, *err becomes the reason
 * that all ranks get, and this process ends with it, unless on_failure is "return".
 *
 * In an elastic world, with a rank dead: [collective among the survivors] go on with
 * fewer ranks; *err becomes MUSTER_ESHRUNK, or why that is impossible.
 */
void mu_recover(struct mu_recover *recover, struct mu_err *err);
/* Start-up failed with *err on this rank, maybe not on others: ends their wait for this
 * rank.
 */
void mu_recover_start(struct mu_recover *recover, struct mu_err *err);
/* [collective] Returns 0 when all ranks are in muster_finalize. */
int mu_recover_finish(struct mu_recover *recover, struct mu_err *err);

/* [collective] As muster_grow. */
int mu_grow(struct mu_recover *recover, int *joined, struct mu_err *err);

void mu_recover_add(struct mu_recover *recover, struct mu_resettable *r);
void mu_recover_remove(struct mu_recover *recover, const struct mu_resettable *r);

/* ---- elastic.c ---- */
/* [collective] Prepare for a death, where the options ask for it. */
int mu_elastic_open(struct mu_recover *recover, struct mu_err *err);
/* True when a rank has died, the others survive it, and this call may act on it. */
bool mu_elastic_wanted(struct mu_recover *recover);
/* [collective among the survivors] Go on with fewer ranks. The caller has no work in
 * flight in the backend. Returns -1 with MUSTER_ESHRUNK, or with why that is
 * impossible. Returns 0 when this rank was voting and its sync counts: then the next
 * call fails with MUSTER_ESHRUNK.
 */
int mu_elastic_shrink(struct mu_recover *recover, struct mu_err *err);
/* [collective] End a sync; in an elastic world it returns 0 when all ranks have their
 * gradients. The data of all ranks (len 0: none, on all ranks alike) travel with the
 * vote into *all. *all stays empty when there was nothing to send, or when a rank died
 * and the survivors count the sync.
 */
int mu_elastic_commit(struct mu_recover *recover, void *stream, const char *what,
                      const void *data, size_t len, struct mu_gathered *all,
                      struct mu_err *err);

/* [collective, between two steps] Take newcomers. together: no rank has died so far,
 * and each rank makes this call. Returns -1 with MUSTER_ESHRUNK where ranks died and
 * none joined, or with why going on is impossible.
 */
int mu_elastic_grow(struct mu_recover *recover, bool together, int *joined,
                    struct mu_err *err);

/* As a process that joins, after mu_world_meet: open what connects it to the ranks.
 * Ranks may die meanwhile.
 */
int mu_elastic_join(struct mu_recover *recover, struct mu_err *err);

/* ---- grow.c ---- */
/* Rank 0 writes the file of config.grow, if any. */
int mu_grow_publish(struct mu_recover *recover, struct mu_err *err);
/* The same after a change of the world: there may be another rank 0. */
void mu_grow_follow(struct mu_recover *recover);
/* Remove it. */
void mu_grow_end(struct mu_recover *recover);

/* ---- verdict.c ---- */
/* Hooks of mu_comm_hooks; arg is a mu_recover. */
bool mu_verdict_alarmed(void *arg);
void mu_verdict_ended(void *arg, const struct mu_ending *ending);
/* The comm that decides: that of the world. */
const struct mu_recover *mu_verdict_root(const struct mu_recover *recover);
/* True when the other ranks survive a failure with this status. rank: the guilty one in
 * the world; a process that has it in a world which ends with it does not go on.
 */
bool mu_verdict_survived(const struct mu_recover *recover, int status, int rank);
/* When the failure of comm concerns the whole job, wait for the reason that all ranks
 * get. Then end this process with it, or put it into *err (on_failure is "return", or
 * the ranks survive it).
 */
void mu_verdict_await(struct mu_recover *recover, struct mu_err *err);
/* The control thread aborts the backend of a failed job: wait until it has. */
void mu_verdict_await_abort(const struct mu_recover *recover);
/* A group has failed while it was closed: its world reports that, and ends this process
 * here. Returns where failures are returned, and for a world.
 */
void mu_verdict_await_world(const struct mu_recover *recover, const struct mu_err *err);
/* This rank has seen that the job fails with *err: wait for its turn, then do what is
 * due: see reporter.h. First write the streams of this rank, and give the other ranks
 * time to write theirs. Returns for MU_DEED_RETURN only.
 */
void mu_verdict_take_turn(const struct mu_recover *recover, const struct mu_view *view,
                          const struct mu_err *err);
/* What muster_abort does; status and why are given. recover may be NULL, or not open.
 */
void mu_verdict_abort(struct mu_recover *recover, int status, const char *why)
    __attribute__((noreturn));

/* ---- leave.c ---- */
/* The world is open. From now on, when this process exits without muster_finalize, the
 * other ranks get the reported failure as the reason.
 */
void mu_leave_watch(struct mu_recover *recover);
/* The failure that this process reports and may exit with. */
void mu_leave_reported(int status, const char *why);

/* ---- worlds.c: those that are open in this process ---- */
/* True: no other one is. */
bool mu_worlds_add(struct mu_recover *recover);
/* Does not return where the job ends by it: see mu_worlds_take_any. */
void mu_worlds_remove(const struct mu_recover *recover);
/* The highest world, or NULL: the job ends by it now; it stays open. _left: one whose
 * other ranks lack a reason when this process exits; an elastic one goes on.
 */
struct mu_recover *mu_worlds_take_any(void);
struct mu_recover *mu_worlds_take_left(void);
/* Does that rank's death end this process, by another world? */
bool mu_worlds_end_with(const struct mu_recover *recover, int rank);
/* This rank is to report *e. True: a higher world does it. */
bool mu_worlds_hand_over(const struct mu_recover *recover, const struct mu_ending *e);
/* The reason of the world that reports becomes *why, if it has failed. */
void mu_worlds_reason(struct mu_err *why);
/* False: another thread of this process ends it. */
bool mu_worlds_begin_end(void);
/* The reason is printed, or another process prints it: the other worlds get it. */
void mu_worlds_share(const struct mu_recover *recover, const struct mu_err *why);

#endif
