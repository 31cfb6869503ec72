/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp.h - the gradients of one model: parameters, buckets, the state of a step
 *
 *   ddp.c         create, destroy, broadcast
 *   ddp_plan.c    how large buckets are, and their places in the arena
 *   ddp_order.c   the order of arrival, learned in the first step
 *   ddp_ledger.c  when each bucket was ready, started, ended; times of the step
 *   ddp_ledger_gpu.c  the same of the GPU's own work
 *   ddp_step.c    grad_ready ... sync: which bucket may start, what a step is
 *   ddp_absent.c  absent-gradient agreement: which gradients no rank has
 *   ddp_bucket.c  one bucket: fill it, start its all-reduce, take the result out
 *   ddp_weight.c  weights of micro-batches, ranks that are out of data
 *   ddp_norm.c    the gradient norm, bucket by bucket
 *   ddp_rows.c    gradients of which a rank has some rows only
 *   ddp_rows_send.c  the ranks exchange them, and add them up
 *   ddp_finish.c  after a step: loss scale and clipping
 *   ddp_screen.c  NaN and Inf before they spread
 *   ddp_shard.c   ZeRO-1: parts of buckets, parameters in one arena
 *   ddp_state.c   what compression keeps, for checkpoints
 *   ddp_params.c  the list of parameters: check it, copy it, agree on it
 *   ddp_coll.c    the collectives that a bucket and its compression start
 *   hook.c        which compression
 *   hook_*.c      each compression
 *
 * The public calls are in api/ddp.c. Nothing here calls them: errors are a struct
 * mu_err, and go up at once.
 */
#ifndef MU_DDP_H
#define MU_DDP_H

#include "runtime/comm/comm.h"
#include "runtime/core/bucket.h"
#include "runtime/core/ledger.h"
#include "runtime/core/ready.h"
#include "runtime/core/rows.h"
#include "runtime/core/weight.h"
#include "runtime/muster.h"
#include "runtime/recover/recover.h"

/* "muster.ddp.0.12.left": the items of muster_ddp_state */
#define MU_DDP_KEPT_NAME 64

/* Rows of one parameter in the current step. */
struct mu_ddp_rows {
    struct mu_rows list; /* of this rank, of all micro-batches */
    bool given;          /* this rank has a list, maybe an empty one */
    bool complete;       /* with the rows of the last micro-batch */
    bool held;           /* the dense part is ready, its bucket waits for rows */
    /* Some rank has a list; what `from` has is added to the mean, times scale. */
    bool moves;
    struct mu_rows_message *from;
    int nfrom;
    double scale;
    struct mu_part *parts; /* of the exchange */
    char *sent, *received;
    size_t sent_room, received_room;
};

struct mu_ddp_param {
    char *name;
    int index; /* in the caller's list */
    bool frozen;
    size_t count;
    enum muster_dtype dtype;
    void *data;                 /* borrowed, may be NULL */
    void *user_grad;            /* the caller's buffer, NULL: the gradient is a view */
    void *grad;                 /* the gradient: user_grad or a view of its bucket */
    size_t rows;                /* of its matrix, for a hook */
    struct mu_ddp_rows *by_row; /* NULL: it is registered without rows */
    bool data_is_view;          /* into the arena of weights */
};

/* On a GPU, where its times are recorded: moments of the backend, NULL unknown. */
struct mu_ddp_moments {
    void *ready, *started, *ended;
};

struct mu_ddp_bucket {
    char *weights;              /* shard: its place in the arena of weights */
    char *mem;                  /* its place in the arena */
    int *param;                 /* its parameters, in the order of their offsets */
    struct mu_piece *piece;     /* room for one per parameter */
    struct mu_started *started; /* room for two more than parameters */
    int nstarted;
    void *stream; /* of its gradients, in this step */
    bool has_stream;
    bool hooked;         /* the compression handles it */
    bool has_user_grads; /* its gradients go back into buffers of the caller */
    char what[64];       /* "bucket 7 of step 1204" */
    struct mu_ledger_bucket times; /* of the current step, where they are recorded */
    struct mu_ddp_moments moments; /* of it too */
};

/* How buckets are cut; sizes in bytes. */
struct mu_ddp_rule {
    size_t first, cap;
    struct mu_curve curve; /* without points first and cap count */
    double backward_us;    /* 0: unknown */
};

struct muster_ddp {
    struct mu_comm *comm;
    struct mu_recover *recover;
    struct mu_resettable resettable; /* drops the current step */
    struct muster *m;                /* passed to a hook of the user */
    int grown;                       /* comm->grown at create; else it is of no use */
    const struct mu_err *last;       /* the error of the last failed call on m */
    /* Parameters with gradients in the caller's order, then the frozen ones. */
    struct mu_ddp_param *param;
    int nparams, nall; /* with gradients; all, with the frozen ones */
    int nby_row;       /* those registered with rows */
    int *at;           /* index in param, by the caller's index */
    struct mu_ddp_rule rule;
    struct mu_bucket_plan plan;
    struct mu_ready ready;
    /* Parameters in the order of arrival: of this step, then rank 0's. NULL when there
     * is nothing to adopt any more.
     */
    int *arrival;
    int narrived;
    /* comm->generation + 1 when it became rank 0's; 0: it has not. */
    int learned_in;
    int norder_rank0; /* how many of them arrived on rank 0; 0: no order to adopt */
    bool movable;     /* all ranks allow it: buckets may be cut anew */
    bool adopts;      /* at the end of this sync */
    struct mu_ddp_bucket *bucket;
    char *arena, *weights; /* gradients; shard: data in the same layout */
    size_t arena_bytes;
    uint64_t step;  /* syncs done */
    uint64_t id;    /* number of this ddp among those of m */
    uint64_t order; /* comm->order when the last bucket of the step started */
    uint64_t plan_hash;
    bool accumulating;
    bool *used;     /* by parameter: has a gradient in this or an earlier micro-batch */
    bool *declined; /* by parameter: declared absent by the caller */
    bool *absent;   /* by parameter: no rank has a gradient; not in the collective */
    bool *missing_everywhere; /* as agreed in the last sync, also with shard */
    bool squared;             /* the last sync added up squares behind each bucket */
    double *sums; /* MU_SQUARES partial sums in memory of the backend, or NULL */
    uint32_t *screen_marks; /* on a GPU, by bucket: see the backend's find_nonfinite */
    bool screen, shard, require_all;
    struct mu_weight weight;
    double factor; /* multiplies the gradients of this rank; 1: nothing to do */
    bool no_data;  /* all ranks gave weight 0 in this step */
    const struct mu_hook_ops *hook;
    void *hook_state;
    char (*kept_name)[MU_DDP_KEPT_NAME]; /* of muster_ddp_state's items */
    struct muster_hook hook_options;
    uint64_t wire_bytes;
    struct muster_ledger ledger;
    struct mu_ledger_step times; /* of the current step */
    /* On a GPU, where its times are recorded: sync of this step; earlier steps that the
     * GPU has not reached; when the last recorded one was joined.
     */
    void *sync_moment;
    struct mu_ddp_timed *timed;
    uint64_t joined_ns;
};

/* Bucket or parameter `part` in the current step. */
static inline struct mu_owner mu_ddp_owner(const struct muster_ddp *ddp, int part)
{
    return (struct mu_owner){ .object = (uint32_t)ddp->id + 1,
                              .part = (uint32_t)part,
                              .step = ddp->step };
}

/* Parameter i of the caller's list; NULL when i is out of range. */
static inline struct mu_ddp_param *mu_ddp_param(const struct muster_ddp *ddp, int i)
{
    return i >= 0 && i < ddp->nall ? &ddp->param[ddp->at[i]] : NULL;
}

/* What a program passes to mu_ddp_create; the lists are borrowed during the call. */
struct mu_ddp_request {
    const struct muster_param *params;
    int nparams;
    const struct muster_ddp_options *options;
};

/* ---- ddp.c ---- */
/* [collective] m and last are the fields of struct muster_ddp. */
int mu_ddp_create(struct mu_comm *comm, struct mu_recover *recover,
                  const struct mu_ddp_request *wanted, struct muster *m,
                  const struct mu_err *last, struct muster_ddp **out,
                  struct mu_err *err);
/* Joins what has begun. After a failure the joins return only if it was announced; comm
 * announces it.
 */
void mu_ddp_destroy(struct muster_ddp *ddp);
/* [collective] Rank root sends the data of all parameters. */
int mu_ddp_broadcast(struct muster_ddp *ddp, int root, struct mu_err *err);

/* Compression of buckets. start may start collectives, as soon as the gradients are
 * ready. advance, in sync, has the results of these and may start more. finish has the
 * results of those and leaves the mean in the bucket.
 *
 * Each is called in bucket order on all ranks, and advance for all buckets before the
 * first finish: so the second rounds of all buckets are in flight at once. None may
 * touch the bucket's memory of a gradient that is absent on all ranks.
 */
struct mu_hook_ops {
    const char *name;
    bool f32, floats; /* only f32; only f32, fp16 and bf16 */
    int (*open)(struct muster_ddp *ddp, void **state, struct mu_err *err);
    void (*close)(struct muster_ddp *ddp, void *state);
    int (*start)(struct muster_ddp *ddp, void *state, int b, struct mu_err *err);
    int (*advance)(struct muster_ddp *ddp, void *state, int b, struct mu_err *err);
    int (*finish)(struct muster_ddp *ddp, void *state, int b, void *stream,
                  struct mu_err *err);
    /* What it keeps of parameter i from step to step: at most 2 items, without names.
     * May be NULL.
     */
    int (*keeps)(const struct muster_ddp *ddp, void *state, int i,
                 struct muster_item *items);
    /* Gradients are `factor` times as large from now on: scale what the compression
     * keeps.
     */
    int (*rescale)(struct muster_ddp *ddp, void *state, double factor, void *stream,
                   struct mu_err *err);
};
extern const struct mu_hook_ops mu_hook_user, mu_hook_bf16, mu_hook_f16, mu_hook_int8,
    mu_hook_powersgd;
/* Choose by ddp->hook_options and open it. */
int mu_hook_choose(struct muster_ddp *ddp, struct mu_err *err);

/* ---- ddp_coll.c ---- */
/* Start coll as the next collective of bucket b, and name it after the bucket. `bytes`
 * of this rank enter it.
 */
int mu_ddp_coll_start(struct muster_ddp *ddp, int b, struct mu_coll *coll, size_t bytes,
                      struct mu_err *err);
/* For hooks: all-reduce f32 or 16-bit floats as the next collective that bucket b has
 * started. The sum is multiplied by scale.
 */
int mu_hook_reduce(struct muster_ddp *ddp, int b, enum muster_dtype dtype,
                   enum muster_op op, void *data, size_t count, double scale,
                   struct mu_err *err);
/* With shard: each rank gets the sum of its part of bucket b, in place. `data` has the
 * layout of the bucket.
 */
int mu_hook_scatter(struct muster_ddp *ddp, int b, enum muster_dtype dtype, char *data,
                    struct mu_err *err);
/* Returns 0 when gradients are in host memory. Else fails with MUSTER_EUSAGE: `what` is
 * not available on GPUs.
 */
int mu_ddp_need_host(const struct muster_ddp *ddp, const char *what,
                     struct mu_err *err);

/* ---- ddp_params.c ---- */
/* Copy the caller's list into ddp: param, at, nparams, nall. */
int mu_ddp_params_take(struct muster_ddp *ddp, const struct muster_param *params, int n,
                       struct mu_err *err);
void mu_ddp_params_clear(struct muster_ddp *ddp);
/* [collective] Fail when parameters or plan differ among the ranks. */
int mu_ddp_params_agree(struct muster_ddp *ddp,
                        const struct muster_ddp_options *options, struct mu_err *err);
/* ---- ddp_state.c ---- */
/* What muster_ddp_state does. */
int mu_ddp_state(const struct muster_ddp *ddp, struct muster_item *items, int room);
int mu_ddp_state_open(struct muster_ddp *ddp, struct mu_err *err);
/* An item of `count` floats that differ from rank to rank. */
struct muster_item mu_ddp_own_item(const struct muster_ddp *ddp, void *data,
                                   size_t count);

/* ---- ddp_plan.c ---- */
struct mu_ddp_rule mu_ddp_rule(const struct muster_ddp *ddp,
                               const struct muster_ddp_options *options);
/* order: the parameters as their gradients arrive; NULL: last to first. */
int mu_ddp_plan_make(const struct muster_ddp *ddp, const int *order,
                     struct mu_bucket_plan *out, struct mu_err *err);
/* Allocate the arena, place the buckets of ddp->plan in it, set the views. */
int mu_ddp_buckets_make(struct muster_ddp *ddp, struct mu_err *err);
/* Between two steps, without views: cut other buckets in the same arena. */
int mu_ddp_buckets_remake(struct muster_ddp *ddp, const int *order, void *stream,
                          struct mu_err *err);
void mu_ddp_buckets_free(struct mu_ddp_bucket *bucket, int n);

/* ---- ddp_screen.c ---- */
int mu_ddp_screen_open(struct muster_ddp *ddp, struct mu_err *err);
/* With ddp->screen: screen the gradients of this rank in bucket b, before it starts. */
int mu_ddp_screen(struct muster_ddp *ddp, int b, struct mu_err *err);
/* Screen this rank's list of rows of parameter i. */
int mu_ddp_screen_rows(struct muster_ddp *ddp, int i, struct mu_err *err);
/* On a GPU, with screen_marks: wait for stream, and fail when this step has NaN or Inf.
 */
int mu_ddp_screened(struct muster_ddp *ddp, void *stream, struct mu_err *err);

/* ---- ddp_order.c ---- */
int mu_ddp_order_begin(struct muster_ddp *ddp, struct mu_err *err);
/* Until this rank has received rank 0's order: gradient i is the next that arrives. */
void mu_ddp_order_arrived(struct muster_ddp *ddp, int i);
/* [collective] The end of a sync: one round over the control connections, if any. Until
 * the ranks have learned the order of arrival, it travels with the vote of an elastic
 * world.
 */
int mu_ddp_order_exchange(struct muster_ddp *ddp, void *stream, struct mu_err *err);
/* Between two steps, where ddp->adopts: use the order of rank 0 from now on. */
int mu_ddp_order_adopt(struct muster_ddp *ddp, void *stream, struct mu_err *err);

/* ---- ddp_shard.c ---- */
int mu_ddp_shard_open(struct muster_ddp *ddp, struct mu_err *err);
/* Elements of one rank's part of bucket b. */
size_t mu_ddp_part(const struct muster_ddp *ddp, int b);
/* Copy the data of the parameters into the arena, after a broadcast. */
int mu_ddp_shard_load(struct muster_ddp *ddp, struct mu_err *err);
/* This rank's part of bucket b. */
struct muster_shard mu_ddp_shard_part(const struct muster_ddp *ddp, int b);
/* [collective] Send all parts of the parameters to all ranks. */
int mu_ddp_shard_gather(struct muster_ddp *ddp, struct mu_err *err);

/* ---- ddp_bucket.c ---- */
/* Multiply the gradient of parameter i in place. */
int mu_ddp_scale(struct muster_ddp *ddp, int i, double factor, void *stream,
                 struct mu_err *err);

/* Start bucket b: the gradients of `used` parameters, and zeros for the others. Those
 * that are `absent` are left out of the collective, on all ranks alike.
 */
int mu_ddp_bucket_start(struct muster_ddp *ddp, int b, struct mu_err *err);
/* For hooks of two rounds: wait for the first round, start the second. */
int mu_ddp_bucket_advance(struct muster_ddp *ddp, int b, void *stream,
                          struct mu_err *err);
/* Wait for bucket b (on a GPU: make stream wait) and copy gradients into the buffers of
 * the caller.
 */
int mu_ddp_bucket_finish(struct muster_ddp *ddp, int b, void *stream,
                         struct mu_err *err);

/* ---- ddp_ledger.c ---- */
void mu_ddp_ledger_begin(struct muster_ddp *ddp);
/* This and _joined are called where comm's ledger has buckets. Streams: of the
 * gradient, and of sync.
 */
void mu_ddp_ledger_ready(struct muster_ddp *ddp, int b, void *stream);
void mu_ddp_ledger_launched(struct muster_ddp *ddp, int b);
void mu_ddp_ledger_sync(struct muster_ddp *ddp, void *stream);
/* Sync has waited since then for what bucket b has started. */
void mu_ddp_ledger_joined(struct muster_ddp *ddp, int b, int64_t since);
/* Record the step, which ends now, and its buckets; the next one begins. */
void mu_ddp_ledger_step(struct muster_ddp *ddp);

/* ---- ddp_ledger_gpu.c: for ddp_ledger.c; without moments nothing is done ---- */
void mu_ddp_gpu_ready(struct muster_ddp *ddp, int b, void *stream);
void mu_ddp_gpu_sync(struct muster_ddp *ddp, void *stream);
void mu_ddp_gpu_joined(struct muster_ddp *ddp, int b);
/* `step` has number, begin and communicator: record it when the GPU has reached it. */
void mu_ddp_gpu_step(struct muster_ddp *ddp, const struct mu_ledger_bucket *step);
/* Forget the current step, and those that are not recorded yet. */
void mu_ddp_gpu_drop(struct muster_ddp *ddp);

/* ---- ddp_norm.c ---- */
/* Start a sum of squares at zero. */
int mu_ddp_norm_begin(struct muster_ddp *ddp, void *stream, struct mu_err *err);
/* Add the squares of bucket b's gradients, or of this rank's part of it. */
int mu_ddp_norm_add(struct muster_ddp *ddp, int b, void *stream, struct mu_err *err);
/* [collective] The sum of the squares of all gradients, equal on all ranks. Waits for
 * stream.
 */
int mu_ddp_norm_sum(struct muster_ddp *ddp, void *stream, double *sum,
                    struct mu_err *err);

/* ---- ddp_absent.c ---- */
/* [collective] Fill missing_everywhere and absent for the current step. Compare with
 * the other ranks what is reduced, in which order, and contract. Blocks only when this
 * rank lacks a gradient, or comm->mixes.
 */
int mu_ddp_absent_agree(struct muster_ddp *ddp, uint64_t contract, struct mu_err *err);

/* ---- ddp_rows.c: called where ddp->nby_row > 0 ---- */
/* i is an index of ddp->param, except in mu_ddp_grad_rows. */
int mu_ddp_rows_open(struct muster_ddp *ddp, int i, size_t rows, struct mu_err *err);
void mu_ddp_rows_free(struct mu_ddp_rows *rows);
/* No rows any more: the step has ended, or is dropped. */
void mu_ddp_rows_reset(struct muster_ddp *ddp);
/* i is an index of the caller's list: checked, and not frozen. */
int mu_ddp_grad_rows(struct muster_ddp *ddp, int i, const int64_t *index, size_t n,
                     const void *values, struct mu_err *err);
/* The dense part of i is ready. Sets by_row->held where its bucket must wait for sync,
 * since rows may follow that are added to it.
 */
int mu_ddp_rows_hold(struct muster_ddp *ddp, int i, struct mu_err *err);
/* Has i a gradient, or a part of it, in the last micro-batch of this step? */
bool mu_ddp_begun(const struct muster_ddp *ddp, int i);
/* Multiply what has been added up. */
int mu_ddp_rows_scale(struct muster_ddp *ddp, int i, double factor, struct mu_err *err);
/* In sync, first: where rows are not sent, add them to the gradients of this rank. */
int mu_ddp_rows_spread(struct muster_ddp *ddp, struct mu_err *err);
/* Rows are added to the dense gradient, and never sent by themselves. */
bool mu_ddp_rows_dense(const struct muster_ddp *ddp);
/* Make a buffer at least this large. */
int mu_ddp_rows_room(char **buffer, size_t *room, size_t bytes, struct mu_err *err);
/* Pack the list, times factor, into rows->sent; *out is that message. */
int mu_ddp_rows_pack(struct mu_ddp_rows *rows, double factor,
                     struct mu_rows_message *out, struct mu_err *err);

/* ---- ddp_rows_send.c: called where ddp->nby_row > 0 ---- */
/* [collective] When all buckets have started: exchange the rows. Blocks until all ranks
 * have reached it.
 */
int mu_ddp_rows_start(struct muster_ddp *ddp, struct mu_err *err);
/* When all that bucket b has started is joined: add the rows to its mean. */
int mu_ddp_rows_finish(struct muster_ddp *ddp, int b, struct mu_err *err);

/* ---- ddp_step.c ---- */
/* i is an index of the caller's list: checked, and not frozen. */
int mu_ddp_grad_ready(struct muster_ddp *ddp, int i, void *stream, struct mu_err *err);
int mu_ddp_grad_absent(struct muster_ddp *ddp, int i, struct mu_err *err);
/* on: gradients are accumulated and not averaged; off: the next micro-batch is the
 * last.
 */
int mu_ddp_no_sync(struct muster_ddp *ddp, bool on, struct mu_err *err);

/* [collective] Average all gradients, then do what f asks for. f is checked, or NULL:
 * nothing.
 */
int mu_ddp_sync(struct muster_ddp *ddp, struct muster_finish *f, void *stream,
                struct mu_err *err);
/* Drop the work of the current step: none of it is in flight any more, and the next
 * call may be the first of a step. arg is the muster_ddp.
 */
void mu_ddp_drop(void *arg);

/* ---- ddp_finish.c ---- */
/* Check the fields of f. Fails with MUSTER_EUSAGE. */
int mu_ddp_finish_check(const struct muster_finish *f, const char *call,
                        struct mu_err *err);
/* What the ranks compare of f: those that scale or clip otherwise get other gradients.
 */
uint64_t mu_ddp_finish_hash(const struct muster_finish *f);
/* [collective] After a step with squares: do what f asks for. */
int mu_ddp_finish(struct muster_ddp *ddp, struct muster_finish *f, void *stream,
                  struct mu_err *err);

/* ---- ddp_weight.c ---- */
/* [collective unless gradients are accumulated] */
int mu_ddp_weigh(struct muster_ddp *ddp, double weight, struct mu_err *err);
/* [collective] What muster_ddp_join_with does; *rc is what `after` returned last. */
int mu_ddp_join(struct muster_ddp *ddp, struct muster_finish *finish,
                int (*after)(void *arg), void *arg, int *rc, struct mu_err *err);

#endif
