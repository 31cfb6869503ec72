/* SPDX-License-Identifier: BSD-3-Clause */
/* impl.h - the one struct of state behind muster.h, for the files of api/ */
#ifndef MU_IMPL_H
#define MU_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/backend/backend.h"
#include "runtime/boot/control.h"
#include "runtime/boot/world.h"
#include "runtime/core/config.h"
#include "runtime/core/contract.h"
#include "runtime/core/flight.h"
#include "runtime/muster.h"

/* Seconds; what is longer does not fit the nanoseconds of a backend's clock. */
#define MU_FOREVER 1e8

struct muster {
    const char *version; /* of libmuster: the same on all ranks */
    struct mu_config config;
    struct mu_log log;
    struct mu_world *world;
    struct mu_control *control; /* NULL in a world of one */
    const struct mu_backend_ops *ops;
    struct mu_backend *backend;
    void *module;    /* dlopen handle of the backend, or NULL */
    char *gpus;      /* MUSTER_PLAN's gpus of this rank, "" unknown */
    char **gpu_of;   /* the same by rank, NULL until the ranks have met */
    char fabric[16]; /* MUSTER_PLAN's, "" unknown */
    char *address;   /* MASTER_ADDR, or NULL */
    void *stage;    /* backend memory for collectives on host memory, NULL before one */
    int ddps;       /* created so far: the same number on all ranks */
    uint64_t rolls; /* syncs so far, of all ddps */
    /* The order in which collectives have started: a hash, and how many there were, now
     * and at the end of the last sync.
     */
    uint64_t order, ordered, ordered_synced;
    struct mu_owner owner; /* of the collectives that a hook of the caller's makes */
    struct mu_err err;
    int status;                  /* of the last failed call */
    pthread_mutex_t flight_lock; /* innermost: nothing is called with it held */
    struct mu_flight flight;
    atomic_bool ended;   /* the control thread is done with telling the backend */
    atomic_bool closing; /* in muster_finalize: a late failure is nobody's concern */

    /* Elastic worlds: elastic.c. */
    struct mu_survive *survive;   /* NULL: the job ends when a rank dies */
    struct muster_ddp *first_ddp; /* all of m */
    uint64_t commits;             /* syncs that have returned MUSTER_OK */
    bool voting, finishing;       /* this rank's gradients are complete; in finalize */
    int nested;  /* in a call of libmuster that has called the program back */
    int shrinks; /* that this rank has been through */
    bool shrunk; /* and the program does not know yet */
    char shrunk_text[MU_ERR_TEXT];
    struct mu_err over; /* code 0: the world is of use */
    atomic_bool armed; /* a sync has come to its end: from now on a death is survived */
    atomic_bool giving_up;     /* in muster_abort */
    pthread_mutex_t swap_lock; /* control and backend are exchanged with it held */
};

/* Remember the sentence; returns status, so that a public function ends with it. */
int mu_fail(struct muster *m, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool mu_status_known(int status);
/* The same from an err whose code is a muster_status: the end of every public function
 * that may have waited for others. In an elastic world it is where a death is acted on.
 */
int mu_fail_err(struct muster *m, const struct mu_err *err);

/* The failure of muster_init is the same on all tasks and task 0 tells it:
 * muster_report need not print it here.
 */
void mu_fail_told(bool told);

/* Start in a world that is already there (taken, also on failure): muster_init after it
 * has asked PMIx, and the tests with ranks of their own.
 */
int mu_init_world(struct muster **out, const struct mu_config *config,
                  struct mu_world *world);

/* Find the backend's table: in this library, or in backend_nccl.so below `dir` (NULL:
 * the installed one). *module is closed with dlclose after the backend.
 */
int mu_backend_choose(enum mu_backend_choice choice, int size, const char *dir,
                      const struct mu_backend_ops **ops, void **module,
                      struct mu_err *err);

/* ---- init.c: the layers of a world that has met, in this order ---- */
int mu_open_control(struct muster *m, double init_timeout, struct mu_err *err);
int mu_agree_on_world(struct muster *m, struct mu_err *err);
int mu_open_backend(struct muster *m, struct mu_backend *parent,
                    struct mu_backend **out, struct mu_err *err);

/* ---- elastic.c ---- */
/* [collective] Make ready for a death, where the options ask for it. */
int mu_elastic_open(struct muster *m, struct mu_err *err);
/* Is a failure with this status one that the others survive? */
bool mu_elastic_takes(struct muster *m, int status);
/* Has that happened, and may this call act on it? */
bool mu_shrink_wanted(struct muster *m);
/* [collective among the living] Go on with fewer. Nothing of the caller's may be under
 * way in the backend. Returns -1 with MUSTER_ESHRUNK, or with why that cannot be; 0
 * when this rank was voting and its sync counts: the next call brings MUSTER_ESHRUNK.
 */
int mu_shrink(struct muster *m, struct mu_err *err);
/* -1: *err is what every call has to say first. */
int mu_shrink_pending(struct muster *m, struct mu_err *err);
/* [collective] The end of a sync in an elastic world: all ranks have their gradients.
 */
int mu_elastic_commit(struct muster *m, void *stream, const char *what,
                      struct mu_err *err);

/* ---- coll_host.c: host memory on a backend that works on a GPU's. Blocks until done.
 */
bool mu_coll_on_host(const struct muster *m, const struct mu_coll *coll);
int mu_coll_run_on_host(struct muster *m, const struct mu_coll *coll,
                        struct mu_err *err);

/* ---- coll.c: every collective of the api goes through these two, so that the flight
 * record knows it and its wait has a deadline. coll->what is required.
 */
struct mu_started {
    struct mu_request *request;
    uint64_t number;
};
int mu_coll_start(struct muster *m, const struct mu_coll *coll, struct mu_started *out,
                  struct mu_err *err);
int mu_coll_join(struct muster *m, const struct mu_started *started, const char *what,
                 void *stream, struct mu_err *err);
int mu_coll_run(struct muster *m, const struct mu_coll *coll, struct mu_err *err);
/* Hash of an order that goes on with a collective of `owner`. */
uint64_t mu_coll_order(uint64_t order, const struct mu_owner *owner);
/* A small agreement over the control connections; in a world of one too. */
int mu_gather(struct muster *m, const char *what, const void *data, size_t len,
              struct mu_gathered *out, struct mu_err *err);

/* ---- agree.c ---- */
/* [collective] Refuse (MUSTER_ECONTRACT) when the lines are not the same on all ranks;
 * the sentence starts with `what` and has the first difference and the ranks on each
 * side.
 */
int mu_agree(struct muster *m, const char *what, const struct mu_contract *contract,
             struct mu_err *err);

/* All ranks are here with the same *err: one of them tells it and ends the job. -1. */
int mu_refused(struct muster *m, const struct mu_err *err);

/* ---- network.c ---- */
/* [collective] Refuse (MUSTER_ECONTRACT), in a world of several nodes, what NCCL cannot
 * connect: other link layers, other values of variables that choose the network or the
 * algorithm. What merely looks wrong is a warning. fabric is MUSTER_PLAN's.
 */
int mu_agree_on_network(struct muster *m, const char *fabric, struct mu_err *err);

/* ---- recover.c ---- */
struct mu_control_hooks mu_failure_hooks(struct muster *m);
/* For mu_backend_env. */
void mu_failure_of_backend(void *arg, int rank, int status, const char *why);
/* A call failed with *err. Where the whole job fails, this waits for the reason that
 * all ranks are told: it then ends this process with it, or (on_failure "return") puts
 * it into *err. Returns -1.
 */
int mu_failure_settle(struct muster *m, struct mu_err *err);
/* Wait to be ended by the control thread; as a last resort end the step. */
void mu_failure_park(struct muster *m, int status, const char *why)
    __attribute__((noreturn));
/* End the step from any thread; before that the streams of this rank are written, and
 * the others have a moment for theirs.
 */
void mu_failure_end_step(struct muster *m, int status, const char *why)
    __attribute__((noreturn));

/* ---- leave.c: exit() without muster_finalize ---- */
/* From now on this process leaves `m` behind when it exits. */
void mu_leave_watch(struct muster *m);
/* ... and if so, because of the failure that m holds. */
void mu_leave_reported(const struct muster *m);
void mu_leave_forget(const struct muster *m);

#endif
