/* SPDX-License-Identifier: BSD-3-Clause */
/* muster.h - data-parallel training (DDP) for programs in C and CUDA C
 *
 * ---- The calls that a first program needs -------------------------------------------
 *
 *     struct muster *m;
 *     struct muster_ddp *ddp;
 *
 *     if (muster_init(&m, NULL) != MUSTER_OK)       // rank and size from PMIx, ...
 *         return muster_report(NULL);               // print why; the exit status
 *     if (muster_ddp_create(m, params, nparams, NULL, &ddp) != MUSTER_OK ||
 *         muster_ddp_broadcast(ddp, 0) != MUSTER_OK)  // rank 0's weights everywhere
 *         return muster_report(m);
 *     for (step = 0; step < steps; step++) {
 *         for (i = nparams - 1; i >= 0; i--) {
 *             backward(i, muster_ddp_grad(ddp, i)); // yours: writes gradient i
 *             muster_ddp_grad_ready(ddp, i, NULL);  // its bucket may start now
 *         }
 *         if (muster_ddp_sync(ddp, NULL) != MUSTER_OK)
 *             return muster_report(m);
 *         optimizer();                              // yours: each gradient is the mean
 *     }
 *     muster_ddp_destroy(ddp);
 *     return muster_finalize(m);
 *
 * share/muster/example.c is such a program as a whole. Start it with srun --mpi=pmix.
 *
 * ---- The rest, by section -----------------------------------------------------------
 *
 *   Status and types        exit statuses, element types
 *   The world               init and end, errors, deadlines, rank and size
 *   Groups                  some of the ranks, used like the world
 *   Collectives             all-reduce and others on your own buffers
 *   Gradients               parameters, buckets, sync
 *   Fewer ranks             options.elastic: go on when ranks die
 *   More ranks              options.grow: processes join between two steps
 *   Weighted means          micro-batches of unequal size, ranks without data
 *   Norm, clipping, scale   what sync does on top
 *   Sharded optimizer       ZeRO-1
 *   Compression             16 bits, 8 bits, PowerSGD, your own reduce
 *   Samples                 which rank takes which samples
 *   Checkpoints             write, read, resume
 *
 * Rules for all of them:
 *
 * - Ranks are those of m, 0 .. size-1, unless a name contains "local" or "world".
 * - Counts are elements, not bytes.
 * - A function that can fail returns a muster_status; muster_error(m) explains it.
 * - NULL is fine where an object ends. Strings that calls return are borrowed.
 * - Objects are not thread safe: one thread calls at a time.
 * - Zero-initialise each struct before you set its fields. A later release puts fields
 *   where `reserved` is, and the struct keeps its size: programs run with a newer
 *   library as they are. A call refuses other values than 0 there with MUSTER_EUSAGE.
 * - `stream` is a cudaStream_t cast to void *; NULL is the default stream. A world
 *   without GPUs ignores it.
 * - [collective]: all ranks make the call, in the same order. After its deadline the
 *   job ends with the name of the missing rank.
 */
#ifndef MUSTER_H
#define MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header: as text, and as a number that grows. */
#define MUSTER_VERSION "0.1.0"
#define MUSTER_VERSION_NUMBER 100 /* major * 10000 + minor * 100 + patch */

/* ---- Status and types ------------------------------------------------------------ */

/* Each is usable as an exit status; Slurm's requeue rules can act on it. */
enum muster_status {
    MUSTER_OK = 0,
    MUSTER_EUSAGE = 10, /* a wrong argument or call order */
    MUSTER_ERENDEZVOUS, /* no way in, a rank did not arrive, no connection */
    MUSTER_ECONTRACT,   /* ranks disagree: model, versions, world, NCCL's network */
    MUSTER_EPEER,       /* a rank died */
    MUSTER_ETIMEOUT,    /* a rank missed the deadline */
    MUSTER_EDEVICE,     /* GPU, CUDA or NCCL */
    MUSTER_EIO,         /* file or network */
    MUSTER_EMEMORY,     /* out of memory */
    MUSTER_ENUMERIC,    /* screening found NaN or Inf */
    MUSTER_EINTERNAL,   /* a defect of libmuster */
    MUSTER_ESHRUNK = 30 /* ranks died, this one goes on; see "Fewer ranks" */
};

const char *muster_strstatus(int status); /* "timeout", "peer died", ... */
const char *muster_version(void);         /* of the loaded library: "0.1.0" */

enum muster_dtype {
    MUSTER_F32,
    MUSTER_F64,
    MUSTER_F16,
    MUSTER_BF16,
    MUSTER_I32,
    MUSTER_I64,
    MUSTER_BYTE /* data of any kind: moved, never added; in ddp for frozen only */
};
size_t muster_dtype_size(enum muster_dtype dtype);

/* MEAN: the sum divided by the ranks; integers in double, rounded to nearest. */
enum muster_op { MUSTER_SUM, MUSTER_MIN, MUSTER_MAX, MUSTER_MEAN };

/* ---- The world ------------------------------------------------------------------- */

struct muster;

/* How a program that has connected its ranks by itself brings them into a world. */
struct muster_exchange {
    int rank, size;
    /* [collective] Gather `bytes` bytes of each rank into all, in rank order. Returns
     * 0, or what failed. muster_init calls it, on GPUs other [collective] calls too, in
     * their thread. The bytes hold the job's secret. A call that exceeds init_timeout
     * ends this process.
     */
    int (*allgather)(void *arg, const void *mine, void *all, size_t bytes);
    void *arg; /* of the program, passed to allgather */
    /* 1: take it also where PMIx or variables give rank and size: for a world of some
     * of the job's ranks, or numbered otherwise.
     */
    int first;
    uint64_t reserved[3]; /* 0 */
};

/* A field left 0 takes the environment variable named here, then the default. */
struct muster_options {
    /* MUSTER_BACKEND: "host" or "nccl", the default where a GPU is present. */
    const char *backend;
    /* MUSTER_TRANSPORT: "shm" (default) or "tcp" inside a node, on the host backend. */
    const char *transport;
    /* MUSTER_INIT_TIMEOUT: seconds until all ranks must be connected, default 120. */
    double init_timeout;
    /* MUSTER_TIMEOUT: seconds for each collective, default 600. */
    double timeout;
    int single;      /* MUSTER_SINGLE=1: a world of one rank is meant */
    const char *log; /* MUSTER_LOG: "error", "warn" (default), "info", "debug" */
    /* MUSTER_ON_FAILURE, when a rank dies or misses a deadline. "end" (default): one
     * sentence is printed, and the whole job ends with its muster_status. "return": the
     * call returns the status.
     */
    const char *on_failure;
    /* MUSTER_ELASTIC: after a death the others go on while so many are left; 0: never.
     */
    int elastic;
    /* The program's own way to rank and size, copied by muster_init; NULL: none. */
    const struct muster_exchange *exchange;
    /* MUSTER_GROW: a file that rank 0 writes, with the job's secret, by which processes
     * join this world; see muster_grow. NULL: none can.
     */
    const char *grow;
    /* MUSTER_JOIN: the file of a world that has begun: this process joins it. */
    const char *join;
    int own_device; /* 1: the GPU that is current, not the one that the plugin chose */
    /* 1: as MUSTER_MAP_MEMORY=1, where that variable is not set. Equal on all ranks. */
    int map_memory;
    uint64_t reserved[4]; /* 0 */
};

/* [collective] Take rank and size, check the placement, open control connections and
 * communicator. Rank and size are those of PMIx (srun --mpi=pmix); else those of RANK,
 * WORLD_SIZE, MASTER_ADDR and MASTER_PORT, where all are set; else those of exchange;
 * else it is a world of one rank. muster(3) has the secret that ranks without PMIx
 * need. On failure *out is NULL and muster_error(NULL) is the reason. Once the ranks
 * have begun to connect, a failure ends the whole job (see on_failure).
 *
 * The GPU that the plugin chose for this task becomes the current device of the calling
 * thread, as by cudaSetDevice; without one, or with own_device, the current one stays.
 * Later calls leave it as it was.
 *
 * A second call opens a second world of the same ranks, with connections, order and
 * deadlines of its own, for another thread: each world has one thread at a time. One
 * evaluates, for instance, while the other trains. All ranks open and finalize their
 * worlds in the same order.
 *
 * A process that ends because of one world leaves all its worlds with one sentence and
 * one status. A death ends each process that has a world with the dead rank, unless all
 * such worlds are elastic or have on_failure=return.
 */
int muster_init(struct muster **out, const struct muster_options *options);

/* [collective] Wait for the others, close everything, free m, also where that fails:
 * then muster_report(NULL) prints why. With open groups or handles it is MUSTER_EUSAGE,
 * and m is as before.
 */
int muster_finalize(struct muster *m);

/* Print why, then end the whole job with this exit status (1..255). Does not return. m:
 * any world or group; NULL: those that are open.
 * What each rank has printed to stdout, stderr, Python's sys.stdout and open files of
 * stdio is written, also where muster_report or a failing call ends the job (files not
 * in an elastic world or with on_failure=return). A stream whose lock another thread
 * holds is left out.
 */
void muster_abort(struct muster *m, int status, const char *why)
    __attribute__((noreturn));

/* The sentence of the last failed call on m (of muster_init: NULL), until the next. */
const char *muster_error(const struct muster *m);
/* Print it to standard error with the rank. Returns the failure's status, for exit(): a
 * process that exits without muster_finalize ends the whole job with that status, and
 * the other ranks print the reason, in each world that it has open. In an elastic world
 * they go on instead.
 */
int muster_report(const struct muster *m);

/* Extend the waits of every rank, also those that have begun, to at least this many
 * seconds (above 0) from now. Call it before something slow on one rank, such as an
 * evaluation.
 */
int muster_extend(struct muster *m, double seconds);
/* What this rank is busy with, for the flight record of a deadline. NULL: nothing. */
void muster_doing(struct muster *m, const char *what);

int muster_rank(const struct muster *m);
int muster_size(const struct muster *m);
int muster_local_rank(const struct muster *m); /* among the ranks of this node */
int muster_local_size(const struct muster *m);
int muster_node(const struct muster *m); /* 0 .. nodes-1, by lowest rank */
int muster_nodes(const struct muster *m);
const char *muster_backend(const struct muster *m); /* "host" or "nccl" */
/* For a banner: "shared memory", "shared memory + TCP", "NVLink", ... */
const char *muster_transport(const struct muster *m);
/* Until ranks die or join. NULL: no such rank. */
const char *muster_host(const struct muster *m, int rank);
int muster_device(const struct muster *m); /* CUDA's index; -1 without a GPU */

/* ---- Groups --------------------------------------------------------------------- */

/* [collective] The ranks of m that give the same colour, 0 or more, are a group. Below
 * 0: this rank is in none, and *out is NULL. Ranks are numbered by key, equal keys by
 * their rank in m. name, below 48 bytes and equal in a group, is for messages and
 * copied; NULL: the colour. Where it fails, it fails on all ranks of m: *out is NULL
 * and muster_error(m) is the reason.
 *
 * A group is used like the world, with its own ranks and size, in every call that takes
 * a struct muster, also in muster_split. Close it with muster_finalize, before m. It
 * has connections, order and deadlines of its own, so its collectives may run between
 * those of other groups or the world, in an order that each rank chooses. Ranks that
 * wait for each other in two groups wait until the deadline. All groups and the world
 * have one thread.
 *
 * A failure in a group ends the job, as one of the world does. In an elastic world a
 * group that lost no rank goes on as it is. Calls on one that lost a rank return
 * MUSTER_EPEER and name it: finalize it, and split the smaller world anew. muster(3)
 * has what groups take of a GPU.
 */
int muster_split(struct muster *m, int colour, int key, const char *name,
                 struct muster **out);
const char *muster_name(const struct muster *m); /* of a group; "" for a world */
/* The rank in the world of a rank of m, as of the split; -1: m has no such rank. */
int muster_world_rank(const struct muster *m, int rank);

/* ---- Collectives on your own buffers --------------------------------------------- */

/* All ranks give the same count, dtype, op and root, and buffers of one kind: host
 * memory or, where muster_backend is "nccl", memory of muster_alloc or other GPU
 * memory. Each rank has its own place there, aligned to the element. On GPUs all ranks
 * or none start a collective with muster_start, and all or none capture it into a
 * graph. count may be 0, and the buffers NULL then.
 *
 * A difference is MUSTER_ECONTRACT in host memory, and names two ranks; on GPUs it is
 * noticed at the deadline. Another kind of memory on a rank is MUSTER_ECONTRACT, which
 * names the rank and its memory, where the next muster_ddp_sync compares the order of
 * collectives.
 *
 * The calls return when done, and the buffers are the caller's again. In GPU memory
 * they return when enqueued: what follows on stream finds the result. Beside GPUs, host
 * memory passes through GPU memory; muster(3) has how much. An all-reduce has the same
 * bits on all ranks. After a failure the receive buffer holds anything.
 *
 * In place: send of muster_allgather and muster_gather may be this rank's part of recv,
 * recv of muster_reduce_scatter and muster_scatter this rank's part of send, both of
 * muster_reduce the same. Otherwise send and recv do not overlap.
 */

/* [collective] Memory in which collectives need no copy: shared among the ranks of a
 * node, or registered with the GPU. All ranks ask for the same bytes in the same order.
 * Zeroed, and aligned to 4096 bytes (on a GPU as by cudaMalloc). NULL when none is
 * left, on the node or below the memory limit of the job; muster_error is the reason.
 */
void *muster_alloc(struct muster *m, size_t bytes);
/* Before muster_finalize, when no rank uses p in a collective any more. */
void muster_free(struct muster *m, void *p);

/* [collective] In place. MIN and MAX of floats: NaN only where all ranks have NaN. */
int muster_allreduce(struct muster *m, void *buffer, size_t count,
                     enum muster_dtype dtype, enum muster_op op, void *stream);
/* [collective] From rank root to all. */
int muster_broadcast(struct muster *m, void *buffer, size_t count,
                     enum muster_dtype dtype, int root, void *stream);
/* [collective] recv has size * count elements, in rank order. */
int muster_allgather(struct muster *m, const void *send, void *recv, size_t count,
                     enum muster_dtype dtype, void *stream);
/* [collective] send has size * count elements; rank r gets the sum of the r-th part. */
int muster_reduce_scatter(struct muster *m, const void *send, void *recv, size_t count,
                          enum muster_dtype dtype, void *stream);
/* [collective] From all ranks' send to recv of rank root; elsewhere it is not used. */
int muster_reduce(struct muster *m, const void *send, void *recv, size_t count,
                  enum muster_dtype dtype, enum muster_op op, int root, void *stream);
/* [collective] As allgather, to recv of rank root; elsewhere it is not used. */
int muster_gather(struct muster *m, const void *send, void *recv, size_t count,
                  enum muster_dtype dtype, int root, void *stream);
/* [collective] send of rank root has size * count elements, elsewhere it is not used;
 * rank r gets the r-th part. In all-to-alls and here a node alone has at most 512
 * ranks.
 */
int muster_scatter(struct muster *m, const void *send, void *recv, size_t count,
                   enum muster_dtype dtype, int root, void *stream);
/* [collective] Both have size * count elements: the r-th part of send goes to rank r,
 * the r-th part of recv is from rank r.
 */
int muster_alltoall(struct muster *m, const void *send, void *recv, size_t count,
                    enum muster_dtype dtype, void *stream);
/* [collective] The same with parts of unequal size: counts and first elements by rank.
 * send_at or recv_at NULL: the parts lie one after another. Where a rank sends other
 * than the receiver expects, MUSTER_ECONTRACT names both.
 */
int muster_alltoallv(struct muster *m, const void *send, const size_t *send_counts,
                     const size_t *send_at, void *recv, const size_t *recv_counts,
                     const size_t *recv_at, enum muster_dtype dtype, void *stream);
/* To one rank, which calls muster_recv, or muster_sendrecv, with the same type and
 * count: else MUSTER_ECONTRACT names both ranks. Returns when buffer may change, which
 * may be before the other rank has called. Messages between two ranks keep their order.
 */
int muster_send(struct muster *m, const void *buffer, size_t count,
                enum muster_dtype dtype, int to, void *stream);
int muster_recv(struct muster *m, void *buffer, size_t count, enum muster_dtype dtype,
                int from, void *stream);
/* Both at once, for rings and pairs. `to` and `from` may be this rank. */
int muster_sendrecv(struct muster *m, const void *send, size_t send_count, int to,
                    void *recv, size_t recv_count, int from, enum muster_dtype dtype,
                    void *stream);
int muster_barrier(struct muster *m); /* [collective] */

struct muster_handle;

/* The next of the calls above on m, but muster_barrier, only starts: it returns at once
 * and puts its handle into *out, or NULL where it fails. Until muster_wait returns its
 * buffers belong to the library. Any number may be in flight. The ranks of m start them
 * in one order; each rank waits for them in an order of its own, and starts others on
 * other groups meanwhile:
 *
 *     muster_start(row, &a);
 *     muster_allreduce(row, x, n, MUSTER_F32, MUSTER_SUM, NULL);
 *     ...
 *     if (muster_wait(a, 0) != MUSTER_OK)
 *
 * A GPU carries them out in the order of their start. So large messages of two ranks to
 * each other never end where both ranks start the send first: use muster_sendrecv.
 */
int muster_start(struct muster *m, struct muster_handle **out);
/* Return when it is done, in GPU memory when its stream waits for it; frees h, also
 * where it fails, but for MUSTER_EUSAGE (seconds below 0). seconds: the limit of this
 * wait, above 0 and below that of the options, which 0 stands for. After it the job
 * ends with the name of the missing rank. When ranks die in an elastic world, its
 * handles are void: each wait returns MUSTER_ESHRUNK.
 */
int muster_wait(struct muster_handle *h, double seconds);
/* *done: 1 when muster_wait would return at once, also with a failure; else 0. */
int muster_test(const struct muster_handle *h, int *done);

/* ---- Gradients ------------------------------------------------------------------- */

struct muster_ddp;

/* One parameter tensor. All but the pointers must be equal on all ranks: create refuses
 * a difference, and prints the name and the ranks on each side. The mean is taken
 * element by element: a transposed layout goes unnoticed.
 */
struct muster_param {
    const char *name;        /* copied */
    size_t count;            /* elements; 0 is allowed */
    enum muster_dtype dtype; /* of data and gradient */
    void *data;              /* the weights; may be NULL without broadcast and shard */
    /* NULL (best): the gradient is a view into its bucket, without a copy; see
     * muster_ddp_grad. Else your own buffer: it is packed into a bucket when ready.
     */
    void *grad;
    /* No gradient is ever computed (requires_grad=False), or it is a buffer, of any
     * dtype: its data are broadcast, nothing else. grad is not used, its gradient NULL,
     * its bucket -1; muster_ddp_absent is 1, grad_ready an error.
     */
    int frozen;
    /* Rows of equal length in the gradient, for muster_ddp_grad_rows; it then has a
     * bucket of its own. 0: it is always ready as a whole.
     */
    size_t rows;
    uint64_t reserved[3]; /* 0 */
};

struct muster_hook;

struct muster_ddp_options {
    /* Bytes of the bucket that starts first, and of the others. 0 and 0: 1 MiB and 25
     * MiB; on GPUs of one node by the times measured at start, so that all but a small
     * last one are hidden.
     */
    size_t first_bucket;
    size_t bucket_cap;
    /* Seconds of a backward pass, for that cut; 0: twice what the all-reduces take. */
    double backward;
    /* 1: gradients arrive from the last parameter to the first; learn no other order.
     */
    int fixed_order;
    /* Search each rank's own gradients for NaN and Inf: the job ends with the name of
     * rank and parameter. In host memory before the bucket starts; on a GPU in sync,
     * which then waits for the GPU.
     */
    int screen;
    /* A gradient that no rank has in the first sync, and none declared absent, is
     * MUSTER_ECONTRACT, also with shard and in a world of one. 0: a warning.
     */
    int require_all;
    int shard;                      /* ZeRO-1: see muster_ddp_shard */
    const struct muster_hook *hook; /* compression, see there; NULL: none */
    uint64_t reserved[8];           /* 0 */
};

/* [collective] Register the parameters in forward order; buckets are filled from the
 * last to the first. params is copied, its buffers are borrowed until destroy.
 */
int muster_ddp_create(struct muster *m, const struct muster_param *params, int nparams,
                      const struct muster_ddp_options *options,
                      struct muster_ddp **out);
/* Waits for buckets that have started. Call it before muster_finalize. */
void muster_ddp_destroy(struct muster_ddp *ddp);

/* The gradient of parameter i, constant until destroy: your buffer, or the library's,
 * 128-byte aligned and in GPU memory on "nccl". NULL for an i out of range.
 */
void *muster_ddp_grad(const struct muster_ddp *ddp, int i);
int muster_ddp_buckets(const struct muster_ddp *ddp);
int muster_ddp_bucket_of(const struct muster_ddp *ddp, int i); /* -1: none */

/* [collective] Copy every parameter's data from rank root to all. */
int muster_ddp_broadcast(struct muster_ddp *ddp, int root);

/* The gradient of parameter i is complete (on a GPU: once the work enqueued on stream
 * so far is done). When all of a bucket are ready its all-reduce starts; buckets start
 * in the same order on all ranks. Returns at once. Twice in a step is an error.
 *
 * [collective, with several ddp objects or collectives of your own] All ranks make
 * gradients ready, and start their own collectives between them, in the same order. A
 * bucket that meets one of another object, or an all-reduce of yours, is
 * MUSTER_ECONTRACT: in host memory from the collective itself, on GPUs from
 * muster_ddp_sync on all ranks. With several objects, and after a collective of your
 * own, each sync waits for the other ranks, as your first collective does. Messages
 * number objects from 1 in the order of muster_ddp_create. Their syncs may have another
 * order, if it is one on all ranks.
 *
 * A bucket that lacks a gradient on this rank starts in sync. Where a rank may lack
 * one, start collectives of your own after sync, before the first grad_ready, on a
 * group (see muster_split), or in a second world (see muster_init).
 *
 * Later steps follow the order in which rank 0's gradients became ready in the first
 * synced step. Where all have your own buffers, without shard and hook, that sync also
 * cuts buckets anew: muster_ddp_buckets and muster_ddp_bucket_of may change once.
 */
int muster_ddp_grad_ready(struct muster_ddp *ddp, int i, void *stream);

/* The gradient of parameter i is zero but for these n rows (an embedding's: the tokens
 * of the batch). index has their numbers, from 0; values has the rows, one after
 * another, in the parameter's type. Rows of one number are added up, in f32 where the
 * type has 16 bits. n may be 0, and differs from rank to rank. Both are copied.
 *
 * A weight that is also used as a whole (tied to the output layer) becomes ready first:
 * muster_ddp_grad_ready for its dense part, then this call for rows that are added to
 * it. Each is called once in a step, or in a micro-batch, this one last. A rank may
 * lack either. Ranks may differ, and so may steps.
 *
 * sync gives the mean of the sum; a row that no rank has is zero in it. Compression
 * applies to the dense part alone. muster(3) has how rows travel and are rounded. With
 * shard, and on "nccl", sync adds them to the dense gradient on the host instead, and
 * its bucket starts only then; there index and values may be in GPU memory.
 */
int muster_ddp_grad_rows(struct muster_ddp *ddp, int i, const int64_t *index, size_t n,
                         const void *values, void *stream);

/* This rank has no gradient for parameter i in this step (a branch not taken), and
 * grad_ready of it becomes an error. Optional: what is not ready at sync is absent. One
 * rank's call prevents the first sync's warning of a gradient that no rank has.
 */
int muster_ddp_grad_absent(struct muster_ddp *ddp, int i);

/* [collective] Every gradient becomes the mean over ranks: the sum over ranks (of the
 * micro-batches each has added up) divided once by the number of ranks. A gradient that
 * a rank lacks counts as zero. One that all ranks lack keeps each rank's old value
 * (with shard it is zero). In the first sync of ddp rank 0 warns of such gradients,
 * unless a rank declared them absent, all ranks gave weight 0 or shard is on; with
 * require_all they are an error on all ranks.
 *
 * On a GPU: ordered before whatever you enqueue on stream next, without blocking the
 * host. It blocks, for an agreement of the ranks, in the first step and where this rank
 * lacks a gradient or has started other collectives since the last sync.
 */
int muster_ddp_sync(struct muster_ddp *ddp, void *stream);

/* 1: no rank had a gradient for i in the last sync; leave it out of the optimizer. */
int muster_ddp_absent(const struct muster_ddp *ddp, int i);

/* on != 0: grad_ready only accumulates locally (add your micro-batch gradients up in
 * the buffers). The first sync after on = 0 averages the sums.
 */
int muster_ddp_no_sync(struct muster_ddp *ddp, int on);

/* Seconds of all steps but the first, on this rank's host. `exposed`: the caller waited
 * in sync. `communication`: from the start of a step's first bucket to the end of its
 * sync; the rest of it was hidden. On a GPU sync does not wait: measure with events.
 */
struct muster_ledger {
    uint64_t steps;
    double seconds, communication, exposed;
    uint64_t reserved[4]; /* 0 */
};
void muster_ddp_ledger(const struct muster_ddp *ddp, struct muster_ledger *out);

/* ---- Fewer ranks ----------------------------------------------------------------- */

/* With options.elastic, from the end of the first sync on, the death of a rank does not
 * end the job. A rank counts as dead when it is killed, exits without muster_finalize,
 * or loses its node. Each survivor gets MUSTER_ESHRUNK once, from the call that it is
 * in or makes next, in place of what that call would have done. By then muster_rank,
 * muster_size, muster_node and the rest describe the smaller world; ranks keep their
 * order. m, its ddp objects, samplers and memory of muster_alloc stay usable, at the
 * same addresses:
 *
 *     muster_sampler_save(sampler, &at);
 *     while (muster_sampler_next(sampler, index, &n)) {
 *         backward pass, muster_ddp_grad_ready ...
 *         status = muster_ddp_sync(ddp, NULL);
 *         if (status == MUSTER_ESHRUNK) {                  // from any of these calls
 *             muster_sampler_restore(sampler, &at);        // deals to fewer ranks now
 *             continue;                                    // the step again
 *         }
 *         optimizer;
 *         muster_sampler_save(sampler, &at);
 *     }
 *
 * Weights stay equal. When a sync returned MUSTER_OK on one survivor it does on all, so
 * all have done the same number of optimizer steps. For that a sync ends with an
 * agreement, and on a GPU it waits until the gradients are there.
 *
 * - Gradients, and sums of micro-batches, belong to no step.
 * - Another collective may be done on some ranks when it returns MUSTER_ESHRUNK on
 *   others. Repeat what follows the last sync, or let rank 0 broadcast.
 * - A checkpoint whose save was under way may be missing.
 * - What compression left over may be lost.
 * - Capture a graph with collectives in it again.
 *
 * options.shard cannot be elastic. muster(3) lists the deaths that still end the job,
 * and what Slurm and MPI need.
 */

/* ---- More ranks ------------------------------------------------------------------ */

/* [collective] Call it between two steps, when all messages are received and all
 * handles waited for. The processes that wait to join become ranks behind the others,
 * and *joined is their number; 0: nothing has changed. The world is elastic, and has
 * begun with several ranks and with options.grow. A process joins by options.join: its
 * muster_init returns when the ranks have taken it, or fails after init_timeout. Its
 * version, backend, elastic and on_failure must be those of the job. On a GPU it uses
 * one that no living rank has, and the call waits until earlier collectives are done.
 *
 * After *joined > 0 rank, size and node are those of the larger world; ranks keep their
 * numbers. Memory of muster_alloc stays usable, and collectives on it make a copy; on a
 * GPU it counts as memory of your own. Groups go on as they are. All ranks, old and
 * new, make ddp objects, samplers and checkpoints anew, broadcast step and sampler
 * state, and capture graphs with collectives in them again: share/muster has such a
 * program, example_elastic.c. Calls on an older ddp object are MUSTER_EUSAGE.
 *
 * A death in the meantime is as in "Fewer ranks". Where ranks join and others die in
 * one call, it returns MUSTER_OK; on MUSTER_ESHRUNK there is nothing to repeat. Until
 * the first sync has returned MUSTER_OK, a death means to set up again. *joined counts
 * a newcomer also when it has died since.
 */
int muster_grow(struct muster *m, int *joined);

/* ---- Weighted means and uneven data ---------------------------------------------- */

struct muster_finish;

/* [collective, unless no_sync is on] A micro-batch of this weight begins (its samples
 * or tokens; 0: this rank has none, and grad_ready is an error until the next one; what
 * its buffers hold counts nowhere). Call it before the backward pass. sync then gives
 *   sum over ranks and micro-batches of w * g / sum of w
 * for gradients g that are means over their micro-batch. Without this call sync gives
 * the plain mean over ranks; one equal weight everywhere gives the same, bit for bit.
 */
int muster_ddp_weight(struct muster_ddp *ddp, double weight);

/* [collective] Call it between two steps, when this rank is out of data. It takes part
 * with weight 0 in the steps of the others, which call muster_ddp_weight in each, and
 * returns when all have joined. After each such step it calls after(arg), if not NULL,
 * for the optimizer, so that all ranks keep the same weights. If after returns other
 * than 0, that is returned.
 */
int muster_ddp_join(struct muster_ddp *ddp, int (*after)(void *arg), void *arg);
/* [collective] The same for muster_ddp_sync_with: after finds its results in *finish.
 */
int muster_ddp_join_with(struct muster_ddp *ddp, struct muster_finish *finish,
                         int (*after)(void *arg), void *arg);

/* ---- Norm, clipping, loss scale -------------------------------------------------- */

/* Loss scaling for fp16: multiply the loss by scale, and give this to
 * muster_ddp_sync_with. Start with { .scale = 65536, .interval = 2000 }.
 */
struct muster_scaler {
    double scale;
    int interval;         /* good steps until it doubles; 0: after each */
    int good;             /* since the last change */
    long skipped;         /* steps, in all */
    uint64_t reserved[2]; /* 0 */
};

/* norm and skip are equal on all ranks, and on the host: on a GPU the call waits for
 * the stream, for 2 KiB of sums, and a graph cannot capture it.
 */
struct muster_finish {
    double max_norm;              /* in; 0: do not clip */
    struct muster_scaler *scaler; /* in; NULL: the loss is not scaled */
    double norm;                  /* out: over all gradients, before clipping */
    int skip;             /* out: an overflow; leave this step's optimizer out */
    uint64_t reserved[4]; /* 0 */
};

/* [collective] muster_ddp_sync, then divide by the loss scale and clip to max_norm. */
int muster_ddp_sync_with(struct muster_ddp *ddp, struct muster_finish *finish,
                         void *stream);

/* ---- Sharded optimizer state (ZeRO-1) -------------------------------------------- */

/* With options.shard each bucket is reduce-scattered: after sync this rank has the mean
 * gradient of its part alone. Parts have equal size, the bucket is padded, a parameter
 * may cross parts. Keep optimizer state for these parts, update `data`, then call
 * muster_ddp_gather. A gradient that all ranks lack is zero: ask muster_ddp_absent.
 */
struct muster_shard {
    enum muster_dtype dtype;
    size_t count; /* elements, padding included */
    void *grad, *data;
    uint64_t reserved[4]; /* 0 */
};
/* Part k of 0 .. muster_ddp_buckets - 1. */
int muster_ddp_shard(const struct muster_ddp *ddp, int k, struct muster_shard *out);
/* [collective] All parts' data to all ranks, and into the parameters' own buffers. */
int muster_ddp_gather(struct muster_ddp *ddp);
/* The weights of parameter i: your buffer; with shard and without one the library's. */
void *muster_ddp_data(const struct muster_ddp *ddp, int i);

/* ---- Compression ----------------------------------------------------------------- */

enum muster_compress {
    MUSTER_COMPRESS_USER, /* your own reduce */
    /* As bf16, half the bytes of f32: divided by the number of ranks before the cast,
     * summed in f32, so that a mean that fits does not overflow on the way.
     */
    MUSTER_COMPRESS_BF16,
    MUSTER_COMPRESS_F16, /* as BF16, in fp16 */
    /* A byte per element, a scale per 256. Each rank has 127 / ranks steps from zero to
     * the block's largest magnitude, so that sums stay a byte: at most 127 ranks.
     */
    MUSTER_COMPRESS_INT8,
    /* Each matrix of r x c travels as rank * (r + c) elements, with a warm start.
     * Vectors, and matrices that do not shrink by half, travel as they are, in the same
     * collective.
     */
    MUSTER_COMPRESS_POWERSGD
};

/* A bucket for your own reduce: elements of one dtype. Zeros fill its gaps and replace
 * absent gradients.
 */
struct muster_bucket {
    int index;
    enum muster_dtype dtype;
    size_t count;
    void *data; /* in: this rank's gradients; out: the mean over ranks */
    /* GPU: the stream given to sync. Work enqueued on it finds the gradients; what
     * follows sync reads data from there.
     */
    void *stream;
    uint64_t reserved[4]; /* 0 */
};

/* INT8 takes f32; POWERSGD takes f32 and 16-bit floats; both on the host and on GPUs.
 * They keep an f32 per element with what they did not send, and add it to the next
 * step's; see muster_ddp_state for checkpoints. NaN and Inf become NaN on all ranks and
 * are not kept for the next step. All ranks must give the same hook. With shard, BF16
 * and F16 are reduce-scattered; the others leave the whole mean in the bucket, of which
 * this rank uses its part.
 */
struct muster_hook {
    enum muster_compress compress;
    int rank; /* POWERSGD: matrix rank, default 4 */
    /* POWERSGD: rows of each parameter's matrix, a divisor of count; 0: a vector. */
    const size_t *rows;
    /* USER: called in sync, bucket by bucket, in the same order on all ranks. It may
     * call collectives on m. It returns 0 or a muster_status, which sync then returns.
     */
    int (*reduce)(void *arg, struct muster *m, const struct muster_bucket *bucket);
    void *arg;
    uint64_t reserved[4]; /* 0 */
};

/* Bytes that this rank has given to collectives for gradients since create, without
 * your own reduce. An all-reduce of S bytes over n ranks moves at least 2 S (n - 1) / n
 * in and out of each, a reduce-scatter (shard, but for a hook other than BF16, F16)
 * half.
 */
uint64_t muster_ddp_wire_bytes(const struct muster_ddp *ddp);

struct muster_item;

/* What INT8 and POWERSGD keep from step to step, as items for a checkpoint beside your
 * own. Writes at most `room` into items (names and data belong to ddp) and returns how
 * many there are, the same on all ranks; 0 without such a hook. Each rank has its own,
 * which takes a sharded checkpoint.
 *
 * After muster_checkpoint_load a run in a world of the same size continues bit for bit
 * as if it had not stopped. In another world, or from a checkpoint that has none, it
 * starts without them, and a warning is printed.
 *
 * They change from the first grad_ready of a step to the end of its sync: with
 * MUSTER_CHECKPOINT_LAZY call muster_checkpoint_copied before.
 */
int muster_ddp_state(const struct muster_ddp *ddp, struct muster_item *items, int room);

/* ---- Samples --------------------------------------------------------------------- */

/* Deals the samples of a data set to ranks and steps. The order of an epoch depends on
 * seed and epoch alone. A step takes the next batch * size samples of it, rank r the
 * r-th run. The same effective batch thus contains the same samples in any world, and
 * another number of ranks can continue from a position.
 */
struct muster_sampler;

/* What happens to the last samples % (batch * size) of an epoch. All but KEEP give
 * every rank the same number of samples in every step.
 */
enum muster_tail {
    MUSTER_TAIL_PAD,  /* the last step is shorter; up to size-1 samples repeat */
    MUSTER_TAIL_DROP, /* the last step is shorter; up to size-1 samples are left out */
    MUSTER_TAIL_KEEP  /* each sample once; ranks differ by one, some may get 0 */
};

/* samples and batch are required. All fields must be equal on all ranks. */
struct muster_sampler_options {
    uint64_t samples; /* in the data set */
    uint64_t batch;   /* of one rank in one step */
    uint64_t seed;
    enum muster_tail tail;
    int in_order;         /* do not shuffle */
    uint64_t reserved[4]; /* 0 */
};

/* The position in an epoch, in samples of all ranks: save it, restore it in any world.
 * Programs write these bytes into checkpoints, so the struct never changes.
 */
struct muster_sampler_state {
    uint64_t samples, seed, epoch, position;
};

/* [collective] Starts at epoch 0. MUSTER_ECONTRACT: the ranks' options differ. Free it
 * before m.
 */
int muster_sampler_create(struct muster *m,
                          const struct muster_sampler_options *options,
                          struct muster_sampler **out);
void muster_sampler_destroy(struct muster_sampler *sampler);

/* Start an epoch from its beginning, in its own order. */
void muster_sampler_set_epoch(struct muster_sampler *sampler, uint64_t epoch);

/* The samples of this rank in the next step: indices (room for batch) and *count.
 * Returns 1; 0 at the end of the epoch, on all ranks at once.
 */
int muster_sampler_next(struct muster_sampler *sampler, uint64_t *indices,
                        uint64_t *count);

/* From here to the end of the epoch. */
uint64_t muster_sampler_steps(const struct muster_sampler *sampler);

void muster_sampler_save(const struct muster_sampler *sampler,
                         struct muster_sampler_state *state);
/* MUSTER_ECONTRACT for a state of another data set or seed. */
int muster_sampler_restore(struct muster_sampler *sampler,
                           const struct muster_sampler_state *state);

/* ---- Checkpoints ----------------------------------------------------------------- */

/* A folder of files NAME-STEP.muster. A file is written under another name, synced and
 * renamed, so it is whole or absent; each block carries a CRC32C. A failure of one rank
 * is reported to all: a call fails everywhere, or nowhere.
 */
struct muster_checkpoint;

enum muster_checkpoint_mode {
    MUSTER_CHECKPOINT_WAIT, /* save returns when the file is on disk */
    MUSTER_CHECKPOINT_COPY, /* save copies the items; the file is written meanwhile */
    MUSTER_CHECKPOINT_LAZY  /* the copy too: before a change muster_checkpoint_copied */
};

struct muster_checkpoint_options {
    const char *name; /* default "checkpoint" */
    /* Program and model, below 128 bytes; a file of another is refused. Default "". */
    const char *kind;
    int keep; /* how many of the newest stay; default 3, -1: all */
    /* 0: rank 0 alone writes and reads. 1: each rank writes its part into a file of its
     * own, then rank 0 writes NAME-STEP.muster, without which the parts do not count.
     * All ranks must share the folder: muster_checkpoint_open names one that does not.
     */
    int sharded;
    enum muster_checkpoint_mode mode;
    uint64_t reserved[4]; /* 0 */
};

/* Something to be saved, in host memory or on this rank's GPU. From a GPU save copies
 * it at once in every mode, after the work that the GPU has been given so far. All
 * ranks give the same names, below 128 bytes, in the same order: a load, and a sharded
 * save, refuse a difference with MUSTER_ECONTRACT.
 *
 * total = 0: every rank has the same bytes (weights); a sharded save lets each write a
 * part of them. Otherwise this rank holds bytes offset .. offset + bytes - 1 of an item
 * of total bytes (sharded optimizer state), which takes a sharded checkpoint. On load
 * the division may be another.
 */
struct muster_item {
    const char *name;
    void *data;
    uint64_t bytes, offset, total;
    uint64_t reserved[4]; /* 0 */
};

/* [collective] Makes a missing folder, removes half written files. Close before m. */
int muster_checkpoint_open(struct muster *m, const char *folder,
                           const struct muster_checkpoint_options *options,
                           struct muster_checkpoint **out);
/* [collective] Waits for the last save. */
int muster_checkpoint_close(struct muster_checkpoint *checkpoint);

/* [collective] Save the items as of `step`; one of the same step is replaced. Waits for
 * the save before it and reports its failure. items may be freed at once; for their
 * data see mode. A file that cannot be written leaves the world whole: continue, or
 * call muster_finalize before you exit (a rank that exits without it counts as dead).
 */
int muster_checkpoint_save(struct muster_checkpoint *checkpoint, uint64_t step,
                           const struct muster_item *items, int nitems);
/* Blocks until the items have been copied: then they may change. */
void muster_checkpoint_copied(struct muster_checkpoint *checkpoint);
/* [collective] Block until the last save is on disk, and older ones are removed. */
int muster_checkpoint_wait(struct muster_checkpoint *checkpoint);

/* [collective] Read the newest whole checkpoint of our kind and items into the items;
 * the log names each newer one that is not. *found: 0 when there is none at all, else
 * 1. Fails if there are some but none to use: MUSTER_ECONTRACT when the newest belongs
 * to another program or model, else MUSTER_EIO. Then the items hold anything.
 */
int muster_checkpoint_load(struct muster_checkpoint *checkpoint,
                           const struct muster_item *items, int nitems, uint64_t *step,
                           int *found);
/* The file last saved or loaded, until the next call; "" before. */
const char *muster_checkpoint_path(const struct muster_checkpoint *checkpoint);

#ifdef __cplusplus
}
#endif
#endif
