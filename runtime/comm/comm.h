/* SPDX-License-Identifier: BSD-3-Clause */
/* comm.h - a group of ranks and its collectives, which return errors and nothing else
 *
 *   comm.c       the state of the group; a failure is announced to all ranks
 *   session.c    control connections, agreement on the world, backend
 *   choose.c     which backend
 *   coll.c       collectives of the backend, small gathers over the control connections
 *   coll_host.c  collectives on the caller's buffers, also in host memory beside a GPU
 *   agree.c      compare a contract among the ranks
 *   network.c    compare what chooses the network
 *
 * A call that fails announces the failure to all ranks and returns -1 at once. Nothing
 * here waits for the reason that all ranks get, prints, shrinks the group or ends the
 * process: runtime/recover does that, when the error has reached the public call. So
 * what joins started collectives on the way up runs after the announcement.
 */
#ifndef MU_COMM_H
#define MU_COMM_H

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

/* What is decided above. Called from threads of the control connections and of the
 * backend; set before these are opened. NULL: nothing is done.
 */
struct mu_comm_hooks {
    void *arg;
    /* A failure was noticed: a rank that decides elsewhere may end this process at any
     * moment. Must return soon.
     */
    void (*alarmed)(void *arg);
    /* The job has failed; the backend is aborted. */
    void (*ended)(void *arg, const struct mu_ending *ending);
    /* Before a failure of the backend with this status is announced: may block. */
    void (*hold)(void *arg, int status);
};

struct mu_comm {
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
    pthread_mutex_t flight_lock; /* innermost: nothing is called with it held */
    struct mu_flight flight;
    struct mu_comm_hooks hooks;
    pthread_mutex_t swap_lock; /* control and backend are exchanged with it held */
    atomic_bool ended;         /* the control thread has aborted the backend */
    atomic_bool closing;       /* a failure from now on is nobody's concern */

    bool elastic;      /* this backend may become the parent of one of fewer ranks */
    atomic_bool armed; /* from now on a death is survived: every rank acts on it at
                          once, and a failed device is not announced here, since a death
                          may be the cause of it */
    int generation;    /* how often the group went on with fewer ranks */

    bool failed;    /* a call of this rank failed with more than an error of its own */
    bool announced; /* ... and the other ranks learn of it */
    struct mu_err interrupt; /* the next collective fails with it; code 0: none */
    bool over;               /* ... and each one after it */
};

/* Takes world. */
void mu_comm_init(struct mu_comm *comm, const struct mu_config *config,
                  const char *version, struct mu_world *world);
void mu_comm_clear(struct mu_comm *comm);

/* A call on this group has failed with *err: unless that is an error of this call
 * alone, every rank gets to know. Does not block. Returns -1.
 */
int mu_comm_fail(struct mu_comm *comm, const struct mu_err *err);
/* The same where all ranks have the same *err: needless where each returns it anyway.
 */
int mu_comm_refuse(struct mu_comm *comm, const struct mu_err *err);
/* Announce it now, unless a failure was announced before. */
void mu_comm_announce(struct mu_comm *comm, int rank, const struct mu_err *err);
/* -1: *err is what this call must fail with; see interrupt. */
int mu_comm_interrupted(struct mu_comm *comm, struct mu_err *err);
/* For the sentences of flight.h. */
struct mu_flight_names mu_comm_names(const struct mu_comm *comm, const int *parent_of);

/* ---- choose.c ---- */
/* Find the backend's table: in this library, or in backend_nccl.so below `dir` (NULL:
 * the installed one). *module is closed with dlclose after the backend.
 */
int mu_backend_choose(enum mu_backend_choice choice, int size, const char *dir,
                      const struct mu_backend_ops **ops, void **module,
                      struct mu_err *err);

/* ---- session.c: the layers of a world that has met, in this order ---- */
int mu_open_control(struct mu_comm *comm, double init_timeout, struct mu_err *err);
int mu_agree_on_world(struct mu_comm *comm, struct mu_err *err);
int mu_open_backend(struct mu_comm *comm, struct mu_backend *parent,
                    struct mu_backend **out, struct mu_err *err);
/* [collective] Close backend and control connections; -1: not all ranks closed. */
int mu_comm_close(struct mu_comm *comm, struct mu_err *err);
/* Leave the control connections, of which a rank is lost. */
void mu_comm_disconnect(struct mu_comm *comm);
/* [collective among the ranks left] All three again over comm->world's exchange; the
 * new backend takes over the memory of the old one, which is aborted. After a failure
 * it may be called again.
 */
int mu_comm_reconnect(struct mu_comm *comm, double init_timeout, struct mu_err *err);

/* ---- coll.c: every collective goes through these two, so that the flight record knows
 * it and its wait has a deadline. coll->what is required.
 */
struct mu_started {
    struct mu_request *request;
    uint64_t number;
};
int mu_coll_start(struct mu_comm *comm, const struct mu_coll *coll,
                  struct mu_started *out, struct mu_err *err);
int mu_coll_join(struct mu_comm *comm, const struct mu_started *started,
                 const char *what, void *stream, struct mu_err *err);
int mu_coll_run(struct mu_comm *comm, const struct mu_coll *coll, struct mu_err *err);
/* Hash of an order that goes on with a collective of `owner`. */
uint64_t mu_coll_order(uint64_t order, const struct mu_owner *owner);
/* The order goes on with a collective of `owner`. */
void mu_comm_order(struct mu_comm *comm, const struct mu_owner *owner);
/* A small agreement over the control connections; in a world of one too. */
int mu_gather(struct mu_comm *comm, const char *what, const void *data, size_t len,
              struct mu_gathered *out, struct mu_err *err);
/* Block until everything joined on stream so far is finished. */
int mu_drain(struct mu_comm *comm, void *stream, struct mu_err *err);
/* [collective] What this rank has started is finished before the others may go on. */
int mu_barrier(struct mu_comm *comm, struct mu_err *err);

/* ---- coll_host.c ---- */
/* Run coll, whose buffers may be host memory where the backend works on a GPU's: then
 * it blocks until done. Messages name it "CALL of COUNT DTYPE".
 */
int mu_coll_call(struct mu_comm *comm, const char *call, struct mu_coll *coll,
                 struct mu_err *err);

/* ---- agree.c ---- */
/* [collective] Refuse (MUSTER_ECONTRACT) when the lines are not the same on all ranks;
 * the sentence starts with `what` and has the first difference and the ranks on each
 * side.
 */
int mu_agree(struct mu_comm *comm, const char *what, const struct mu_contract *contract,
             struct mu_err *err);

/* ---- network.c ---- */
/* [collective] Refuse (MUSTER_ECONTRACT), in a world of several nodes, what NCCL cannot
 * connect: other link layers, other values of variables that choose the network or the
 * algorithm. What merely looks wrong is a warning. fabric is MUSTER_PLAN's.
 */
int mu_agree_on_network(struct mu_comm *comm, const char *fabric, struct mu_err *err);

#endif
