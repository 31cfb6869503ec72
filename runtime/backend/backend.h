/* SPDX-License-Identifier: BSD-3-Clause */
/* backend.h - what moves and adds the data: one small table of functions
 *
 *   api/ddp: parameters -> buckets        knows no CUDA, no sockets
 *        | mu_coll (one collective)
 *   backend/host: shared memory + TCP, one progress thread
 *   backend/nccl: NCCL and own kernels on CUDA streams (a module, loaded when needed)
 *
 * Collectives of one backend are started in the same order on all ranks.
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
#include "runtime/muster.h"

/* Everything a backend is opened with; all pointers borrowed until close. */
struct mu_backend_env {
    int rank, size;
    int local_rank, local_size;
    int node, nnodes;
    const int *node_of;          /* node of each rank */
    const char *const *host_of;  /* host name of each rank */
    const char *job;             /* "job.step", for names of communicators and files */
    const char *gpus;            /* MUSTER_PLAN gpus of this rank, "" unknown */
    uint8_t token[MU_TOKEN_LEN]; /* proves to a peer that we are of this job */
    /* An address of this host that the others reach, or NULL. */
    const char *master_addr;
    bool force_tcp; /* host: no shared memory, even inside a node */
    /* seconds; timeout is each collective's, from start; link_timeout: until a silent
     * TCP link of the host backend counts as dead, 0: 20
     */
    double init_timeout, timeout, link_timeout;
    struct mu_exchange exchange;
    const struct mu_log *log;
    /* Called once, from any thread, when the backend finds a peer dead or a collective
     * overdue. rank is the guilty one, or -1; status a muster_status.
     */
    void (*failed)(void *arg, int rank, int status, const char *why);
    void *failed_arg;
    /* The aborted backend of the world that a rank was lost from, or NULL. The new one
     * may take from it what it can use; see adopt.
     */
    struct mu_backend *parent;
    bool elastic; /* this one may become such a parent */
    /* True: a rank is gone, open need not wait any longer. NULL: not watched. */
    const atomic_bool *lost;
};

enum mu_coll_kind {
    MU_COLL_ALLREDUCE,
    MU_COLL_BROADCAST,
    MU_COLL_ALLGATHER,
    MU_COLL_REDUCE_SCATTER,
    MU_COLL_BARRIER,
};

/* What a collective belongs to: the same on all ranks, or the ranks have called in
 * another order.
 */
struct mu_owner {
    uint32_t object; /* a ddp object, from 1 in the order of create; 0: none */
    uint32_t part;   /* its bucket; in a broadcast its parameter */
    uint64_t step;   /* syncs of the object before */
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
                     each rank; reduce-scatter: received by each rank */
    int root;     /* broadcast */
    double scale; /* results are multiplied by it (the mean); 1.0: not. Integers are
                     scaled in double and rounded to nearest */
    void *stream; /* GPU: work enqueued there so far produces send */
    bool direct;  /* GPU: joined at once by the same stream, so that it may run there */
    bool hidden;  /* GPU: much computation follows; better slow than in its way */
    /* GPU: joined when all of its like have started, so that one event serves all. */
    bool batch_join;
    const char *what; /* "bucket 7 of step 1204"; borrowed until the request is done */
    struct mu_owner owner;
};

struct mu_request; /* one started collective; owned by the backend */

/* A piece of memory in a pack or unpack: count elements at `at`, at `offset` bytes of
 * the bucket.
 */
struct mu_piece {
    void *at;
    size_t offset, count;
};

struct mu_backend;

struct mu_backend_ops {
    const char *name; /* "host", "nccl" */
    /* Buffers lie in host memory, no stream is used, and the caller times waits: they
     * block in join.
     */
    bool host_memory;
    /* The ranks compare the owner of each collective: one that meets another's fails
     * with MUSTER_ECONTRACT.
     */
    bool compares;

    int (*open)(const struct mu_backend_env *env, struct mu_backend **out,
                struct mu_err *err);
    /* Orderly, collective; frees b. */
    void (*close)(struct mu_backend *b);
    /* From any thread: every started request ends with an error soon; b can only be
     * closed (not collectively) after that. why is copied.
     */
    void (*abort)(struct mu_backend *b, int status, const char *why);
    /* Aborted, or failed by itself: an error of a call is not that call's own any more.
     * NULL: never.
     */
    bool (*broken)(const struct mu_backend *b);

    /* One line for the banner: "shared memory", "TCP", "NVLink". Borrowed. */
    const char *(*transport)(const struct mu_backend *b);
    int (*device)(const struct mu_backend *b); /* CUDA index, -1 none */

    /* Zero-copy memory, 4096-byte aligned, zeroed. Collective: same sizes, same order.
     * Free it when no collective on it is in flight on any rank.
     */
    void *(*alloc)(struct mu_backend *b, size_t bytes, struct mu_err *err);
    void (*free)(struct mu_backend *b, void *p);

    /* Collective: b takes over the memory that `from`, aborted, has given out and whose
     * allocations it shares with the other ranks of b. The memory keeps its address and
     * contents, and serves like memory of b. from can only be closed after that, also
     * after a failure.
     */
    int (*adopt)(struct mu_backend *b, struct mu_backend *from, struct mu_err *err);

    /* Start; never blocks. *coll is copied. */
    int (*start)(struct mu_backend *b, const struct mu_coll *coll,
                 struct mu_request **out, struct mu_err *err);
    /* Host: block until done or past its deadline (err->code a muster_status). GPU:
     * make `stream` wait, without blocking the host. Frees the request either way.
     * After an error the contents of the receive buffer are undefined, but nobody
     * writes into it any more: neither a thread nor a rank that was late.
     */
    int (*join)(struct mu_backend *b, struct mu_request *request, void *stream,
                struct mu_err *err);
    /* Block the host until everything joined so far is finished. */
    int (*drain)(struct mu_backend *b, void *stream, struct mu_err *err);

    /* Gather n pieces of dtype `from` into the bucket as dtype `to` times scale, and
     * back. Host: done on return. GPU: enqueued on stream.
     */
    int (*pack)(struct mu_backend *b, const struct mu_piece *pieces, int n,
                enum muster_dtype from, void *bucket, enum muster_dtype to,
                double scale, void *stream, struct mu_err *err);
    int (*unpack)(struct mu_backend *b, const struct mu_piece *pieces, int n,
                  enum muster_dtype to, const void *bucket, enum muster_dtype from,
                  double scale, void *stream, struct mu_err *err);
    /* Plain copies and zeros in the backend's memory space, ordered on stream. */
    int (*copy)(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                void *stream, struct mu_err *err);
    int (*zero)(struct mu_backend *b, void *dst, size_t bytes, void *stream,
                struct mu_err *err);
    /* sums[0 .. MU_SQUARES-1] += the squares of count elements of a floating-point
     * type, in an order that count alone decides. data is 16-byte aligned, sums is
     * memory from alloc. Host: done on return. GPU: enqueued on stream.
     */
    int (*squares)(struct mu_backend *b, const void *data, size_t count,
                   enum muster_dtype dtype, double *sums, void *stream,
                   struct mu_err *err);
    /* GPU: *found (from alloc) becomes n - i for the first of n pieces, i, that has a
     * NaN or Inf, unless it is larger already; offsets do not count. Enqueued on
     * stream. NULL: the host can look itself.
     */
    int (*look)(struct mu_backend *b, const struct mu_piece *pieces, int n,
                enum muster_dtype dtype, uint32_t *found, void *stream,
                struct mu_err *err);
    /* One of compress.h's three, for n tensors. Host: done on return. GPU: enqueued. */
    int (*int8)(struct mu_backend *b, enum mu_int8_stage stage,
                const struct mu_int8_tensor *tensors, int n, int ranks, void *stream,
                struct mu_err *err);
    /* The same for compress.h's low-rank factors; all tensors have one matrix rank and
     * a g that is not empty.
     */
    int (*lowrank)(struct mu_backend *b, enum mu_lowrank_stage stage,
                   const struct mu_lowrank_tensor *tensors, int n, void *stream,
                   struct mu_err *err);
    /* GPU: p is memory that only the host can use. NULL: b takes any memory. */
    bool (*is_host)(const struct mu_backend *b, const void *p);
    /* GPU: copy, on either side memory of the host or of the GPU, behind all that any
     * stream has been given so far; done on return. Where is_host is.
     */
    int (*bring)(struct mu_backend *b, void *dst, const void *src, size_t bytes,
                 struct mu_err *err);

    /* From any thread: no request started so far is overdue before `seconds` from now.
     * NULL: the backend has no deadlines of its own.
     */
    void (*extend)(struct mu_backend *b, double seconds);

    /* What an all-reduce of f32 in memory from alloc takes, measured at open, the same
     * on all ranks; no points: not measured. NULL: never is.
     */
    void (*curve)(const struct mu_backend *b, struct mu_curve *out);
};

extern const struct mu_backend_ops mu_backend_host;
/* The host backend of a world of one rank. */
extern const struct mu_backend_ops mu_backend_one_rank;
/* In backend_nccl.so, found with dlsym. */
extern const struct mu_backend_ops mu_backend_nccl;

#endif
