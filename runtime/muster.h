/* SPDX-License-Identifier: BSD-3-Clause */
/* muster.h - keep the ranks of a training job in step: DDP for C and CUDA C.
 *
 *     struct muster *m;
 *     struct muster_ddp *ddp;
 *
 *     if (muster_init(&m, NULL) != MUSTER_OK)
 *         return muster_report(NULL);               // sentence on stderr, exit status
 *     muster_ddp_create(m, params, nparams, NULL, &ddp);
 *     muster_ddp_broadcast(ddp, 0);                 // same weights everywhere
 *     for (each step) {
 *         for (i = nparams - 1; i >= 0; i--) {      // your backward pass
 *             compute the gradient of parameter i into muster_ddp_grad(ddp, i);
 *             muster_ddp_grad_ready(ddp, i, NULL);  // its bucket may start now
 *         }
 *         muster_ddp_sync(ddp, NULL);               // every gradient is now the mean
 *         your optimizer;
 *     }
 *     muster_ddp_destroy(ddp);
 *     muster_finalize(m);
 *
 * Ranks are global (0 .. size-1) unless a name says local. Counts are elements, not
 * bytes. A function that can fail returns a muster_status; the sentence that explains
 * it is muster_error(m). Objects are not thread safe: one thread calls at a time.
 * `stream` is a cudaStream_t cast to void * (NULL: the default stream); on a world
 * without GPUs it is ignored. Calls marked [collective] are made by all ranks in the
 * same order; each has a deadline, after which the job ends with the name of the rank
 * that did not come.
 */
#ifndef MUSTER_H
#define MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Usable as exit status; Slurm requeue rules can act on it. */
enum muster_status {
    MUSTER_OK = 0,
    MUSTER_EUSAGE = 10,    /* a wrong argument or call order */
    MUSTER_ERENDEZVOUS,    /* no PMIx, a rank did not arrive, no connection */
    MUSTER_ECONTRACT,      /* ranks disagree: model, versions, world, NCCL's network */
    MUSTER_EPEER,          /* a rank died */
    MUSTER_ETIMEOUT,       /* a rank did not come before the deadline */
    MUSTER_EDEVICE,        /* GPU, CUDA or NCCL */
    MUSTER_EIO,            /* file or network */
    MUSTER_EMEMORY,        /* out of memory */
    MUSTER_ENUMERIC,       /* NaN or Inf found by screening */
    MUSTER_EINTERNAL,      /* a defect of libmuster */
    MUSTER_ESHRUNK = 30,   /* options.elastic: ranks died, this one goes on; see below */
};

/* "timeout", "peer died", ... */
const char *muster_strstatus(int status);
/* "0.1.0" of the library that is loaded. */
const char *muster_version(void);

enum muster_dtype {
    MUSTER_F32,
    MUSTER_F64,
    MUSTER_F16,
    MUSTER_BF16,
    MUSTER_I32,
    MUSTER_I64,
};
size_t muster_dtype_size(enum muster_dtype dtype);

enum muster_op { MUSTER_SUM, MUSTER_MIN, MUSTER_MAX };

/* ---- The world ---------------------------------------------------------------- */

struct muster;

/* Zero-initialise (`struct muster_options o = { 0 }`) and set what you need; each field
 * left 0 takes the environment variable named, then the default.
 */
struct muster_options {
    const char *backend;    /* MUSTER_BACKEND: "nccl", "host"; default: nccl if a GPU is there */
    const char *transport;  /* MUSTER_TRANSPORT: "shm", "tcp"; host backend between ranks
                               of one node; default shm. Between nodes always tcp */
    double init_timeout;    /* MUSTER_INIT_TIMEOUT, seconds, default 120 */
    double timeout;         /* MUSTER_TIMEOUT, seconds for each collective, default 600 */
    int single;             /* MUSTER_SINGLE=1: a world of one rank without PMIx is meant */
    const char *log;        /* MUSTER_LOG: "error", "warn" (default), "info", "debug" */
    const char *on_failure; /* MUSTER_ON_FAILURE: "end" (default): when a rank dies or does
                               not come, one sentence is printed and the whole job ends
                               with its muster_status; "return": the call returns it */
    int elastic;            /* MUSTER_ELASTIC: when ranks die the others go on, as long as so
                               many are left; see MUSTER_ESHRUNK. 0: the job ends */
};

/* [collective] Take rank and size from PMIx, check the placement, open control
 * connections and communicator. On failure *out is NULL and muster_error(NULL) tells
 * why; once the ranks have begun to meet, a failure ends the whole job (on_failure).
 * Under srun it needs --mpi=pmix; without Slurm it is a world of one rank.
 */
int muster_init(struct muster **out, const struct muster_options *options);

/* [collective] Wait for the others, close everything, free m. NULL is fine. */
int muster_finalize(struct muster *m);

/* End the whole job with this exit status (1..255), printing why. stdout and stderr of
 * all ranks are flushed, also where the job ends in another call. Does not return.
 */
void muster_abort(struct muster *m, int status, const char *why)
    __attribute__((noreturn));

/* The sentence of the last failed call on m (or of muster_init for NULL); borrowed,
 * valid until the next call.
 */
const char *muster_error(const struct muster *m);
/* Print muster_error to standard error with the rank; returns the status of that
 * failure, fit for exit(): if this process exits without muster_finalize then, the whole
 * job ends with that status, and the others say why (not in an elastic world, where they
 * go on).
 */
int muster_report(const struct muster *m);

/* Every rank's waits, also those that have begun, last at least this many seconds (above 0)
 * from now: before something that takes its time on one rank (a checkpoint, an evaluation).
 */
int muster_extend(struct muster *m, double seconds);
/* What this rank is busy with ("saving a checkpoint"; NULL: nothing special), for the
 * flight record.
 */
void muster_doing(struct muster *m, const char *what);

int muster_rank(const struct muster *m);
int muster_size(const struct muster *m);
int muster_local_rank(const struct muster *m); /* among the ranks of this node */
int muster_local_size(const struct muster *m);
int muster_node(const struct muster *m);       /* 0 .. nodes-1, by lowest rank */
int muster_nodes(const struct muster *m);
const char *muster_backend(const struct muster *m);   /* "host" or "nccl" */
const char *muster_transport(const struct muster *m); /* "shared memory", "shared memory + TCP",
                                                         "NVLink", ... for a banner */
const char *muster_host(const struct muster *m, int rank);
/* CUDA device index chosen for this rank, -1 without a GPU. */
int muster_device(const struct muster *m);

/* ---- Collectives on your own buffers ------------------------------------------- */

/* Memory in which collectives need no copy (shared among the ranks of a node, or
 * registered with the GPU). NULL when there is none left. Free with muster_free before
 * muster_finalize.
 */
void *muster_alloc(struct muster *m, size_t bytes);
void muster_free(struct muster *m, void *p);

/* [collective] In place, any memory, back when done (on a GPU: when enqueued). */
int muster_allreduce(struct muster *m, void *buffer, size_t count,
                     enum muster_dtype dtype, enum muster_op op, void *stream);
int muster_broadcast(struct muster *m, void *buffer, size_t count,
                     enum muster_dtype dtype, int root, void *stream);
/* recv has size * count elements, in rank order. */
int muster_allgather(struct muster *m, const void *send, void *recv, size_t count,
                     enum muster_dtype dtype, void *stream);
/* send has size * count elements; rank r gets the sum of the r-th part. */
int muster_reduce_scatter(struct muster *m, const void *send, void *recv, size_t count,
                          enum muster_dtype dtype, void *stream);
int muster_barrier(struct muster *m);

/* ---- Gradients ------------------------------------------------------------------ */

struct muster_ddp;

/* One parameter tensor. Names, order, counts, dtypes and what is frozen must be equal on
 * all ranks; a difference is refused at create with the name and the ranks on each side. Of
 * the shape libmuster knows the count alone (and with it compares the rows that a hook is
 * given): the mean is taken element by element, so a transposed layout is yours to find.
 */
struct muster_param {
    const char *name;        /* copied */
    size_t count;            /* elements; 0 is allowed */
    enum muster_dtype dtype; /* of data and gradient */
    void *data;              /* the weights; may be NULL if you never broadcast or shard */
    void *grad;              /* your own gradient buffer: it is packed into a bucket when
                                ready. NULL (best): the library hands out a view into
                                the bucket, zero copy; see muster_ddp_grad */
    int frozen;              /* no gradient is ever computed (requires_grad=False), or it is
                                a buffer, of any dtype: data are broadcast, nothing else.
                                grad is not used; it has no bucket (-1) and no gradient
                                (NULL), muster_ddp_absent is 1, grad_ready an error */
};

struct muster_hook;

struct muster_ddp_options {
    size_t first_bucket; /* bytes of the bucket that starts first, and of the others. */
    size_t bucket_cap;   /* Neither given: on GPUs of one node buckets are cut by the
                            times measured at start, so that all but a small last one are
                            hidden; else 1 MiB and 25 MiB */
    double backward;     /* seconds of a backward pass, for that cut; 0: unknown, taken as
                            twice what the all-reduces take */
    int fixed_order;     /* gradients arrive from the last parameter to the first, do not
                            learn it: see muster_ddp_grad_ready */
    int screen;          /* look for NaN and Inf in each rank's own gradients: the job ends
                            with the name of the rank and the parameter, in host memory
                            before the bucket starts, on a GPU in sync, which waits for
                            the GPU then */
    int shard;           /* ZeRO-1: see muster_ddp_shard */
    const struct muster_hook *hook; /* compression, see there; NULL: none */
};

/* [collective] Register the parameter list (in forward order: buckets go from the last
 * to the first). params is copied, the buffers it points to are borrowed until destroy.
 */
int muster_ddp_create(struct muster *m, const struct muster_param *params, int nparams,
                      const struct muster_ddp_options *options, struct muster_ddp **out);
/* Waits for buckets that have started. To be called before muster_finalize. NULL is fine.
 */
void muster_ddp_destroy(struct muster_ddp *ddp);

/* Where the gradient of parameter i lives: your buffer, or the library's, 128-byte
 * aligned. Constant until destroy. NULL for an i out of range.
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
 * [collective] Of several ddp objects the gradients must become ready in the same order on
 * all ranks, and so must collectives of your own between them. A bucket that meets one of
 * another object, or an all-reduce of yours, is MUSTER_ECONTRACT: in host memory from the
 * collective itself, on GPUs from muster_ddp_sync, which waits for the other ranks to reach
 * it where several objects or collectives of your own started since the last sync. Objects
 * are numbered from 1 in the order of muster_ddp_create. They may be synced in another
 * order, if it is one on all ranks.
 *
 * The order in which rank 0's gradients become ready in the first synced step is taken for
 * the later ones: buckets start in the order in which they are complete then. Where all
 * gradients have buffers of the caller's, without shard and hook, they are also cut anew,
 * once, so that muster_ddp_buckets and muster_ddp_bucket_of may change in that sync.
 */
int muster_ddp_grad_ready(struct muster_ddp *ddp, int i, void *stream);

/* There is no gradient for parameter i in this step on this rank (a branch that was not
 * taken). Not needed: a parameter that is not ready at sync counts as absent. It turns a
 * later grad_ready of it into an error; and where no rank has the gradient, the call of one
 * rank keeps the first sync from its warning.
 */
int muster_ddp_grad_absent(struct muster_ddp *ddp, int i);

/* [collective] Every gradient becomes the mean over ranks: the sum over ranks (of the
 * micro-batches each has added up) divided once by the number of ranks. A gradient that
 * a rank lacks counts as zero in the mean; one that all ranks lack keeps its old value, on
 * each rank its own. In the first sync of ddp rank 0 prints a warning that names those which
 * no rank declared absent either (not with shard: there such a gradient is zero).
 * On a GPU: ordered before whatever you enqueue on stream next, without blocking the
 * host (unless this rank lacks a gradient or has started other collectives since the last
 * sync, and in the first step, for a word with the other ranks).
 */
int muster_ddp_sync(struct muster_ddp *ddp, void *stream);

/* Had no rank a gradient for parameter i in the step of the last sync? Then leave it out of
 * your optimizer: what is in its buffer is not of this step. Equal on all ranks.
 */
int muster_ddp_absent(const struct muster_ddp *ddp, int i);

/* on != 0: the following grad_ready calls only accumulate locally (add your micro-batch
 * gradients up in the buffers); the first sync after on = 0 averages the sums.
 */
int muster_ddp_no_sync(struct muster_ddp *ddp, int on);

/* Times of the steps so far but the first, in seconds, on this rank's host: exposed is
 * what the caller waited in sync, communication lasts from the start of a step's first
 * bucket to the end of its sync; the difference lay under the computation. (On a GPU sync
 * does not wait, and exposed is near 0: measure there with events.)
 */
struct muster_ledger {
    uint64_t steps;
    double seconds, communication, exposed;
};
void muster_ddp_ledger(const struct muster_ddp *ddp, struct muster_ledger *out);

/* ---- Fewer ranks ------------------------------------------------------------------ */

/* With options.elastic, from the end of the first sync on, a rank that dies (killed, exited
 * without muster_finalize, its node lost) does not end the job. Each survivor gets
 * MUSTER_ESHRUNK once, from the call that it is in or makes next, in place of what that
 * call would have done. By then muster_rank, muster_size, muster_node and the rest are
 * those of the smaller world (ranks keep their order), and m, its ddp objects and samplers
 * and memory of muster_alloc are of use as before, at the same addresses:
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
 * Weights stay equal: when a sync returned MUSTER_OK on one survivor it does on all, so
 * all have the same number of optimizer steps behind them. (For that a sync ends with an
 * agreement, and on a GPU waits until the gradients are there.) Gradients, and what
 * micro-batches have added up, are those of no step. Other collectives have no such
 * promise: one may have been done on some ranks when it brings MUSTER_ESHRUNK to others.
 * Do again what follows the last sync, or let rank 0 broadcast. A checkpoint whose save was
 * under way may be missing. What compression left over may be lost. A captured graph with
 * collectives in it must be captured again.
 *
 * Fewer than `elastic` ranks, a death before the first sync has ended, and one while some
 * are in muster_finalize already and others are not end the job, as every other failure
 * does. So does, of ranks that cannot reach each other, the smaller part. shard cannot be
 * elastic. Slurm must not end the step by itself: see muster(3). The exit status of srun is
 * that of the rank that died.
 */

/* ---- Weighted means and uneven data ---------------------------------------------- */

struct muster_finish;

/* [collective, unless no_sync is on] A micro-batch of this weight (its samples or tokens;
 * 0: this rank has none) begins: call it before its backward pass. sync then gives
 *   sum over ranks and micro-batches of w * g / sum of w
 * for gradients g that are means over their micro-batch. Without it, and bit for bit the
 * same with one equal weight everywhere, sync gives the plain mean over ranks.
 */
int muster_ddp_weight(struct muster_ddp *ddp, double weight);

/* [collective] This rank is out of data, between two steps: it takes part with weight 0 in the steps of the
 * others, who call muster_ddp_weight in each, and returns when all have joined. after (may
 * be NULL) is called with arg behind each such step, when the gradients are there, for the
 * optimizer: so all ranks keep the same weights. What it returns other than 0 is returned.
 */
int muster_ddp_join(struct muster_ddp *ddp, int (*after)(void *arg), void *arg);
/* [collective] The same where the others call muster_ddp_sync_with: *finish is what they
 * give it, and what it gives them is there when after is called (skip: no optimizer).
 */
int muster_ddp_join_with(struct muster_ddp *ddp, struct muster_finish *finish,
                         int (*after)(void *arg), void *arg);

/* ---- Norm, clipping, loss scale --------------------------------------------------- */

/* Loss scaling for fp16: multiply the loss by scale, and give it to muster_ddp_sync_with.
 * Start with { .scale = 65536, .interval = 2000 }.
 */
struct muster_scaler {
    double scale;
    int interval; /* good steps until it doubles; 0: after each */
    int good;     /* since the last change */
    long skipped; /* steps, in all */
};

/* What sync does on top, on all ranks alike. In: max_norm (0: do not clip), scaler (NULL: the
 * loss is not scaled). Out: the norm over all gradients, before clipping; skip: an
 * overflow was found, on all ranks alike, so leave this step's optimizer out. Norm and skip
 * are the host's to know: on a GPU the call waits for the stream, for 2 KiB of sums, and
 * cannot be captured in a graph.
 */
struct muster_finish {
    double max_norm;
    struct muster_scaler *scaler;
    double norm;
    int skip;
};

/* [collective] muster_ddp_sync, then the gradients are divided by the loss scale, their
 * norm is taken and they are clipped to it.
 */
int muster_ddp_sync_with(struct muster_ddp *ddp, struct muster_finish *finish,
                         void *stream);

/* ---- Sharded optimizer state (ZeRO-1) ---------------------------------------------- */

/* With options.shard each bucket is reduce-scattered: after sync this rank has the mean
 * gradient of its part of each bucket alone (parameters cross parts; parts have equal
 * size, the bucket is padded). Keep optimizer state for the parts only, update `data`,
 * then call muster_ddp_gather. A gradient that all ranks lack is zero here: ask
 * muster_ddp_absent.
 */
struct muster_shard {
    enum muster_dtype dtype;
    size_t count; /* elements, padding included */
    void *grad, *data;
};
/* Part k of 0 .. muster_ddp_buckets - 1. */
int muster_ddp_shard(const struct muster_ddp *ddp, int k, struct muster_shard *out);
/* [collective] All parts' data to all ranks, and into the parameters' own buffers. */
int muster_ddp_gather(struct muster_ddp *ddp);
/* Where the weights of parameter i live: with shard and without data of your own, in the
 * library.
 */
void *muster_ddp_data(const struct muster_ddp *ddp, int i);

/* ---- Compression ------------------------------------------------------------------ */

enum muster_compress {
    MUSTER_COMPRESS_USER,     /* your reduce */
    MUSTER_COMPRESS_BF16,     /* half the bytes of f32, on the host and on GPUs. Divided */
    MUSTER_COMPRESS_F16,      /* by the ranks before the cast, so that a mean that fits does
                                 not overflow on the way; summed in f32 */
    MUSTER_COMPRESS_INT8,     /* a byte per element and a scale per 256. Of up to 127 ranks:
                                 each has 127 / ranks steps from zero to the block's largest
                                 magnitude, so that sums stay a byte */
    MUSTER_COMPRESS_POWERSGD, /* a matrix of r x c as rank * (r + c) elements, warm start;
                                 vectors, and matrices that do not shrink by half, as they
                                 are, in the same collective */
};

/* A bucket of gradients for your own reduce: all of one dtype, with zeros between them and
 * where this rank, or every rank, has none.
 */
struct muster_bucket {
    int index;
    enum muster_dtype dtype;
    size_t count;
    void *data;   /* in: this rank's gradients; out: the mean over ranks */
    void *stream; /* GPU: the gradients are there for work enqueued on it, and what follows
                     sync reads data from there: the one that was given to sync */
};

/* INT8 takes f32, POWERSGD f32 and 16-bit floats, on the host and on GPUs. They keep an f32
 * per element with what they did not send: it is added to the next step's; see
 * muster_ddp_state for checkpoints. NaN and Inf come out as NaN on all ranks and leave
 * nothing behind. All ranks give the same. With shard, BF16 and F16 are reduce-scattered;
 * the others leave the whole mean in the bucket, of which this rank uses its part.
 */
struct muster_hook {
    enum muster_compress compress;
    int rank; /* POWERSGD, default 4 */
    /* POWERSGD: the rows of each parameter's matrix (its count is a multiple), 0: a vector
     */
    const size_t *rows;
    /* USER: called in sync, bucket by bucket, in the same order on all ranks; it may call
     * collectives on m. It returns 0 or a muster_status, which sync then returns.
     */
    int (*reduce)(void *arg, struct muster *m, const struct muster_bucket *bucket);
    void *arg;
};

/* Bytes that this rank has given to collectives for gradients since create, without those
 * of a hook of your own. An all-reduce of S bytes over n ranks moves at least
 * 2 S (n - 1) / n in and out of each, a reduce-scatter (options.shard without a hook, or
 * with BF16 and F16) half of that.
 */
uint64_t muster_ddp_wire_bytes(const struct muster_ddp *ddp);

struct muster_item;

/* What INT8 and POWERSGD keep from step to step, as items for a checkpoint beside your own:
 * at most `room` of them into items (names and data belong to ddp). Returns how many there
 * are, the same on all ranks; 0 without such a hook. Each rank has its own, which takes a
 * sharded checkpoint. After muster_checkpoint_load a run in a world of the same size goes
 * on bit for bit as if it had not stopped; in another, or from a checkpoint that has none,
 * it starts without them, and a warning says so. They change from the first grad_ready of a
 * step to the end of its sync: with MUSTER_CHECKPOINT_LAZY call muster_checkpoint_copied
 * before.
 */
int muster_ddp_state(const struct muster_ddp *ddp, struct muster_item *items, int room);

/* ---- Samples -------------------------------------------------------------------- */

/* Deals the samples of a data set to ranks and steps. The order of an epoch depends on
 * seed and epoch alone; a step takes the next batch * size samples of it, rank r the
 * r-th run. So the same effective batch meets the same samples in any world, and a
 * position can be taken up again by another number of ranks.
 */
struct muster_sampler;

/* What happens to the last samples % (batch * size) of an epoch; all but KEEP give
 * every rank the same number of samples in every step.
 */
enum muster_tail {
    MUSTER_TAIL_PAD,  /* the last step is shorter; up to size-1 samples come twice */
    MUSTER_TAIL_DROP, /* the last step is shorter; up to size-1 samples are left out */
    MUSTER_TAIL_KEEP, /* each sample exactly once; ranks differ by one, some may get 0 */
};

/* samples and batch are required; they and the rest must be equal on all ranks. */
struct muster_sampler_options {
    uint64_t samples; /* in the data set */
    uint64_t batch;   /* of one rank in one step */
    uint64_t seed;
    enum muster_tail tail;
    int in_order;     /* do not shuffle */
};

/* Where an epoch stands, in samples of all ranks: save it, restore it in any world. */
struct muster_sampler_state {
    uint64_t samples, seed, epoch, position;
};

/* [collective] Refused (MUSTER_ECONTRACT) when the ranks' options differ. Starts at
 * epoch 0. Free it before m.
 */
int muster_sampler_create(struct muster *m, const struct muster_sampler_options *options,
                          struct muster_sampler **out);
void muster_sampler_destroy(struct muster_sampler *sampler);

/* Start an epoch from its beginning, in its own order. */
void muster_sampler_set_epoch(struct muster_sampler *sampler, uint64_t epoch);

/* The samples of this rank in the next step: indices (room for batch) and *count.
 * Returns 1; 0 at the end of the epoch, on all ranks at once.
 */
int muster_sampler_next(struct muster_sampler *sampler, uint64_t *indices,
                        uint64_t *count);

/* Steps from here to the end of the epoch. */
uint64_t muster_sampler_steps(const struct muster_sampler *sampler);

void muster_sampler_save(const struct muster_sampler *sampler,
                         struct muster_sampler_state *state);
/* Refused (MUSTER_ECONTRACT) for a state of another data set or seed. */
int muster_sampler_restore(struct muster_sampler *sampler,
                           const struct muster_sampler_state *state);

/* ---- Checkpoints ---------------------------------------------------------------- */

/* A folder of files NAME-STEP.muster. A file is written under another name, synced and
 * renamed, so it is whole or not there; each block carries a CRC32C. What one rank fails
 * to do is told to all of them: a call fails everywhere, or nowhere.
 */
struct muster_checkpoint;

enum muster_checkpoint_mode {
    MUSTER_CHECKPOINT_WAIT, /* save returns when the file is on disk */
    MUSTER_CHECKPOINT_COPY, /* save copies the items; the file is written meanwhile */
    MUSTER_CHECKPOINT_LAZY, /* they are copied meanwhile too: you must call
                               muster_checkpoint_copied before you change them */
};

struct muster_checkpoint_options {
    const char *name;  /* default "checkpoint" */
    const char *kind;  /* whose: program and model. A file of another kind is refused.
                          Below 128 bytes; default "" */
    int keep;          /* the newest that stay; default 3, -1: all */
    int sharded;       /* each rank writes its part into a file of its own, and rank 0 then
                          NAME-STEP.muster, without which they do not count. The folder
                          must be the same one for all ranks. Otherwise rank 0 alone
                          writes and reads */
    enum muster_checkpoint_mode mode;
};

/* Something to be saved, in host memory or on this rank's GPU: from there save copies it at
 * once, behind what the GPU has been given so far, whatever the mode. All ranks give the
 * same names, below 128 bytes, in the same order. total = 0: every rank has the same bytes
 * (weights; a sharded save lets each write a part of them). Otherwise this rank holds bytes
 * offset .. offset + bytes - 1 of an item of total bytes (sharded optimizer state), which
 * takes a sharded checkpoint; on load the division may be another.
 */
struct muster_item {
    const char *name;
    void *data;
    uint64_t bytes, offset, total;
};

/* [collective] The folder is made if it is missing. Files that an earlier run left half
 * written are removed, with a line in the log. Close before m.
 */
int muster_checkpoint_open(struct muster *m, const char *folder,
                           const struct muster_checkpoint_options *options,
                           struct muster_checkpoint **out);
/* [collective] Waits for the last save. NULL is fine. */
int muster_checkpoint_close(struct muster_checkpoint *checkpoint);

/* [collective] Save the items as of `step`; one of the same step is replaced. Waits for
 * the save before it, and reports its failure. items may go at once, data see mode. A
 * file that cannot be written leaves the world whole: go on, or muster_finalize before you
 * exit (who exits without counts as dead).
 */
int muster_checkpoint_save(struct muster_checkpoint *checkpoint, uint64_t step,
                           const struct muster_item *items, int nitems);
/* The items may change now: blocks until they have been copied. */
void muster_checkpoint_copied(struct muster_checkpoint *checkpoint);
/* [collective] Block until the last save is on disk, and older ones are removed. */
int muster_checkpoint_wait(struct muster_checkpoint *checkpoint);

/* [collective] Read the newest checkpoint that is whole and of our kind and items into
 * the items; each newer one that is not is named in the log. *found: 1, or 0 when there
 * is none at all. Fails if there are some, but none to use: MUSTER_ECONTRACT when the
 * newest is another program's or model's, else MUSTER_EIO. After a failure the items
 * hold anything.
 */
int muster_checkpoint_load(struct muster_checkpoint *checkpoint,
                           const struct muster_item *items, int nitems, uint64_t *step,
                           int *found);
/* The file last saved or loaded, "" before; borrowed until the next call. */
const char *muster_checkpoint_path(const struct muster_checkpoint *checkpoint);

#ifdef __cplusplus
}
#endif
#endif
