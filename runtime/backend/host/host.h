/* SPDX-License-Identifier: BSD-3-Clause */
/* host.h - inside of the host backend: the request queue and the transport table
 *
 *   host.c        struct mu_backend_ops: checks arguments, calls inward
 *   one_rank.c    the same table for a world of one rank
 *   memory.c      what both do on host memory alone
 *   coll_args.c   the arguments of a collective: checked, compared, described
 *   engine.c      queue of requests, progress thread, deadlines, failure
 *   rendezvous.c  how ranks find each other, and which of them share memory
 *   zero_copy.c   allocations that collectives use without a copy
 *   transport     shm (one domain) | mesh (TCP between domains)
 *   elements.c    the arithmetic
 *
 * A domain (shared-memory domain) is a set of ranks that share memory: same node, same
 * network namespace, and TCP not forced.
 */
#ifndef MU_HOST_H
#define MU_HOST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/backend/backend.h"
#include "runtime/base/fork.h"
#include "runtime/backend/host/elements.h"

#define MU_FAILURE_TEXT 512

/* What a rank says that it calls: all ranks must say the same. Goes over the wire and
 * through shared memory, between equal machines.
 */
struct mu_signature {
    uint8_t kind, dtype, op;
    int32_t root;
    uint64_t count;
    double scale;
    struct mu_owner owner;
};

/* Why the backend is unusable; status 0: it is not. */
struct mu_failure {
    int status; /* muster_status */
    int rank;   /* the guilty one, -1 unknown */
    char text[MU_FAILURE_TEXT];
};

struct mu_host_request {
    struct mu_coll coll; /* send, recv as normalised by mu_host_request_settle */
    char what[96];
    void *result; /* reduce-scatter: moved here when finished, or NULL */
    size_t esize;
    uint64_t seq;
    int64_t deadline; /* ns of CLOCK_MONOTONIC */
    bool posted, done;
    bool exposed; /* other ranks may write into coll.recv until it is done */
    int rc;
    struct mu_host_request *next;

    /* Of the transport. */
    int algorithm, phase;
    uint64_t round, nrounds, base;
    int open_sends; /* messages that refer to our buffers and are not sent yet */
};

/* What a sleeper wants to be woken through. */
enum mu_sleep { MU_SLEEP_DOORBELL = 1, MU_SLEEP_FUTEX = 2 };

/* Results of progress. */
enum { MU_WAITS, MU_FINISHED, MU_MORE, MU_FAILED };

struct mu_host_backend;
struct mu_host_rendezvous;

/* Indices of events: a rank, or MU_INDEX_LOCAL + index in the domain, or this. */
#define MU_INDEX_DOORBELL -1
#define MU_INDEX_LOCAL (1 << 24)

/* How requests get done. Every call but connect and wait is made with the engine
 * locked. A function that returns MU_FAILED has called mu_engine_fail.
 */
struct mu_host_transport {
    const char *name;
    int (*connect)(struct mu_host_backend *b, struct mu_host_rendezvous *rendezvous,
                   struct mu_err *err);
    /* Tell the others that this rank has entered; false: no room yet. */
    bool (*post)(struct mu_host_backend *b, struct mu_host_request *rq);
    /* Move the oldest request (posted) on. */
    int (*progress)(struct mu_host_backend *b, struct mu_host_request *rq);
    /* Going to sleep until something changes; false: something has, do not. */
    bool (*arm)(struct mu_host_backend *b, enum mu_sleep how);
    /* Sleep in the caller, armed with MU_SLEEP_FUTEX, unlocked; NULL: cannot. */
    void (*wait)(struct mu_host_backend *b);
    /* End such a sleep. */
    void (*nudge)(struct mu_host_backend *b);
    /* An event on a descriptor that connect added with mu_engine_watch; or, with
     * MU_INDEX_DOORBELL, somebody has rung.
     */
    void (*event)(struct mu_host_backend *b, int index, uint32_t events);
    /* Every `tick` ns of the backend while something is started; may be NULL. */
    void (*tick)(struct mu_host_backend *b);
    /* The deadline of rq has passed: name who is late. */
    void (*late)(struct mu_host_backend *b, const struct mu_host_request *rq,
                 struct mu_failure *failure);
    /* Tell the others why, as far as that goes without waiting. */
    void (*abort)(struct mu_host_backend *b);
    /* Say goodbye unless aborted; release everything. */
    void (*close)(struct mu_host_backend *b);
    /* In a forked child: give up descriptors, touch nothing shared. */
    void (*forget)(struct mu_host_backend *b);
};

extern const struct mu_host_transport mu_transport_shm;
extern const struct mu_host_transport mu_transport_mesh;

struct mu_shm;
struct mu_mesh;
struct mu_host_arena;

struct mu_host_backend {
    struct mu_backend_env env; /* node_of, host_of copied */
    int *node_of;
    char **host_of;
    const struct mu_host_transport *transport;
    char transport_name[32];
    bool one_domain; /* all ranks share memory: allocations lie in the segment */
    struct mu_shm *shm;
    struct mu_mesh *mesh;
    struct mu_host_arena *arena;
    uint64_t arena_used; /* most of any rank of the domain in the world before */
    pid_t owner;
    struct mu_forkable fork;

    pthread_t thread;
    bool thread_started;
    int epoll_fd, doorbell_fd, timer_fd;

    pthread_mutex_t lock; /* the engine: transport, active queue, failure */
    pthread_cond_t changed;
    bool stop;
    bool driver; /* a caller inside join makes the progress */
    int joiners;
    struct mu_host_request *head, **tail; /* started, oldest first */
    struct mu_host_request *unposted;
    struct mu_failure failure;
    bool report;        /* env.failed is still to be called */
    _Atomic int failed; /* failure.status, readable without the lock */

    pthread_mutex_t inbox_lock; /* never held while working: start must not block */
    struct mu_host_request *inbox, **inbox_tail;
    uint64_t next_seq;
    int64_t timer_at;  /* ns, 0: not set */
    int64_t tick;      /* ns, 0: none */
    _Atomic bool busy; /* anything in the inbox or active */
};

/* The backend behind the public handle, which is struct mu_backend in name only. */
static inline struct mu_host_backend *mu_host_of(const struct mu_backend *backend)
{
    return (struct mu_host_backend *)(uintptr_t)backend;
}

/* ---- engine.c ---- */
int mu_engine_open(struct mu_host_backend *b,
                   struct mu_err *err); /* descriptors, locks */
int mu_engine_start(struct mu_host_backend *b, struct mu_err *err); /* the thread */
void mu_engine_stop(struct mu_host_backend *b);
void mu_engine_close(struct mu_host_backend *b);
int mu_engine_watch(struct mu_host_backend *b, int fd, int index, uint32_t events,
                    struct mu_err *err);
void mu_engine_submit(struct mu_host_backend *b, struct mu_host_request *rq);
/* Until rq is done; the failure of b is put into *err when it failed. */
int mu_engine_join(struct mu_host_backend *b, struct mu_host_request *rq,
                   struct mu_err *err);
/* Only the first failure counts. Locked. report: env.failed is to be called. */
void mu_engine_fail(struct mu_host_backend *b, int status, int rank, bool report,
                    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void mu_engine_abort(struct mu_host_backend *b, int status, const char *why);
void mu_engine_extend(struct mu_host_backend *b, double seconds);

/* "rank 3 (node b)" */
const char *mu_rank_text(const struct mu_host_backend *b, int rank, char *buf,
                         size_t len);
/* "bucket 7 of step 1204", or "all-reduce number 17" */
const char *mu_host_request_text(const struct mu_host_request *rq);

/* ---- coll_args.c ---- */
/* Check and normalise: afterwards all-reduce may differ in send and recv, broadcast
 * works on recv, all-gather's own part is in place if the two overlap, reduce-scatter
 * likewise.
 */
int mu_host_request_check(const struct mu_host_backend *b, const struct mu_coll *coll,
                          struct mu_err *err);
/* Moves of data that overlap needs; by the thread that posts. */
void mu_host_request_settle(const struct mu_host_backend *b,
                            struct mu_host_request *rq);
void mu_host_request_finish(struct mu_host_request *rq);
const char *mu_kind_name(enum mu_coll_kind kind);
struct mu_signature mu_host_request_signature(const struct mu_host_request *rq);
/* True when `rank`, which entered with `theirs`, calls the same; else the difference is
 * written to `why` as a sentence.
 */
bool mu_host_request_agrees(const struct mu_host_backend *b,
                            const struct mu_host_request *rq, int rank,
                            const struct mu_signature *theirs, char *why, size_t len);

/* ---- zero_copy.c ---- */
int mu_host_arena_open(struct mu_host_backend *b, struct mu_err *err);
void mu_host_arena_close(struct mu_host_backend *b);
void *mu_host_arena_alloc(struct mu_host_backend *b, size_t bytes, struct mu_err *err);
void mu_host_arena_free(struct mu_host_backend *b, void *p);
/* Take over the blocks of `from`, at their addresses and with their contents. */
int mu_host_arena_adopt(struct mu_host_backend *b, struct mu_host_backend *from,
                        struct mu_err *err);
/* Where [p, p + bytes) lies in the shared file; false: not inside one allocation. */
bool mu_host_arena_offset(const struct mu_host_backend *b, const void *p, size_t bytes,
                          uint64_t *offset, uint64_t *block);
/* Bytes of a rank's pieces so far, freed ones too; b may be NULL. */
uint64_t mu_host_arena_used(const struct mu_host_backend *b);
/* The same bytes of any rank of the node in our mapping; NULL: not inside one. */
void *mu_host_arena_at(const struct mu_host_backend *b, uint64_t offset, size_t bytes);
/* Give [p, p + bytes) private pages with the present contents: whatever a late rank
 * still stores into the shared ones is not seen here.
 */
int mu_host_arena_detach(struct mu_host_backend *b, void *p, size_t bytes);

#endif
