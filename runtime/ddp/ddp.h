/* SPDX-License-Identifier: BSD-3-Clause */
/* ddp.h - the gradients of one model: parameters, buckets, the state of a step
 *
 *   ddp.c         create, destroy, broadcast
 *   ddp_plan.c    how large buckets are, and where they lie
 *   ddp_order.c   the order of arrival, learned in the first step
 *   ddp_step.c    grad_ready ... the end of a step: which bucket may start
 *   ddp_absent.c  which gradients no rank has
 *   ddp_bucket.c  one bucket: fill it, start its all-reduce, take the result out
 *   ddp_weight.c  weights of micro-batches, ranks that are out of data
 *   ddp_norm.c    the gradient norm, bucket by bucket
 *   ddp_finish.c  sync: a step, then loss scale and clipping
 *   ddp_screen.c  NaN and Inf before they spread
 *   ddp_shard.c   ZeRO-1: parts of buckets, parameters in one arena
 *   ddp_state.c   what compression keeps, for checkpoints
 *   ddp_params.c  the list of parameters: check it, copy it, agree on it
 *   hook.c        which compression
 *   hook_*.c      the collectives of all, and each compression
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
#include "runtime/core/weight.h"
#include "runtime/muster.h"
#include "runtime/recover/recover.h"

/* "muster.ddp.0.12.left": the items of muster_ddp_state */
#define MU_DDP_KEPT_NAME 64

struct mu_ddp_param {
    char *name;
    int index; /* in the caller's list */
    bool frozen;
    size_t count;
    enum muster_dtype dtype;
    void *data; /* borrowed, may be NULL */
    void *own;  /* the caller's gradient buffer, NULL: the gradient is a view */
    void *grad; /* where the gradient lives */
    size_t rows;
    bool data_is_view; /* into the arena of weights */
};

struct mu_ddp_bucket {
    char *weights;              /* shard: its part of the arena of weights */
    char *mem;                  /* its part of the arena */
    int *param;                 /* its parameters, by offset */
    struct mu_piece *piece;     /* room for one per parameter */
    struct mu_started *started; /* room for one more than parameters */
    int nstarted;
    void *stream; /* of its gradients in this step */
    bool has_stream;
    bool hooked;   /* the compression takes it */
    bool owned;    /* gradients of it go back into buffers of the caller */
    char what[64]; /* "bucket 7 of step 1204" */
};

/* How buckets are cut; sizes in bytes. */
struct mu_ddp_rule {
    size_t first, cap;
    struct mu_curve curve; /* no points: by first and cap */
    double backward_us;    /* 0: unknown */
};

struct muster_ddp {
    struct mu_comm *comm;
    struct mu_recover *recover;
    struct mu_resettable resettable; /* drops the step at hand */
    struct muster *m;                /* for a hook of the user's, which takes it */
    const struct mu_err *last;       /* of m: what its last failed call left */
    /* Those that have gradients in the caller's order, then the frozen ones. */
    struct mu_ddp_param *param;
    int nparams, nall; /* with gradients; with the frozen ones */
    int *at;           /* by the caller's index: in param */
    struct mu_ddp_rule rule;
    struct mu_bucket_plan plan;
    struct mu_ready ready;
    int *arrival; /* the gradients of the first synced step as they come, then NULL */
    int narrived;
    int norder_rank0; /* how many of them rank 0 had; 0: there is no order to adopt */
    bool movable;     /* on all ranks: buckets may be cut anew */
    struct mu_ddp_bucket *bucket;
    char *arena, *weights; /* gradients; shard: data in the same layout */
    size_t arena_bytes;
    uint64_t step;  /* syncs done */
    uint64_t id;    /* of this ddp among those of m */
    uint64_t began; /* comm->ordered when the first bucket of the step had started */
    uint64_t order; /* comm->order when the last one had */
    uint64_t plan_hash;
    bool accumulating;
    bool *used;     /* by parameter: has a gradient in this or an earlier micro-batch */
    bool *declined; /* by parameter: the caller said that there is none */
    bool *absent;   /* by parameter: no rank has a gradient in this step */
    bool *nobody;   /* the same of the last sync, and with shard */
    bool squared;   /* the last sync had its squares to add up behind each bucket */
    double *sums;   /* MU_SQUARES partial sums, memory of the backend; or NULL */
    uint32_t *found; /* screening on a GPU, by bucket: see the backend's look */
    bool screen, shard;
    struct mu_weight weight;
    double factor; /* this rank's gradients are multiplied by it; 1: not */
    const struct mu_hook_ops *hook;
    void *hook_state;
    char (*kept_name)[MU_DDP_KEPT_NAME]; /* of muster_ddp_state's items */
    struct muster_hook hook_options;
    uint64_t wire_bytes;
    struct muster_ledger ledger;
    struct mu_ledger_step times; /* of the step at hand */
};

/* Bucket, or parameter, `part` in the step at hand. */
static inline struct mu_owner mu_ddp_owner(const struct muster_ddp *ddp, int part)
{
    return (struct mu_owner){ .object = (uint32_t)ddp->id + 1,
                              .part = (uint32_t)part,
                              .step = ddp->step };
}

/* What a program gives to mu_ddp_create; the lists are borrowed during the call. */
struct mu_ddp_wish {
    const struct muster_param *params;
    int nparams;
    const struct muster_ddp_options *options;
};

/* ---- ddp.c ---- */
/* [collective] m and last as in struct muster_ddp. */
int mu_ddp_create(struct mu_comm *comm, struct mu_recover *recover,
                  const struct mu_ddp_wish *wish, struct muster *m,
                  const struct mu_err *last, struct muster_ddp **out,
                  struct mu_err *err);
/* Joins what has begun: after a failure only when that was announced, which comm does.
 */
void mu_ddp_destroy(struct muster_ddp *ddp);
/* [collective] The data of all parameters from rank root. */
int mu_ddp_broadcast(struct muster_ddp *ddp, int root, struct mu_err *err);

/* Compression of buckets. start may start collectives, as soon as the gradients are
 * there; advance, in sync, has their results and may start more; finish has the results
 * of those and leaves the mean in the bucket. Each is called in bucket order on all
 * ranks, advance for all buckets before the first finish, so that a second round is
 * under way for every bucket at once. None may touch the bucket's memory of a gradient
 * that is absent on all ranks.
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
    /* What it keeps of parameter i from step to step, at most 2 items without names;
     * may be NULL.
     */
    int (*keeps)(const struct muster_ddp *ddp, void *state, int i,
                 struct muster_item *items);
    /* Gradients are from now on `factor` times as large: so is what they left. */
    int (*rescale)(struct muster_ddp *ddp, void *state, double factor, void *stream,
                   struct mu_err *err);
};
extern const struct mu_hook_ops mu_hook_user, mu_hook_bf16, mu_hook_f16, mu_hook_int8,
    mu_hook_powersgd;
/* Choose by ddp->hook_options; opens it. */
int mu_hook_choose(struct muster_ddp *ddp, struct mu_err *err);

/* ---- hook_coll.c ---- */
/* For hooks: all-reduce f32 or 16-bit floats in bucket b's name, as the next of its
 * started collectives; the sum is multiplied by scale.
 */
int mu_hook_reduce(struct muster_ddp *ddp, int b, enum muster_dtype dtype,
                   enum muster_op op, void *data, size_t count, double scale,
                   struct mu_err *err);
/* With shard: every rank gets the sum of its part of bucket b, whose elements lie in
 * `data` as they do in the bucket, in place.
 */
int mu_hook_scatter(struct muster_ddp *ddp, int b, enum muster_dtype dtype, char *data,
                    struct mu_err *err);
/* Is the gradient in memory that the CPU may read? Else MUSTER_EUSAGE: `what` is not
 * there on GPUs.
 */
int mu_ddp_need_host(const struct muster_ddp *ddp, const char *what,
                     struct mu_err *err);

/* ---- ddp_params.c ---- */
/* Copy the caller's list into ddp: param, at, nparams, nall. */
int mu_ddp_params_take(struct muster_ddp *ddp, const struct muster_param *params, int n,
                       struct mu_err *err);
void mu_ddp_params_clear(struct muster_ddp *ddp);
/* [collective] Same parameters, same plan on all ranks. */
int mu_ddp_params_agree(struct muster_ddp *ddp,
                        const struct muster_ddp_options *options, struct mu_err *err);
/* The parameter of the caller's index, NULL: out of range. */
struct mu_ddp_param *mu_ddp_param(const struct muster_ddp *ddp, int i);

/* ---- ddp_state.c ---- */
/* muster_ddp_state */
int mu_ddp_state(const struct muster_ddp *ddp, struct muster_item *items, int room);
int mu_ddp_state_open(struct muster_ddp *ddp, struct mu_err *err);
/* count floats that each rank has of its own. */
struct muster_item mu_ddp_own_item(const struct muster_ddp *ddp, void *data,
                                   size_t count);

/* ---- ddp_plan.c ---- */
struct mu_ddp_rule mu_ddp_rule(const struct muster_ddp *ddp,
                               const struct muster_ddp_options *options);
/* order: the parameters as their gradients arrive, NULL: last to first. */
int mu_ddp_plan_make(const struct muster_ddp *ddp, const int *order,
                     struct mu_bucket_plan *out, struct mu_err *err);
/* The arena, the buckets of ddp->plan in it, and the views. */
int mu_ddp_buckets_make(struct muster_ddp *ddp, struct mu_err *err);
/* Between two steps, without views: other buckets in the same arena. */
int mu_ddp_buckets_remake(struct muster_ddp *ddp, const int *order, void *stream,
                          struct mu_err *err);
void mu_ddp_buckets_free(struct mu_ddp_bucket *bucket, int n);

/* ---- ddp_screen.c ---- */
int mu_ddp_screen_open(struct muster_ddp *ddp, struct mu_err *err);
/* Look at this rank's gradients of bucket b, before it starts. */
int mu_ddp_screen(struct muster_ddp *ddp, int b, struct mu_err *err);
/* GPU: wait for stream, and fail where something was found in this step. */
int mu_ddp_screened(struct muster_ddp *ddp, void *stream, struct mu_err *err);

/* ---- ddp_order.c ---- */
int mu_ddp_order_begin(struct muster_ddp *ddp, struct mu_err *err);
/* [collective] At the end of the first synced step, before any rank counts it as done;
 * later nothing.
 */
int mu_ddp_order_exchange(struct muster_ddp *ddp, struct mu_err *err);
/* Between two steps: the order of rank 0 holds from now on. */
int mu_ddp_order_adopt(struct muster_ddp *ddp, void *stream, struct mu_err *err);

/* ---- ddp_shard.c ---- */
int mu_ddp_shard_open(struct muster_ddp *ddp, struct mu_err *err);
/* Elements of one rank's part of bucket b. */
size_t mu_ddp_part(const struct muster_ddp *ddp, int b);
/* The parameters' own data into the arena, after a broadcast. */
int mu_ddp_shard_load(struct muster_ddp *ddp, struct mu_err *err);
/* This rank's part of bucket b. */
struct muster_shard mu_ddp_shard_part(const struct muster_ddp *ddp, int b);
/* [collective] All parts of the parameters to all ranks. */
int mu_ddp_shard_gather(struct muster_ddp *ddp, struct mu_err *err);

/* ---- ddp_bucket.c ---- */
/* Multiply the gradient of parameter i where it lives. */
int mu_ddp_scale(struct muster_ddp *ddp, int i, double factor, void *stream,
                 struct mu_err *err);

/* Start bucket b: the gradients of `used` parameters and zeros for the others; those
 * that are `absent` everywhere are left out of the collective, which all ranks do
 * alike.
 */
int mu_ddp_bucket_start(struct muster_ddp *ddp, int b, struct mu_err *err);
/* Hooks of two rounds: wait for the first, start the second. */
int mu_ddp_bucket_advance(struct muster_ddp *ddp, int b, void *stream,
                          struct mu_err *err);
/* Wait for it (GPU: make stream wait) and put gradients into the callers' own buffers.
 */
int mu_ddp_bucket_finish(struct muster_ddp *ddp, int b, void *stream,
                         struct mu_err *err);

/* ---- ddp_norm.c ---- */
/* Nothing is added up yet. */
int mu_ddp_norm_begin(struct muster_ddp *ddp, void *stream, struct mu_err *err);
/* Add the squares of bucket b's gradients, or of this rank's part of it. */
int mu_ddp_norm_add(struct muster_ddp *ddp, int b, void *stream, struct mu_err *err);
/* [collective] The sum of the squares of all gradients, the same on all ranks. Waits
 * for stream.
 */
int mu_ddp_norm_sum(struct muster_ddp *ddp, void *stream, double *sum,
                    struct mu_err *err);

/* ---- ddp_absent.c ---- */
/* [collective] Fill `nobody` and `absent` of the step at hand; compare with the other
 * ranks what is reduced, in which order, and contract. Blocks only where this rank
 * lacks a gradient or may have met another collective.
 */
int mu_ddp_absent_agree(struct muster_ddp *ddp, uint64_t contract, struct mu_err *err);

/* ---- ddp_step.c ---- */
/* i is the caller's index, checked and not frozen. */
int mu_ddp_grad_ready(struct muster_ddp *ddp, int i, void *stream, struct mu_err *err);
int mu_ddp_grad_absent(struct muster_ddp *ddp, int i, struct mu_err *err);
/* Gradients are accumulated and not averaged, or the next micro-batch is the last. */
int mu_ddp_no_sync(struct muster_ddp *ddp, bool on, struct mu_err *err);

struct mu_step_how {
    bool squares; /* add them up behind each bucket: mu_ddp_norm_begin came before */
    uint64_t
        contract; /* what is done to the gradients then; compared among the ranks */
};
/* [collective] All gradients are averaged, and buckets are where they were. */
int mu_ddp_step(struct muster_ddp *ddp, const struct mu_step_how *how, void *stream,
                struct mu_err *err);
/* Give up what the step at hand has begun: nothing of it is under way any more, and the
 * next call may be the first of a step. arg is the muster_ddp.
 */
void mu_ddp_drop(void *arg);

/* ---- ddp_finish.c ---- */
/* Are they of use? -1 with MUSTER_EUSAGE. */
int mu_ddp_finish_check(const struct muster_finish *f, const char *call,
                        struct mu_err *err);
/* [collective] A step, then what f asks for; f checked, NULL: nothing. */
int mu_ddp_sync(struct muster_ddp *ddp, struct muster_finish *f, void *stream,
                struct mu_err *err);

/* ---- ddp_weight.c ---- */
/* [collective unless gradients are accumulated] */
int mu_ddp_weigh(struct muster_ddp *ddp, double weight, struct mu_err *err);
/* [collective] muster_ddp_join_with; *rc is what `after` returned last. */
int mu_ddp_join(struct muster_ddp *ddp, struct muster_finish *finish,
                int (*after)(void *arg), void *arg, int *rc, struct mu_err *err);

#endif
