/* SPDX-License-Identifier: BSD-3-Clause */
/* backend.h - the table of functions that move and add data
 *
 *   api/ddp: parameters -> buckets        uses neither CUDA nor sockets
 *        | mu_coll (one collective)
 *   backend/host: shared memory + TCP, one progress thread
 *   backend/nccl: NCCL and own kernels on CUDA streams (a module, loaded when needed)
 *
 * All ranks start the collectives of one backend in the same order.
 */
#ifndef MU_BACKEND_H
#define MU_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/exchange.h"
#include "runtime/base/log.h"
#include "runtime/core/compress.h"
#include "runtime/core/curve.h"
#include "runtime/core/numeric.h"
#include "runtime/core/reporter.h"
#include "runtime/muster.h"

struct mu_address;
struct mu_endpoint;

/* What open needs. The backend borrows all pointers until close. */
struct mu_backend_env {
    int rank, size;
    int local_rank, local_size;
    int node, nnodes;
    const int *node_of;         /* node of each rank */
    const char *const *host_of; /* host name of each rank */
    const char *job;            /* "job.step", for names of communicators and files */
    const char *gpus;           /* MUSTER_PLAN gpus of this rank, "" unknown */
    /* proves to a peer that this rank belongs to the job */
    uint8_t token[MU_TOKEN_LEN];
    /* Host: connections to the other ranks. address: by rank. */
    struct mu_endpoint *endpoint;
    const struct mu_address *address;
    uint64_t generation; /* of the world; see struct mu_claim */
    bool force_tcp;      /* host: no shared memory, even inside a node */
    bool map_memory;     /* GPUs: the peers map memory that the program allocates */
    bool virtual_memory; /* it is virtual: map only where all ranks can map that */
    /* GPUs: the program's NCCL communicator of these ranks, which the backend neither
     * aborts nor destroys; it only serves a program's calls then (serve.h). NULL: the
     * backend makes its own.
     */
    void *communicator;
    /* Seconds. timeout: limit of each collective, from its start. link_timeout: a TCP
     * link of the host backend that stays silent so long counts as dead; 0: 20.
     */
    double init_timeout, timeout, link_timeout;
    struct mu_exchange exchange;
    const struct mu_log *log;
    /* The backend calls this once, from any thread, when it finds a dead peer or an
     * overdue collective. rank: the rank at fault, or -1. status: a muster_status.
     */
    void (*failed)(void *arg, int rank, int status, const char *why);
    /* Instead of failed, where that rank died. NULL: failed is called. */
    void (*died)(void *arg, int rank, enum mu_death death);
    void *failed_arg;
    /* The aborted backend of the previous world, which has lost ranks or takes new
     * ones, or NULL. The new backend may reuse its parts; see adopt.
     */
    struct mu_backend *parent;
    bool elastic; /* this backend may become the parent of another */
    /* True: a rank is lost, open stops waiting. NULL: open does not watch for losses.
     */
    const atomic_bool *lost;
};

enum mu_coll_kind {
    MU_COLL_ALLREDUCE,
    MU_COLL_BROADCAST,
    MU_COLL_ALLGATHER,
    MU_COLL_REDUCE_SCATTER,
    MU_COLL_BARRIER,
    MU_COLL_REDUCE,   /* the sum, on rank root alone */
    MU_COLL_EXCHANGE, /* a part from each rank to each other */
    /* No collective: this rank sends to rank `to` and receives from rank `from`. Only
     * these have the same call.
     */
    MU_COLL_PAIR,
};

/* Which call of the program an exchange is, for comparison and messages. */
enum mu_pattern { MU_ALLTOALL, MU_ALLTOALLV, MU_GATHER, MU_SCATTER };

/* Elements at .. at + count - 1 of a buffer. */
struct mu_part {
    size_t at, count;
};

/* The object of a collective that libmuster starts by itself: a barrier, or what begins
 * an exchange over the control connections.
 */
#define MU_OWNER_LIBRARY UINT32_MAX
/* Its part where the rank has called muster_finalize; for messages only. */
#define MU_PART_FINALIZE 1

/* The object that a collective belongs to. All ranks must have the same; otherwise they
 * called collectives in different orders.
 */
struct mu_owner {
    /* A ddp object, from 1 in the order of create. 0: none. MU_OWNER_LIBRARY. */
    uint32_t object;
    uint32_t part; /* its bucket; in a broadcast its parameter */
    uint64_t step; /* syncs of the object so far */
};

/* When a backend worked on a collective: ns of CLOCK_MONOTONIC, 0 unknown. GPU: moments
 * (see there) instead, which the caller gives back; NULL: unknown.
 */
struct mu_coll_times {
    int64_t began, ended;
    void *from, *to;
};

/* One collective. Elements of dtype; send == recv is in place; for all-gather and
 * reduce-scatter the smaller buffer may lie anywhere inside the larger one.
 */
struct mu_coll {
    enum mu_coll_kind kind;
    enum muster_dtype dtype;
    enum muster_op op;
    const void *send;
    void *recv;
    size_t count; /* all-reduce, broadcast: elements of the buffer; all-gather: sent by
                     each rank; reduce-scatter: received by each rank; exchange: of each
                     part, 0 where they differ */
    int root;     /* broadcast, reduce; exchange: of a gather and a scatter */
    /* Exchange: the parts of send and recv for each rank, borrowed until the request is
     * done. Parts of recv do not overlap each other or a part of send, but this rank's
     * own part may be in place.
     */
    enum mu_pattern pattern;
    const struct mu_part *sends, *recvs;
    int to, from;      /* pair; -1: none */
    size_t recv_count; /* pair: elements of recv; count are those of send */
    /* the result is multiplied by it (the mean); 1.0: no scaling. Integers are scaled
     * in double and rounded to nearest
     */
    double scale;
    void *stream; /* GPU: the work enqueued on it so far produces send */
    /* GPU: the same stream joins at once, so the collective may run on it */
    bool direct;
    bool hidden; /* GPU: computation runs beside it; prefer slow to disturbing */
    /* GPU: on all ranks the buffer has the same place in memory from alloc. Buffers of
     * the program may not: each rank sees its own alone.
     */
    bool same_place;
    /* GPU: callers start all buckets before joining any, so one CUDA event can cover
     * them.
     */
    bool batch_join;
    bool joined;      /* the caller joins at once and waits for it */
    const char *what; /* "bucket 7 of step 1204"; borrowed until the request is done */
    struct mu_owner owner;
    bool timed; /* the caller of mu_coll_start wants times, where they are recorded */
    /* Filled until join returns, on a GPU until start does; NULL: not wanted. */
    struct mu_coll_times *times;
};

enum mu_way {
    MU_WAY_OTHER = 1,     /* memory that alloc did not return */
    MU_WAY_ALLOCATED = 2, /* memory from alloc */
    MU_WAY_ASIDE = 4,     /* beside the program's work: not `direct` */
    MU_WAY_HOST = 8,      /* host memory, through a GPU's */
};

struct mu_request; /* one started collective; owned by the backend */

/* One tensor of a pack or unpack: count elements at `at`, stored from byte `offset` of
 * the bucket.
 */
struct mu_piece {
    void *at;
    size_t offset, count;
};

struct mu_backend;

struct mu_backend_ops {
    const char *name; /* "host", "nccl" */
    /* Buffers are in host memory and no stream is used. Collectives block in join, and
     * the caller measures that wait.
     */
    bool host_memory;
    /* The ranks compare the owner of each collective; a difference fails it with
     * MUSTER_ECONTRACT.
     */
    bool compares;

    int (*open)(const struct mu_backend_env *env, struct mu_backend **out,
                struct mu_err *err);
    /* Closes in order and frees b. Collective. */
    void (*close)(struct mu_backend *b);
    /* From any thread. Every started request soon ends with an error. After that, only
     * close is allowed on b, and it is not collective. why is copied.
     */
    void (*abort)(struct mu_backend *b, int status, const char *why);
    /* True after an abort or a failure: later calls return that error, not one of their
     * own. NULL: the backend never fails.
     */
    bool (*broken)(const struct mu_backend *b);

    /* One line for the banner: "shared memory", "TCP", "NVLink". Borrowed. */
    const char *(*transport)(const struct mu_backend *b);
    int (*device)(const struct mu_backend *b); /* CUDA index, -1 none */

    /* Zero-copy memory, zeroed, aligned to 4096 bytes. Collective: same sizes, same
     * order. Free it when no rank has a collective on it in flight.
     */
    void *(*alloc)(struct mu_backend *b, size_t bytes, struct mu_err *err);
    void (*free)(struct mu_backend *b, void *p);

    /* Collective: b takes over the memory allocated from the aborted backend `from`, as
     * far as the ranks of b share those allocations. Addresses and contents stay, and
     * the memory is used like memory of b; what newcomers do not share is this rank's
     * alone. from NULL: this rank is a newcomer. Close `from` only after this call,
     * even if it failed.
     */
    int (*adopt)(struct mu_backend *b, struct mu_backend *from, struct mu_err *err);

    /* GPU: by which way the data of a collective go, where kind, type and size leave a
     * choice to the buffer or the call; 0: they do not. Ranks of different ways wait
     * for each other until the deadline. NULL: 0.
     */
    unsigned (*way)(const struct mu_backend *b, const struct mu_coll *coll);

    /* Start; blocks for a connection at most. *coll is copied. */
    int (*start)(struct mu_backend *b, const struct mu_coll *coll,
                 struct mu_request **out, struct mu_err *err);
    /* Host: block until done or overdue (err->code: a muster_status). GPU: make
     * `stream` wait; the host does not block. Frees the request in all cases. After an
     * error the receive buffer has undefined contents, but no thread and no late rank
     * writes into it any more.
     */
    int (*join)(struct mu_backend *b, struct mu_request *request, void *stream,
                struct mu_err *err);
    /* True: it is done, or b has failed. Not for direct and batch_join. NULL: always.
     */
    bool (*test)(struct mu_backend *b, const struct mu_request *request);
    /* Block the host until everything joined so far has finished. */
    int (*drain)(struct mu_backend *b, void *stream, struct mu_err *err);
    /* The same, for whatever stream they have joined: before an abort of a backend that
     * works on all ranks. NULL: what is joined has finished.
     */
    int (*quiet)(struct mu_backend *b, struct mu_err *err);
    /* GPU: block the host until stream is idle. Present whenever is_host is. */
    int (*idle)(struct mu_backend *b, void *stream, struct mu_err *err);

    /* Copy n pieces of dtype `from` into the bucket as dtype `to` times scale (pack),
     * or back (unpack). Host: done on return. GPU: enqueued on stream.
     */
    int (*pack)(struct mu_backend *b, const struct mu_piece *pieces, int n,
                enum muster_dtype from, void *bucket, enum muster_dtype to,
                double scale, void *stream, struct mu_err *err);
    int (*unpack)(struct mu_backend *b, const struct mu_piece *pieces, int n,
                  enum muster_dtype to, const void *bucket, enum muster_dtype from,
                  double scale, void *stream, struct mu_err *err);
    /* Copy and clear in the backend's memory space, in stream order. */
    int (*copy)(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                void *stream, struct mu_err *err);
    int (*zero)(struct mu_backend *b, void *dst, size_t bytes, void *stream,
                struct mu_err *err);
    /* sums[0 .. MU_SQUARES-1] += the squares of count floating-point elements. The
     * order of additions depends on count alone. data: 16-byte aligned. sums: memory
     * from alloc. Host: done on return. GPU: enqueued on stream.
     */
    int (*squares)(struct mu_backend *b, const void *data, size_t count,
                   enum muster_dtype dtype, double *sums, void *stream,
                   struct mu_err *err);
    /* GPU: find NaN and Inf. If piece i is the first of n that contains one, *found
     * (from alloc) becomes n - i unless it is larger already. Ignores offsets. Enqueued
     * on stream. NULL: the caller reads host memory itself.
     */
    int (*find_nonfinite)(struct mu_backend *b, const struct mu_piece *pieces, int n,
                          enum muster_dtype dtype, uint32_t *found, void *stream,
                          struct mu_err *err);
    /* One of compress.h's int8 stages for n tensors. Host: done on return. GPU:
     * enqueued.
     */
    int (*int8)(struct mu_backend *b, enum mu_int8_stage stage,
                const struct mu_int8_tensor *tensors, int n, int ranks, void *stream,
                struct mu_err *err);
    /* PowerSGD stage for n tensors of equal matrix rank; every tensor has a gradient.
     */
    int (*lowrank)(struct mu_backend *b, enum mu_lowrank_stage stage,
                   const struct mu_lowrank_tensor *tensors, int n, void *stream,
                   struct mu_err *err);
    /* GPU: true if only the host can access p. NULL: b accepts any memory. */
    bool (*is_host)(const struct mu_backend *b, const void *p);
    /* GPU: copy between any two of host and device memory, after all work that any
     * stream has so far; done on return. Present whenever is_host is.
     */
    int (*copy_any)(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                    struct mu_err *err);
    /* GPU: memory of this rank alone, in stream order; other streams are not waited
     * for. Present whenever is_host is.
     */
    void *(*alloc_private)(struct mu_backend *b, size_t bytes, void *stream,
                           struct mu_err *err);
    void (*free_private)(struct mu_backend *b, void *p, void *stream);

    /* From any thread: give every request started so far at least `seconds` from now.
     * NULL: the backend has no deadlines.
     */
    void (*extend)(struct mu_backend *b, double seconds);

    /* GPU: the moment at which the stream has done all its work so far. NULL: the
     * stream is being captured, or CUDA refuses.
     */
    void *(*moment)(struct mu_backend *b, void *stream);
    /* Give the moment back, with its ns of CLOCK_MONOTONIC, 0: unknown. False: it is
     * still to come. Does not wait.
     */
    bool (*reached)(struct mu_backend *b, void *moment, int64_t *ns);
    /* Give it back unread. All three are there or none; close gives back the rest. */
    void (*forget)(struct mu_backend *b, void *moment);

    /* Times of an all-reduce of f32 in memory from alloc, measured at open and equal on
     * all ranks. No points: not measured. NULL: the backend never measures.
     */
    void (*curve)(const struct mu_backend *b, struct mu_curve *out);
};

extern const struct mu_backend_ops mu_backend_host;
/* The host backend of a world of one rank. */
extern const struct mu_backend_ops mu_backend_one_rank;
/* In backend_nccl.so; found with dlsym. */
extern const struct mu_backend_ops mu_backend_nccl;

#endif
