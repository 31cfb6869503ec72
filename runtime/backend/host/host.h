/* SPDX-License-Identifier: BSD-3-Clause */
/* host.h - internals of the host backend: the request queue and the transport table
 *
 *   host.c        struct mu_backend_ops: checks arguments, calls the engine
 *   one_rank.c    the same table for a world of one rank
 *   memory.c      operations on host memory that both tables share
 *   coll_args.c   a request: its arguments checked, compared, described
 *   engine.c      progress of the requests: thread, joining callers, deadlines
 *   engine_queue.c  the queue of requests, and the failure that ends all of them
 *   domains.c     which ranks share memory; calls among the ranks at the start
 *   cores.c       the cores of this process
 *   free_memory.c what the node and the job's cgroups have left
 *   zero_copy.c   allocations that collectives use without a copy
 *   transport     shm (one domain) | mesh (TCP between domains)
 *   pair_queue.c  messages between two ranks, beside the queue
 *   pair.c        their connections, and one step of each (pair.h)
 *   pair_channel.c  their way inside a domain: pipes in shared memory (pipe.h)
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
#include "runtime/backend/host/elements.h"
#include "runtime/base/fork.h"
#include "runtime/endpoint/endpoint.h"

#define MU_FAILURE_TEXT 512
/* Ranks of a domain that an exchange takes: their table fills a mailbox. */
#define MU_EXCHANGE_MOST 512

/* The collective that a rank enters; all ranks must enter the same one. Sent over TCP
 * and through shared memory, between equal machines.
 */
struct mu_signature {
    uint8_t kind, dtype, op;
    int32_t root;
    uint64_t count;
    double scale;
    struct mu_owner owner;
};

/* Why the backend has failed; status 0: it has not. */
struct mu_failure {
    int status;          /* muster_status */
    int rank;            /* the rank at fault, -1 unknown */
    enum mu_death death; /* of that rank; MU_DEATH_NONE: it lives */
    char text[MU_FAILURE_TEXT];
};

struct mu_message;

struct mu_host_request {
    struct mu_coll coll; /* send, recv as normalised by mu_host_request_settle */
    char what[128];
    void *scratch; /* freed with the request, or NULL */
    void *result;  /* reduce-scatter: the result is moved here at the end, or NULL */
    size_t esize;
    uint64_t seq;
    int64_t deadline; /* ns of CLOCK_MONOTONIC */
    bool posted, done;
    bool exposed; /* other ranks may write into coll.recv until it is done */
    int rc;
    struct mu_host_request *next;
    struct mu_message *message; /* pair: owned by pair_queue.c */

    /* Owned by the transport. */
    int algorithm, phase;
    uint64_t round, nrounds, base;
    int open_sends; /* unsent messages that still refer to our buffers */
};

/* How a sleeper is woken. */
enum mu_sleep { MU_SLEEP_DOORBELL = 1, MU_SLEEP_FUTEX = 2 };

/* Results of progress. */
enum { MU_WAITS, MU_FINISHED, MU_MORE, MU_FAILED };

struct mu_host_backend;
struct mu_host_domains;

/* Index of an event: a rank; MU_INDEX_LOCAL + index in the domain; or
 * MU_INDEX_DOORBELL.
 */
#define MU_INDEX_DOORBELL -1
#define MU_INDEX_LOCAL (1 << 24)

/* How a transport completes requests. The engine is locked during every call except
 * connect and wait. A function that returns MU_FAILED has called mu_engine_fail.
 */
struct mu_host_transport {
    const char *name;
    int (*connect)(struct mu_host_backend *b, const struct mu_host_domains *domains,
                   struct mu_err *err);
    /* Announce to the other ranks that this rank has entered; false: no room yet. */
    bool (*post)(struct mu_host_backend *b, struct mu_host_request *rq);
    /* Advance the oldest request, which is posted. */
    int (*progress)(struct mu_host_backend *b, struct mu_host_request *rq);
    /* Prepare to sleep until something changes; false: something has changed, do not
     * sleep.
     */
    bool (*arm)(struct mu_host_backend *b, enum mu_sleep how);
    /* Look for a moment, where that is faster than to sleep, until the oldest request
     * can advance; true: it can. NULL: not supported.
     */
    bool (*spin)(struct mu_host_backend *b);
    /* Sleep in the caller, armed with MU_SLEEP_FUTEX, unlocked. NULL: not supported. */
    void (*wait)(struct mu_host_backend *b);
    /* End such a sleep. */
    void (*nudge)(struct mu_host_backend *b);
    /* An event on a descriptor that connect registered with mu_engine_watch.
     * MU_INDEX_DOORBELL: another rank has rung the doorbell.
     */
    void (*event)(struct mu_host_backend *b, int index, uint32_t events);
    /* Called every `tick` ns of the backend while a request is started; may be NULL. */
    void (*tick)(struct mu_host_backend *b);
    /* The deadline of rq has passed: name the late ranks. */
    void (*late)(struct mu_host_backend *b, const struct mu_host_request *rq,
                 struct mu_failure *failure);
    /* Send the failure to the other ranks, without waiting. */
    void (*abort)(struct mu_host_backend *b);
    /* Send goodbye unless aborted; release everything. */
    void (*close)(struct mu_host_backend *b);
    /* In a forked child: close descriptors, leave shared state unchanged. */
    void (*forget)(struct mu_host_backend *b);
};

extern const struct mu_host_transport mu_transport_shm;
extern const struct mu_host_transport mu_transport_mesh;

struct mu_shm;
struct mu_mesh;
struct mu_host_arena;
struct mu_host_pairs;

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
    struct mu_host_pairs *pairs; /* NULL before the first message */
    uint64_t arena_used; /* largest of all ranks of the domain in the previous world */
    bool in_child;       /* of a fork; set by fork.in_child */
    struct mu_forkable fork;

    pthread_t thread;
    bool thread_started;
    int epoll_fd, doorbell_fd, timer_fd;

    pthread_mutex_t lock; /* the engine's: transport, active queue, failure */
    pthread_cond_t changed;
    bool stop;
    bool driver; /* a caller in join makes progress */
    int joiners;
    struct mu_host_request *head, **tail; /* started, oldest first */
    struct mu_host_request *unposted;
    struct mu_failure failure;
    bool report;        /* env.failed has not been called yet */
    _Atomic int failed; /* failure.status, readable without the lock */

    pthread_mutex_t inbox_lock; /* held for moments only: start must not block */
    struct mu_host_request *inbox, **inbox_tail;
    uint64_t next_seq;
    int64_t timer_at;     /* ns, 0: not set */
    int64_t tick;         /* ns, 0: none */
    _Atomic bool arrived; /* a request is in the inbox; read without its lock */
    _Atomic bool busy;    /* a request is in the inbox or active */
};

/* The backend behind the public handle, which is struct mu_backend in name only. */
static inline struct mu_host_backend *mu_host_of(const struct mu_backend *backend)
{
    return (struct mu_host_backend *)(uintptr_t)backend;
}

/* ---- engine.c, engine_queue.c ---- */
int mu_engine_open(struct mu_host_backend *b,
                   struct mu_err *err); /* descriptors, locks */
int mu_engine_start(struct mu_host_backend *b, struct mu_err *err); /* the thread */
void mu_engine_stop(struct mu_host_backend *b);
void mu_engine_close(struct mu_host_backend *b);
int mu_engine_watch(struct mu_host_backend *b, int fd, int index, uint32_t events,
                    struct mu_err *err);
void mu_engine_submit(struct mu_host_backend *b, struct mu_host_request *rq);
/* Block until rq is done; on failure copy b's failure to *err. */
int mu_engine_join(struct mu_host_backend *b, struct mu_host_request *rq,
                   struct mu_err *err);
/* True: join returns at once. */
bool mu_engine_test(struct mu_host_backend *b, const struct mu_host_request *rq);
/* Keeps the first failure only. Locked. report: call env.failed later. */
void mu_engine_fail(struct mu_host_backend *b, int status, int rank, bool report,
                    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Fail because that rank died. */
void mu_engine_lost(struct mu_host_backend *b, int rank, enum mu_death death);
/* Fail as rank `from` did. */
void mu_engine_follow(struct mu_host_backend *b, int from,
                      const struct mu_failure *failure);
/* The same from outside, unlocked, and reported. */
void mu_engine_blame(struct mu_host_backend *b, int status, int rank, const char *why);
void mu_engine_abort(struct mu_host_backend *b, int status, const char *why);
void mu_engine_extend(struct mu_host_backend *b, double seconds);

/* "rank 3 (node b)" */
const char *mu_rank_text(const struct mu_host_backend *b, int rank, char *buf,
                         size_t len);
/* "bucket 7 of step 1204", or "all-reduce number 17" */
const char *mu_host_request_text(const struct mu_host_request *rq);

/* ---- coll_args.c ---- */
/* A request for coll, checked; NULL with *err. */
struct mu_host_request *mu_host_request_make(const struct mu_host_backend *b,
                                             const struct mu_coll *coll,
                                             struct mu_err *err);
void mu_host_request_free(struct mu_host_request *rq);
/* Copies that overlapping buffers need; done by the thread that posts. */
void mu_host_request_settle(const struct mu_host_backend *b,
                            struct mu_host_request *rq);
void mu_host_request_finish(struct mu_host_request *rq);
const char *mu_kind_name(enum mu_coll_kind kind);
struct mu_signature mu_host_request_signature(const struct mu_host_request *rq);
struct mu_span {
    size_t at, n; /* elements */
};
/* The part of the vector that the owner of part `part` of nparts sums, or provides. */
struct mu_span mu_host_part(const struct mu_coll *c, int nparts, int part);
/* Bytes that one rank gives to nparts ranks. */
size_t mu_host_payload(const struct mu_host_request *rq, int nparts);
/* True if `rank`, which entered with `theirs`, has entered the same collective;
 * otherwise `why` becomes a sentence that names the difference, with the lower rank
 * first: it is the same on both ranks.
 */
bool mu_host_request_agrees(const struct mu_host_backend *b,
                            const struct mu_host_request *rq, int rank,
                            const struct mu_signature *theirs, char *why, size_t len);

/* Exchange: true if what `rank` sends to this rank, and expects from it, is what this
 * rank expects and sends; otherwise `why` becomes a sentence that names both. Where
 * both ways differ, it is about what the lower rank sends.
 */
bool mu_host_parts_agree(const struct mu_host_backend *b,
                         const struct mu_host_request *rq, int rank, uint64_t sent,
                         uint64_t expected, char *why, size_t len);

/* ---- pair_queue.c ---- */
/* Send and receive as rq->coll asks for. May block while this rank connects. */
int mu_pair_start(struct mu_host_backend *b, struct mu_host_request *rq,
                  struct mu_err *err);
/* True: join returns at once. */
bool mu_pair_test(struct mu_host_backend *b, const struct mu_host_request *rq);
/* Block until done, overdue or failed. */
int mu_pair_join(struct mu_host_backend *b, struct mu_host_request *rq,
                 struct mu_err *err);
void mu_pair_stop(struct mu_host_backend *b);   /* end the thread */
void mu_pair_forget(struct mu_host_backend *b); /* close the descriptors */
void mu_pair_close(struct mu_host_backend *b);

/* ---- zero_copy.c ---- */
int mu_host_arena_open(struct mu_host_backend *b, struct mu_err *err);
void mu_host_arena_close(struct mu_host_backend *b);
void *mu_host_arena_alloc(struct mu_host_backend *b, size_t bytes, struct mu_err *err);
void mu_host_arena_free(struct mu_host_backend *b, void *p);
/* Take over the blocks of `from` with their addresses and contents. */
int mu_host_arena_adopt(struct mu_host_backend *b, struct mu_host_backend *from,
                        struct mu_err *err);
/* Position of [p, p + bytes) in the shared file; false: not inside one allocation. */
bool mu_host_arena_offset(const struct mu_host_backend *b, const void *p, size_t bytes,
                          uint64_t *offset, uint64_t *block);
/* Bytes of one rank's pieces so far, including freed ones; b may be NULL. */
uint64_t mu_host_arena_used(const struct mu_host_backend *b);
/* Our mapping of those bytes, of any rank of the domain; NULL: not inside one
 * allocation.
 */
void *mu_host_arena_at(const struct mu_host_backend *b, uint64_t offset, size_t bytes);
/* Replace [p, p + bytes) by private pages with the same contents, so that a late rank's
 * stores into the shared pages have no effect here.
 */
int mu_host_arena_detach(struct mu_host_backend *b, void *p, size_t bytes);

#endif
