/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl.h - declarations shared by the files of the NCCL backend
 *
 *   open.c     open, close, abort in the order of the layers below
 *   device.c   the CUDA device of this rank; no two ranks on one device
 *   current.c  the device during a call
 *   comm.c     the NCCL communicator: ids, deadline, abort
 *   peers.c    mappings of the memory of this node's other ranks; arenas
 *   own.c      the same of memory that the program allocated: agreement and end
 *   own_call.c a call on it
 *   own_follow.c what the watch thread does for it
 *   virtual.c  the same of virtual memory, by file descriptors (descriptors.c)
 *   measure.c  start-up times of the algorithms
 *   launch.c   choice of the algorithm, its kernels and calls
 *   copy.c     all-reduce by copy engines
 *   exchange.c messages and all-to-all: by which way, its calls
 *   coll.c     start and join
 *   carry.c    collectives of a program that calls NCCL
 *   trial.c    their times beside NCCL's
 *   serve.c    what libmuster-nccl takes from this module
 *   moments.c  times of the GPU's work, read later
 *   stream.c   block the host until streams are idle
 *   error.c    results of CUDA and NCCL as sentences
 *   tools.c    functions for benchmarks and GPU tests
 *   types.c    element types as NCCL has them
 *   pack.c     pack, unpack, copy, zero, squares
 *   watch.c    the thread that detects overdue work and errors
 */
#ifndef MU_NCCL_NCCL_H
#define MU_NCCL_NCCL_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/backend/backend.h"
#include "runtime/backend/serve.h"
#include "runtime/backend/nccl/kernels/kernels.h"
#include "runtime/backend/nccl/algo.h"
#include "runtime/backend/nccl/own.h"

/* Device memory beyond the buckets: areas that peers store packets and lines into. */
#define MU_PACKETS_BYTES ((size_t)8 << 20)
#define MU_LINES_BYTES ((size_t)24 << 20)
#define MU_PARTS_BYTES ((size_t)24 << 20)
#define MU_WATCHED 64
#define MU_CAPTURES 4 /* of one communicator at a time */

/* The address record, which each rank publishes before anything is connected. */
struct mu_nccl_record {
    uint8_t uuid[16];
    char pci[32];
    int32_t nccl;                     /* version of the loaded library */
    int32_t capability;               /* 90 for sm_90 */
    int32_t mappable;                 /* `control` is valid */
    int32_t parent_size, parent_rank; /* in the communicator to shrink; size 0: none */
    uint64_t parent_generation;       /* which one that is */
    cudaIpcMemHandle_t control;
    ncclUniqueId id; /* of a root rank, else zero */
};

/* Memory from alloc: same size on all ranks, mapped by the ranks of this node; by this
 * one alone, as long as a newcomer is among them.
 */
struct mu_nccl_arena {
    uint64_t id; /* equal on the ranks that have allocated it together */
    bool mapped;
    char *base;
    size_t bytes;
    char *peer[MU_PEERS];  /* by local rank, including this one; NULL: not mapped */
    char *there[MU_PEERS]; /* by local rank: ours, as it has mapped it */
    struct mu_nccl_arena *next;
};

struct mu_nccl_request {
    cudaEvent_t ready, done;
    bool direct;     /* ran on the stream that joins it */
    bool late;       /* no event recorded yet: see mu_coll.batch_join */
    uint64_t number; /* among those on the backend's stream */
    struct mu_nccl_request *next;
};

/* A point of a stream, and the GPU's time line of them: moments.c. */
struct mu_nccl_moment {
    cudaEvent_t event;
    int64_t enqueued; /* ns, host */
    struct mu_nccl_moment *next, *made;
};
struct mu_nccl_moments {
    struct mu_nccl_moment *free, *made; /* unused ones; all */
    cudaEvent_t last;                   /* the end of the chain; NULL: none yet */
    double at;                          /* its ns on the time line */
    double newest;                      /* the latest ns so far */
    double shift;                       /* host - origin = line + shift */
    int64_t origin;                     /* ns, host */
};

/* A collective of NCCL that the watch thread follows with an event. */
struct mu_watched {
    cudaEvent_t done;
    atomic_int armed;
    double since; /* seconds, monotonic */
    char what[96];
};

/* A capture of the program: its last kernel of ours, and the record behind that. */
struct mu_capture {
    unsigned long long id;
    cudaGraphNode_t kernel, record;
};

/* State of an aborted elastic backend's communicator. Where NCCL can revoke it, its
 * kernels end and the next backend can shrink it.
 */
enum mu_spared {
    MU_NOT_SPARED,
    MU_REVOKING,
    MU_SPARED,
    MU_TAKEN, /* the next backend is using it */
    MU_SPENT, /* abort it now */
};

struct mu_nccl_backend {
    struct mu_backend_env env;
    int device;
    char pci[32];
    /* By rank. Filled for this node's ranks and the roots; for all ranks if there is a
     * parent.
     */
    struct mu_nccl_record *records;
    int *local_ranks; /* global rank of each local rank */
    ncclComm_t comm;
    pthread_mutex_t in_call; /* mu_comm_calls */
    cudaStream_t stream;     /* all collectives, in order */

    bool own;      /* our kernels are usable: one node, all memory mapped */
    char *control; /* struct mu_flags, packets, lines, parts */
    size_t control_bytes;
    char *peer_control[MU_PEERS], *control_there[MU_PEERS]; /* as in an arena */
    struct mu_reach reach;
    struct mu_host_words *words; /* host address of the mapped words */
    char *scratch;               /* 4 KiB of device memory */
    struct mu_algo_table table;
    void *measure_buffer; /* while measuring */
    bool nccl_warm;       /* NCCL has its connections */
    int forced;           /* an algorithm, or -1: by the table */
    struct mu_nccl_arena *arenas;
    unsigned arena_count; /* of mappings */
    uint32_t arenas_made; /* by alloc */
    struct mu_own ours;
    struct mu_nccl_request *free_requests;
    cudaStream_t tail; /* a stream behind all collectives so far */
    uint64_t started;  /* requests on `stream` */
    bool quiet;        /* nothing has been enqueued since mu_nccl_quiet */
    struct mu_nccl_moments moments;
    cudaStream_t joined; /* a stream that waits for the first joined_upto of them */
    uint64_t joined_upto;

    /* carry.c: behind all that was carried out so far, the last on that stream unless
     * graphs record it too
     */
    cudaEvent_t behind;
    unsigned long long behind_stream;
    bool carried, graphs;
    struct mu_capture captures[MU_CAPTURES];
    unsigned next_capture;
    unsigned long calls[MU_ALGOS], calls_captured; /* for a line when it closes */

    pthread_t watch, aborter;
    bool watching;
    atomic_bool stop, aborted, abort_thread, reported;
    atomic_int spared; /* enum mu_spared */
    int abort_status;
    char why[512];
    struct mu_watched watched[MU_WATCHED];
    unsigned watched_head, watched_tail;
    char transport[64];
};

/* The backend behind the public handle, which is struct mu_backend in name only. */
static inline struct mu_nccl_backend *mu_nccl_of(const struct mu_backend *backend)
{
    return (struct mu_nccl_backend *)(uintptr_t)backend;
}

/* error.c. Fill err from a CUDA or NCCL result; each returns -1. */
int mu_cuda_err(struct mu_err *err, cudaError_t rc, const char *what);
int mu_nccl_err(struct mu_err *err, const struct mu_nccl_backend *b, ncclResult_t rc,
                const char *what);
int mu_nccl_aborted(struct mu_nccl_backend *b, struct mu_err *err); /* 0: not */

/* device.c: choose the device and make it current; detect two ranks on one device. */
int mu_device_choose(struct mu_nccl_backend *b, struct mu_err *err);
int mu_device_check(struct mu_nccl_backend *b, struct mu_err *err);
/* current.c: a call after open works between enter and leave. The device is current in
 * between, then the caller's is again.
 */
cudaError_t mu_device_enter(const struct mu_nccl_backend *b, int *callers);
void mu_device_leave(const struct mu_nccl_backend *b, int callers);

/* comm.c. Ids come from the roots: rank i * size / count for i < count. */
int mu_comm_roots(int size);
bool mu_comm_is_root(int rank, int size);
int mu_comm_begin(struct mu_nccl_backend *b, struct mu_err *err);
/* Keep the parent's communicator from being aborted and offer it in our address record.
 */
void mu_comm_take(struct mu_nccl_backend *b, struct mu_nccl_record *mine);
/* The parent's communicator is not needed any more. */
void mu_comm_spend(struct mu_nccl_backend *b);
/* In a thread: abort now, or revoke now and abort when it is spent. */
void mu_comm_end(struct mu_nccl_backend *b);
/* Wait until the communicator is idle or the time has passed. */
int mu_comm_wait(struct mu_nccl_backend *b, double timeout, const char *what,
                 struct mu_err *err);
/* Around each call of NCCL that enqueues; mu_comm_called waits until NCCL has enqueued
 * it, rc is the call's result. In between no other thread asks for NCCL's state:
 * ncclCommGetAsyncError ends the thread in which NCCL carries out the call, and two
 * threads that do so free it twice (NCCL 2.28).
 */
void mu_comm_calls(struct mu_nccl_backend *b);
int mu_comm_called(struct mu_nccl_backend *b, ncclResult_t rc, const char *what,
                   struct mu_err *err);
/* The communicator's error; ncclSuccess during such a call, which reports its own. */
ncclResult_t mu_comm_error(struct mu_nccl_backend *b);
void mu_comm_abort(struct mu_nccl_backend *b);
void mu_comm_close(struct mu_nccl_backend *b);

/* peers.c */
int mu_peers_prepare(struct mu_nccl_backend *b, struct mu_nccl_record *mine,
                     struct mu_err *err);
int mu_peers_connect(struct mu_nccl_backend *b, struct mu_err *err);
void mu_peers_close(struct mu_nccl_backend *b);
/* copy: where the other ranks store their parts of this local rank's segment. */
char *mu_parts_of(const struct mu_nccl_backend *b, int local_rank);
void *mu_nccl_arena_alloc(struct mu_nccl_backend *b, size_t bytes, struct mu_err *err);
void mu_nccl_arena_free(struct mu_nccl_backend *b, void *p);
int mu_nccl_arena_adopt(struct mu_nccl_backend *b, struct mu_nccl_backend *from,
                        struct mu_err *err);
/* Where [p, p + bytes) is mapped; false: not inside an arena. */
bool mu_nccl_arena_peers(const struct mu_nccl_backend *b, const void *p, size_t bytes,
                         struct mu_places *out);

/* Every rank publishes `len` bytes; all: those of this node. Collective. */
int mu_peers_collect(struct mu_nccl_backend *b, const char *key, const void *mine,
                     size_t len, void *all, struct mu_err *err);

/* measure.c */
int mu_measure(struct mu_nccl_backend *b, struct mu_err *err);

/* types.c */
ncclDataType_t mu_nccl_type(enum muster_dtype dtype);

/* launch.c */
/* The same on all ranks, where all have memory from alloc or none: by size, type and
 * operation, never by address or alignment.
 */
unsigned mu_nccl_usable(const struct mu_nccl_backend *b, const struct mu_coll *coll,
                        struct mu_places *places);
/* The backend's `way`. */
unsigned mu_nccl_way(const struct mu_nccl_backend *b, const struct mu_coll *coll);
int mu_nccl_launch(struct mu_nccl_backend *b, const struct mu_coll *coll,
                   enum mu_algo algo, const struct mu_places *places,
                   struct mu_err *err);
/* What our kernels make of it; of all-gather and broadcast count are bytes. */
struct mu_work mu_nccl_work(const struct mu_coll *coll);
/* By the fastest usable algorithm. */
int mu_nccl_enqueue(struct mu_nccl_backend *b, const struct mu_coll *coll,
                    struct mu_err *err);

/* copy.c: of a collective at one place on all ranks, as mu_nccl_arena_peers has it. */
cudaError_t mu_copy_launch(struct mu_nccl_backend *b, const struct mu_coll *c,
                           const struct mu_places *places);

/* exchange.c: of messages and all-to-all. Which parts go by which way. */
struct mu_parts {
    struct mu_mail mail; /* small ones */
    bool sends, receives;
    struct mu_pipe pipe; /* large ones */
    bool piped;
    bool rest; /* NCCL has all of it */
};
struct mu_parts mu_parts_split(const struct mu_nccl_backend *b,
                               const struct mu_coll *c);
ncclResult_t mu_exchange_rest(struct mu_nccl_backend *b, const struct mu_coll *c);
cudaError_t mu_exchange_own_part(struct mu_nccl_backend *b, const struct mu_coll *c);

/* coll.c */
int mu_nccl_start(struct mu_nccl_backend *b, const struct mu_coll *coll,
                  struct mu_nccl_request **out, struct mu_err *err);
int mu_nccl_join(struct mu_nccl_backend *b, struct mu_nccl_request *request,
                 void *stream, struct mu_err *err);
bool mu_nccl_test(const struct mu_nccl_backend *b,
                  const struct mu_nccl_request *request);
void mu_nccl_close(struct mu_nccl_backend *b);

/* moments.c: the backend operations of these names */
void *mu_nccl_moment(struct mu_nccl_backend *b, void *stream);
bool mu_nccl_reached(struct mu_nccl_backend *b, void *moment, int64_t *ns);
void mu_nccl_forget(struct mu_nccl_backend *b, void *moment);
void mu_nccl_moments_close(struct mu_nccl_backend *b);

/* carry.c: for a communicator of the program */
int mu_carry_open(struct mu_nccl_backend *b, struct mu_err *err);
void mu_carry_close(struct mu_nccl_backend *b);
/* Log which ways the calls took, for who looks for the reason of a slow one. */
void mu_carry_report(struct mu_nccl_backend *b);
/* Block until all that was carried out is done. */
void mu_carry_drain(struct mu_nccl_backend *b);
int mu_nccl_carry(struct mu_backend *backend, const struct mu_coll *coll, bool mapped,
                  bool *carried, struct mu_err *err);

/* trial.c: as serve.h has `measure` */
int mu_nccl_trials(struct mu_backend *backend, struct mu_trial *trials, int n,
                   mu_nccl_call_fn *nccl, void *arg, struct mu_err *err);

/* stream.c */
int mu_nccl_drain(struct mu_nccl_backend *b, void *stream, struct mu_err *err);
int mu_nccl_idle(struct mu_nccl_backend *b, void *stream, struct mu_err *err);
/* The same of every stream that a collective runs on. When the backend is aborted
 * before the next one, nothing hangs, and its close frees everything.
 */
int mu_nccl_quiet(struct mu_nccl_backend *b, struct mu_err *err);
/* Block until the backend's stream is idle; on timeout err names the late rank. */
int mu_nccl_wait(struct mu_nccl_backend *b, double timeout, struct mu_err *err);

/* pack.c: the backend operations of these names */
int mu_pack_pieces(struct mu_backend *b, const struct mu_piece *pieces, int n,
                   enum muster_dtype from, void *bucket, enum muster_dtype to,
                   double scale, void *stream, struct mu_err *err);
int mu_unpack_pieces(struct mu_backend *b, const struct mu_piece *pieces, int n,
                     enum muster_dtype to, const void *bucket, enum muster_dtype from,
                     double scale, void *stream, struct mu_err *err);
int mu_copy_bytes(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                  void *stream, struct mu_err *err);
int mu_zero_bytes(struct mu_backend *b, void *dst, size_t bytes, void *stream,
                  struct mu_err *err);
int mu_add_squares(struct mu_backend *b, const void *data, size_t count,
                   enum muster_dtype dtype, double *sums, void *stream,
                   struct mu_err *err);
int mu_find_nonfinite_pieces(struct mu_backend *b, const struct mu_piece *pieces, int n,
                             enum muster_dtype dtype, uint32_t *found, void *stream,
                             struct mu_err *err);
int mu_int8_tensors(struct mu_backend *b, enum mu_int8_stage stage,
                    const struct mu_int8_tensor *tensors, int n, int ranks,
                    void *stream, struct mu_err *err);
int mu_lowrank_tensors(struct mu_backend *b, enum mu_lowrank_stage stage,
                       const struct mu_lowrank_tensor *tensors, int n, void *stream,
                       struct mu_err *err);
bool mu_is_host(const struct mu_backend *b, const void *p);
int mu_copy_any(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                struct mu_err *err);
void *mu_alloc_private(struct mu_backend *b, size_t bytes, void *stream,
                       struct mu_err *err);
void mu_free_private(struct mu_backend *b, void *p, void *stream);

/* watch.c */
int mu_watch_start(struct mu_nccl_backend *b, struct mu_err *err);
void mu_watch_stop(struct mu_nccl_backend *b);
/* Watch the work enqueued on b->stream so far. */
void mu_watch_add(struct mu_nccl_backend *b, const char *what);

/* For tools and tests: force an algorithm by name ("auto" ends that). Messages are
 * NCCL's where that is "nccl", our kernels' otherwise.
 */
int mu_nccl_force(struct mu_backend *b, const char *path);
/* Mapping of p, inside an arena, of a local rank; NULL: not mapped. */
void *mu_nccl_peer(struct mu_backend *b, const void *p, int local_rank);
/* NCCL's own all-reduce (sum) on `stream`, without our code: the baseline. */
int mu_nccl_plain(struct mu_backend *b, const void *send, void *recv, size_t count,
                  enum muster_dtype dtype, void *stream, struct mu_err *err);
/* Exchange count elements with another rank, by NCCL, on `stream`. */
int mu_nccl_sendrecv(struct mu_backend *b, const void *send, void *recv, size_t count,
                     enum muster_dtype dtype, int peer, void *stream,
                     struct mu_err *err);
const struct mu_algo_table *mu_nccl_table(const struct mu_backend *b);

#endif
