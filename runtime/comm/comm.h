/* SPDX-License-Identifier: BSD-3-Clause */
/* comm.h - a group of ranks and its collectives; they return errors and do nothing else
 *
 *   comm.c       the state of the group; a failure is announced to all ranks
 *   session.c    control connections, agreement on the world, backend
 *   choose.c     which backend
 *   coll.c       collectives of the backend, small gathers over the control connections
 *   record.c     the ledger's record of a collective
 *   coll_host.c  collectives on the caller's buffers, also in host memory beside a GPU
 *   staged.[ch]  their chunks in GPU memory
 *   agree.c      compare a contract, or the order of collectives, among the ranks
 *   network.c    compare what chooses the network
 *
 * A call that fails announces the failure to all ranks and returns -1 at once. Nothing
 * here waits for the reason that all ranks get, prints, shrinks the group or ends the
 * process: runtime/recover does that, when the error has reached the public call. On
 * the way up, callers join the collectives they have started: the announcement makes
 * these joins return.
 */
#ifndef MU_COMM_H
#define MU_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/backend/backend.h"
#include "runtime/boot/control.h"
#include "runtime/boot/control_exchange.h"
#include "runtime/boot/world.h"
#include "runtime/core/config.h"
#include "runtime/core/contract.h"
#include "runtime/core/flight.h"
#include "runtime/ledger/ledger_out.h"
#include "runtime/muster.h"

/* Seconds; longer times do not fit the nanoseconds of a backend's clock. */
#define MU_FOREVER 1e8
/* Room for the name of a call: "all-reduce of 1000 f32". */
#define MU_CALL_TEXT 128

/* What the layer above decides. Called from threads of the control connections and of
 * the backend; set before these are opened. NULL: nothing is done.
 */
struct mu_comm_hooks {
    void *arg;
    /* This rank has noticed a failure: another rank may end this process at any moment.
     * True when it has written what it prints. Must return soon.
     */
    bool (*alarmed)(void *arg);
    /* The job has failed; the backend is aborted. */
    void (*ended)(void *arg, const struct mu_ending *ending);
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
    char **gpu_of;   /* the same by rank, NULL before mu_agree_on_world */
    char fabric[16]; /* MUSTER_PLAN's fabric, "" unknown */
    void *stage;    /* private memory for collectives on host memory, NULL before one */
    int ddps;       /* numbers taken by ddp objects: the same on all ranks */
    uint64_t syncs; /* done so far, of all ddps */
    /* The order in which collectives have started: its hash, and their number. */
    uint64_t order, ordered;
    bool mixes; /* collectives of several owners start from now on: see mu_comm_mix */
    struct mu_owner owner;       /* of the collectives that a user's hook calls */
    pthread_mutex_t flight_lock; /* innermost: no call is made with it held */
    struct mu_flight flight;
    /* Of a group: the comm of its world, and its name. Else NULL and "". */
    struct mu_comm *top;
    const char *name;
    struct mu_control_exchange exchange; /* of a group, for its backend */
    /* Of a world with groups: where this process waits, in any of them. With
     * flight_lock.
     */
    bool has_groups;
    struct {
        const struct mu_comm *in; /* NULL: nowhere */
        char what[MU_FLIGHT_WHAT];
        double since;
    } waits;
    struct mu_comm_hooks hooks;
    pthread_mutex_t swap_lock; /* control and backend are replaced with it held */
    atomic_bool ended;         /* the control thread has aborted the backend */
    atomic_bool closing;       /* from now on no failure is reported */

    struct mu_ledger_out ledger;     /* head NULL: nothing is recorded */
    struct mu_ledger_comm *recorded; /* this group of this generation; NULL: none yet */
    int recorded_generation;

    bool elastic; /* this backend may be the parent of one of fewer ranks */
    /* The ranks survive a death from now on: every rank acts on it at once. */
    atomic_bool armed;
    int generation; /* how many times the group went on with other ranks */
    int grown;      /* how many times newcomers were among them */

    bool failed;    /* a call failed, and the failure concerns more than that call */
    bool announced; /* the failure was sent to the other ranks */
    struct mu_err interrupt; /* the next collective fails with it; code 0: none */
    bool interrupt_all;      /* not only the next one */
};

/* Takes world. Closes it in mu_comm_clear. */
void mu_comm_init(struct mu_comm *comm, const struct mu_config *config,
                  const char *version, struct mu_world *world);
void mu_comm_clear(struct mu_comm *comm);

/* A call on this group has failed with *err: announce it to every rank, unless it
 * concerns this call alone. Does not block. Returns -1.
 */
int mu_comm_fail(struct mu_comm *comm, const struct mu_err *err);
/* The same when all ranks have the same *err. With on_failure "return" nothing is
 * announced, because each rank returns it anyway.
 */
int mu_comm_refuse(struct mu_comm *comm, const struct mu_err *err);
/* Announce *err now, unless a failure was announced before. */
void mu_comm_announce(struct mu_comm *comm, int rank, const struct mu_err *err);
/* What flight.h needs for its sentences. */
struct mu_flight_names mu_comm_names(const struct mu_comm *comm, const int *parent_of);

/* ---- choose.c ---- */
/* Find the backend's table: in this library, or in backend_nccl.so below `dir` (NULL:
 * the installed one). The caller closes *module with dlclose after the backend.
 */
int mu_backend_choose(enum mu_backend_choice choice, int size, const char *dir,
                      const struct mu_backend_ops **ops, void **module,
                      struct mu_err *err);

/* ---- session.c: after the rendezvous, in this order ---- */
int mu_open_control(struct mu_comm *comm, double init_timeout, struct mu_err *err);
int mu_agree_on_world(struct mu_comm *comm, struct mu_err *err);
int mu_open_backend(struct mu_comm *comm, struct mu_err *err);
/* [collective] Close backend and control connections; -1: some rank did not close. */
int mu_comm_close(struct mu_comm *comm, struct mu_err *err);
/* Close the control connections after a rank is lost; or, with `together`, [collective]
 * before newcomers join, and abort the backend.
 */
void mu_comm_disconnect(struct mu_comm *comm, bool together);
/* [collective among the survivors] Open control connections, world and backend again,
 * over comm->world's exchange. The new backend takes over the memory of the old one,
 * which is aborted; a process that joins has none. After a failure it may be called
 * again.
 */
int mu_comm_reconnect(struct mu_comm *comm, double init_timeout, struct mu_err *err);

/* ---- coll.c ---- */
/* Returns -1 when this call must fail, with *err; see interrupt. */
int mu_comm_interrupted(struct mu_comm *comm, struct mu_err *err);
/* This process begins to wait for ranks of comm, or has ended that (NULL): for the
 * flight records of other groups.
 */
void mu_comm_waits(struct mu_comm *comm, const char *what);
/* Every collective goes through start and join: the flight record lists it, and its
 * wait has a deadline. coll->what is required.
 */
struct mu_started {
    struct mu_request *request;
    uint64_t number; /* in the flight record; 0: not in it */
    int partner;     /* the rank that a message waits for; -1: a collective */
    double within;   /* limit of the wait in join, seconds; 0: that of the options */
    void *record;    /* in the ledger, NULL: none */
    struct mu_staged *staged;   /* of host memory beside a GPU: staged.h; else NULL */
    struct mu_coll_times times; /* stays where it is until join */
};
int mu_coll_start(struct mu_comm *comm, const struct mu_coll *coll,
                  struct mu_started *out, struct mu_err *err);
int mu_coll_join(struct mu_comm *comm, const struct mu_started *started,
                 const char *what, void *stream, struct mu_err *err);
int mu_coll_run(struct mu_comm *comm, const struct mu_coll *coll, struct mu_err *err);

/* [collective] A gather of a few bytes over the control connections; also in a world of
 * one.
 */
int mu_gather(struct mu_comm *comm, const char *what, const void *data, size_t len,
              struct mu_gathered *out, struct mu_err *err);
/* [collective] The gather of muster_finalize, without data. Ranks that compare their
 * collectives recognise it, and report that one of them has finished early.
 */
int mu_gather_finalize(struct mu_comm *comm, struct mu_gathered *out,
                       struct mu_err *err);
/* Block until all collectives joined on stream so far are finished. */
int mu_drain(struct mu_comm *comm, void *stream, struct mu_err *err);
/* Block until all collectives joined so far are finished, on whatever stream. */
int mu_quiet(struct mu_comm *comm, struct mu_err *err);
/* [collective] Returns when what all ranks have started is finished. */
int mu_barrier(struct mu_comm *comm, struct mu_err *err);

/* ---- record.c: where comm has a ledger ---- */
/* Index of comm's entry. The ranks that are left after a death have another one. */
uint32_t mu_record_comm(struct mu_comm *comm);
/* Before coll starts; sets coll->times and out->record. */
void mu_record_begin(struct mu_comm *comm, struct mu_coll *coll,
                     struct mu_started *out);
/* started->record is not NULL. */
void mu_record_joined(struct mu_comm *comm, const struct mu_started *started);

/* ---- coll_host.c ---- */
/* Run coll. Its buffers may be host memory although the backend works on a GPU's: then
 * this call and mu_coll_end block until it is done. Messages name it "CALL of COUNT
 * DTYPE".
 */
int mu_coll_call(struct mu_comm *comm, const char *call, struct mu_coll *coll,
                 struct mu_err *err);

/* Send and receive, with the ranks that coll names alone. coll->what is required. */
int mu_pair_call(struct mu_comm *comm, const struct mu_coll *coll, struct mu_err *err);
/* The same two, only started; mu_coll_end joins *out. `what` gets the name. */
int mu_coll_begin(struct mu_comm *comm, const char *call, struct mu_coll *coll,
                  char what[MU_CALL_TEXT], struct mu_started *out, struct mu_err *err);
int mu_pair_begin(struct mu_comm *comm, const struct mu_coll *coll,
                  struct mu_started *out, struct mu_err *err);
/* True: mu_coll_end returns at once. */
bool mu_coll_test(const struct mu_comm *comm, const struct mu_started *started);
int mu_coll_end(struct mu_comm *comm, const struct mu_started *started,
                const char *what, void *stream, struct mu_err *err);

/* ---- agree.c ---- */
/* [collective] Fail with MUSTER_ECONTRACT when the lines are not the same on all ranks.
 * The sentence starts with `what`, and names the first difference and the ranks on each
 * side.
 */
int mu_agree(struct mu_comm *comm, const char *what, const struct mu_contract *contract,
             struct mu_err *err);

/* Hash of `order` after one more collective, of `owner`. */
uint64_t mu_coll_order(uint64_t order, const struct mu_owner *owner);
/* [collective, once] From now on a rank may start collectives of several owners, and so
 * in a wrong order: the program has a second ddp object, or calls a collective beside
 * one. Where the backend does not compare them, the ranks compare the order so far.
 * Then each sync waits for all ranks to compare it again. `what` names the call
 * in messages.
 */
int mu_comm_mix(struct mu_comm *comm, const char *what, struct mu_err *err);
/* Record in comm->order a collective of `owner`. */
void mu_comm_order(struct mu_comm *comm, const struct mu_owner *owner);

/* ---- network.c ---- */
/* [collective] In a world of several nodes, fail with MUSTER_ECONTRACT when NCCL cannot
 * connect the ranks: different link layers, or different values of a variable that
 * chooses the network or the algorithm. Warn when values differ and may be wrong.
 * fabric is MUSTER_PLAN's.
 */
int mu_agree_on_network(struct mu_comm *comm, const char *fabric, struct mu_err *err);

#endif
