/* SPDX-License-Identifier: BSD-3-Clause */
/* recover.h - the one place that decides what an error of a group means
 *
 *   verdict.c  wait for the reason that all ranks get, report it, end the job
 *   elastic.c  ranks died: the others go on with fewer
 *   recover.c  what a public call does with its error: the two above, in this order
 *   leave.c    exit() without muster_finalize
 *   streams.c  stdout and stderr of a process that is about to end
 *
 * runtime/comm announces failures and returns them; the public calls bring them here.
 */
#ifndef MU_RECOVER_H
#define MU_RECOVER_H

#include "runtime/boot/survive.h"
#include "runtime/comm/comm.h"

/* What has begun work on the group and must give it up before ranks are numbered anew.
 */
struct mu_resettable {
    /* Nothing of it is under way any more; may join what it started. */
    void (*drop)(void *arg);
    void *arg;
    struct mu_resettable *next;
};

struct mu_recover {
    struct mu_comm *comm;
    struct mu_survive *survive; /* NULL: the job ends when a rank dies */
    struct mu_resettable *resettables;
    uint64_t commits;      /* syncs that have returned MUSTER_OK */
    bool voting;           /* this rank's gradients are complete */
    bool finishing;        /* in muster_finalize */
    int nested;            /* in a call of libmuster that has called the program back */
    atomic_bool giving_up; /* in muster_abort */
};

/* ---- recover.c ---- */
/* Also sets the hooks of comm, which is not open yet. */
void mu_recover_init(struct mu_recover *recover, struct mu_comm *comm);
/* Before comm is cleared. */
void mu_recover_clear(struct mu_recover *recover);
/* A public call failed with *err. When the whole job fails, *err becomes the reason
 * that all ranks get, and this process ends with it, unless on_failure is "return". In
 * an elastic world, with a rank dead: [collective among the living] go on with fewer;
 * *err becomes MUSTER_ESHRUNK, or why that cannot be.
 */
void mu_recover(struct mu_recover *recover, struct mu_err *err);
/* Start-up failed with *err here, maybe not on other ranks: they must not wait for us.
 */
void mu_recover_start(struct mu_recover *recover, struct mu_err *err);
/* [collective] All ranks are in muster_finalize. */
int mu_recover_finish(struct mu_recover *recover, struct mu_err *err);

void mu_recover_add(struct mu_recover *recover, struct mu_resettable *r);
void mu_recover_remove(struct mu_recover *recover, const struct mu_resettable *r);

/* ---- elastic.c ---- */
/* [collective] Make ready for a death, where the options ask for it. */
int mu_elastic_open(struct mu_recover *recover, struct mu_err *err);
/* Has a rank died that the others survive, and may this call act on it? */
bool mu_elastic_wanted(struct mu_recover *recover);
/* [collective among the living] Go on with fewer. Nothing of the caller's may be under
 * way in the backend. Returns -1 with MUSTER_ESHRUNK, or with why that cannot be; 0
 * when this rank was voting and its sync counts: the next call fails with
 * MUSTER_ESHRUNK.
 */
int mu_elastic_shrink(struct mu_recover *recover, struct mu_err *err);
/* [collective] The end of a sync in an elastic world: all ranks have their gradients.
 */
int mu_elastic_commit(struct mu_recover *recover, void *stream, const char *what,
                      struct mu_err *err);

/* ---- verdict.c ---- */
/* For mu_comm_hooks; arg is a mu_recover. */
void mu_verdict_alarmed(void *arg);
void mu_verdict_ended(void *arg, const struct mu_ending *ending);
void mu_verdict_hold(void *arg, int status);
/* Is a failure with this status one that the others survive? */
bool mu_verdict_survived(const struct mu_recover *recover, int status);
/* Where comm's failure concerns the whole job, wait for the reason that all ranks get:
 * end this process with it, or (on_failure "return", or it is survived) put it into
 * *err.
 */
void mu_verdict_await(struct mu_recover *recover, struct mu_err *err);
/* A failed job's backend is aborted by the control thread: wait until it has. */
void mu_verdict_await_abort(const struct mu_recover *recover);
/* End the step from any thread; before that the streams of this rank are written, and
 * the others have a moment for theirs.
 */
void mu_verdict_end_step(const struct mu_comm *comm, int status, const char *why)
    __attribute__((noreturn));
/* muster_abort; status and why are given. recover may be NULL, or not open. */
void mu_verdict_abort(struct mu_recover *recover, int status, const char *why)
    __attribute__((noreturn));

/* ---- leave.c ---- */
/* From now on this process leaves the group behind when it exits. */
void mu_leave_watch(struct mu_recover *recover);
/* ... and if so, because of this failure. */
void mu_leave_reported(const struct mu_recover *recover, int status, const char *why);
void mu_leave_forget(const struct mu_recover *recover);

#endif
